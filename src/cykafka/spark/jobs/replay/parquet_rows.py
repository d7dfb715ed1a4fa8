"""Reads an archive's Parquet files with pyarrow: a file's contents, and its rows.

This module runs on the workers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile

from cykafka.spark.sink.spool import local_folder, write_through

if TYPE_CHECKING:
    from cykafka.spark.source.offsets import Offsets

__all__ = [
    "MOST",
    "File",
    "ReplayLimits",
    "UnfitFileError",
    "UnreadableError",
    "describe_file",
    "rows_in_order",
]

MOST = 2**63 - 1
_BINARY, _TEXT = pa.binary(), pa.string()
_HEADER = [("key", _TEXT), ("value", _BINARY)]
_TIME = pa.timestamp("us", "UTC")
_PLACE = {"topic": _TEXT, "partition": pa.int32()}
_PLAIN = {"key": _BINARY, "value": _BINARY, "offset": pa.int64()}
# The most rows in a batch to send, and about the most bytes of batches in memory.
_ROWS, _BYTES = 10_000, 8 * 1024 * 1024
# The most files that a task opens at once.
_MOST_OPEN = 64
_NUMBERS = 65_536  # rows of a batch with numbers only


class UnfitFileError(Exception):
    """A file does not contain one partition's records, in order and in the usual columns."""


class UnreadableError(RuntimeError):
    """A file cannot be read."""


@dataclass(frozen=True)
class ReplayLimits:
    """The records to replay: each pair means from the first up to, not including, the second.

    Attributes
    ----------
    topics : frozenset of str or None
        None: all.
    partitions : frozenset of int or None
    offsets : tuple of int
    times : tuple of int or None
        In microseconds.
    done : dict
        By topic and partition: the first wanted offset.
    """

    topics: frozenset[str] | None
    partitions: frozenset[int] | None
    offsets: tuple[int, int]
    times: tuple[int, int] | None
    done: Offsets

    def of(self, topic: str, partition: int) -> tuple[int, int]:
        """Return a partition's offset limits."""
        if self.topics is not None and topic not in self.topics:
            return 0, 0
        if self.partitions is not None and partition not in self.partitions:
            return 0, 0
        low, high = self.offsets
        return max(low, self.done.get((topic, partition), 0)), high


@dataclass(frozen=True)
class File:
    """A file with one partition's records, in offset order.

    Attributes
    ----------
    path : str
    topic : str
    partition : int
    rows : int
        The number of all records.
    first : int
        The first offset in the file.
    records, start, end : int
        The number of wanted records, their first offset, and the offset after the last.
    """

    path: str
    topic: str
    partition: int
    rows: int
    first: int
    records: int
    start: int
    end: int


# -- contents of a file


def describe_file(path: str, folders: Mapping[str, str], limits: ReplayLimits) -> File | None:
    """Describe a file's contents, from its numeric columns. Returns None for an empty file.

    Parameters
    ----------
    path : str
    folders : mapping of str to str
        The columns in the names of the file's directories.
    limits : ReplayLimits

    Raises
    ------
    UnfitFileError
    UnreadableError
    """
    with _open(path) as source:
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
                    raise UnfitFileError(f"{path} has records of several partitions")
            last = _next_last(path, batch, last)
            first = min(first, _first(batch))
            wanted = _select(batch, limits.of(*_place(path, place)), limits.times)
            if wanted.num_rows:
                records += wanted.num_rows
                start, end = min(start, _first(wanted)), _last(wanted) + 1
        return File(
            path, *_place(path, place), source.metadata.num_rows, first, records, start, end
        )


def _check(path: str, source: ParquetFile, folders: Mapping[str, str]) -> None:
    """Check that a file contains the columns that the job `archive` writes."""
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
            raise UnfitFileError(f"{path} has a column {name} of type {kind}")


def _are_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return [(field.name, field.type) for field in kind.value_type] == _HEADER


def _is_time(kind: pa.DataType, source: ParquetFile) -> bool:
    if not pa.types.is_timestamp(kind) or kind.unit == "ns":
        return False
    # Older Spark writes INT96, which lacks a time zone and means UTC.
    columns = (source.schema.column(number) for number in range(len(source.schema.names)))
    is_old = any(
        column.path == "timestamp" and column.physical_type == "INT96" for column in columns
    )
    return kind.tz is not None or is_old


def _place(path: str, place: Mapping[str, Any]) -> tuple[str, int]:
    """Return the topic and the partition. Spark uses another directory name for null."""
    topic, partition = place["topic"], str(place["partition"])
    if topic in (None, "__HIVE_DEFAULT_PARTITION__") or not partition.isdecimal():
        raise UnfitFileError(f"{path} has records without a topic or a partition")
    return topic, int(partition)


def _next_last(path: str, batch: pa.RecordBatch, last: int) -> int:
    """Return the last offset of a batch that follows the offset `last`."""
    offsets = batch.column("offset")
    count = len(offsets)
    rises = pc.all(pc.less(offsets.slice(0, count - 1), offsets.slice(1)), min_count=0)
    if offsets.null_count or _first(batch) <= last or not rises.as_py():
        raise UnfitFileError(f"the records in {path} are not in the order of their offsets")
    return _last(batch)


# -- its rows


