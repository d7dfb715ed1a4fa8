"""Whole batches of Avro values by pyruhvro: to Arrow by the reader's schema, and back.

pyruhvro neither resolves schemas nor checks every byte, and few of its types are fast. So this
module describes values to pyruhvro by a plainer schema with the same encoding (`_layout`), and
does the rest in Arrow. A SlowError means that fastavro must read or write the values instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyruhvro

from cykafka.schemas.arrow.columns import check_keys, join_bytes
from cykafka.schemas.model.faults import is_fault

__all__ = ["NamedSchemas", "SlowError", "batch_reader", "batch_writer", "fits", "has_threads",
           "resolved"]  # fmt: skip

NamedSchemas: TypeAlias = dict[str, Any]
_Convert: TypeAlias = Callable[[pa.Array], pa.Array]

# More fields in one schema, with each named type where it is used, are fastavro's work.
_MOST_FIELDS = 5000
# An int is a long with a smaller range, an enum is the number of its symbol, and bytes are a
# string that need not be UTF-8. pyruhvro would truncate an int, and is slow with bytes.
_LAYOUTS = {
    "boolean": "boolean",
    "int": "long",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "string",
    "enum": "long",
    "null": "null",
}
_PROMOTIONS = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
_RECORDS = ("record", "error")
_NUMBERS = ("int", "long", "float", "double")
# Eight bytes that follow each value, so that a value with more bytes than its schema has is
# found. Only the first one is zero, so that they cannot follow bytes like themselves; and they
# are random, so that no value can contain them.
_GUARD = b"\0" + bytes(1 + octet % 255 for octet in os.urandom(7))
_GUARD_NUMBER = int.from_bytes(_GUARD, "little", signed=True)
# pyruhvro writes in threads, which a forked process lacks: it would wait forever.
_owner: list[int] = []


class SlowError(Exception):
    """A schema that only fastavro can read or write."""


def batch_reader(
    written: Any,
    writers: NamedSchemas,
    reads: Any,
    readers: NamedSchemas,
    kind: pa.DataType,
    defaults: Callable[[Any, Any], Any],
) -> Callable[[pa.BinaryArray], Callable[[int, int], pa.Array]]:
    """Return a function that prepares payloads; its result reads some rows of them.

    Parameters
    ----------
    written, reads
        The schemas of the writer and of the reader, without logical types except decimal.
    writers, readers : dict
        Their named types.
    kind : pa.DataType
        The reader's type.
    defaults : callable
        Returns a field's default as a value for pyarrow, from the field's schema and the default.

    Raises
    ------
    SlowError
        The schemas are fastavro's work.
    """
    layout = _text(_Layout(writers).of(written), {"name": "guard", "type": "double"})
    convert = _Reading(writers, readers, defaults).of(written, reads, kind)
    try:
        pyruhvro.deserialize_array([], layout)
    except BaseException as error:
        if not is_fault(error):
            raise
        raise SlowError(str(error)) from None

    def prepare(payloads: pa.BinaryArray) -> Callable[[int, int], pa.Array]:
        def read(low: int, high: int) -> pa.Array:
            # Values of almost 2 GiB have no place for the guards, but a part of them has.
            part = join_bytes(payloads[low:high], _GUARD).to_pylist()
            batch = pyruhvro.deserialize_array(part, layout)
            if (batch.column(1).to_numpy().view(np.int64) != _GUARD_NUMBER).any():
                raise ValueError("bytes follow a value")
            return convert(batch.column(0))

        return read

    return prepare


def batch_writer(
    schema: Any, named: NamedSchemas, given: pa.DataType, defaults: Callable[[Any, Any], pa.Array]
) -> _Convert:
    """Return a function that writes values without null.

    Parameters
    ----------
    schema
        The schema, without logical types except decimal.
    named : dict
        Its named types.
    given : pa.DataType
        The type of the values, with times as numbers.
    defaults : callable
        Returns a field's default as an array of one value, from the field's schema and the
        default.

    Raises
    ------
    SlowError
        The schema is fastavro's work.
    """
    layout = _text(_Layout(named).of(schema))
    check, convert = _Writing(named, defaults).of(schema, given)

    def write(values: pa.Array) -> pa.Array:
        check(values)
        batch = pa.RecordBatch.from_arrays([convert(values)], names=["value"])
        [made] = pyruhvro.serialize_record_batch(batch, layout, 1)
        return made

    return write


def has_threads() -> bool:
    """Whether this process can write batches: not if its parent has written some before."""
    if not _owner:
        _owner.append(os.getpid())
    return _owner[0] == os.getpid()


def _text(layout: Any, *more: dict[str, str]) -> str:
    """Return the schema of a record with a value and what follows it."""
    fields = [{"name": "value", "type": layout}, *more]
    return json.dumps({"type": "record", "name": "whole", "fields": fields})


def resolved(schema: Any, named: NamedSchemas) -> Any:
    """Return a union as a list, and another schema as a dict whose type is a name."""
    while not isinstance(schema, list):
        if isinstance(schema, str):
            schema = named.get(schema, {"type": schema})
        elif isinstance(schema["type"], str) and schema["type"] not in named:
            return schema
        else:
            schema = schema["type"]
    return schema


def fits(written: Any, reads: Any) -> bool:
    """Whether a resolved schema of a reader, not a union, can read what another one writes."""
    wrote, read = written["type"], reads["type"]
    if "name" not in reads:
        return read in _PROMOTIONS.get(wrote, (wrote,))
    names = (reads["name"], *reads.get("aliases", ()))
    return wrote == read and _last(written["name"]) in map(_last, names)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_optional(branches: list[Any]) -> bool:
    return len(branches) == 2 and "null" in branches and branches != ["null", "null"]


def _is_choice(branches: list[Any], kind: pa.DataType) -> bool:
    """Whether a union's type is a struct of its members."""
    return bool(pa.types.is_struct(kind)) and sum(branch != "null" for branch in branches) > 1


