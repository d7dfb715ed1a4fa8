"""Avro: values to Arrow by the reader's schema, and back.

pyruhvro reads and writes whole batches (`avro_batch`). fastavro does what pyruhvro cannot do, and
reads and writes value by value where a batch fails, so that only the bad values have errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Any, TypeAlias

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from cykafka.schemas.arrow.avro_batch import (
    SlowError,
    batch_reader,
    batch_writer,
    fits,
    has_threads,
    resolved,
)
from cykafka.schemas.arrow.columns import (
    Rows,
    by_halves,
    check_type,
    convert_rows,
    missing_fields,
    plain_lists,
    plain_type,
    read_each,
    rebuilt,
    replace_types,
    with_nulls,
)
from cykafka.schemas.model.avro_schema import AvroSchema, without_logical_types
from cykafka.schemas.model.document import Document, UnfitError
from cykafka.schemas.model.faults import shorten_error

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
# The logical types that Spark supports. Other logical types keep the values of their plain types.
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", _UTC),
    ("long", "timestamp-micros"): pa.timestamp("us", _UTC),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
# Arrow's times are written as these, too, but such values are read as numbers.
_WRITTEN = {
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", _UTC),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
# Spark's times use microseconds.
_WIDER = {
    pa.timestamp("ms", _UTC): pa.timestamp("us", _UTC),
    pa.timestamp("ms"): pa.timestamp("us"),
}
_NUMBERS_OF = {kind: _PLAIN[name] for (name, _), kind in (_LOGICAL | _WRITTEN).items()}
# Numbers with another logical type. Arrow casts no times to these types, which are used only here.
_OTHER = {"int": pa.decimal256(10), "long": pa.decimal256(19)}
_READ_AS = {
    **{kind: _NUMBERS_OF[kind] for kind in _WRITTEN.values()},
    **{kind: _PLAIN[name] for name, kind in _OTHER.items()},
}
# Unions that become one number in Spark.
_NUMBERS = ({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64())
_MOST_DIGITS = 38
_SAMPLE = {"null": None, "boolean": True, "int": 0, "long": 2**40, "float": 0.5, "double": 0.5,
           "bytes": b"", "string": ""}  # fmt: skip
_NAMED = ("record", "error", "enum", "fixed")
# A record that uses the next one twice, and so on, has any number of fields.
_MOST_FIELDS = 20_000
# All `fixed` types of a schema together.
_MOST_BYTES = 2**20
# As many values are read or written one by one, where a batch fails.
_FEW = 64

# Converts a value that fastavro has read for pyarrow, or pyarrow's value for fastavro.
_Change: TypeAlias = Callable[[Any], Any]
# Stands for the schema that wrote a value if the value is a default.
_DEFAULT = object()


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise UnfitError for any error that a schema causes."""
    try:
        yield
    except UnfitError:
        raise
    except Exception as error:
        raise UnfitError(f"it is not a usable Avro schema: {shorten_error(error)}") from error


class _Count:
    """Counts the fields of a schema, with each named type where it is used."""

    def __init__(self) -> None:
        self._count = 0

    def add(self) -> None:
        """Count one. Raise UnfitError for too many."""
        self._count += 1
        if self._count > _MOST_FIELDS:
            raise UnfitError(f"it has more than {_MOST_FIELDS} fields")


