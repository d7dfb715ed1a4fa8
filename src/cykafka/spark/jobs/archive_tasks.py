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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetWriter

from cykafka.spark.jobs.sizes import bytes_of
from cykafka.spark.jobs.staged_files import UNFINISHED, Staged

__all__ = ["FOLDERS", "WriteFiles", "knows_zone"]

# The topic, the partition and the day of a file; see `WriteFiles.days`.
_Place: TypeAlias = tuple[str, int, int | None]

# The columns that may become folders.
FOLDERS = ("topic", "date")

# A task keeps so many bytes of rows in memory before it writes them, a row group for each file.
_TASK_BYTES = 64 * 1024 * 1024
# More open files would need much memory, and systems limit their number.
_MOST_OPEN = 100
# The defaults of Spark's writer; those of pyarrow are 1 and 9.
_LEVELS = {"zstd": 3, "gzip": 6}

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
        The local folder for the files and their folders, until they are in the archive.
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


class _File:
    """An open file."""

    def __init__(self, staged: Staged, address: str, writer: ParquetWriter) -> None:
        self._staged = staged
        self._address = address
        self._writer = writer

    def write(self, rows: pa.Table) -> None:
        """Write rows as a row group."""
        columns = rows.select(self._writer.schema.names)
        with _naming(self._address):
            self._writer.write_table(columns, row_group_size=rows.num_rows)
        found, offsets = self._staged, pc.min_max(rows["offset"])
        self._staged = found._replace(
            start=min(found.start, offsets["min"].as_py()),
            end=max(found.end, offsets["max"].as_py()),
            records=found.records + rows.num_rows,
            bytes=found.bytes + bytes_of(rows),
        )

    def close(self) -> Staged:
        with _naming(self._address):
            self._writer.close()
        return self._staged


class _Files:
    """The files of a task. `undo` closes and deletes them."""

    def __init__(self, work: WriteFiles, undo: ExitStack) -> None:
        self._work = work
        self._undo = undo
        self._batches: list[pa.RecordBatch] = []
        self._size = 0
        self._open: dict[_Place, _File] = {}  # the file that was used last is last
        self._closed: list[Staged] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write all rows if there are too many in memory."""
        self._batches.append(batch)
        self._size += batch.nbytes
        if self._size >= _TASK_BYTES:
            self._write()

    def _write(self) -> None:
        """Write the rows in memory, a row group for each file."""
        if not self._batches:
            return
        rows = pa.Table.from_batches(self._batches)
        self._batches.clear()
        self._size = 0
        places = self._places(rows)
        runs = _runs(places)
        names = places.column_names
        if runs.group_by(names).aggregate([]).num_rows < runs.num_rows:  # a place has two runs
            order = pc.sort_indices(places, sort_keys=[(name, "ascending") for name in names])
            rows, places = rows.combine_chunks().take(order), places.take(order)
            runs = _runs(places)
        start = 0
        for *place, end in zip(*runs.to_pydict().values(), strict=True):
            self._file(tuple(place), rows.schema).write(rows.slice(start, end - start))
            start = end

    def _places(self, rows: pa.Table) -> pa.RecordBatch:
        """For each row the topic, the partition and the day that its file has."""
        count = rows.num_rows
        by_topic = "topic" in self._work.folders
        topics = rows["topic"].combine_chunks() if by_topic else pa.repeat("", count)
        partitions = rows["partition"].combine_chunks()
        if not self._work.by_partition:
            partitions = _zeros(count)
        days = self._work.days(rows["timestamp"].combine_chunks())
        return pa.RecordBatch.from_arrays(
            [topics, partitions, days], ["topic", "partition", "day"]
        )

    def _file(self, place: _Place, schema: pa.Schema) -> _File:
        file = self._open.pop(place, None)
        if file is None:
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            file = self._begin(*place, schema)
        self._open[place] = file
        return file

    def _begin(self, topic: str, partition: int, day: int | None, schema: pa.Schema) -> _File:
        work = self._work
        folder = work.place(topic, day)
        os.makedirs(os.path.join(work.folder, folder), exist_ok=True)
        ending = "parquet" if work.compression == "none" else f"{work.compression}.parquet"
        path = f"{folder}/part-{partition:05}-{uuid.uuid4()}.{ending}{UNFINISHED}"
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
        self._undo.callback(_abandon, writer)
        return _File(Staged(path, folder, topic, partition, 2**63 - 1, 0, 0, 0), address, writer)

    def _close(self, place: _Place) -> None:
        self._closed.append(self._open.pop(place).close())

    def close(self) -> list[Staged]:
        """Write what is left, and return the files."""
        self._write()
        for place in list(self._open):
            self._close(place)
        return self._closed


def _runs(places: pa.RecordBatch) -> pa.Table:
    """The places of adjacent rows with one place, and the number of the row behind them."""
    ends = pa.concat_arrays([pc.run_end_encode(each).run_ends for each in places.columns])
    ends = pc.unique(ends).sort()
    return pa.Table.from_batches([places.take(pc.subtract(ends, 1))]).append_column("end", ends)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the file in an error of its writer."""
    try:
        yield
    except OSError as error:
        raise OSError(f"cannot write {path}: {error}") from error


def _abandon(writer: ParquetWriter) -> None:
    with suppress(OSError):  # it must not hide the first error
        writer.close()


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.remove(path)
