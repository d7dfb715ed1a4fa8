"""JSON objects to Arrow, and back. pyarrow parses whole batches, Python the values that fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from cykafka.schemas.arrow.columns import (
    Rows,
    by_halves,
    check_keys,
    convert_rows,
    join_bytes,
    plain_lists,
    read_each,
    rebuilt,
    replace_types,
)
from cykafka.schemas.model.document import UnfitError
from cykafka.schemas.model.json_validation import accepts_null, loads

__all__ = ["deep_rows", "inferred_type", "json_reader", "to_json"]

_FEW = 64
# The stack ends where pyarrow infers the type of a value with some thousand levels.
_MOST_LEVELS = 100
_SPACES = " \t\n\r"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_STEPS = np.zeros(256, np.int64)
_STEPS[[*b"{["]], _STEPS[[*b"}]"]] = 1, -1
_PLAIN = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
# Times are parsed as texts at first.
_TEXTS = dict.fromkeys(_FORMATS.values(), pa.string())

_TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
# What JSON has without quotes.
_NUMBER_TYPES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
)
# How pyarrow and Python write NaN and the infinities, which may also be in a text.
_NOT_FINITE = b"NaN", b"Inf"
_NOT_FINITE_VALUE = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")

_LAST_YEAR = 9999  # that ISO 8601 and RFC 3339 have

# Arrow reads times with at most six digits after the second, and capital letters.
_MORE_DIGITS = r"(\.[0-9]{6})[0-9]+"

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
        change: _Change = _same
        kind = schema
    else:
        # Many schemas of objects leave their type out.
        named = {"type": "object", **schema} if "properties" in schema else schema
        kind, change = _type(named)
    texts = replace_types(kind, _TEXTS)
    is_object = pa.types.is_struct(kind)
    is_quick = change is _same and is_object
    prepare = _strict(texts)

    def read_value(payload: bytes) -> Any:
        value = loads(payload)
        if is_object and not isinstance(value, dict):
            raise ValueError("it is not an object")
        return prepare(change(value))

    def read_slowly(payloads: pa.BinaryArray) -> Rows:
        words = "it is not JSON of the schema"
        return read_each(payloads, read_value, texts, kind, words, _with_times)

    def read(payloads: pa.BinaryArray) -> Rows:
        if not is_quick:
            return read_slowly(payloads)
        return by_halves(
            len(payloads),
            lambda low, high: _with_times(_parsed(payloads[low:high], texts), kind),
            lambda low, high, _: read_slowly(payloads[low:high]),
            _FEW,
        )

    return kind, read


def deep_rows(payloads: pa.BinaryArray) -> dict[int, str]:
    """Return why values have too many levels for `inferred_type`, by row number."""
    _, ends, data = payloads.buffers()
    if data is None or not len(payloads):
        return {}
    offsets = np.frombuffer(ends, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    octets = np.frombuffer(data, np.uint8)
    opened = np.flatnonzero(octets[: offsets[-1]] | 0x20 == ord("{"))  # or [
    counts = np.diff(np.searchsorted(opened, offsets))
    found = {}
    for row in np.flatnonzero(counts > _MOST_LEVELS).tolist():
        marks = _STRING.sub(b"", octets[offsets[row] : offsets[row + 1]].tobytes())
        if _STEPS[np.frombuffer(marks, np.uint8)].cumsum().max(initial=0) > _MOST_LEVELS:
            found[row] = f"it has more than {_MOST_LEVELS} levels: pass schema="
    return found


def inferred_type(payloads: pa.BinaryArray) -> pa.DataType | None:
    """Return the type of JSON objects as pyarrow finds it; None if none of them is an object."""
    kinds: list[pa.Schema] = []

    def infer(low: int, high: int) -> pa.Array:
        kinds.append(pa.schema(list(_parsed(payloads[low:high], None).type)))
        return pa.nulls(high - low)

    convert_rows(len(payloads), infer, pa.null(), "")
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
    joined = join_bytes(payloads, b"\n")
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
        trimmed = pc.ascii_trim(payloads.cast(pa.string()), _SPACES).cast(pa.binary())
        if trimmed.equals(payloads):
            raise ValueError("a value is not an object")
        return _parsed(trimmed, kind)
    size = int(offsets[-1])
    payloads.cast(pa.string())  # fails if a field that the parser ignores is not UTF-8
    text = joined.buffers()[2].slice(0, size)
    _check_finite(text.to_pybytes(), payloads)
    table = arrow_json.read_json(
        pa.BufferReader(text),
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


def _check_finite(joined: bytes, payloads: pa.BinaryArray) -> None:
    """Raise ValueError if a number is NaN or infinite, which pyarrow reads."""
    if not any(word in joined for word in _NOT_FINITE) or not _NOT_FINITE_VALUE.search(joined):
        return
    for payload in payloads.to_pylist():
        if _NOT_FINITE_VALUE.search(payload):  # this may be in a text
            loads(payload)


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


def _strict(kind: pa.DataType) -> _Change:
    """Return a function that prepares values of JSON for Arrow.

    Arrow refuses large integers as floats. It takes a text for a list, a list for a struct, and
    cuts a number's fraction off.
    """
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_struct(kind):
        changes = {field.name: _strict(field.type) for field in kind}
        return _members({name: change for name, change in changes.items() if change is not _same})
    if pa.types.is_map(kind):
        of = _strict(kind.item_type)
        return _same if of is _same else _each(lambda pair: (pair[0], of(pair[1])))
    return _each(_strict(kind.value_type)) if pa.types.is_list(kind) else _same


def _float(value: Any) -> Any:
    # The text of a number that is too large becomes infinite, as in a batch.
    if isinstance(value, bool):
        raise ValueError("expected a number, got a boolean")
    return float(str(value)) if type(value) is int else value


def _integer(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    if not value.is_integer():
        raise ValueError(f"expected an integer, got {value}")
    return int(value)


def _with_times(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return parsed values with times instead of texts."""
    return rebuilt(values, kind, _cast)


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        with suppress(pa.ArrowInvalid):
            return texts.cast(kind)
        texts = pc.replace_substring_regex(pc.ascii_upper(texts), _MORE_DIGITS, r"\1")
    return texts.cast(kind)


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
        if not isinstance(value, dict):
            raise ValueError("expected an object")
        return {**value, **{name: of(value.get(name)) for name, of in changes.items()}}

    return change


