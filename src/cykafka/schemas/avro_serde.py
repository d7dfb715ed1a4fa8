"""Serializers and deserializers for Avro. fastavro does the work."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from io import BytesIO
from typing import Any, ClassVar, Self

from cykafka.schemas.builders import (
    AwaitedBuilder,
    BlockingBuilder,
    DeserializerValues,
    FromDictValue,
    SchemaValue,
    SerializerValues,
    ToDictValue,
)
from cykafka.schemas.document import UnfitError
from cykafka.schemas.faults import shorten_error
from cykafka.schemas.framing import SchemaId
from cykafka.schemas.schema import Schema
from cykafka.schemas.serde import (
    DESERIALIZER_OPTIONS,
    MOST_SCHEMA_LEVELS,
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
    is_shallow,
    schema_of,
)
from cykafka.schemas.subjects import Steps

try:
    import fastavro
    from fastavro import _read_py
    from fastavro.read import LOGICAL_READERS
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

# If values nest deeply, fastavro's C code overflows the stack and crashes the process. A level
# takes about 1,000 bytes of the stack, and at least one byte of the value. fastavro's code in
# Python reads at least _MOST_LEVELS levels, and then raises RecursionError.
_SHORT = 200
_MOST_LEVELS = 100
# fastavro would round what has more digits than the writer's schema says.
_DIGITS = 1_000_000


def _avro_schema(schema: Any) -> Any:
    """Return a Schema for a text; the registry wants the name of a primitive type in an object."""
    if isinstance(schema, str):
        schema = schema.strip()
        return Schema(schema if schema[:1] in ("{", "[") else f'{{"type":{schema}}}', "AVRO")
    return schema_of(schema, "AVRO")


class _Parsed:
    """A schema as fastavro uses it.

    Attributes
    ----------
    schema : object
        fastavro's parsed schema.
    name : str or None
        The full name of the record, or the name of the type; a union has none.
    is_bytes : bool
        A value is all its bytes, without a length.
    is_recursive : bool
        Values may nest without a limit.
    texts : tuple of (str, tuple of (str, str))
        What it was made from.

    Raises
    ------
    UnfitError
        The text is not a schema, or a few bytes could encode any number of values.
    """

    def __init__(self, text: str, parts: tuple[tuple[str, str], ...], *, reads: bool) -> None:
        self.texts = (text, parts)
        self._named: dict[str, Any] = {}
        try:
            for _, part in (*parts, ("", text)):
                raw = json.loads(part)
                if not is_shallow(raw, MOST_SCHEMA_LEVELS):
                    raise RecursionError
                self.schema = fastavro.parse_schema(raw, named_schemas=self._named)
            if parts:  # fastavro's functions know only the names in their schema
                whole = self._inlined(self.schema, set())
                self._named = {}
                self.schema = fastavro.parse_schema(whole, named_schemas=self._named)
            if reads:
                _set_digits(self.schema)
            fields = [
                field
                for known in self._named.values()
                for field in known.get("fields", ())
                if "default" in field
            ]
            defaults = [self._default(field["type"], field["default"]) for field in fields]
            for field, value in zip(fields, defaults, strict=True):
                field["default"] = value
            self._empty: set[str] = set()
            self._check_sizes()
            self.is_recursive = self._has_cycle()
        except RecursionError:
            raise UnfitError("the schema is nested too deeply") from None
        except UnfitError:
            raise
        except (fastavro.schema.SchemaParseException, ValueError, LookupError, TypeError) as error:
            raise UnfitError(f"it is not an Avro schema: {shorten_error(repr(error))}") from error
        kind = self.schema if isinstance(self.schema, dict) else {"type": self.schema}
        name = kind.get("name", kind["type"])
        self.name = name if isinstance(name, str) else None
        self.is_bytes = kind["type"] == "bytes" and kind.get("logicalType") != "decimal"

    def _known(self, schema: Any) -> Any:
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def _inlined(self, schema: Any, seen: set[str]) -> Any:
        """Return a parsed schema with each named type at the first place that needs it."""
        if isinstance(schema, str):
            if schema not in self._named or schema in seen:
                return schema
            schema = self._named[schema]
        if isinstance(schema, list):
            return [self._inlined(branch, seen) for branch in schema]
        if schema.get("name") in seen:
            return schema["name"]
        # fastavro has notes in keys of its own.
        kept = {name: value for name, value in schema.items() if not name.startswith("__")}
        seen |= {kept["name"]} if "name" in kept else set()
        for name in ("type", "items", "values"):
            if name in kept:
                kept[name] = self._inlined(kept[name], seen)
        if "fields" in kept:
            kept["fields"] = [
                {**field, "type": self._inlined(field["type"], seen)} for field in kept["fields"]
            ]
        return kept

    def _check_sizes(self) -> None:
        """Raise UnfitError for records and arrays whose number of values has no limit."""
        direct = {name: set(self._records(name, is_direct=True)) for name in self._named}
        try:
            for name in TopologicalSorter(direct).static_order():
                fields = self._named[name].get("fields")
                if fields is not None and all(self._is_empty(field["type"]) for field in fields):
                    self._empty.add(name)
        except CycleError as error:
            raise UnfitError(
                f"{error.args[1][0]} contains itself and has no finite value"
            ) from None

    def _has_cycle(self) -> bool:
        every = {name: set(self._records(name, is_direct=False)) for name in self._named}
        for _ in self._inner(self.schema, is_direct=False):
            pass
        try:
            TopologicalSorter(every).prepare()
        except CycleError:
            return True
        return False

    def _records(self, name: str, *, is_direct: bool) -> Iterator[str]:
        """Yield the records that a named type contains; `is_direct`: that each value contains."""
        for field in self._named[name].get("fields", ()):
            yield from self._inner(field["type"], is_direct=is_direct)

    def _inner(self, schema: Any, *, is_direct: bool) -> Iterator[str]:
        if isinstance(schema, str):
            if "fields" in self._named.get(schema, ()):
                yield schema
        elif isinstance(schema, list):
            for branch in () if is_direct else schema:
                yield from self._inner(branch, is_direct=is_direct)
        elif schema["type"] in ("record", "error"):
            yield schema["name"]
        elif schema["type"] in ("array", "map"):
            items = schema.get("items", schema.get("values"))
            if not is_direct:
                if schema["type"] == "array" and self._is_empty(items):
                    raise UnfitError(
                        "an array's elements have no bytes: their number is unlimited"
                    )
                yield from self._inner(items, is_direct=is_direct)
        elif not isinstance(schema["type"], str):
            yield from self._inner(schema["type"], is_direct=is_direct)

    def _is_empty(self, schema: Any) -> bool:
        """Return whether values take no bytes."""
        schema = self._known(schema)
        if isinstance(schema, str):
            return schema == "null"
        if isinstance(schema, list):
            return False
        kind = schema["type"]
        if kind in ("record", "error"):
            return schema["name"] in self._empty
        if kind == "fixed":
            return not schema["size"]
        return self._is_empty(kind) if kind != "array" else False

    def _default(self, schema: Any, value: Any) -> Any:
        """Return a default, which a schema has as JSON, as fastavro's value."""
        schema = self._known(schema)
        if isinstance(schema, list):  # a default is of the first branch
            return self._default(schema[0], value) if schema and value is not None else value
        if isinstance(schema, str):
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._default(kind, value)
        if kind == "array" and isinstance(value, list):
            return [self._default(schema["items"], item) for item in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self._default(schema["values"], item) for name, item in value.items()}
        if kind in ("record", "error") and isinstance(value, dict):
            return {
                field["name"]: self._default(
                    field["type"], value.get(field["name"], field.get("default"))
                )
                for field in schema["fields"]
            }
        if kind in ("bytes", "fixed") and isinstance(value, str):
            value = value.encode("latin-1")
        convert = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
        return value if convert is None else convert(value, schema, None)