class _Types:
    """A schema's Arrow types, and the conversions that its values need.

    Parameters
    ----------
    named : dict
        The schema's named types.
    writers : dict, optional
        The named types of the schema that wrote the values.
    is_for_writing : bool, default False
        Return types to which Arrow can cast times of the right logical type only.
    has_plain_defaults : bool, default False
        Check the defaults, which are values for a schema without logical types.
    """

    def __init__(
        self,
        named: dict[str, Any],
        writers: dict[str, Any] | None = None,
        *,
        is_for_writing: bool = False,
        has_plain_defaults: bool = False,
    ) -> None:
        self._is_for_writing = is_for_writing
        self._named = named
        self._writers = writers or {}
        self._fields = _Count()
        self._unchecked = set(named) if has_plain_defaults else set[str]()
        self.has_choice = False

    def of(
        self, schema: Any, within: tuple[str, ...] = (), written: Any = None
    ) -> tuple[pa.DataType, _Change, _Change]:
        """Return a schema's type, and the conversions for reading and for writing a value.

        Record fields that may be null in the type have a default. `written` is the schema that
        wrote the values, if it is known, or `_DEFAULT`.
        """
        self._fields.add()
        if written is not None and written is not _DEFAULT:
            written = resolved(written, self._writers)
        if isinstance(schema, list):
            return self._union(schema, within, written)
        if isinstance(written, list):
            made, read, write = self.of(schema, within, self._writer_of([schema], written)[0])
            return made, _unnamed(read), write
        if isinstance(schema, str):
            if schema in _PLAIN:
                return _PLAIN[schema], _same, _same
            if schema in within:
                raise UnfitError(f"{schema} contains itself: recursive types are not supported")
            return self.of(self._named[schema], within, written)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, within, written)
        if kind in ("record", "error"):
            return self._record(schema, (*within, schema["name"]), written)
        if kind == "array":
            item, read, write = self.of(schema["items"], within, _part(written, "items"))
            found = pa.list_(pa.field("element", item))
            return found, _each(read), _each(write)
        if kind == "map":
            item, read, write = self.of(schema["values"], within, _part(written, "values"))
            return pa.map_(pa.string(), item), _values(read), _values(write)
        logical = str(schema.get("logicalType"))
        if logical == "decimal" and kind in ("bytes", "fixed"):
            digits = schema.get("precision")
            if not isinstance(digits, int) or digits < 1:
                raise UnfitError(f"a decimal has the precision {digits}, expected 1 or more")
            if digits > _MOST_DIGITS:
                raise UnfitError(f"a decimal has {digits} digits, expected {_MOST_DIGITS} or less")
            return pa.decimal128(digits, schema.get("scale", 0)), _same, _same
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical], _same, _same
        if self._is_for_writing and "logicalType" in schema and kind in _OTHER:
            return _WRITTEN.get((kind, logical), _OTHER[kind]), _same, _same
        return self.of(kind, within) if kind not in _PLAIN else (_PLAIN[kind], _same, _same)

    def _record(
        self, schema: dict[str, Any], within: tuple[str, ...], written: Any
    ) -> tuple[pa.DataType, _Change, _Change]:
        if not schema["fields"]:
            raise UnfitError(f"{schema['name']} has no fields, which is not supported")
        fields, reads, writes = [], {}, {}
        fields_of = written.get("fields", ()) if isinstance(written, dict) else ()
        wrote = {field["name"]: field["type"] for field in fields_of}
        # A field that the writer's record lacks has its default.
        other = _DEFAULT if isinstance(written, dict) or written is _DEFAULT else None
        is_unchecked = schema["name"] in self._unchecked
        self._unchecked.discard(schema["name"])
        for field in schema["fields"]:
            name = field["name"]
            names = (name, *field.get("aliases", ()))
            found = next((wrote[name] for name in names if name in wrote), other)
            kind, read, write = self.of(field["type"], within, found)
            if is_unchecked and "default" in field:
                _array_of(field["default"], kind, read)
            fields.append(pa.field(name, kind, nullable="default" in field))
            if read is not _same:
                reads[name] = read
            if write is not _same:
                writes[name] = write
        return pa.struct(fields), _members(reads), _members(writes)

    def _union(
        self, branches: list[Any], within: tuple[str, ...], written: Any
    ) -> tuple[pa.DataType, _Change, _Change]:
        others = [branch for branch in branches if branch != "null"]
        if not others:
            return _PLAIN["null"], _same, _same
        wrote = self._writer_of(others, written)
        if len(others) == 1:
            kind, read, write = self.of(others[0], within, wrote[0])
            return kind, _nullable(_unnamed(read)), _nullable(write)
        for numbers, number_kind in _NUMBERS:
            if all(isinstance(branch, str) and branch in numbers for branch in others):
                return number_kind, _same, _same
        self.has_choice = True
        found = [self.of(branch, within, of) for branch, of in zip(others, wrote, strict=True)]
        # fastavro names the branch of a value only if the writer's schema is a union, too.
        fitting = [number for number, of in enumerate(wrote) if of is not None]
        only = fitting[0] if isinstance(written, dict) and fitting else None
        fields = [pa.field(f"member{number}", kind) for number, (kind, _, _) in enumerate(found)]
        names = [self._name(branch) for branch in others]
        is_default = written is _DEFAULT
        # fastavro uses the first branch that fits a value, unless the value names its branch.
        has_name = [
            isinstance(without_logical_types(branch), str) or kind in _NAMED
            for branch, (kind, _) in zip(others, names, strict=True)
        ]

        def from_union(value: Any) -> Any:
            if value is None:
                return None
            number = _branch(names, value, is_default) if only is None else only
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

    def _writer_of(self, branches: list[Any], written: Any) -> list[Any]:
        """Return the schema that wrote the values of each branch, as `of` takes it."""
        if written is _DEFAULT:
            return [_DEFAULT] * len(branches)
        reads = [resolved(branch, self._named) for branch in branches]
        found: list[list[Any]] = [[] for _ in branches]
        for wrote in written if isinstance(written, list) else [written] if written else []:
            of = resolved(wrote, self._writers)
            first = next((number for number, read in enumerate(reads) if fits(of, read)), None)
            if first is not None:
                found[first].append(of)
        return [of[0] if len(of) == 1 else None for of in found]

    def _name(self, schema: Any) -> tuple[str, str]:
        """Return a branch's plain type and its name."""
        if isinstance(schema, str):
            if schema in _PLAIN:
                return schema, schema
            schema = self._named[schema]
        kind = schema["type"]
        return kind, schema.get("name", kind)


