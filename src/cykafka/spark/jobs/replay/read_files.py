"""Replays local Parquet files in tasks that read the files and send the rows as Arrow batches.

Spark would shuffle and sort the rows, and pass each from the JVM to Python. A replay without SQL
needs neither: an archive's files contain their records in offset order.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.types import StructType

from cykafka.spark.jobs.records.columns import bytes_of
from cykafka.spark.jobs.records.outcome import Outcome
from cykafka.spark.jobs.replay.parquet_rows import (
    MOST,
    File,
    ReplayLimits,
    UnfitFileError,
    UnreadableError,
    describe_file,
    rows_in_order,
)
from cykafka.spark.sink.write_options import WriteOptions, write_options
from cykafka.spark.sink.writing import report_task
from cykafka.spark.source.far_times import restore_times

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cykafka.spark.jobs.config.models import Replay
    from cykafka.spark.jobs.run.session import JobRun
    from cykafka.spark.source.offsets import Offsets

__all__ = ["LocalFiles", "Part", "files_of", "step_of"]

_log = logging.getLogger("cykafka.spark")

# A task examines up to about this many files.
_LOOKED_AT = 100

# A file, and the columns in the names of its directories.
_FileAndFolders: TypeAlias = tuple[str, Mapping[str, str]]


@dataclass(frozen=True)
class Part:
    """A partition's records to send: offsets from `start` up to, but not including, `end`.

    If Spark reads the archive, `spans` lists the known files with these records: each file's path,
    its first wanted offset, and the offset after the last.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    bytes: int = 0
    spans: tuple[tuple[str, int, int], ...] = ()


# A task's work: parts, with the files that contain their records.
_Task: TypeAlias = list[tuple[Part, list[File]]]


def step_of(parts: list[Part], number: int, steps: int) -> list[Part]:
    """Return the offsets for one of several steps.

    Offsets have few gaps, so equal shares of offsets contain about the same number of records.
    """
    step = []
    for part in parts:
        size = part.end - part.start
        low = part.start + size * number // steps
        high = part.start + size * (number + 1) // steps
        if low < high:
            step.append(replace(part, start=low, end=high, records=0, bytes=0))
    return step


class LocalFiles:
    """The files in an archive that contain records to send.

    Parameters
    ----------
    run : JobRun
    files : list of File
    times : tuple of int or None
        The limits of timestamps.
    options : WriteOptions

    Attributes
    ----------
    parts : list of Part
        The records to send.
    """

    def __init__(
        self,
        run: JobRun[Replay],
        files: list[File],
        times: tuple[int, int] | None,
        options: WriteOptions,
    ) -> None:
        self._run = run
        self._task = partial(_send, options, times)
        self._files: dict[tuple[str, int], list[File]] = defaultdict(list)
        for file in files:
            if file.records:
                self._files[file.topic, file.partition].append(file)
        self.parts = [
            Part(
                topic,
                partition,
                min(file.start for file in found),
                max(file.end for file in found),
                sum(file.records for file in found),
            )
            for (topic, partition), found in sorted(self._files.items())
        ]

    def sender(self, step: list[Part]) -> Callable[[], tuple[Outcome, int]]:
        """Return a function that sends a step's records and returns their outcome and bytes."""
        tasks = self._tasks(step)
        rows = self._run.spark.sparkContext.parallelize(tasks, len(tasks))

        def work() -> tuple[Outcome, int]:
            sent = rows.mapPartitions(self._task).collect()
            return Outcome.sum(outcome for outcome, _ in sent), sum(size for _, size in sent)

        return work

    def _tasks(self, step: list[Part]) -> list[_Task]:
        """Return tasks of about equal size. One task sends all records of a partition."""
        tasks: list[_Task] = [[] for _ in range(min(len(step), self._run.driver.parallelism()))]
        loads = [0] * len(tasks)
        for part in sorted(step, key=lambda part: part.start - part.end):
            least = loads.index(min(loads))
            loads[least] += part.end - part.start
            files = self._files[part.topic, part.partition]
            within = [file for file in files if file.start < part.end and part.start < file.end]
            tasks[least].append((part, within))
        return tasks


def files_of(run: JobRun[Replay], records: DataFrame, done: Offsets) -> LocalFiles | None:
    """Return the files whose records tasks can send, or None if Spark must read the archive.

    Spark must read tables, file systems other than local ones, and records that a condition
    selects or that the job encodes. Spark also reads an archive if one of its files contains
    several partitions, is not in offset order, or has other columns than the job `archive` writes.
    For a dry run or with the key `rate`, reading faster has no benefit, so Spark also reads these.
    With Spark Connect, Spark always reads the archive.

    Parameters
    ----------
    run : JobRun
    records : DataFrame
        The archive.
    done : Offsets
        The first offsets to send, as far as a checkpoint contains them.
    """
    config = run.config
    if config.format != "parquet" or config.where or config.encode != "none":
        return None
    if config.rate or config.dry_run or run.driver.is_remote:
        return None
    root = run.driver.folder(config.folder).address
    limits = _limits(config, done)
    # These are the valid files: Spark evaluates its log of complete files (_spark_metadata).
    found = run.watch("listing the archive", records.inputFiles)
    try:
        places = [_place(address, root) for address in found]
        files = run.watch("inspecting the archive", partial(_describe_files, run, places, limits))
    except UnfitFileError as error:
        _log.info("Spark reads the archive: %s", error)
        return None
    _log.info("the tasks read the files of the archive, without Spark")
    return LocalFiles(run, files, limits.times, _options(run, records))