def _set_digits(schema: Any) -> None:
    """Let decimals have any number of digits, as in Java; a fixed has what its size allows."""
    if isinstance(schema, list):
        for branch in schema:
            _set_digits(branch)
    elif isinstance(schema, dict):
        if schema.get("logicalType") == "decimal":
            size = schema.get("size")
            schema["precision"] = _DIGITS if size is None else int(math.log10(2) * (8 * size - 1))
        for name in ("type", "items", "values"):
            _set_digits(schema.get(name))
        for field in schema.get("fields", ()):
            _set_digits(field["type"])


def _reader(writer: _Parsed, reader: _Parsed | None, *, names: bool) -> Read:
    """Return the function that reads values. Without a reader's schema the writer's counts."""
    if writer.is_bytes:
        return lambda data, start: data[start:]
    written, wanted = writer.schema, None if reader is None else reader.schema
    is_recursive = writer.is_recursive

    def read(data: bytes, start: int) -> Any:
        stream = BytesIO(data)
        stream.seek(start)
        of = fastavro.schemaless_reader
        if is_recursive and len(data) > _SHORT:
            of = _read_py.schemaless_reader
        value = of(stream, written, wanted, names)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow it")
        return value

    return read


def _writer(parsed: _Parsed, *, is_strict: bool, allows_default: bool) -> Write:
    if parsed.is_bytes:
        return lambda value: value if isinstance(value, bytes) else value.encode()
    schema, is_recursive = parsed.schema, parsed.is_recursive

    def write(value: Any) -> bytes:
        stream = BytesIO()
        if is_recursive and not is_shallow(value, _MOST_LEVELS):
            raise ValueError(f"it has more than {_MOST_LEVELS} levels")
        fastavro.schemaless_writer(
            stream, schema, value, strict=is_strict, strict_allow_default=allows_default
        )
        return stream.getvalue()

    return write