def _array_of(default: Any, kind: pa.DataType, read: _Change) -> pa.Array:
    """Return a default as an array of one value."""
    return pa.array([read(default)], replace_types(kind, {}))


def _part(schema: Any, name: str) -> Any:
    """Return a part of the schema that wrote a value, which may be unknown or a default."""
    return schema.get(name) if isinstance(schema, dict) else schema


def _branch(names: list[tuple[str, str]], value: Any, is_default: bool) -> int:
    """Return the number of the branch that a fastavro value belongs to.

    A default belongs to the first branch, if it can.
    """
    if isinstance(value, tuple):
        return next(number for number, (_, name) in enumerate(names) if name == value[0])
    # Only a default of a named type comes without its name.
    kinds: dict[type, tuple[str, ...]] = {
        bool: ("boolean",),
        int: ("int", "long", "double", "float")
        if isinstance(value, int) and -(2**31) <= value < 2**31
        else ("long", "double", "float"),
        float: ("double", "float"),
        str: ("string", "enum"),
        list: ("array",),
        dict: ("map", "record", "error"),
    }
    # A decimal belongs to bytes or, without a name, to a fixed.
    found = kinds.get(type(value), ("bytes", "fixed"))
    if is_default and names[0][0] in found:
        return 0
    for kind in (*found, "long", "int", "double", "float"):
        for number, (branch, _) in enumerate(names):
            if branch == kind:
                return number
    raise ValueError(f"no member of the union is a {type(value).__name__}")


def _same(value: Any) -> Any:
    return value


def _nullable(change: _Change) -> _Change:
    if change is _same:
        return _same
    return lambda value: None if value is None else change(value)


def _unnamed(change: _Change) -> _Change:
    """Return `change` for a value that may come with its type's name."""
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

    # A copy, because fastavro uses one object for a default in all records.
    return lambda value: {
        **value,
        **{name: of(value[name]) for name, of in changes.items() if name in value},
    }