def _present(branches: list[Any]) -> Any:
    """Return the only branch that is not null."""
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        raise SlowError("a union of several types")
    return others[0]


class _Layout:
    """Describes a schema's encoding to pyruhvro: each type where it is used, without names."""

    def __init__(self, named: NamedSchemas) -> None:
        self._named = named
        self._count = 0

    def of(self, schema: Any, within: tuple[str, ...] = ()) -> Any:
        self._count += 1
        if self._count > _MOST_FIELDS:
            raise SlowError("too many fields")
        schema = resolved(schema, self._named)
        if isinstance(schema, list):
            if _is_optional(schema):
                return [
                    "null" if branch == "null" else self.of(branch, within) for branch in schema
                ]
            # Each branch becomes a record, because a union cannot have two branches of one type.
            return [
                "null" if branch == "null" else self._record([branch], within) for branch in schema
            ]
        kind = schema["type"]
        if kind in _RECORDS:
            if schema["name"] in within:
                raise SlowError("a record contains itself")
            types = [field["type"] for field in schema["fields"]]
            return self._record(types, (*within, schema["name"]))
        if kind == "array":
            return {"type": "array", "items": self.of(schema["items"], within)}
        if kind == "map":
            return {"type": "map", "values": self.of(schema["values"], within)}
        if kind not in _LAYOUTS:
            raise SlowError(f"the type {kind}")
        return _LAYOUTS[kind]

    def _record(self, types: list[Any], within: tuple[str, ...]) -> dict[str, Any]:
        self._count += 1
        name = f"r{self._count}"
        fields = [
            {"name": f"f{number}", "type": self.of(kind, within)}
            for number, kind in enumerate(types)
        ]
        return {"type": "record", "name": name, "fields": fields}


