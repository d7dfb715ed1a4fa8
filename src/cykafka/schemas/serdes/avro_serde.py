"""Serializers and deserializers for Avro. fastavro does the work."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, ClassVar, Self

from cykafka._steps import Steps
from cykafka.schemas.model.avro_schema import MOST_LEVELS, AvroSchema
from cykafka.schemas.model.document import UnfitError, is_shallow
from cykafka.schemas.model.framing import SchemaId
from cykafka.schemas.model.schema import Schema
from cykafka.schemas.serdes.builders import (
    AwaitedBuilder,
    BlockingBuilder,
    DeserializerValues,
    FromDictValue,
    SchemaValue,
    SerializerValues,
    ToDictValue,
)
from cykafka.schemas.serdes.serde import (
    DESERIALIZER_OPTIONS,
    SERIALIZER_OPTIONS,
    AsyncBaseDeserializer,
    AsyncBaseSerializer,
    BaseDeserializer,
    BaseSerializer,
    DeserializerRules,
    Options,
    Read,
    SerializerRules,
    Write,
    schema_of,
)
from cykafka.serialization import DeserializerBuilder, SerializerBuilder

try:
    import fastavro
except ImportError as error:
    raise ImportError(f"{error}: pip install 'cykafka[schemas]'") from error

__all__ = [
    "AsyncAvroDeserializer",
    "AsyncAvroDeserializerBuilder",
    "AsyncAvroSerializer",
    "AsyncAvroSerializerBuilder",
    "AvroDeserializer",
    "AvroDeserializerBuilder",
    "AvroSerializer",
    "AvroSerializerBuilder",
]


def _avro_schema(schema: Any) -> Any:
    """Return a Schema for a text; the registry wants the name of a primitive type in an object."""
    if isinstance(schema, str):
        schema = schema.strip()
        return Schema(schema if schema[:1] in ("{", "[") else f'{{"type":{schema}}}', "AVRO")
    return schema_of(schema, "AVRO")


def _writer(parsed: AvroSchema, *, is_strict: bool, allows_default: bool) -> Write:
    if parsed.is_bytes:  # such a value has no length
        return _to_bytes
    schema, is_recursive = parsed.schema, parsed.is_recursive

    def write(value: Any) -> bytes:
        stream = BytesIO()
        if is_recursive and not is_shallow(value, MOST_LEVELS):
            raise ValueError(f"it has more than {MOST_LEVELS} levels")
        fastavro.schemaless_writer(
            stream, schema, value, strict=is_strict, strict_allow_default=allows_default
        )
        return stream.getvalue()

    return write


def _to_bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value.encode()


class _Writes(SerializerRules):
    _schema_type = "AVRO"
    _parser = AvroSchema
    _options: ClassVar[Options] = {
        **SERIALIZER_OPTIONS,
        "validate.strict": ("bool", False),
        "validate.strict.allow.default": ("bool", False),
    }

    def __init__(
        self,
        schema_registry_client: Any,
        schema_str: Any = None,
        to_dict: Callable[..., Any] | None = None,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        super().__init__(_avro_schema(schema_str), schema_registry_client, to_dict, conf)

    def _read_schema(self) -> Steps[None]:
        parsed = yield from self._parse(self._schema)
        self._name = parsed.name

    def _compile(self, schema: Any, subject: str) -> Steps[tuple[Write, None]]:
        parsed = yield from self._parse(schema, subject)
        write = _writer(
            parsed,
            is_strict=self._conf["validate.strict"],
            allows_default=self._conf["validate.strict.allow.default"],
        )
        return write, None


class AvroSerializer(_Writes, BaseSerializer):
    """Serializes dicts and other objects as Avro, in the registry's wire format.

    The names, arguments, keys and defaults are those of
    ``confluent_kafka.schema_registry.avro.AvroSerializer``.

    Parameters
    ----------
    schema_registry_client : SchemaRegistryClient
    schema_str : str or Schema, optional
        The schema. Only a Schema can refer to other schemas. Needed unless
        ``use.latest.version``, ``use.latest.with.metadata`` or ``use.schema.id`` is set.
    to_dict : callable, optional
        ``to_dict(object, SerializationContext)`` returns what is serialized.
    conf : dict, optional
        ``auto.register.schemas`` (True), ``normalize.schemas`` (False), ``use.schema.id`` (None),
        ``use.latest.version`` (False), ``use.latest.with.metadata`` (None),
        ``subject.name.strategy`` (None), ``subject.name.strategy.type`` (``ASSOCIATED``),
        ``subject.name.strategy.conf`` (None), ``schema.id.serializer``
        (prefix_schema_id_serializer), ``validate.strict`` (False) and
        ``validate.strict.allow.default`` (False).
    rule_conf, rule_registry : object, optional
        Not used: a schema with rules raises SerializationError.

    Raises
    ------
    ValueError
        The schema or a key of `conf` is not valid.
    """


class AsyncAvroSerializer(_Writes, AsyncBaseSerializer):
    """:class:`AvroSerializer` for asyncio: ``await AsyncAvroSerializer(client, schema)``.

    A call awaits the registry only for an unknown schema. The client is an
    AsyncSchemaRegistryClient.
    """


class _Reads(DeserializerRules):
    _schema_type = "AVRO"
    _parser = AvroSchema
    _options = DESERIALIZER_OPTIONS

    def __init__(
        self,
        schema_registry_client: Any,
        schema_str: Any = None,
        from_dict: Callable[..., Any] | None = None,
        return_record_name: bool = False,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        if not isinstance(return_record_name, bool):
            raise ValueError("return_record_name must be a boolean value")
        self._names = return_record_name
        self._own: AvroSchema | None = None
        super().__init__(_avro_schema(schema_str), schema_registry_client, from_dict, conf)

    def _read_schema(self) -> Steps[None]:
        self._own = yield from self._parse(self._schema)

    def _compile(
        self, writer: Any, reader: Any, schema_id: SchemaId, subject: str | None
    ) -> Steps[Read]:
        if writer is None:
            raise UnfitError("AvroDeserializer needs a registry's client")
        written: AvroSchema = yield from self._parse(writer, subject)
        wanted = self._own
        if reader is not None:
            wanted = yield from self._parse(reader, subject)
        if wanted is not None and wanted.texts == written.texts:
            wanted = None
        if written.is_bytes:
            return lambda data, start: data[start:]
        return written.value_reader(wanted, has_record_names=self._names)

    def _name_of(self, writer: Any, schema_id: SchemaId) -> str | None:
        raw = json.loads(writer.schema_str)
        if not isinstance(raw, dict):
            return None
        name, space = raw.get("name"), raw.get("namespace")
        return f"{space}.{name}" if name and space and "." not in name else name or None


class AvroDeserializer(_Reads, BaseDeserializer):
    """Deserializes Avro values in the registry's wire format.

    The names, arguments, keys and defaults are those of
    ``confluent_kafka.schema_registry.avro.AvroDeserializer``. Bytes after the value are an error,
    and so is a decimal of more than 1,000 bytes. Decimals are not rounded to the precision.

    Parameters
    ----------
    schema_registry_client : SchemaRegistryClient
    schema_str : str or Schema, optional
        The reader's schema; by default each value's own. Avro's rules of resolution apply.
    from_dict : callable, optional
        ``from_dict(value, SerializationContext)`` returns the result.
    return_record_name : bool, default False
        Return records of unions as tuples of their name and the record.
    conf : dict, optional
        ``use.latest.version`` (False), ``use.latest.with.metadata`` (None),
        ``subject.name.strategy`` (None), ``subject.name.strategy.type`` (``ASSOCIATED``),
        ``subject.name.strategy.conf`` (None) and ``schema.id.deserializer``
        (dual_schema_id_deserializer).
    rule_conf, rule_registry : object, optional
        Not used: a schema with rules raises SerializationError.

    Raises
    ------
    ValueError
        The schema or a key of `conf` is not valid.
    """


class AsyncAvroDeserializer(_Reads, AsyncBaseDeserializer):
    """:class:`AvroDeserializer` for asyncio: ``await AsyncAvroDeserializer(client)``.

    A call awaits the registry only for an unknown schema. The client is an
    AsyncSchemaRegistryClient.
    """


# Secrets would be in its repr.
@dataclass(eq=False, repr=False)
class _SerializerBuilder(SchemaValue, ToDictValue, SerializerValues):
    schema_registry_config: Mapping[str, Any] | None = None
    schema_registry_client: Any = None
    schema: Any = None
    to_dict: Callable[..., Any] | None = None
    serializer_config: Mapping[str, Any] | None = None
    rule_config: Mapping[str, Any] | None = None
    rule_registry: Any = None
    serializer_init: Callable[[Any], Any] | None = None

    _serde: ClassVar[type]

    def _make(self, client: Any) -> Any:
        more = self.serializer_config, self.rule_config, self.rule_registry
        return self._serde(client, self.schema, self.to_dict, *more)


class AvroSerializerBuilder(_SerializerBuilder, BlockingBuilder, SerializerBuilder):
    """Builds an :class:`AvroSerializer`, for ``value.serializer.builder``."""

    _serde = AvroSerializer


class AsyncAvroSerializerBuilder(_SerializerBuilder, AwaitedBuilder):
    """Builds an :class:`AsyncAvroSerializer`, for ``value.serializer.builder``."""

    _serde = AsyncAvroSerializer


# Secrets would be in its repr.
@dataclass(eq=False, repr=False)
class _DeserializerBuilder(SchemaValue, FromDictValue, DeserializerValues):
    schema_registry_config: Mapping[str, Any] | None = None
    schema_registry_client: Any = None
    schema: Any = None
    from_dict: Callable[..., Any] | None = None
    return_record_name: bool = False
    deserializer_config: Mapping[str, Any] | None = None
    rule_config: Mapping[str, Any] | None = None
    rule_registry: Any = None
    deserializer_init: Callable[[Any], Any] | None = None

    _serde: ClassVar[type]

    def _make(self, client: Any) -> Any:
        more = self.deserializer_config, self.rule_config, self.rule_registry
        names = self.return_record_name
        return self._serde(client, self.schema, self.from_dict, names, *more)

    def set_return_record_name(self, return_record_name: bool) -> Self:
        """Set whether records of unions come with their names."""
        self.return_record_name = return_record_name
        return self


class AvroDeserializerBuilder(_DeserializerBuilder, BlockingBuilder, DeserializerBuilder):
    """Builds an :class:`AvroDeserializer`, for ``value.deserializer.builder``."""

    _serde = AvroDeserializer


class AsyncAvroDeserializerBuilder(_DeserializerBuilder, AwaitedBuilder):
    """Builds an :class:`AsyncAvroDeserializer`, for ``value.deserializer.builder``."""

    _serde = AsyncAvroDeserializer
