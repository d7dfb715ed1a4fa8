"""Avro: values to Arrow by the reader's schema, and back. fastavro does the work."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeAlias

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from cykafka.spark.jobs.schemas.document import Document, UnfitError
from cykafka.spark.jobs.schemas.wire import Rows, check_fields, each_or_all, replaced, told

__all__ = ["AvroReader", "AvroWriter"]

_UTC = "UTC"
_PLAIN = {
    "null": pa.string(),  # Parquet has no type for it
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
# What Spark has types for. The values of other logical types are those of their plain types.
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", _UTC),
    ("long", "timestamp-micros"): pa.timestamp("us", _UTC),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
# Spark's times have microseconds.
_WIDER = {
    pa.timestamp("ms", _UTC): pa.timestamp("us", _UTC),
    pa.timestamp("ms"): pa.timestamp("us"),
}
_NUMBERS_OF = {
    kind: pa.int32() if kind == pa.date32() else pa.int64() for kind in _LOGICAL.values()
}
# Unions that are one number in Spark.
_NUMBERS = ({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64())
_MOST_DIGITS = 38
# A random value of a union is of one of its branches.
_SAMPLES = 20
_NAMED = ("record", "error", "enum", "fixed")

# Changes a value that fastavro has read for pyarrow, or one of pyarrow's for fastavro.
_Change: TypeAlias = Callable[[Any], Any]


def _parsed(document: Document, *, plain: bool) -> tuple[Any, dict[str, Any]]:
    """A schema as fastavro has it, and its named types; `plain`: without logical types."""
    named: dict[str, Any] = {}
    parsed = None
    for text in (*(text for _, text in document.parts), document.text):
        try:
            raw = json.loads(text)
            parsed = fastavro.parse_schema(_plain(raw) if plain else raw, named_schemas=named)
        except (fastavro.schema.SchemaParseException, ValueError, LookupError, TypeError) as error:
            raise UnfitError(f"it is no Avro schema: {error!r}") from None
        except RecursionError:
            raise UnfitError("it is nested too deeply") from None
    return parsed, named


def _plain(schema: Any) -> Any:
    """A schema without logical types, except decimal.

    The reader's schema says what a number means, as in Java. fastavro would take the writer's.
    """
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    if kept.get("logicalType") != "decimal":
        kept.pop("logicalType", None)
    if "fields" in kept:
        kept["fields"] = [{**each, "type": _plain(each["type"])} for each in kept["fields"]]
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _plain(kept[name])
    return kept["type"] if kept.keys() == {"type"} else kept


class _Types:
    """The Arrow types of a schema, and the changes that its values need."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self.has_choice = False

    def of(
        self, schema: Any, within: tuple[str, ...] = ()
    ) -> tuple[pa.DataType, _Change, _Change]:
        """The type of a schema, the change of a value that was read, and of one to write."""
        if isinstance(schema, list):
            return self._union(schema, within)
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _PLAIN[schema], _same, _same
            if schema in within:
                raise UnfitError(f"{schema} contains itself: Spark has no such types")
            return self.of(self._named[schema], within)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, within)
        if kind in ("record", "error"):
            return self._record(schema, (*within, schema["name"]))
        if kind == "array":
            item, read, write = self.of(schema["items"], within)
            found = pa.list_(pa.field("element", item))
            return found, _each(read), _each(write)
        if kind == "map":
            item, read, write = self.of(schema["values"], within)
            return pa.map_(pa.string(), item), _values(read), _values(write)
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            digits = schema["precision"]
            if digits > _MOST_DIGITS:
                raise UnfitError(f"a decimal has {digits} digits, and Spark has {_MOST_DIGITS}")
            return pa.decimal128(digits, schema.get("scale", 0)), _same, _same
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical], _same, _same
        return self.of(kind, within) if kind not in _PLAIN else (_PLAIN[kind], _same, _same)

    def _record(
        self, schema: dict[str, Any], within: tuple[str, ...]
    ) -> tuple[pa.DataType, _Change, _Change]:
        if not schema["fields"]:
            raise UnfitError(f"{schema['name']} has no fields: Spark has no such types")
        fields, reads, writes = [], {}, {}
        for each in schema["fields"]:
            name = each["name"]
            kind, read, write = self.of(each["type"], within)
            fields.append(pa.field(name, kind))
            if read is not _same:
                reads[name] = read
            if write is not _same:
                writes[name] = write
        return pa.struct(fields), _members(reads), _members(writes)

    def _union(
        self, branches: list[Any], within: tuple[str, ...]
    ) -> tuple[pa.DataType, _Change, _Change]:
        others = [each for each in branches if each != "null"]
        if not others:
            return _PLAIN["null"], _same, _same
        if len(others) == 1:
            kind, read, write = self.of(others[0], within)
            return kind, _nullable(_unnamed(read)), _nullable(write)
        for numbers, number_kind in _NUMBERS:
            if all(isinstance(each, str) and each in numbers for each in others):
                return number_kind, _same, _same
        self.has_choice = True
        found = [self.of(each, within) for each in others]
        fields = [pa.field(f"member{number}", kind) for number, (kind, _, _) in enumerate(found)]
        names = [self._name(each) for each in others]
        # fastavro takes the first branch that fits a value, unless it gets the branch's name.
        has_name = [
            isinstance(_plain(each), str) or kind in _NAMED
            for each, (kind, _) in zip(others, names, strict=True)
        ]

        def from_union(value: Any) -> Any:
            if value is None:
                return None
            number = _branch(names, value)
            inner = value[1] if isinstance(value, tuple) else value
            return {f"member{number}": found[number][1](inner)}

        def to_union(value: Any) -> Any:
            given = [
                number
                for number in range(len(names))
                if value is not None and value.get(f"member{number}") is not None
            ]
            if len(given) > 1:
                raise ValueError("more than one member of a union is not null")
            if not given:
                return None
            inner = found[given[0]][2](value[f"member{given[0]}"])
            return (names[given[0]][1], inner) if has_name[given[0]] else inner

        return pa.struct(fields), from_union, to_union

    def _name(self, schema: Any) -> tuple[str, str]:
        """The plain type of a branch and its name."""
        if isinstance(schema, str):
            if schema in _PLAIN:
                return schema, schema
            schema = self._named[schema]
        kind = schema["type"]
        return kind, schema.get("name", kind)