def _limits(config: Replay, done: Offsets) -> ReplayLimits:
    times = None
    if config.from_time is not None or config.until_time is not None:
        times = _microseconds(config.from_time, -MOST), _microseconds(config.until_time, MOST)
    return ReplayLimits(
        None if config.topics is None else frozenset(config.topics),
        None if config.partitions is None else frozenset(config.partitions),
        (config.from_offset or 0, MOST if config.until_offset is None else config.until_offset),
        times,
        done,
    )


def _microseconds(milliseconds: int | None, default: int) -> int:
    return default if milliseconds is None else max(-MOST, min(milliseconds * 1000, MOST))


def _place(address: str, root: str) -> _FileAndFolders:
    """Return a file's path and the columns in the path, from Spark's URIs."""
    parts = urlsplit(address)
    path, top = unquote(parts.path), root.removeprefix("file:").rstrip("/")
    if parts.scheme != "file" or parts.netloc:
        raise UnfitFileError(f"{address} is not a local file")
    if path != top and not path.startswith(f"{top}/"):
        raise UnfitFileError(f"{path} is not in {root}")
    pairs = [name.partition("=") for name in path[len(top) :].split("/")[:-1]]
    return path, {unquote(name): unquote(value) for name, sign, value in pairs if sign}


def _describe_files(
    run: JobRun[Replay], places: list[_FileAndFolders], limits: ReplayLimits
) -> list[File]:
    """Describe each file that may contain wanted records."""
    if limits.topics is not None:
        places = [
            (path, folders)
            for path, folders in places
            if "topic" not in folders or folders["topic"] in limits.topics
        ]
    if not places:
        return []
    tasks = max(run.driver.parallelism(), len(places) // _LOOKED_AT)
    rows = run.spark.sparkContext.parallelize(places, min(tasks, len(places)))
    files = []
    for found in rows.mapPartitions(partial(_describe_in_task, limits)).collect():
        if isinstance(found, str):
            raise UnfitFileError(found)
        files.append(found)
    return files


def _options(run: JobRun[Replay], records: DataFrame) -> WriteOptions:
    """The options of the sink."""
    config = run.config
    options = config.copy_options(timestamps=config.keep_timestamps)
    if config.to:
        options["topic"] = config.to
    written = ["key", "value", "headers", "topic", "timestamp"]
    written += ["partition"] if config.keep_partitions else []
    schema = StructType([records.schema[name] for name in written])
    with run.pass_on_own_warnings():
        return write_options(options, schema, stream=False)


# -- on the workers


def _describe_in_task(
    limits: ReplayLimits, places: Iterable[_FileAndFolders]
) -> Iterator[File | str]:
    """Describe each file, or return a text that says why Spark must read the archive."""
    for path, folders in places:
        try:
            file = describe_file(path, folders, limits)
        except (UnfitFileError, UnreadableError) as error:
            yield str(error)
            return
        if file is not None:
            yield file


def _send(
    options: WriteOptions, times: tuple[int, int] | None, tasks: Iterable[_Task]
) -> Iterator[tuple[Outcome, int]]:
    """Send the tasks' records, and yield their outcome and their bytes."""
    for task in tasks:
        sizes: list[int] = []
        outcome = Outcome.of(report_task(options, _batches(options, times, task, sizes)))
        yield outcome, sum(sizes)


def _batches(
    options: WriteOptions, times: tuple[int, int] | None, task: _Task, sizes: list[int]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches for the sink. Adds the bytes of their keys and values to `sizes`."""
    for part, files in task:
        for batch in rows_in_order(files, part.start, part.end, times):
            sizes.append(bytes_of(batch))
            batch = restore_times(batch)
            columns = {name: batch.column(name) for name in ("key", "value", "headers")}
            count = batch.num_rows
            place = {
                "topic": pa.repeat(part.topic, count),
                "partition": pa.repeat(pa.scalar(part.partition, pa.int32()), count),
                "offset": batch.column("offset"),
            }
            columns["source"] = pa.StructArray.from_arrays([*place.values()], [*place])
            if options.topic is None:
                columns["topic"] = place["topic"]
            if options.partition is not None:
                columns["partition"] = place["partition"]
            if options.timestamp is not None:
                columns["timestamp"] = batch.column("timestamp")
            yield pa.RecordBatch.from_pydict(columns)