class _Reading:
    """Converts pyruhvro's arrays to the reader's types, by the rules of schema resolution."""

    def __init__(
        self, writers: NamedSchemas, readers: NamedSchemas, defaults: Callable[[Any, Any], Any]
    ) -> None:
        self._writers = writers
        self._readers = readers
        self._defaults = defaults

    def of(self, written: Any, reads: Any, kind: pa.DataType) -> _Convert:
        written = resolved(written, self._writers)
        reads = resolved(reads, self._readers)
        if isinstance(written, list):
            if not isinstance(reads, list):
                raise SlowError("a union that is read as one type")
            if _is_optional(written) and "null" in reads:
                return self.of(_present(written), _present(reads), kind)
            return self._union(written, reads, kind)
        wrote = written["type"]
        if isinstance(reads, list):
            if wrote == "null":
                raise SlowError("null that is read as a union")
            return self.of(written, _present(reads), kind)
        read = reads["type"]
        if wrote in _RECORDS and read in _RECORDS:
            _check_names(written, reads)
            return self._record(written["fields"], reads["fields"], kind)
        if wrote == read == "array":
            return _list(self.of(written["items"], reads["items"], kind.value_type), kind)
        if wrote == read == "map":
            return _map(self.of(written["values"], reads["values"], kind.item_type), kind)
        if wrote == read == "enum":
            _check_names(written, reads)
            return _enum(written["symbols"], reads["symbols"])
        if read not in _PROMOTIONS.get(wrote, (wrote,)):
            raise SlowError(f"{wrote} that is read as {read}")
        return _plain(written, reads, kind)

    def _record(self, written: list[Any], reads: list[Any], kind: pa.StructType) -> _Convert:
        places = {field["name"]: place for place, field in enumerate(written)}
        parts: list[tuple[int, _Convert] | pa.Array] = []
        used = set[int]()
        for field, of in zip(reads, kind, strict=True):
            names = [field["name"], *field.get("aliases", ())]
            found = [places[name] for name in names if name in places]
            if len(found) > 1 or not used.isdisjoint(found):
                raise SlowError("a field with several names")
            used.update(found)
            if found:
                place = found[0]
                parts.append((place, self.of(written[place]["type"], field["type"], of.type)))
            elif "default" in field:
                value = self._defaults(field["type"], field["default"])
                parts.append(pa.array([value], of.type))
            else:
                raise SlowError("a field without a default")
        return _struct(parts, fields=list(kind))

    def _union(self, written: list[Any], reads: list[Any], kind: pa.DataType) -> _Convert:
        if not _is_choice(reads, kind) or len(written) != len(reads):
            raise SlowError("a union that is read as another one")
        both = [resolved(branch, self._writers) for branch in written]
        types = [branch["type"] for branch in both]
        # fastavro finds a number's branch by its value, and so a branch of another type.
        if sum(name in _NUMBERS for name in types) > 1 or {"string", "bytes"} <= set(types):
            raise SlowError("a union of similar types")
        members = iter(kind)
        parts: list[tuple[int, _Convert, pa.DataType]] = []
        for number, branch in enumerate(both):
            other = resolved(reads[number], self._readers)
            if branch["type"] != other["type"]:
                raise SlowError("a union with other branches")
            if branch["type"] != "null":
                of = next(members).type
                parts.append((number, self.of(branch, other, of), of))
        absent = types.index("null") if "null" in types else -1
        fields = list(kind)

        def convert(values: pa.Array) -> pa.Array:
            codes = values.type_codes
            columns = [
                pc.if_else(
                    pc.equal(codes, number), of(values.field(number).field(0)), pa.scalar(None, to)
                )
                for number, of, to in parts
            ]
            return pa.StructArray.from_arrays(columns, fields=fields, mask=pc.equal(codes, absent))

        return convert


def _check_names(written: Any, reads: Any) -> None:
    if _last(written["name"]) != _last(reads["name"]):
        raise SlowError("a type with another name")


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _struct(parts: list[tuple[int, _Convert] | pa.Array], **names: list[Any]) -> _Convert:
    """Return the conversion of structs. A part is a field's place and conversion, or a default."""

    def convert(values: pa.Array) -> pa.Array:
        columns = [
            part.take(pa.array(np.zeros(len(values), np.int64)))
            if isinstance(part, pa.Array)
            else part[1](values.field(part[0]))
            for part in parts
        ]
        return pa.StructArray.from_arrays(columns, mask=_mask(values), **names)

    return convert


def _list(item: _Convert, kind: pa.ListType | None = None) -> _Convert:
    return lambda values: pa.ListArray.from_arrays(
        values.offsets, item(values.values), type=kind, mask=_mask(values)
    )


def _map(item: _Convert, kind: pa.MapType) -> _Convert:
    def convert(values: pa.Array) -> pa.Array:
        values.keys.validate(full=True)  # whether they are UTF-8
        check_keys(values)
        return pa.MapArray.from_arrays(
            values.offsets, values.keys, item(values.items), kind, mask=_mask(values)
        )

    return convert


def _enum(written: list[str], reads: list[str]) -> _Convert:
    if not set(written) <= set(reads):
        raise SlowError("an enum with other symbols")
    symbols = pa.array(written, pa.string())
    # Arrow raises an error for a number without a symbol.
    return lambda values: symbols.take(values)