class AvroReader:
    """Reads values by one schema, whatever schemas they were written with.

    Attributes
    ----------
    kind : pa.DataType
        The type of the values that `reader_of` produces.
    """

    @_refusing()
    def __init__(self, document: Document) -> None:
        self._typed = schema = AvroSchema(document.text, document.parts)
        types = _Types(schema.named)
        made, _, _ = types.of(schema.schema)
        self._made = replace_types(made, {})
        self.kind = replace_types(made, _WIDER)
        self._schema = AvroSchema(document.text, document.parts, is_plain=True)
        checked = _Types(self._schema.named, has_plain_defaults=True)
        checked.of(self._schema.schema, written=_DEFAULT)
        # Only then fastavro must name the types of values, which costs time.
        self._named = types.has_choice

    @_refusing()
    def reader_of(self, document: Document) -> Callable[[pa.BinaryArray], Rows]:
        """Return a function that reads values written with a schema."""
        written = AvroSchema(document.text, document.parts, is_plain=True)
        reader = None if written.texts == self._schema.texts else self._schema
        value_of = written.value_reader(reader, has_names=self._named)
        words = f"the value does not fit the schema {document.id}"
        change: _Change = _same
        if self._named:
            types = _Types(self._typed.named, written.named)
            _, change, _ = types.of(self._typed.schema, written=written.schema)

        def read_value(payload: bytes) -> Any:
            try:
                return change(value_of(payload, 0))
            except EOFError:
                raise ValueError("it ends early") from None
            except fastavro.read.SchemaResolutionError:  # its text shows both parsed schemas
                names = f"{written.name}, and the reader expects {self._schema.name}"
                raise ValueError(f"the schemas do not fit: it is of {names}") from None

        def read_slowly(payloads: pa.BinaryArray) -> Rows:
            return read_each(payloads, read_value, self._made, self.kind, words)

        try:
            prepare = batch_reader(
                written.schema,
                written.named,
                self._schema.schema,
                self._schema.named,
                self._made,
                self._default,
            )
        except (SlowError, RecursionError):
            return read_slowly

        def read(payloads: pa.BinaryArray) -> Rows:
            read_batch = prepare(payloads)
            return by_halves(
                len(payloads),
                lambda low, high: read_batch(low, high).cast(self.kind),
                lambda low, high, _: read_slowly(payloads[low:high]),
                _FEW,
            )

        return read

    def _default(self, schema: Any, value: Any) -> Any:
        _, read, _ = _Types(self._schema.named).of(schema, written=_DEFAULT)
        return read(value)

    @_refusing()
    def check(self, document: Document) -> None:
        """Raise UnfitError if the reader cannot read values written with another schema."""
        written = AvroSchema(document.text, document.parts, is_plain=True)
        written.check_sizes()
        for value in _Samples(written.named).of(written.schema):
            data = BytesIO()
            fastavro.schemaless_writer(data, written.schema, value)
            data.seek(0)
            try:
                fastavro.schemaless_reader(data, written.schema, self._schema.schema)
            except fastavro.read.SchemaResolutionError as error:
                raise UnfitError(
                    f"it cannot read what schema {document.id} writes: {error}"
                ) from None