def rows_in_order(
    files: list[File], start: int, end: int, times: tuple[int, int] | None
) -> Iterator[pa.RecordBatch]:
    """Yield a partition's wanted records, in offset order.

    Files may overlap: files with good and bad records, and files for two dates. At most _MOST_OPEN
    files are open. If more files overlap, this first merges some of them into temporary files.

    Parameters
    ----------
    files : list of File
        The files that contain such records.
    start, end : int
        The first offset, and the offset after the last.
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
    most = _BYTES // min(_depth(files), _MOST_OPEN)

    def rows(file: File) -> Iterator[pa.RecordBatch]:
        return _rows(file, (start, end), times, most)

    runs = [_Run(file.start, file.end, partial(rows, file)) for file in files if file.records]
    with ExitStack() as stack:
        while _depth(runs) > _MOST_OPEN:
            runs = _merged_runs(runs, stack)
        yield from _merged(runs)


class _Run(NamedTuple):
    """Rows in offset order, from `start` up to, but not including, `end`."""

    start: int
    end: int
    rows: Callable[[], Iterator[pa.RecordBatch]]


def _depth(runs: Sequence[File | _Run]) -> int:
    """Return the largest number of runs that overlap at one offset."""
    ends: list[int] = []
    most = 1
    for run in sorted(runs, key=lambda run: run.start):
        while ends and ends[0] <= run.start:
            heappop(ends)
        heappush(ends, run.end)
        most = max(most, len(ends))
    return most


def _merged_runs(runs: list[_Run], stack: ExitStack) -> list[_Run]:
    """Merge runs into fewer runs, in temporary files that live as long as `stack`."""
    folder = stack.enter_context(TemporaryDirectory(prefix="cykafka-", dir=local_folder()))
    runs = sorted(runs, key=lambda run: run.start)
    made = []
    for first in range(0, len(runs), _MOST_OPEN):
        part = runs[first : first + _MOST_OPEN]
        path = os.path.join(folder, f"{first}.arrow")
        with pa.OSFile(path, "wb") as file:
            for _ in write_through(_merged(part), file):
                pass
        made.append(_Run(part[0].start, max(run.end for run in part), partial(_read, path)))
    return made


def _read(path: str) -> Iterator[pa.RecordBatch]:
    if os.path.getsize(path):  # without rows the file lacks a schema
        with pa.OSFile(path) as file, pa.ipc.open_stream(file) as batches:
            yield from batches


def _merged(runs: list[_Run]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of runs, in offset order."""
    waiting = deque(sorted(runs, key=lambda run: run.start))
    heads: list[_Head] = []
    while waiting or heads:
        known = min((head.last for head in heads), default=MOST)
        if waiting and waiting[0].start <= known:
            heads += _Head.next_of(waiting.popleft().rows())
            continue
        # All runs with offsets up to this one are open.
        taken, left = [], []
        for head in heads:
            if head.first > known:
                left.append(head)
                continue
            count = pc.sum(pc.less_equal(head.batch.column("offset"), known)).as_py()
            taken.append(head.batch.slice(0, count))
            rest = head.batch.slice(count)
            left += [_Head.of(rest, head.rows)] if rest.num_rows else _Head.next_of(head.rows)
        heads = left
        if len(taken) == 1:
            yield taken[0]
        else:
            yield from pa.Table.from_batches(taken).sort_by("offset").to_batches(_ROWS)


class _Head(NamedTuple):
    """A run's next batch, the batch's first and last offset, and the later batches."""

    first: int
    last: int
    batch: pa.RecordBatch
    rows: Iterator[pa.RecordBatch]

    @classmethod
    def of(cls, batch: pa.RecordBatch, rows: Iterator[pa.RecordBatch]) -> _Head:
        return cls(_first(batch), _last(batch), batch, rows)

    @classmethod
    def next_of(cls, rows: Iterator[pa.RecordBatch]) -> list[_Head]:
        """Return a list with the next head, or an empty list at the end."""
        batch = next(rows, None)
        return [] if batch is None else [cls.of(batch, rows)]


def _rows(
    file: File, offsets: tuple[int, int], times: tuple[int, int] | None, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield a file's wanted records, in non-empty batches."""
    names = ["key", "value", "headers", "timestamp", "offset"]
    with _open(file.path) as source:
        metadata = source.metadata
        if metadata.num_rows != file.rows:
            raise UnreadableError(f"{file.path} has changed since the job listed it")
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
        most = max(1, min(_ROWS, most_bytes * file.rows // max(size, 1)))
        numbers = [number for number, group in enumerate(groups) if _may_have(group, offsets)]
        for batch in source.iter_batches(most, numbers, names, use_threads=False):
            columns = [batch.column(name) for name in names]
            columns[3] = columns[3].cast(_TIME)
            wanted = _select(pa.RecordBatch.from_arrays(columns, names), offsets, times)
            if wanted.num_rows:
                yield wanted


def _may_have(group: Any, offsets: tuple[int, int]) -> bool:
    """Whether a row group may contain offsets within the limits."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "offset" and column.statistics is not None:
            found = column.statistics
            if found.has_min_max:
                return bool(found.max >= offsets[0] and found.min < offsets[1])
    return True


# -- both


@contextmanager
def _open(path: str) -> Iterator[ParquetFile]:
    """Open a file. Errors name the file."""
    try:
        with ParquetFile(
            path, coerce_int96_timestamp_unit="us", page_checksum_verification=True
        ) as source:
            yield source
    except (OSError, pa.ArrowException) as error:
        raise UnreadableError(f"cannot read {path}: {error}") from error


def _select(
    batch: pa.RecordBatch, offsets: tuple[int, int], times: tuple[int, int] | None
) -> pa.RecordBatch:
    """Return the rows of a batch within the limits."""
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