def _branch(names: list[tuple[str, str]], value: Any) -> int:
    """The number of the branch that a value of fastavro's is of."""
    if isinstance(value, tuple):
        return next(number for number, (_, name) in enumerate(names) if name == value[0])
    kinds: dict[type, tuple[str, ...]] = {
        bool: ("boolean",),
        int: ("int", "long")
        if isinstance(value, int) and -(2**31) <= value < 2**31
        else ("long",),
        float: ("double", "float"),
        str: ("string",),
        list: ("array",),
        dict: ("map",),
    }
    # A decimal is of bytes or, without a name, of a fixed.
    for kind in (*kinds.get(type(value), ("bytes", "fixed")), "long", "int"):
        for number, (each, _) in enumerate(names):
            if each == kind:
                return number
    raise ValueError(f"no member of the union is a {type(value).__name__}")


def _same(value: Any) -> Any:
    return value


def _nullable(change: _Change) -> _Change:
    if change is _same:
        return _same
    return lambda value: None if value is None else change(value)


def _unnamed(change: _Change) -> _Change:
    """`change` for a value that may come with the name of its type."""
    return lambda value: change(value[1] if isinstance(value, tuple) else value)


def _each(change: _Change) -> _Change:
    return _same if change is _same else lambda values: [change(value) for value in values]


def _values(change: _Change) -> _Change:
    if change is _same:
        return _same
    return lambda values: {name: change(value) for name, value in values.items()}


def _members(changes: dict[str, _Change]) -> _Change:
    if not changes:
        return _same

    def change(value: Any) -> Any:
        for name, of in changes.items():
            if name in value:
                value[name] = of(value[name])
        return value

    return change


