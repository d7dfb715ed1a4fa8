"""The records of an archive's Parquet files, read with pyarrow: what a file has, and its rows.

All of it runs on the workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile

if TYPE_CHECKING:
    from cykafka.spark.offsets import Offsets

__all__ = ["MOST", "File", "Limits", "UnfitError", "UnreadableError", "look", "rows_in_order"]

MOST = 2**63 - 1
_BINARY, _TEXT = pa.binary(), pa.string()
_HEADER = [("key", _TEXT), ("value", _BINARY)]
_TIME = pa.timestamp("us", "UTC")
_PLACE = {"topic": _TEXT, "partition": pa.int32()}
_PLAIN = {"key": _BINARY, "value": _BINARY, "offset": pa.int64()}
# The most rows of a batch to send, and about the most bytes.
_ROWS, _BYTES = 10_000, 8 * 1024 * 1024
_NUMBERS = 65_536  # rows of a batch with numbers only


class UnfitError(Exception):
    """A file does not have one partition's records, in their order and in the usual columns."""


class UnreadableError(RuntimeError):
    """A file cannot be read."""


@dataclass(frozen=True)
class Limits:
    """Which records are wanted: those from the first to before the second of each pair.

    Attributes
    ----------
    topics : frozenset of str or None
        None: all.
    partitions : frozenset of int or None
    offsets : tuple of int
    times : tuple of int or None
        In microseconds.
    done : dict
        By topic and partition: the first offset that is wanted.
    """

    topics: frozenset[str] | None
    partitions: frozenset[int] | None
    offsets: tuple[int, int]
    times: tuple[int, int] | None
    done: Offsets

    def of(self, topic: str, partition: int) -> tuple[int, int]:
        """The limits of the offsets of a partition."""
        if self.topics is not None and topic not in self.topics:
            return 0, 0
        if self.partitions is not None and partition not in self.partitions:
            return 0, 0
        low, high = self.offsets
        return max(low, self.done.get((topic, partition), 0)), high


@dataclass(frozen=True)
class File:
    """A file with records of one partition, in the order of their offsets.

    Attributes
    ----------
    path : str
    topic : str
    partition : int
    rows : int
        The number of all records.
    first : int
        The first offset of all.
    records, start, end : int
        The number of the wanted records, their first offset and the one behind the last.
    """

    path: str
    topic: str
    partition: int
    rows: int
    first: int
    records: int
    start: int
    end: int


# -- what a file has


def look(path: str, folders: Mapping[str, str], limits: Limits) -> File | None:
    """What a file has, by its columns of numbers; None if it is empty.

    Parameters
    ----------
    path : str
    folders : mapping of str to str
        The columns that the names of the file's folders have.
    limits : Limits

    Raises
    ------
    UnfitError
    UnreadableError
    """
    with _opened(path) as source:
        if source.metadata.num_rows == 0:
            return None
        _check(path, source, folders)
        unknown = [name for name in _PLACE if name not in folders]
        columns = [*unknown, "offset", *(["timestamp"] if limits.times else [])]
        place: dict[str, Any] = dict(folders)
        first, last, records, start, end = MOST, -1, 0, MOST, 0
        for batch in source.iter_batches(_NUMBERS, columns=columns, use_threads=False):
            for name in unknown:
                values = pc.unique(batch.column(name)).to_pylist()
                if values != [place.setdefault(name, values[0])]:
                    raise UnfitError(f"{path} has records of several partitions")
            last = _next_last(path, batch, last)
            first = min(first, _first(batch))
            wanted = _wanted(batch, limits.of(*_place(path, place)), limits.times)
            if wanted.num_rows:
                records += wanted.num_rows
                start, end = min(start, _first(wanted)), _last(wanted) + 1
        return File(
            path, *_place(path, place), source.metadata.num_rows, first, records, start, end
        )


def _check(path: str, source: ParquetFile, folders: Mapping[str, str]) -> None:
    """Check that a file has the columns that the job `archive` writes."""
    there = source.schema_arrow
    wanted = {**_PLAIN, **{name: kind for name, kind in _PLACE.items() if name not in folders}}
    for name in (*wanted, "headers", "timestamp"):
        kind = there.field(name).type if there.names.count(name) == 1 else None
        if name == "headers":
            fits = kind is not None and _are_headers(kind)
        elif name == "timestamp":
            fits = kind is not None and _is_time(kind, source)
        else:
            fits = kind == wanted[name]
        if not fits or name in folders:
            raise UnfitError(f"{path} has a column {name} of type {kind}")


def _are_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return [(each.name, each.type) for each in kind.value_type] == _HEADER


def _is_time(kind: pa.DataType, source: ParquetFile) -> bool:
    if not pa.types.is_timestamp(kind) or kind.unit == "ns":
        return False
    # Older Spark writes INT96, which has no zone: it is UTC.
    columns = (source.schema.column(each) for each in range(len(source.schema.names)))
    is_old = any(each.path == "timestamp" and each.physical_type == "INT96" for each in columns)
    return kind.tz is not None or is_old


