"""Serializers and deserializers for JSON Schema. jsonschema-rs checks the values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from cykafka._steps import Steps
from cykafka.schemas.model.document import UnfitError
from cykafka.schemas.model.framing import SchemaId
from cykafka.schemas.model.json_validation import fault_of, loads, title_of, validator_for
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

__all__ = [
    "AsyncJSONDeserializer",
    "AsyncJSONDeserializerBuilder",
    "AsyncJSONSerializer",
    "AsyncJSONSerializerBuilder",
    "JSONDeserializer",
    "JSONDeserializerBuilder",
    "JSONSerializer",
    "JSONSerializerBuilder",
]

_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _dumps(value: Any) -> bytes:
    return _encoder.encode(value).encode()


def _check(validator: Any, value: Any) -> None:
    fault = fault_of(validator, value)
    if fault is not None:
        raise ValueError(fault)


class _Writes(SerializerRules):
    _schema_type = "JSON"
    _parser = staticmethod(validator_for)
    _options: ClassVar[Options] = {
        **SERIALIZER_OPTIONS,
        "validate": ("bool", True),
    }

    def __init__(
        self,
        schema_str: Any,
        schema_registry_client: Any,
        to_dict: Callable[..., Any] | None = None,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: Any = None,
        json_encode: Callable[[Any], str | bytes] | None = None,
    ) -> None:
        self._json_encode = json_encode
        super().__init__(schema_of(schema_str, "JSON"), schema_registry_client, to_dict, conf)

    def _read_schema(self) -> Steps[None]:
        yield from ()
        try:
            self._name = title_of(self._schema.schema_str)
        except (ValueError, RecursionError) as error:
            raise UnfitError(f"the schema is not JSON: {error}") from error

    def _compile(self, schema: Any, subject: str) -> Steps[tuple[Write, None]]:
        encode: Callable[[Any], Any] = self._json_encode or _dumps
        validator = None
        if self._conf["validate"]:
            validator = yield from self._parse(schema, subject)

        def write(value: Any) -> bytes:
            data = encode(value)
            data = data.encode() if isinstance(data, str) else data
            if validator is not None and not _is_valid(validator, value):
                _check(validator, loads(data))
            return data

        return write, None


def _is_valid(validator: Any, value: Any) -> bool:
    """Return whether a value fits; False if its JSON must be checked instead."""
    try:
        found: bool = validator.is_valid(value)
        return found
    except ValueError:  # only a json_encode knows its type
        return False


class JSONSerializer(_Writes, BaseSerializer):
    """Serializes dicts and other objects as JSON, in the registry's wire format.

    The names, arguments, keys and defaults are those of
    ``confluent_kafka.schema_registry.json_schema.JSONSerializer``.

    Parameters
    ----------
    schema_str : str or Schema or None
        The schema. Only a Schema can refer to other schemas.
    schema_registry_client : SchemaRegistryClient
    to_dict : callable, optional
        ``to_dict(object, SerializationContext)`` returns what is serialized.
    conf : dict, optional
        As for :class:`AvroSerializer`, without ``validate.strict`` and
        ``validate.strict.allow.default``; and ``validate`` (True): check values with the schema.
    rule_conf, rule_registry : object, optional
        Not used: a schema with rules raises SerializationError.
    json_encode : callable, optional
        Returns a value as JSON, str or bytes. By default Python's `json`, without spaces.

    Raises
    ------
    ValueError
        The schema or a key of `conf` is not valid.
    """


class AsyncJSONSerializer(_Writes, AsyncBaseSerializer):
    """:class:`JSONSerializer` for asyncio: ``await AsyncJSONSerializer(schema, client)``.

    A call awaits the registry only for an unknown schema. The client is an
    AsyncSchemaRegistryClient.
    """


class _Reads(DeserializerRules):
    _schema_type = "JSON"
    _parser = staticmethod(validator_for)
    _options: ClassVar[Options] = {
        **DESERIALIZER_OPTIONS,
        "validate": ("bool", True),
    }

    def __init__(
        self,
        schema_str: Any,
        from_dict: Callable[..., Any] | None = None,
        schema_registry_client: Any = None,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: Any = None,
        json_decode: Callable[[bytes], Any] | None = None,
    ) -> None:
        schema = schema_of(schema_str, "JSON")
        if schema_registry_client is None and (schema is None or schema.references):
            raise ValueError(
                "schema_registry_client is needed without a schema, or for its references"
            )
        self._json_decode = json_decode
        self._own: Any = None
        super().__init__(schema, schema_registry_client, from_dict, conf)

    def _read_schema(self) -> Steps[None]:
        if self._conf["validate"]:
            self._own = yield from self._parse(self._schema)

    def _compile(
        self, writer: Any, reader: Any, schema_id: SchemaId, subject: str | None
    ) -> Steps[Read]:
        decode = self._json_decode or loads
        if not self._conf["validate"]:
            return lambda data, start: decode(data[start:])
        validator = self._own
        if validator is None or reader is not None:
            validator = yield from self._parse(reader or writer, subject)

        def read(data: bytes, start: int) -> Any:
            value = decode(data[start:])
            _check(validator, value)
            return value

        return read

    def _name_of(self, writer: Any, schema_id: SchemaId) -> str | None:
        return title_of(writer.schema_str)


class JSONDeserializer(_Reads, BaseDeserializer):
    """Deserializes JSON values in the registry's wire format, and checks them.

    The names, arguments, keys and defaults are those of
    ``confluent_kafka.schema_registry.json_schema.JSONDeserializer``.

    Parameters
    ----------
    schema_str : str or Schema or None
        The schema that values must fit; None for each value's own.
    from_dict : callable, optional
        ``from_dict(value, SerializationContext)`` returns the result.
    schema_registry_client : SchemaRegistryClient, optional
        Needed without a schema, and for a schema that refers to others.
    conf : dict, optional
        As for :class:`AvroDeserializer`, and ``validate`` (True).
    rule_conf, rule_registry : object, optional
        Not used: a schema with rules raises SerializationError.
    json_decode : callable, optional
        Returns the value of JSON in bytes. By default Python's `json`.

    Raises
    ------
    ValueError
        The schema or a key of `conf` is not valid.
    """


class AsyncJSONDeserializer(_Reads, AsyncBaseDeserializer):
    """:class:`JSONDeserializer` for asyncio: ``await AsyncJSONDeserializer(schema)``.

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
    json_encode: Callable[[Any], str | bytes] | None = None
    serializer_init: Callable[[Any], Any] | None = None

    _serde: ClassVar[type]

    def _make(self, client: Any) -> Any:
        more = self.serializer_config, self.rule_config, self.rule_registry
        return self._serde(self.schema, client, self.to_dict, *more, self.json_encode)

    def set_json_encode(self, json_encode: Callable[[Any], str | bytes]) -> Self:
        """Set the function that makes JSON of a value."""
        self.json_encode = json_encode
        return self