def _entries(of: _Change) -> _Change:
    return lambda value: value if value is None else [(k, of(v)) for k, v in value.items()]


def _each(of: _Change) -> _Change:
    def change(values: Any) -> Any:
        if values is None:
            return None
        if not isinstance(values, list):
            raise ValueError("expected an array")
        return [of(value) for value in values]

    return change


def to_json(values: pa.Array, schema: Any = None) -> pa.BinaryArray:
    """Return values as JSON; null stays null.

    Times become texts of ISO 8601, and decimals numbers. Bytes become text, and must be UTF-8.
    The keys of maps become texts.

    Parameters
    ----------
    values : pa.Array
    schema : dict, optional
        The values' JSON Schema, without references. A null is omitted if it is of a property that
        the schema neither requires nor allows to be null.

    Raises
    ------
    ValueError
        A number is not finite, bytes are not UTF-8, or a map has a key twice.
    UnfitError
        JSON lacks the type, a struct has two fields of one name, or the schema allows no more
        properties than its own, and a struct has others.
    """
    made = _json(plain_lists(values), schema).cast(pa.binary())
    return made if not values.null_count else pc.if_else(values.is_valid(), made, None)


def _json(values: pa.Array, schema: Any) -> pa.StringArray:
    """Return plain values as JSON, column by column, without a Python object for each."""
    kind = values.type
    if pa.types.is_null(kind):
        return pa.repeat(pa.scalar("null"), len(values))
    schema = schema if isinstance(schema, Mapping) else {}
    if pa.types.is_map(kind):
        text = _json_map(values, schema)
    elif pa.types.is_struct(kind):
        text = _json_struct(values, schema)
    elif pa.types.is_list(kind):
        elements = _json(values.flatten(), schema.get("items"))
        text = _joined("[", _elements(values, elements), "]")
    else:
        text = _json_plain(values, schema.get("format"))
    return text if not values.null_count else pc.if_else(values.is_valid(), text, "null")


