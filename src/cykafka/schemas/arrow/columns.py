"""Columns of values in the wire format of Schema Registry, and of results with errors.

A value begins with a zero byte and the schema's id in four bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cykafka.schemas.model.document import UnfitError
from cykafka.schemas.model.faults import is_fault, shorten_error
from cykafka.schemas.model.framing import ID_BYTES

__all__ = [
    "NO_ID",
    "NULL",
    "Results",
    "Rows",
    "by_halves",
    "check_keys",
    "check_type",
    "convert_rows",
    "join_bytes",
    "missing_fields",
    "plain_lists",
    "plain_type",
    "read_each",
    "rebuilt",
    "replace_types",
    "rows_of",
    "schema_ids",
    "with_nulls",
    "without_head",
]

# Values instead of an id: the value is null, or it does not start like the wire format.
NULL, NO_ID = -1, -2

# An array, and the errors in some of its rows, by row number.
Rows: TypeAlias = tuple[pa.Array, dict[int, str]]


def schema_ids(values: pa.BinaryArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return each value's schema id, or `NULL`, or `NO_ID`."""
    ids = np.full(len(values), NO_ID, np.int64)
    valid = np.asarray(values.is_valid())
    ids[~valid] = NULL
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return ids
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    octets = np.frombuffer(data, np.uint8)
    long = np.flatnonzero(valid & (np.diff(starts) >= ID_BYTES))
    heads = octets[starts[long, None] + np.arange(ID_BYTES)]
    numbers = heads[:, 1:].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    ids[long] = np.where(heads[:, 0] == 0, numbers, NO_ID)
    return ids


def without_head(values: pa.BinaryArray, size: int) -> pa.BinaryArray:
    """Return the values without their first bytes."""
    # Arrow 26 computes a negative size without a stop.
    return pc.binary_slice(values, size, 2**31 - 1)