class JSONSerializerBuilder(_SerializerBuilder, BlockingBuilder, SerializerBuilder):
    """Builds an :class:`JSONSerializer`, for ``value.serializer.builder``."""

    _serde = JSONSerializer


class AsyncJSONSerializerBuilder(_SerializerBuilder, AwaitedBuilder):
    """Builds an :class:`AsyncJSONSerializer`, for ``value.serializer.builder``."""

    _serde = AsyncJSONSerializer


# Secrets would be in its repr.
@dataclass(eq=False, repr=False)
class _DeserializerBuilder(SchemaValue, FromDictValue, DeserializerValues):
    schema_registry_config: Mapping[str, Any] | None = None
    schema_registry_client: Any = None
    schema: Any = None
    from_dict: Callable[..., Any] | None = None
    deserializer_config: Mapping[str, Any] | None = None
    rule_config: Mapping[str, Any] | None = None
    rule_registry: Any = None
    json_decode: Callable[[bytes], Any] | None = None
    deserializer_init: Callable[[Any], Any] | None = None

    _serde: ClassVar[type]

    def _make(self, client: Any) -> Any:
        more = self.deserializer_config, self.rule_config, self.rule_registry
        return self._serde(self.schema, self.from_dict, client, *more, self.json_decode)

    def set_json_decode(self, json_decode: Callable[[bytes], Any]) -> Self:
        """Set the function that makes a value of JSON."""
        self.json_decode = json_decode
        return self


class JSONDeserializerBuilder(_DeserializerBuilder, BlockingBuilder, DeserializerBuilder):
    """Builds an :class:`JSONDeserializer`, for ``value.deserializer.builder``."""

    _serde = JSONDeserializer


class AsyncJSONDeserializerBuilder(_DeserializerBuilder, AwaitedBuilder):
    """Builds an :class:`AsyncJSONDeserializer`, for ``value.deserializer.builder``."""

    _serde = AsyncJSONDeserializer