def _plain(written: Any, reads: Any, kind: pa.DataType) -> _Convert:
    wrote = written["type"]
    if reads.get("logicalType") == "decimal":  # otherwise a decimal is bytes
        if _decimal_of(written) != _decimal_of(reads) or not pa.types.is_decimal128(kind):
            raise SlowError("a decimal that is read as another type")
        return lambda values: _to_decimals(values, kind)
    if wrote == "null":
        return lambda values: pa.nulls(len(values), kind)
    if wrote in ("string", "bytes"):
        return lambda values: _to_text(values, kind, "string" in (wrote, reads["type"]))
    if wrote == "int":
        return lambda values: _to_number(values.cast(pa.int32()), kind)
    return lambda values: _to_number(values, kind)


def _decimal_of(schema: Any) -> tuple[Any, ...]:
    return tuple(schema.get(name) for name in ("type", "logicalType", "precision", "scale"))


def _to_number(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_integer(values.type) and pa.types.is_floating(kind):
        return values.cast(pa.float64(), safe=False).cast(kind)
    return values.cast(kind)


def _to_text(values: pa.Array, kind: pa.DataType, is_text: bool) -> pa.Array:
    if is_text:
        values.validate(full=True)  # whether they are UTF-8
    return values if values.type == kind else values.view(kind)


def _to_decimals(values: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """Return decimals from texts with their big-endian bytes."""
    valid, offsets, data = values.buffers()
    places = np.frombuffer(offsets, np.int32)[: len(values) + 1].astype(np.int64)
    octets = np.frombuffer(data or b"", np.uint8)
    sizes = np.diff(places)
    if sizes.max(initial=0) > 16:
        raise ValueError("a decimal has more than 16 bytes")
    numbers = np.zeros((len(values), 16), np.uint8)
    has = np.flatnonzero(sizes)
    numbers[has] = np.where(octets[places[has]] > 0x7F, 0xFF, 0)[:, None]
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > place)
        numbers[rows, place] = octets[places[rows + 1] - 1 - place]
    made = pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(numbers)])
    made.validate(full=True)  # whether they have too many digits
    return made


class _Writing:
    """Converts arrays to pyruhvro's types, and checks what pyruhvro would write as garbage."""

    def __init__(self, named: NamedSchemas, defaults: Callable[[Any, Any], pa.Array]) -> None:
        self._named = named
        self._defaults = defaults

    def of(self, schema: Any, kind: pa.DataType) -> tuple[Callable[[pa.Array], None], _Convert]:
        """Return a function that raises ValueError for unfit values, and the conversion."""
        schema = resolved(schema, self._named)
        if isinstance(schema, list):
            if not _is_optional(schema):
                return self._union(schema, kind)
            of_present, convert = self.of(_present(schema), kind)
            return lambda values: of_present(values.drop_null()), convert
        name = schema["type"]
        if name == "null":
            return _check_nulls, lambda values: pa.nulls(len(values))
        inner, convert = self._value(schema, name, kind)

        def check(values: pa.Array) -> None:
            if values.null_count:
                raise ValueError("null, which the schema does not allow")
            inner(values)

        return check, convert

    def _value(
        self, schema: Any, name: str, kind: pa.DataType
    ) -> tuple[Callable[[pa.Array], None], _Convert]:
        if name in _RECORDS and pa.types.is_struct(kind):
            return self._record(schema["fields"], kind)
        if name == "array" and pa.types.is_list(kind):
            check, item = self.of(schema["items"], kind.value_type)
            return lambda values: check(values.flatten()), _list(item)
        if name == "map" and pa.types.is_map(kind):
            check, item = self.of(schema["values"], kind.item_type)
            return _map_check(check), _plain_map(item)
        if name == "enum" and pa.types.is_string(kind):
            symbols = pa.array(schema["symbols"], pa.string())
            return (
                lambda values: _check_symbols(values, symbols),
                lambda values: pc.index_in(values, symbols).cast(pa.int64()),
            )
        if pa.types.is_decimal128(kind) and name == "bytes":
            return _accept, _from_decimals
        if name in ("string", "bytes") and kind in (pa.string(), pa.binary()):
            return _accept, lambda values: values.view(pa.string())
        if name in ("int", "long") and pa.types.is_integer(kind):
            return _accept, lambda values: values.cast(pa.int64())
        if (name, kind) in (
            ("boolean", pa.bool_()), ("float", pa.float32()), ("double", pa.float64())
        ):  # fmt: skip
            return _accept, lambda values: values
        raise SlowError(f"{kind} that is written as {name}")

    def _record(
        self, fields: list[Any], kind: pa.StructType
    ) -> tuple[Callable[[pa.Array], None], _Convert]:
        checks: list[tuple[int, Callable[[pa.Array], None]]] = []
        parts: list[tuple[int, _Convert] | pa.Array] = []
        for field in fields:
            place = kind.get_field_index(field["name"])
            if place >= 0:
                of_field, convert = self.of(field["type"], kind.field(place).type)
                checks.append((place, of_field))
                parts.append((place, convert))
            elif "default" in field:
                one = self._defaults(field["type"], field["default"])
                parts.append(self.of(field["type"], one.type)[1](one))
            else:
                raise SlowError("a field without a default")

        def check(values: pa.Array) -> None:
            for place, of_field in checks:
                of_field(values.field(place))

        return check, _struct(parts, names=[f"f{number}" for number in range(len(fields))])

    def _union(
        self, branches: list[Any], kind: pa.DataType
    ) -> tuple[Callable[[pa.Array], None], _Convert]:
        names = [resolved(branch, self._named)["type"] for branch in branches]
        if not _is_choice(branches, kind):
            raise SlowError("a union of numbers or of one type")
        members = {
            f"member{at}": number
            for at, number in enumerate(at for at, name in enumerate(names) if name != "null")
        }
        if {field.name for field in kind} != members.keys():
            raise SlowError("a union with other members")
        absent = names.index("null") if "null" in names else -1
        given = [(members[field.name], *self.of(branches[members[field.name]], field.type))
                 for field in kind]  # fmt: skip

        def codes(values: pa.Array) -> Any:
            """Return each value's branch; -1 without one, -2 with several."""
            found = np.full(len(values), absent, np.int64)
            counts = np.zeros(len(values), np.int64)
            for place, (number, _, _) in enumerate(given):
                has = pc.is_valid(pc.struct_field(values, [place])).to_numpy(zero_copy_only=False)
                found[has] = number
                counts += has
            found[counts > 1] = -2
            return found

        def check(values: pa.Array) -> None:
            if (codes(values) < 0).any():
                raise ValueError("no member of a union, or several, are not null")
            for place, (_, inner, _) in enumerate(given):
                inner(values.field(place).drop_null())

        def convert(values: pa.Array) -> pa.Array:
            columns = [pa.nulls(len(values)) for _ in branches]
            for place, (number, _, of) in enumerate(given):
                columns[number] = pa.StructArray.from_arrays([of(values.field(place))], ["f0"])
            types = pa.array(np.maximum(codes(values), 0), pa.int8())
            return pa.UnionArray.from_sparse(
                types, columns, [f"b{at}" for at in range(len(names))]
            )

        return check, convert