def _place(path: str, place: Mapping[str, Any]) -> tuple[str, int]:
    """The topic and the partition; Spark gives the folder of null another name."""
    topic, partition = place["topic"], str(place["partition"])
    if topic in (None, "__HIVE_DEFAULT_PARTITION__") or not partition.isdecimal():
        raise UnfitError(f"{path} has records without a topic or a partition")
    return topic, int(partition)


def _next_last(path: str, batch: pa.RecordBatch, last: int) -> int:
    """The last offset of a batch that follows the offset `last`."""
    offsets = batch.column("offset")
    count = len(offsets)
    rises = pc.all(pc.less(offsets.slice(0, count - 1), offsets.slice(1)), min_count=0)
    if offsets.null_count or _first(batch) <= last or not rises.as_py():
        raise UnfitError(f"{path} does not have its records in the order of their offsets")
    return _last(batch)


# -- its rows


def rows_in_order(
    files: list[File], start: int, end: int, times: tuple[int, int] | None
) -> Iterator[pa.RecordBatch]:
    """The wanted records of a partition, in the order of their offsets.

    Files may overlap: those of good and bad records, and of two dates.

    Parameters
    ----------
    files : list of File
        The files that have such records.
    start, end : int
        The first offset, and the one behind the last.
    times : tuple of int or None
        Limits of timestamps, in microseconds.

    Yields
    ------
    RecordBatch
        The columns key, value, headers, timestamp, offset.

    Raises
    ------
    UnreadableError
    """
    waiting = deque(sorted(files, key=lambda file: file.first))
    heads: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
    while waiting or heads:
        known = min((_last(batch) for batch, _ in heads), default=MOST)
        if waiting and waiting[0].first <= known:
            rows = _rows(waiting.popleft(), (start, end), times)
            heads += [(batch, rows) for batch in [next(rows, None)] if batch is not None]
            continue
        # All files with offsets up to this one are open.
        taken, left = [], []
        for batch, rows in heads:
            count = pc.sum(pc.less_equal(batch.column("offset"), known)).as_py()
            taken += [batch.slice(0, count)] if count else []
            rest = batch.slice(count) if count < batch.num_rows else next(rows, None)
            left += [(rest, rows)] if rest is not None else []
        heads = left
        if len(taken) == 1:
            yield taken[0]
        else:
            yield from pa.Table.from_batches(taken).sort_by("offset").to_batches(_ROWS)


def _rows(
    file: File, offsets: tuple[int, int], times: tuple[int, int] | None
) -> Iterator[pa.RecordBatch]:
    """The wanted records of a file, in batches that are not empty."""
    names = ["key", "value", "headers", "timestamp", "offset"]
    with _opened(file.path) as source:
        metadata = source.metadata
        if metadata.num_rows != file.rows:
            raise UnreadableError(f"{file.path} has changed since the job has looked at it")
        groups = [metadata.row_group(each) for each in range(metadata.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
        most = max(1, min(_ROWS, _BYTES * file.rows // max(size, 1)))
        numbers = [each for each, group in enumerate(groups) if _may_have(group, offsets)]
        for batch in source.iter_batches(most, numbers, names, use_threads=False):
            columns = [batch.column(name) for name in names]
            columns[3] = columns[3].cast(_TIME)
            wanted = _wanted(pa.RecordBatch.from_arrays(columns, names), offsets, times)
            if wanted.num_rows:
                yield wanted


def _may_have(group: Any, offsets: tuple[int, int]) -> bool:
    """Whether a row group may have offsets within limits."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "offset" and column.statistics is not None:
            found = column.statistics
            if found.has_min_max:
                return bool(found.max >= offsets[0] and found.min < offsets[1])
    return True


# -- both


@contextmanager
def _opened(path: str) -> Iterator[ParquetFile]:
    """A file; its errors name it."""
    try:
        with ParquetFile(
            path, coerce_int96_timestamp_unit="us", page_checksum_verification=True
        ) as source:
            yield source
    except (OSError, pa.ArrowException) as error:
        raise UnreadableError(f"cannot read {path}: {error}") from error


def _wanted(
    batch: pa.RecordBatch, offsets: tuple[int, int], times: tuple[int, int] | None
) -> pa.RecordBatch:
    """The rows of a batch within limits."""
    if times is None and offsets[0] <= _first(batch) and _last(batch) < offsets[1]:
        return batch
    wanted = _within(batch.column("offset"), offsets)
    if times is not None:
        stamps = batch.column("timestamp").cast(_TIME).cast(pa.int64())
        wanted = pc.and_(wanted, _within(stamps, times))
    return batch.filter(wanted)


def _within(numbers: pa.Array, limits: tuple[int, int]) -> pa.Array:
    return pc.and_(pc.greater_equal(numbers, limits[0]), pc.less(numbers, limits[1]))


def _first(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[0].as_py())


def _last(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[-1].as_py())