class AvroReader:
    """Reads values by one schema, whatever schemas they were written with.

    Attributes
    ----------
    kind : pa.DataType
        The type of the values that `reader_of` makes.
    """

    def __init__(self, document: Document) -> None:
        types = _Types({})
        parsed, types._named = _parsed(document, plain=False)
        self._made, self._change, _ = types.of(parsed)
        self.kind = replaced(self._made, _WIDER)
        self._schema = _parsed(document, plain=True)[0]
        # Only then fastavro has to name the types of values, which costs time.
        self._named = types.has_choice
        if not self._named:
            self._change = _same
        self._document = document

    def reader_of(self, document: Document) -> Callable[[pa.BinaryArray], Rows]:
        """A function that reads values which were written with a schema."""
        written = _parsed(document, plain=True)[0]
        same = (document.text, document.parts) == (self._document.text, self._document.parts)
        schema = None if same else self._schema
        words = f"the value does not fit the schema {document.id}"

        def value_of(payload: bytes) -> Any:
            data = BytesIO(payload)
            value = fastavro.schemaless_reader(
                data,
                written,
                schema,
                return_record_name=self._named,
                return_named_type=self._named,
            )
            if data.tell() != len(payload):
                raise ValueError(f"{len(payload) - data.tell()} bytes follow it")
            return self._change(value)

        def read(payloads: pa.BinaryArray) -> Rows:
            # Decode each by itself: fastavro stops at the first bad one.
            values, wrong = [], {}
            for number, payload in enumerate(payloads.to_pylist()):
                try:
                    values.append(value_of(payload))
                except Exception as error:
                    values.append(None)
                    wrong[number] = f"{words}: {told(error)}"

            def convert(low: int, high: int) -> pa.Array:
                return pa.array(values[low:high], self._made).cast(self.kind)

            made, more = each_or_all(len(values), convert, self.kind, words)
            return made, {**more, **wrong}

        return read

    def check(self, document: Document) -> None:
        """Raise UnfitError if the reader cannot read what another schema writes."""
        from fastavro.utils import generate_many

        written = _parsed(document, plain=True)[0]
        try:
            values = list(generate_many(written, _SAMPLES))
        except RecursionError:  # a record that contains itself may have no end
            return
        for value in values:
            data = BytesIO()
            fastavro.schemaless_writer(data, written, value)
            data.seek(0)
            try:
                fastavro.schemaless_reader(data, written, self._schema)
            except fastavro.read.SchemaResolutionError as error:
                raise UnfitError(
                    f"it cannot read what schema {document.id} writes: {error}"
                ) from None


class AvroWriter:
    """Writes values by a schema.

    Attributes
    ----------
    kind : pa.DataType
        The type of the values that the schema has.
    name : str
        The full name of the record.
    """

    def __init__(self, document: Document) -> None:
        parsed, named = _parsed(document, plain=False)
        self._made, _, self._change = _Types(named).of(parsed)
        self.kind = replaced(self._made, _WIDER)
        self._schema = _parsed(document, plain=True)[0]
        self.name = parsed.get("name", "") if isinstance(parsed, dict) else ""
        fields = parsed.get("fields", ()) if isinstance(parsed, dict) else ()
        self._needed = {each["name"] for each in fields if "default" not in each}

    def check(self, kind: pa.DataType) -> None:
        """Raise UnfitError if values of a type have no place in the schema."""
        check_fields(kind, self.kind)
        try:
            pa.nulls(0, kind).cast(_of_both(kind, self._made))
        except pa.ArrowException as error:
            raise UnfitError(told(error)) from None
        names = {each.name for each in kind} if pa.types.is_struct(kind) else self._needed
        if missing := self._needed - names:
            raise UnfitError(f"the value has no field {', '.join(sorted(missing))}")

    def write(self, values: pa.Array) -> Rows:
        """The encoded values; null stays null."""
        # The casts find numbers without a place in an int, which fastavro would write. Times are
        # numbers already, because Python's own are slow.
        kind = _of_both(values.type, self._made)
        numbers = replaced(kind, _NUMBERS_OF)

        def convert(low: int, high: int) -> pa.Array:
            options = pc.CastOptions(kind, allow_time_truncate=True)
            return pc.cast(values[low:high], options=options).cast(numbers)

        cast, wrong = each_or_all(len(values), convert, numbers, "it is of another type")
        found = []
        for number, value in enumerate(cast.to_pylist(maps_as_pydicts="strict")):
            data = BytesIO()
            try:
                if value is not None:
                    fastavro.schemaless_writer(
                        data, self._schema, self._change(value), strict_allow_default=True
                    )
            except Exception as error:
                value, wrong[number] = None, told(error)
            found.append(None if value is None else data.getvalue())
        return pa.array(found, pa.binary()), wrong


def _of_both(given: pa.DataType, known: pa.DataType) -> pa.DataType:
    """The known type with the fields that are given: others have defaults."""
    if pa.types.is_struct(given) and pa.types.is_struct(known):
        names = {each.name: each.type for each in known}
        return pa.struct(
            [(each.name, _of_both(each.type, names.get(each.name, each.type))) for each in given]
        )
    if pa.types.is_list(given) and pa.types.is_list(known):
        return pa.list_(pa.field("element", _of_both(given.value_type, known.value_type)))
    if pa.types.is_map(given) and pa.types.is_map(known):
        return pa.map_(known.key_type, _of_both(given.item_type, known.item_type))
    return known
