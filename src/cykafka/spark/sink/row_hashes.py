"""Row hashes, by which a task recognizes the rows that an earlier attempt has written.

A row's text consists of its columns in the order of `hash_rows`, joined by colons. A key, a value,
a topic and each half of a header become ``length:content``, with the length in bytes. A partition
and a timestamp become a number. Numbers and lengths are decimal digits, or ``-`` for null. A row's
hash is the text's XXH3 with 64 bits. The hash of several rows is the sum of their hashes modulo
2**64, because shuffles change the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["HASH", "MODULUS", "hash_rows"]

# The name of this hash in marks. Another algorithm needs another name.
HASH = "xxh3_64"
MODULUS = 1 << 64
# Memory holds the texts of at most this many rows, or of rows with this many bytes, at once.
_ROWS_AT_ONCE = 4_000
_BYTES_AT_ONCE = 8 << 20
_COLON = pa.scalar(b":", pa.large_binary())
_NULL = pa.scalar(b"-", pa.large_binary())


def hash_rows(batch: pa.RecordBatch, *names: str | None) -> int:
    """Return the hash of all rows of a batch.

    Parameters
    ----------
    batch : RecordBatch
    names : str or None
        The columns: text, bytes, numbers, timestamps or headers. None is a column of nulls.
    """
    from xxhash import xxh3_64_intdigest  # sinks without transactions work without it

    rows = max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE * batch.num_rows // max(1, batch.nbytes)))
    return (
        sum(
            sum(map(xxh3_64_intdigest, _texts(batch.slice(start, rows), names).to_pylist()))
            for start in range(0, batch.num_rows, rows)
        )
        % MODULUS
    )


def _texts(batch: pa.RecordBatch, names: tuple[str | None, ...]) -> pa.LargeBinaryArray:
    """Return each row's text."""
    return _join(
        piece
        for name in names
        for piece in ([_NULL] if name is None else _pieces(batch.column(name)))
    )


def _pieces(column: pa.Array) -> list[pa.LargeBinaryArray]:
    """Return a column as pieces of text."""
    if pa.types.is_list(column.type):
        return [_header_texts(column)]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        return [_digits(column)]
    content = column.cast(pa.large_binary())
    return [_digits(pc.binary_length(content)), pc.fill_null(content, b"")]


def _header_texts(lists: pa.ListArray) -> pa.LargeBinaryArray:
    """Return the text of each row's headers. Null and an empty list give the same text."""
    pairs = lists.flatten()
    texts = _join(_pieces(pairs.field("key")) + _pieces(pairs.field("value")))
    counts = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(counts.cast(pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, texts), _COLON)
    return pc.fill_null(joined, b"")


def _digits(numbers: pa.Array) -> pa.LargeBinaryArray:
    return pc.fill_null(numbers.cast(pa.large_string()).cast(pa.large_binary()), _NULL)


def _join(pieces: Iterable[pa.LargeBinaryArray | pa.LargeBinaryScalar]) -> pa.LargeBinaryArray:
    return pc.binary_join_element_wise(*pieces, _COLON)
