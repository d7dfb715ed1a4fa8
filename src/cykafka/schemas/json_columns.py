"""JSON objects to Arrow, and back. pyarrow parses whole batches, Python the values that fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from cykafka.schemas.columns import Rows, by_halves, each_or_all, replace_types, shorten_error

__all__ = ["inferred_type", "json_reader", "to_json"]

_FEW = 64
_PLAIN = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
# Times are parsed as texts at first.
_TEXTS = dict.fromkeys(_FORMATS.values(), pa.string())

# Converts a value of JSON for pyarrow.
_Change: TypeAlias = Callable[[Any], Any]


def json_reader(schema: Any) -> tuple[pa.DataType, Callable[[pa.BinaryArray], Rows]]:
    """Return the Arrow type for a JSON Schema, and a function that reads values.

    Parameters
    ----------
    schema : dict or pa.StructType
        The schema of an object, without references; or the type itself.

    Notes
    -----
    Objects with "properties" become structs, other objects maps. A value of several types, or of
    an unknown type, becomes its JSON as text. Fields that the schema lacks are ignored.
    """
    if isinstance(schema, pa.DataType):
        kind, change = schema, _same
    else:
        kind, change = _type(schema)
    texts = replace_types(kind, _TEXTS)
    is_object = pa.types.is_struct(kind)
    is_quick = change is _same and is_object

    def read_each(payloads: pa.BinaryArray) -> Rows:
        values, wrong = [], {}
        for number, payload in enumerate(payloads.to_pylist()):
            try:
                value = json.loads(payload)
                if is_object and not isinstance(value, dict):
                    raise ValueError("it is not an object")
                values.append(change(value))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                values.append(None)
                wrong[number] = f"it is not JSON of the schema: {shorten_error(error)}"

        def convert(low: int, high: int) -> pa.Array:
            return pa.array(values[low:high], texts).cast(kind)

        made, more = each_or_all(len(values), convert, kind, "it is of another type")
        return made, {**more, **wrong}

    def read(payloads: pa.BinaryArray) -> Rows:
        if not is_quick:
            return read_each(payloads)
        return by_halves(
            len(payloads),
            lambda low, high: _parsed(payloads[low:high], texts).cast(kind),
            lambda low, high, _: read_each(payloads[low:high]),
            _FEW,
        )

    return kind, read


def inferred_type(payloads: pa.BinaryArray) -> pa.DataType | None:
    """Return the type of JSON objects as pyarrow finds it; None if none of them is an object."""
    kinds: list[pa.Schema] = []

    def infer(low: int, high: int) -> pa.Array:
        kinds.append(pa.schema(list(_parsed(payloads[low:high], None).type)))
        return pa.nulls(high - low)

    each_or_all(len(payloads), infer, pa.null(), "")
    if not kinds:
        return None
    merged = kinds[0]
    for more in kinds[1:]:
        with suppress(pa.ArrowException):  # such values are of another type
            merged = pa.unify_schemas([merged, more], promote_options="permissive")
    made = pa.struct(list(merged))
    return replace_types(made, {pa.null(): pa.string(), pa.timestamp("s"): pa.string()})


def _parsed(payloads: pa.BinaryArray, kind: pa.StructType | None) -> pa.StructArray:
    """Parse objects, one for each payload.

    Raises
    ------
    ValueError
        One of the payloads is not an object, or does not begin and end with its braces.
    """
    joined = _lines(payloads)
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[: len(joined) + 1]
    octets = np.frombuffer(joined.buffers()[2] or b"", np.uint8)
    if np.count_nonzero(octets[: offsets[-1]] == ord("\n")) > len(joined):
        # A line of the parser must be one payload. Within texts a tab is as wrong as a newline.
        return _parsed(pc.replace_substring(payloads, b"\n", b"\t"), kind)
    # With these two checks no payload can be several objects, or a part of one, unseen: their
    # number would differ.
    if not len(joined) or np.diff(offsets).min() < 3:
        raise ValueError("a value is empty")
    braces = octets[offsets[:-1]], octets[offsets[1:] - 2]
    if (braces[0] != ord("{")).any() or (braces[1] != ord("}")).any():
        raise ValueError("a value is not an object")
    size = int(offsets[-1])
    table = arrow_json.read_json(
        pa.BufferReader(joined.buffers()[2].slice(0, size)),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=size + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=None if kind is None else pa.schema(list(kind)),
            unexpected_field_behavior="infer" if kind is None else "ignore",
        ),
    )
    if table.num_rows != len(payloads):
        raise ValueError("a value is not one object")
    made = pa.concat_arrays([batch.to_struct_array() for batch in table.to_batches()])
    made.validate(full=True)  # whether the texts are UTF-8
    return made


def _lines(payloads: pa.BinaryArray) -> pa.BinaryArray:
    end, nothing = pa.scalar(b"\n", pa.binary()), pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(payloads, end, nothing)


def _type(schema: Any) -> tuple[pa.DataType, _Change]:
    """Return a schema's type, and the conversion of its values."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(kind, list):  # ["string", "null"]
        kinds = [name for name in kind if name != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind == "object" and schema.get("properties"):
        found = {name: _type(of) for name, of in schema["properties"].items()}
        changes = {name: change for name, (_, change) in found.items() if change is not _same}
        fields = pa.struct([pa.field(name, of) for name, (of, _) in found.items()])
        return fields, _members(changes) if changes else _same
    if kind == "object":
        of, change = _type(schema.get("additionalProperties"))
        return pa.map_(pa.string(), of), _entries(change)
    if kind == "array":
        of, change = _type(schema.get("items"))
        return pa.list_(pa.field("element", of)), _same if change is _same else _each(change)
    if kind == "string" and schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]], _same
    if kind in _PLAIN:
        return _PLAIN[kind], _same
    return pa.string(), _text


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _members(changes: dict[str, _Change]) -> _Change:
    def change(value: Any) -> Any:
        if value is None:
            return None
        return {**value, **{name: of(value.get(name)) for name, of in changes.items()}}

    return change


def _entries(of: _Change) -> _Change:
    return lambda value: value if value is None else [(k, of(v)) for k, v in value.items()]


def _each(of: _Change) -> _Change:
    return lambda values: values if values is None else [of(value) for value in values]


def to_json(values: pa.Array) -> list[bytes | None]:
    """Return values as JSON.

    Times become texts of ISO 8601, and decimals numbers. Bytes become text, and must be UTF-8.
    """
    rows = values.to_pylist(maps_as_pydicts="strict")
    encode = json.JSONEncoder(
        ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain
    ).encode
    return [None if row is None else encode(row).encode() for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.decode()
    return str(value)