class _Samples:
    """Values that cover each branch of a schema's unions and each symbol of its enums."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._fields = _Count()
        self._bytes = 0

    def of(self, schema: Any, within: tuple[str, ...] = ()) -> list[Any]:
        """Return values for a schema."""
        self._fields.add()
        if isinstance(schema, list):
            found: list[Any] = []
            for branch in schema:
                of = self._named.get(branch, branch) if isinstance(branch, str) else branch
                values = self.of(branch, within)
                if isinstance(of, dict) and of["type"] in _NAMED:
                    values = [(of["name"], value) for value in values]
                found += values
            return found
        if isinstance(schema, str):
            if schema in within:
                return []
            schema = self._named.get(schema, {"type": schema})
        kind = schema["type"]
        if kind in ("record", "error"):
            within = (*within, schema["name"])
            fields = {field["name"]: self.of(field["type"], within) for field in schema["fields"]}
            most = max(map(len, fields.values()), default=1) if all(fields.values()) else 0
            return [
                {name: values[number % len(values)] for name, values in fields.items()}
                for number in range(most)
            ]
        if kind == "array":
            return [self.of(schema["items"], within)]
        if kind == "map":
            values = self.of(schema["values"], within)
            return [{str(number): value for number, value in enumerate(values)}]
        if kind == "enum":
            return list(schema["symbols"])
        if kind == "fixed":
            self._bytes += schema["size"]
            if self._bytes > _MOST_BYTES:
                raise UnfitError(f"its fixed types have more than {_MOST_BYTES} bytes")
            return [bytes(schema["size"])]
        return [_SAMPLE[kind]] if isinstance(kind, str) else self.of(kind, within)


class AvroWriter:
    """Writes values by a schema.

    Attributes
    ----------
    kind : pa.DataType
        The type of the schema's values.
    name : str
        The full name of the record.
    """

    @_refusing()
    def __init__(self, document: Document) -> None:
        schema = AvroSchema(document.text, document.parts)
        types = _Types(schema.named, is_for_writing=True)
        self._needed, _, self._change = types.of(schema.schema)
        self._made = replace_types(self._needed, {})
        self.kind = replace_types(self._needed, _WIDER | _READ_AS)
        self._schema = AvroSchema(document.text, document.parts, is_plain=True)
        checked = _Types(self._schema.named, has_plain_defaults=True)
        checked.of(self._schema.schema, written=_DEFAULT)
        self.name = schema.name or ""
        self._batch_writers: dict[pa.DataType, Callable[[pa.Array], pa.Array] | None] = {}

    def check(self, kind: pa.DataType) -> None:
        """Raise UnfitError if values of a type do not fit the schema."""
        kind = plain_type(kind)
        check_type(kind, self.kind, _of_both(kind, self._made))
        fields = missing_fields(kind, self._needed)
        missing = sorted(path for path, field in fields if not field.nullable)  # has no default
        if missing:
            raise UnfitError(f"the value has no field {', '.join(missing)}")

    def write(self, values: pa.Array) -> Rows:
        """Encode values; null stays null."""
        # The casts find numbers that do not fit into an int, which the libraries would write.
        # Times are already numbers, because Python's time objects are slow.
        values = plain_lists(values)
        kind = _of_both(values.type, self._made)
        numbers = replace_types(kind, _NUMBERS_OF)
        valid = values.is_valid()
        present = values.drop_null() if values.null_count else values

        def convert(low: int, high: int) -> pa.Array:
            return rebuilt(present[low:high], kind, _cast).cast(numbers)

        def write_each(low: int, high: int, _error: BaseException | None = None) -> Rows:
            def convert_part(first: int, last: int) -> pa.Array:
                return convert(low + first, low + last)

            cast, wrong = convert_rows(high - low, convert_part, numbers, "it is of another type")
            return self._write_each(cast, wrong)

        write_batch = self._batch_writer(numbers) if has_threads() else None
        if write_batch is None:
            return with_nulls(valid, write_each(0, len(present)))
        made = by_halves(
            len(present), lambda low, high: write_batch(convert(low, high)), write_each, _FEW
        )
        return with_nulls(valid, made)

    def _write_each(self, values: pa.Array, wrong: dict[int, str]) -> Rows:
        found = []
        for number, scalar in enumerate(values):
            data = BytesIO()
            value = None
            try:
                value = scalar.as_py(maps_as_pydicts="strict")  # fails if a map has a key twice
                if value is not None:
                    fastavro.schemaless_writer(
                        data, self._schema.schema, self._change(value), strict_allow_default=True
                    )
            except Exception as error:
                value, wrong[number] = None, shorten_error(error)
            found.append(None if value is None else data.getvalue())
        return pa.array(found, pa.binary()), wrong

    def _batch_writer(self, kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
        if kind not in self._batch_writers:
            made = None
            with suppress(SlowError, RecursionError):
                made = batch_writer(self._schema.schema, self._schema.named, kind, self._default)
            self._batch_writers[kind] = made
        return self._batch_writers[kind]

    def _default(self, schema: Any, value: Any) -> pa.Array:
        kind, read, _ = _Types(self._schema.named).of(schema, written=_DEFAULT)
        return _array_of(value, kind, read)


def _of_both(given: pa.DataType, known: pa.DataType) -> pa.DataType:
    """Return the known type with only the given fields: the others have defaults."""
    if pa.types.is_struct(given) and pa.types.is_struct(known):
        names = {field.name: field.type for field in known}
        return pa.struct(
            [
                (field.name, _of_both(field.type, names.get(field.name, field.type)))
                for field in given
            ]
        )
    if pa.types.is_list(given) and pa.types.is_list(known):
        return pa.list_(pa.field("element", _of_both(given.value_type, known.value_type)))
    if pa.types.is_map(given) and pa.types.is_map(known):
        return pa.map_(known.key_type, _of_both(given.item_type, known.item_type))
    if pa.types.is_temporal(given):
        return known
    return _READ_AS.get(known, known)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values of simple types. Raise ValueError if a number is too large for a float."""
    if values.type == pa.uuid() and kind == pa.string():
        return pa.array([value and str(value) for value in values.to_pylist()], kind)
    found = pc.cast(values, options=pc.CastOptions(kind, allow_time_truncate=True))
    if (
        kind == pa.float32()
        and pc.any(pc.is_inf(found)).as_py()
        and pc.any(pc.and_(pc.is_inf(found), pc.is_finite(values.cast(pa.float64())))).as_py()
    ):
        raise ValueError("a number is too large for a float")
    return found