def _json_struct(values: pa.StructArray, schema: Mapping[str, Any]) -> pa.StringArray:
    known = schema.get("properties", {})
    names = [field.name for field in values.type]
    if len({*names}) < len(names):
        raise UnfitError(f"a struct has two fields of one name: {', '.join(names)}")
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if is_closed and (unknown := [name for name in names if name not in known]):
        raise UnfitError(f"the schema has no property {', '.join(unknown)}")
    parts: list[Any] = []
    # Only `flatten` makes a field null where the struct is null.
    for field, column in zip(values.type, values.flatten(), strict=True):
        of = known.get(field.name)
        name, text = f",{json.dumps(field.name)}:", _json(column, of)
        is_optional = field.name in known and field.name not in schema.get("required", ())
        if column.null_count and is_optional and not accepts_null(of):
            parts.append(pc.if_else(column.is_valid(), _joined(name, text), ""))
        else:
            parts += [name, text]
    if not parts:
        return pa.repeat(pa.scalar("{}"), len(values))
    return _joined("{", pc.utf8_slice_codeunits(_joined(*parts), 1), "}")


def _json_map(values: pa.MapArray, schema: Mapping[str, Any]) -> pa.StringArray:
    kind = values.type
    is_number = _is_number(kind.key_type)
    if not is_number and not _is_text(kind.key_type) and not pa.types.is_temporal(kind.key_type):
        raise UnfitError(f"JSON has no maps with keys of {kind.key_type}")
    check_keys(values)
    entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
    lists = values.cast(pa.list_(entry))
    entries = lists.flatten()
    keys = _json(entries.field(0), None)
    keys = _joined('"', keys, '"') if is_number else keys
    pairs = _joined(keys, ":", _json(entries.field(1), schema.get("additionalProperties")))
    return _joined("{", _elements(lists, pairs), "}")


def _elements(values: pa.ListArray, elements: pa.StringArray) -> pa.StringArray:
    """Return the elements' texts of each list, with commas between them."""
    sizes = pc.list_value_length(values).fill_null(0).to_numpy()
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pc.binary_join(pa.ListArray.from_arrays(offsets, elements), ",")


def _is_text(kind: pa.DataType) -> bool:
    return any(is_text(kind) for is_text in _TEXT_TYPES)


def _is_number(kind: pa.DataType) -> bool:
    return any(is_number(kind) for is_number in _NUMBER_TYPES)


def _joined(*parts: Any) -> pa.StringArray:
    texts = [pa.scalar(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar(""))


def _check_years(times: pa.Array) -> None:
    years = pc.min_max(pc.year(times)).as_py()
    if len(times) > times.null_count and not 1 <= years["min"] <= years["max"] <= _LAST_YEAR:
        raise ValueError(f"a time is not between the years 1 and {_LAST_YEAR}")


def _json_plain(values: pa.Array, format: str | None) -> pa.StringArray:
    kind = values.type
    if pa.types.is_date(kind) and format == "date-time":
        kind = pa.timestamp("s", "UTC")
        values = values.cast(pa.timestamp("s")).cast(kind)
    if pa.types.is_timestamp(kind):
        if format == "date":
            raise UnfitError(f"the schema's format is date, and the column is {kind}: cast it")
        # A date-time has a time zone.
        zone = "Z" if kind.tz or format == "date-time" else ""
        times = values.cast(pa.timestamp(kind.unit, "UTC")) if kind.tz else values
        _check_years(times)
        return _joined('"', pc.strftime(times, f"%Y-%m-%dT%H:%M:%S{zone}"), '"')
    if pa.types.is_floating(kind):
        if not pc.all(pc.is_finite(values)).as_py() and values.null_count < len(values):
            raise ValueError("a number is not finite, which JSON lacks")
        return values.cast(pa.string())
    if _is_number(kind):
        return values.cast(pa.string())
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        if pa.types.is_date(kind):
            _check_years(values)
        return _joined('"', values.cast(pa.string()), '"')
    if not _is_text(kind):
        raise UnfitError(f"JSON has no {kind}")
    texts = values.cast(pa.string())  # fails if bytes are not UTF-8
    if pc.any(pc.match_substring_regex(texts, r'["\\\x00-\x1f]')).as_py():
        for letter in ("\\", '"', *map(chr, range(32))):
            texts = pc.replace_substring(texts, letter, json.dumps(letter)[1:-1])
    return _joined('"', texts, '"')