class _Writes(SerializerRules):
    _kind = "AVRO"
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

    def _prepare(self) -> Steps[None]:
        if self._schema is not None:
            parsed = yield from self._parse(self._schema)
            self._name = parsed.name
        self._is_ready = True

    def _parse(self, schema: Any) -> Steps[_Parsed]:
        parts = yield from self._parts(schema)
        return _Parsed(schema.schema_str, parts, reads=False)

    def _compile(self, schema: Any) -> Steps[tuple[Write, None]]:
        parsed = yield from self._parse(schema)
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
    _kind = "AVRO"
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
        self._own: _Parsed | None = None
        super().__init__(_avro_schema(schema_str), schema_registry_client, from_dict, conf)

    def _prepare(self) -> Steps[None]:
        if self._schema is not None:
            self._own = yield from self._parse(self._schema)
        self._is_ready = True

    def _parse(self, schema: Any) -> Steps[_Parsed]:
        parts = yield from self._parts(schema)
        return _Parsed(schema.schema_str, parts, reads=True)

    def _compile(self, writer: Any, reader: Any, schema_id: SchemaId) -> Steps[Read]:
        if writer is None:
            raise UnfitError("AvroDeserializer needs a registry's client")
        written = yield from self._parse(writer)
        wanted = self._own
        if reader is not None:
            wanted = yield from self._parse(reader)
        if wanted is not None and wanted.texts == written.texts:
            wanted = None
        return _reader(written, wanted, names=self._names)

    def _name_of(self, writer: Any, schema_id: SchemaId) -> str | None:
        raw = json.loads(writer.schema_str)
        if not isinstance(raw, dict):
            return None
        name, space = raw.get("name"), raw.get("namespace")
        return f"{space}.{name}" if name and space and "." not in name else name or None


class AvroDeserializer(_Reads, BaseDeserializer):
    """Deserializes Avro values in the registry's wire format.

    The names, arguments, keys and defaults are those of
    ``confluent_kafka.schema_registry.avro.AvroDeserializer``. Bytes after the value are an error.

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


@dataclass
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
        return self._serde(
            client,
            self.schema,
            self.to_dict,
            self.serializer_config,
            self.rule_config,
            self.rule_registry,
        )


class AvroSerializerBuilder(_SerializerBuilder, BlockingBuilder):
    """Builds an :class:`AvroSerializer`, for ``value.serializer.builder``."""

    _serde = AvroSerializer


class AsyncAvroSerializerBuilder(_SerializerBuilder, AwaitedBuilder):
    """Builds an :class:`AsyncAvroSerializer`, for ``value.serializer.builder``."""

    _serde = AsyncAvroSerializer


@dataclass
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
        return self._serde(
            client,
            self.schema,
            self.from_dict,
            self.return_record_name,
            self.deserializer_config,
            self.rule_config,
            self.rule_registry,
        )

    def set_return_record_name(self, return_record_name: bool) -> Self:
        """Set whether records of unions come with their names."""
        self.return_record_name = return_record_name
        return self


class AvroDeserializerBuilder(_DeserializerBuilder, BlockingBuilder):
    """Builds an :class:`AvroDeserializer`, for ``value.deserializer.builder``."""

    _serde = AvroDeserializer


class AsyncAvroDeserializerBuilder(_DeserializerBuilder, AwaitedBuilder):
    """Builds an :class:`AsyncAvroDeserializer`, for ``value.deserializer.builder``."""

    _serde = AsyncAvroDeserializer