def join_bytes(*parts: bytes | pa.BinaryArray) -> pa.BinaryArray:
    """Return the parts of each row as one value. Bytes are the same in each row."""
    columns = [pa.scalar(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar(b""))


def rows_of(values: pa.Array, rows: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Return the rows with these ascending numbers."""
    return values if len(rows) == len(values) else values.take(pa.array(rows))


class Results:
    """Collects the results for a batch's rows, which arrive schema by schema."""

    def __init__(self, count: int, kind: pa.DataType) -> None:
        self.errors: list[str | None] = [None] * count
        self._parts = [pa.nulls(1, kind)]  # for the rows without a result
        self._places = np.zeros(count, np.int64)
        self._size = 1

    def put(self, rows: np.ndarray[Any, np.dtype[np.int64]], results: Rows) -> None:
        """Store the results for rows with these numbers."""
        found, wrong = results
        self._parts.append(found)
        self._places[rows] = np.arange(self._size, self._size + len(rows))
        self._size += len(rows)
        for row, words in wrong.items():
            self.errors[rows[row]] = words
            self._places[rows[row]] = 0

    def columns(self) -> tuple[pa.Array, pa.Array]:
        """Return the data and the errors of all rows, in order."""
        errors = pa.array(self.errors, pa.string())
        if (self._places == np.arange(1, len(self._places) + 1)).all():
            return pa.concat_arrays(self._parts[1:] or [self._parts[0][:0]]), errors
        return pa.concat_arrays(self._parts).take(pa.array(self._places)), errors

    def structs(self, name: str) -> pa.Array:
        """Return the structs (`name`, error) of all rows, in order."""
        return pa.StructArray.from_arrays(list(self.columns()), [name, "error"])


def by_halves(
    count: int,
    work: Callable[[int, int], pa.Array],
    each: Callable[[int, int, BaseException], Rows],
    least: int = 1,
) -> Rows:
    """Return `work(0, count)`; or, if that fails, the halves for which `work` succeeds.

    Parameters
    ----------
    count : int
        The number of rows.
    work : callable
        Creates the array for the rows from one number up to, not including, another. A ValueError
        or another error (`is_fault`) means that one of the rows is wrong.
    each : callable
        Returns the results for at most `least` rows for which `work` has raised an error.
    least : int, default 1
    """

    def made(low: int, high: int) -> list[Rows]:
        try:
            return [(work(low, high), {})]
        except BaseException as error:
            if not is_fault(error):
                raise
            if high - low <= least:
                return [each(low, high, error)]
        middle = (low + high) // 2
        return [*made(low, middle), *made(middle, high)]

    return _joined(made(0, count))


def convert_rows(
    count: int, work: Callable[[int, int], pa.Array], kind: pa.DataType, words: str
) -> Rows:
    """Return `work(0, count)`; or, if that fails, the rows for which `work` succeeds.

    Parameters
    ----------
    count, work
        As for `by_halves`.
    kind : pa.DataType
        The type of the array.
    words : str
        The beginning of the message about a wrong row.
    """

    def wrong(_low: int, _high: int, error: BaseException) -> Rows:
        return pa.nulls(1, kind), {0: f"{words}: {shorten_error(error)}"}

    return by_halves(count, work, wrong) if count else (pa.nulls(0, kind), {})


def read_each(
    payloads: pa.BinaryArray, read: Callable[[bytes], Any], made: pa.DataType, kind: pa.DataType,
    words: str, cast: Callable[[pa.Array, pa.DataType], pa.Array] = pa.Array.cast,
) -> Rows:  # fmt: skip
    """Read payloads one by one, so that only the wrong ones have errors.

    `read` returns a value of the type `made`, of which `cast` makes one of the type `kind`. The
    other parameters are as for `convert_rows`.
    """
    values, wrong = [], {}
    for number, payload in enumerate(payloads.to_pylist()):
        try:
            values.append(read(payload))
        except Exception as error:
            values.append(None)
            wrong[number] = f"{words}: {shorten_error(error)}"

    def convert(low: int, high: int) -> pa.Array:
        return cast(pa.array(values[low:high], made), kind)

    found, more = convert_rows(len(values), convert, kind, words)
    return found, {**more, **wrong}


def _joined(parts: list[Rows]) -> Rows:
    """Return the results for consecutive rows as one."""
    if len(parts) == 1:
        return parts[0]
    wrong, start = {}, 0
    for made, errors in parts:
        wrong.update({start + row: words for row, words in errors.items()})
        start += len(made)
    return pa.concat_arrays([made for made, _ in parts]), wrong


def with_nulls(valid: pa.BooleanArray, results: Rows) -> Rows:
    """Return the results for the valid rows as results for all rows; the others are null."""
    found, wrong = results
    if len(found) == len(valid):
        return results
    rows = valid.to_numpy(zero_copy_only=False).nonzero()[0]
    places = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    whole = found.take(pc.if_else(valid, places, pa.scalar(None, pa.int64())))
    return whole, {int(rows[number]): words for number, words in wrong.items()}


def check_keys(values: pa.MapArray) -> None:
    """Raise ValueError if a map has a key twice. Null has no keys, even if it has entries."""
    values = values.drop_null() if values.null_count else values
    keys = values.keys.dictionary_encode()
    sizes = np.diff(values.offsets.to_numpy())
    if not len(keys) or sizes.max(initial=0) < 2:
        return
    first = values.offsets[0].as_py()
    codes = keys.indices.to_numpy()[first : first + sizes.sum()]
    pairs = np.repeat(np.arange(len(sizes)), sizes) * len(keys.dictionary) + codes
    pairs.sort()  # numpy 2.3's `unique` takes longer
    if not np.diff(pairs).all():
        raise ValueError("a map has a duplicate key")


def replace_types(kind: pa.DataType, others: dict[pa.DataType, pa.DataType]) -> pa.DataType:
    """Return a type with some of its types replaced, whose fields may all be null."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [pa.field(field.name, replace_types(field.type, others)) for field in kind]
        )
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", replace_types(kind.value_type, others)))
    if pa.types.is_map(kind):
        return pa.map_(replace_types(kind.key_type, others), replace_types(kind.item_type, others))
    return others.get(kind, kind)


_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with plain lists instead of other lists, and without dictionaries."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    if any(is_list(kind) for is_list in _LISTS):
        return pa.list_(_plain_field(kind.value_field))
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def plain_lists(values: pa.Array) -> pa.Array:
    """Return the values with their `plain_type`, which all other functions expect.

    Arrow 26 casts list views wrongly.
    """
    return rebuilt(values, plain_type(values.type), pa.Array.cast)


def rebuilt(
    values: pa.Array, kind: pa.DataType, cast: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """Return the values as a plain type with the same structure.

    `cast` converts arrays of other types than lists, maps and structs.
    """
    if kind == values.type:
        return values
    if pa.types.is_dictionary(values.type):
        return rebuilt(values.dictionary_decode(), kind, cast)
    mask = values.is_null() if values.null_count else None
    if pa.types.is_struct(kind):
        # Only `flatten` makes a field null where the struct is null.
        parts = values.flatten() if values.null_count else map(values.field, range(len(kind)))
        fields = [rebuilt(part, of.type, cast) for part, of in zip(parts, kind, strict=True)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        ends = values.offsets.to_numpy()
        keys = rebuilt(values.keys[ends[0] : ends[-1]], kind.key_type, cast)
        items = rebuilt(values.items[ends[0] : ends[-1]], kind.item_type, cast)
        return pa.MapArray.from_arrays(pa.array(ends - ends[0]), keys, items, kind, mask=mask)
    if pa.types.is_list(kind):
        sizes = pc.list_value_length(values).fill_null(0).to_numpy()
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        elements = rebuilt(values.flatten(), kind.value_type, cast)
        return pa.ListArray.from_arrays(pa.array(ends).cast(pa.int32()), elements, kind, mask=mask)
    return cast(values, kind)


def check_type(given: pa.DataType, known: pa.DataType, made: pa.DataType) -> None:
    """Raise UnfitError for a plain type with fields that the known type lacks, or without a cast.

    A cast would drop such a field.
    """
    for place, _ in missing_fields(known, given):
        raise UnfitError(f"the schema has no field {place}")
    try:
        pa.nulls(0, given).cast(made)
    except pa.ArrowException as error:
        raise UnfitError(shorten_error(error)) from None


def missing_fields(
    given: pa.DataType, needed: pa.DataType, place: str = ""
) -> Iterator[tuple[str, pa.Field]]:
    """Yield the needed fields that a plain type lacks, each with its path."""
    if pa.types.is_struct(given) and pa.types.is_struct(needed):
        for field in needed:
            path = place + field.name
            if given.get_field_index(field.name) < 0:
                yield path, field
            else:
                of_given = given.field(field.name).type
                yield from missing_fields(of_given, field.type, f"{path}.")
    elif pa.types.is_list(given) and pa.types.is_list(needed):
        yield from missing_fields(given.value_type, needed.value_type, place)
    elif pa.types.is_map(given) and pa.types.is_map(needed):
        yield from missing_fields(given.item_type, needed.item_type, place)
