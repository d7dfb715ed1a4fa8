"""An archive whose tasks write the Parquet files themselves, so that no record passes the JVM.

That takes half of the time of Spark's own writer. It is for records as they are: columns that SQL
makes exist only in the JVM, and pyarrow's writer is for folders of the local file system.
"""

from __future__ import annotations

import datetime
import os
import uuid
import zoneinfo
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetWriter

from cykafka.spark.jobs.staged_files import Staged

__all__ = ["FOLDERS", "WriteFiles", "knows_zone"]

# The columns that may become folders.
FOLDERS = ("topic", "date")

# A file's row groups have at least so many bytes in memory. Less is written only if all open files
# of a task together have as many as a task may keep.
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_TASK_BYTES = 2 * _ROW_GROUP_BYTES
# The default of Spark's writer; pyarrow's is 1.
_LEVELS = {"zstd": 3}

_DAY_S = 86_400
_EPOCH = datetime.date(1970, 1, 1)
_LAST_DAY = (datetime.date.max - _EPOCH).days
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097  # after which the calendar repeats


_STAGED = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in Staged._fields[:3]),
        pa.field("partition", pa.int32()),
        *(pa.field(name, pa.int64()) for name in Staged._fields[4:]),
    ]
)


def knows_zone(name: str) -> bool:
    """Whether this machine knows a time zone of Spark by its name."""
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False
    return True