def _accept(values: pa.Array) -> None:
    """Do nothing: the casts before have checked the values."""


def _check_nulls(values: pa.Array) -> None:
    if values.null_count < len(values):
        raise ValueError("a value, where the schema has null")


def _check_symbols(values: pa.Array, symbols: pa.Array) -> None:
    if not pc.all(pc.is_in(values, symbols)).as_py() and len(values):
        raise ValueError("a text that is not a symbol of the enum")


def _map_check(check: Callable[[pa.Array], None]) -> Callable[[pa.Array], None]:
    def of_map(values: pa.MapArray) -> None:
        check_keys(values)
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        check(values.items[first:last])

    return of_map


def _plain_map(item: _Convert) -> _Convert:
    return lambda values: pa.MapArray.from_arrays(
        values.offsets, values.keys, item(values.items), mask=_mask(values)
    )


def _from_decimals(values: pa.Array) -> pa.Array:
    """Return texts with the fewest big-endian bytes of decimals."""
    data = values.buffers()[1]
    count = len(values)
    numbers = np.frombuffer(data or b"", np.uint8).reshape(-1, 16)
    numbers = numbers[values.offset : values.offset + count, ::-1]
    sign = np.where(numbers[:, :1] > 0x7F, 0xFF, 0).astype(np.uint8)
    # Needed is the first byte that is not the sign's, and one before it if it has another sign.
    differs = numbers != sign
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    tops = numbers[np.arange(count), first]
    first -= ((tops ^ sign[:, 0]) > 0x7F) & (first > 0)
    is_kept = np.arange(16) >= first[:, None]
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(16 - first, out=offsets[1:])
    valid = pc.is_valid(values)
    made = pa.StringArray.from_buffers(
        count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(numbers[is_kept].tobytes())
    )
    return made if not values.null_count else pc.if_else(valid, made, pa.scalar(None, pa.string()))