@dataclass(frozen=True)
class WriteFiles:
    """The tasks' work: write a file for each folder.

    Parameters
    ----------
    folder : str
        The local folder for the files and their folders.
    folders : tuple of {"topic", "date"}
        The levels of folders.
    time_zone : str
        The zone of the dates.
    compression : str
        The codec of the files.
    by_partition : bool
        Whether each partition has files of its own. Else a file may have several partitions, as
        those of Spark.
    int96 : bool
        Whether timestamps have the old type of Spark's default. Readers take one of another type
        in the same archive for a local time.
    """

    folder: str
    folders: tuple[str, ...]
    time_zone: str
    compression: str
    by_partition: bool
    int96: bool

    columns: ClassVar[tuple[str, ...]] = (
        "key", "value", "headers", "partition", "offset", "timestamp", "timestampType", "topic",
    )  # fmt: skip
    reports: ClassVar[str] = (
        "path string, folder string, topic string, partition int, start bigint, end bigint, "
        "records bigint, bytes bigint"
    )

    def do(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the records, and report a row of `Staged` for each file."""
        with ExitStack() as undo:
            files = _Files(self, undo)
            for batch in batches:
                files.add(batch)
            staged = files.close()
            undo.pop_all()
        columns = zip(*staged, strict=True) if staged else [[]] * len(_STAGED)
        arrays = [pa.array(each, kind) for each, kind in zip(columns, _STAGED.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_STAGED)

    def days(self, times: pa.TimestampArray) -> pa.Int32Array:
        """The date of each timestamp, in days since 1970; all 0 without folders of dates."""
        if "date" not in self.folders:
            return _zeros(len(times))
        zone = zoneinfo.ZoneInfo(self.time_zone)
        # The offset of a zone changes at whole minutes.
        naive = times.cast(pa.int64()).cast(pa.timestamp("us"))
        minutes = pc.floor_temporal(naive, unit="minute").dictionary_encode()
        starts = minutes.dictionary.cast(pa.timestamp("s")).cast(pa.int64()).to_pylist()
        return pa.array([_day(each, zone) for each in starts], pa.int32()).take(minutes.indices)

    def place(self, topic: str, day: int | None) -> str:
        """The path of a file's folder, from `folder`."""
        values = {"topic": topic, "date": _date(day)}
        return "/".join(f"{name}={values[name]}" for name in self.folders)


def _zeros(count: int) -> pa.Int32Array:
    return pa.repeat(pa.scalar(0, pa.int32()), count)


def _day(seconds: int, zone: zoneinfo.ZoneInfo) -> int:
    """The date of a moment, in days since 1970.

    pyarrow would take the date by the system's zone files, and does not know the rules that hold
    after the last change in such a file: often 2037, in small files years ago.
    """
    cycles = _cycles(seconds // _DAY_S + 1)  # the local date may be later
    local = datetime.datetime.fromtimestamp(seconds - cycles * _CYCLE_DAYS * _DAY_S, zone)
    return (local.date() - _EPOCH).days + cycles * _CYCLE_DAYS


def _cycles(day: int) -> int:
    """How many cycles of the calendar bring a date into the range of Python's dates."""
    return max(0, -(-(day - _LAST_DAY) // _CYCLE_DAYS))


def _date(day: int | None) -> str:
    """A date as Spark writes it; None: the time is out of the range of Spark's timestamps."""
    if day is None:
        return "__HIVE_DEFAULT_PARTITION__"
    cycles = _cycles(day)
    date = _EPOCH + datetime.timedelta(day - cycles * _CYCLE_DAYS)
    if not cycles:
        return date.isoformat()
    return f"+{date.year + cycles * _CYCLE_YEARS}-{date.month:02}-{date.day:02}"


@dataclass
class _File:
    """An open file and the rows that are not in it yet."""

    path: str
    folder: str
    topic: str
    partition: int
    writer: ParquetWriter
    start: int
    end: int = 0
    records: int = 0
    bytes: int = 0
    rows: list[pa.RecordBatch] = field(default_factory=list)
    size: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows.append(rows.select(self.writer.schema.names))
        self.size += rows.nbytes
        self.start = min(self.start, pc.min(rows["offset"]).as_py())
        self.end = max(self.end, pc.max(rows["offset"]).as_py())
        self.records += rows.num_rows
        for name in ("key", "value"):
            self.bytes += pc.sum(pc.binary_length(rows[name])).as_py() or 0

    def write(self) -> None:
        """Write the rows as a row group."""
        if self.rows:
            table = pa.Table.from_batches(self.rows)
            self.writer.write_table(table, row_group_size=table.num_rows)
            self.rows.clear()
            self.size = 0


# The topic, the partition and the day of a file's records.
_Place: TypeAlias = tuple[str, int, int | None]


def _ends(places: pa.RecordBatch) -> list[int]:
    """Where runs of rows with the same place end."""
    runs = (pc.run_end_encode(each).run_ends for each in places.columns)
    return sorted({end for ends in runs for end in ends.to_pylist()})


def _place(places: pa.RecordBatch, row: int) -> _Place:
    topic, partition, day = (each[row].as_py() for each in places.columns)
    return topic, partition, day


class _Files:
    """The files of a task. `undo` closes and deletes them."""

    def __init__(self, work: WriteFiles, undo: ExitStack) -> None:
        self._work = work
        self._undo = undo
        self._open: dict[_Place, _File] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write the largest files' rows if there are too many in memory."""
        for place, rows in self._by_place(batch):
            file = self._open.get(place)
            if file is None:
                file = self._open[place] = self._begin(*place, rows.schema)
            file.add(rows)
            if file.size >= _ROW_GROUP_BYTES:
                file.write()
        while sum(file.size for file in self._open.values()) >= _TASK_BYTES:
            max(self._open.values(), key=lambda file: file.size).write()

    def _by_place(self, batch: pa.RecordBatch) -> Iterator[tuple[_Place, pa.RecordBatch]]:
        """The rows of each file, in their order."""
        days = self._work.days(batch["timestamp"])
        topics, partitions = batch["topic"], batch["partition"]
        if "topic" not in self._work.folders:
            topics = pa.repeat("", len(batch))
        if not self._work.by_partition:
            partitions = _zeros(len(batch))
        places = pa.record_batch([topics, partitions, days], names=["topic", "partition", "day"])
        if len(_ends(places)) == 1:
            yield _place(places, 0), batch
            return
        # Sorting is stable. Timestamps may alternate between dates from record to record.
        order = pc.sort_indices(places, [(name, "ascending") for name in places.schema.names])
        places = places.take(order)
        start = 0
        for end in _ends(places):
            # Copy the rows: a slice of the batch would keep all of it in memory.
            yield _place(places, start), batch.take(order.slice(start, end - start))
            start = end

    def _begin(self, topic: str, partition: int, day: int | None, schema: pa.Schema) -> _File:
        work = self._work
        folder = work.place(topic, day)
        os.makedirs(os.path.join(work.folder, folder), exist_ok=True)
        ending = "parquet" if work.compression == "none" else f"{work.compression}.parquet"
        path = f"{folder}/part-{partition:05}-{uuid.uuid4()}.{ending}"
        address = os.path.join(work.folder, path)
        self._undo.callback(_remove, address)
        writer = ParquetWriter(
            address,
            pa.schema([each for each in schema if each.name not in work.folders]),
            compression=work.compression,
            compression_level=_LEVELS.get(work.compression),
            use_deprecated_int96_timestamps=work.int96,
            store_schema=False,  # of Arrow, which other readers do not know
        )
        self._undo.callback(writer.close)
        return _File(path, folder, topic, partition, writer, start=2**63 - 1)

    def close(self) -> list[Staged]:
        """Write what is left, and return the files."""
        for file in self._open.values():
            file.write()
            file.writer.close()
        return [
            Staged(*(getattr(file, name) for name in Staged._fields))
            for file in self._open.values()
        ]


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)
