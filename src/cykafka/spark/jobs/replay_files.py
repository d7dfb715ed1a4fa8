"""A replay whose tasks read local Parquet files themselves and send the rows as Arrow batches.

Spark would shuffle and sort the rows, and pass each from the JVM to Python. Rows that no SQL
touches need neither: files of an archive have their records in the order of offsets.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from cykafka.spark.jobs.parquet_rows import (
    MOST,
    File,
    Limits,
    UnfitError,
    UnreadableError,
    look,
    rows_in_order,
)
from cykafka.spark.jobs.replay_parts import Part
from cykafka.spark.jobs.sizes import bytes_of
from cykafka.spark.write_options import WriteOptions, write_options
from cykafka.spark.writing import write_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cykafka.spark.jobs.config import Replay
    from cykafka.spark.jobs.session import Run
    from cykafka.spark.offsets import Offsets

__all__ = ["Files", "files_of"]

_log = logging.getLogger("cykafka.spark")

# A task looks at up to about so many files.
_LOOKED_AT = 100

# A file, and the columns that the names of its folders have.
_Place: TypeAlias = tuple[str, Mapping[str, str]]
# What a task sends: parts, with the files that have their records.
_Task: TypeAlias = list[tuple[Part, list[File]]]


class Files:
    """The files of an archive that have records to send.

    Parameters
    ----------
    run : Run
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
        run: Run[Replay],
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

    def sender(self, step: list[Part]) -> Callable[[], dict[str, int]]:
        """A function that sends the records of a step and returns their number and bytes."""
        tasks = self._tasks(step)
        rows = self._run.spark.sparkContext.parallelize(tasks, len(tasks))

        def work() -> dict[str, int]:
            sent = rows.mapPartitions(self._task).collect()
            return {
                "records": sum(records for records, _ in sent),
                "bytes": sum(size for _, size in sent),
            }

        return work

    def _tasks(self, step: list[Part]) -> list[_Task]:
        """Tasks of about equal size. One task has all records of a partition."""
        tasks: list[_Task] = [[] for _ in range(min(len(step), self._run.driver.parallelism()))]
        loads = [0] * len(tasks)
        for part in sorted(step, key=lambda part: part.start - part.end):
            least = loads.index(min(loads))
            loads[least] += part.end - part.start
            files = self._files[part.topic, part.partition]
            within = [file for file in files if file.start < part.end and part.start < file.end]
            tasks[least].append((part, within))
        return tasks


def files_of(run: Run[Replay], records: DataFrame, done: Offsets) -> Files | None:
    """The files whose records tasks can send; None if Spark must read the archive.

    Spark reads records that a condition selects or that are encoded, tables, and file systems
    other than local ones. It also reads archives with a file that has records of several
    partitions, not in the order of offsets, or in other columns than the job `archive` writes. A
    dry run and the key `rate` do not gain by speed.

    Parameters
    ----------
    run : Run
    records : DataFrame
        The archive.
    done : Offsets
        The first offsets to send, where a checkpoint has them.
    """
    config = run.config
    if config.format != "parquet" or config.where or config.encode != "none":
        return None
    if config.rate or config.dry_run or run.driver.is_remote:
        return None
    root = run.driver.folder(config.folder).address
    limits = _limits(config, done)
    # These are the files that count: Spark knows its log of complete files (_spark_metadata).
    found = run.watched("listing the archive", records.inputFiles)
    try:
        places = [_place(address, root) for address in found]
        files = run.watched("looking at the archive", partial(_look_at, run, places, limits))
    except UnfitError as error:
        _log.info("Spark reads the archive: %s", error)
        return None
    _log.info("the tasks read the files of the archive, without Spark")
    return Files(run, files, limits.times, _options(run, records))


def _limits(config: Replay, done: Offsets) -> Limits:
    times = None
    if config.from_time is not None or config.until_time is not None:
        times = _microseconds(config.from_time, -MOST), _microseconds(config.until_time, MOST)
    return Limits(
        None if config.topics is None else frozenset(config.topics),
        None if config.partitions is None else frozenset(config.partitions),
        (config.from_offset or 0, MOST if config.until_offset is None else config.until_offset),
        times,
        done,
    )


def _microseconds(milliseconds: int | None, default: int) -> int:
    return default if milliseconds is None else max(-MOST, min(milliseconds * 1000, MOST))


def _place(address: str, root: str) -> _Place:
    """The path of a file and the columns in it, from the URIs that Spark has."""
    parts = urlsplit(address)
    path, top = unquote(parts.path), root.removeprefix("file:").rstrip("/")
    if parts.scheme != "file" or parts.netloc:
        raise UnfitError(f"{address} is not a local file")
    if path != top and not path.startswith(f"{top}/"):
        raise UnfitError(f"{path} is not in {root}")
    pairs = [name.partition("=") for name in path[len(top) :].split("/")[:-1]]
    return path, {unquote(name): unquote(value) for name, sign, value in pairs if sign}


def _look_at(run: Run[Replay], places: list[_Place], limits: Limits) -> list[File]:
    """What each file has that may have wanted records."""
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
    for found in rows.mapPartitions(partial(_looked, limits)).collect():
        if isinstance(found, str):
            raise UnfitError(found)
        files.append(found)
    return files


def _options(run: Run[Replay], records: DataFrame) -> WriteOptions:
    """The options of the sink."""
    from pyspark.sql.types import StructType

    config = run.config
    options = {**config.sink_options(), "includeHeaders": "true"}
    options["includeTimestamp"] = "true" if config.keep_timestamps else "false"
    if config.to:
        options["topic"] = config.to
    written = ["key", "value", "headers", "topic", "timestamp"]
    written += ["partition"] if config.keep_partitions else []
    schema = StructType([records.schema[name] for name in written])
    with run.own_warnings():
        return write_options(options, schema, stream=False)


# -- on the workers


def _looked(limits: Limits, places: Iterable[_Place]) -> Iterator[File | str]:
    """What each file has. A text says why Spark must read the archive."""
    for path, folders in places:
        try:
            file = look(path, folders, limits)
        except (UnfitError, UnreadableError) as error:
            yield str(error)
            return
        if file is not None:
            yield file


def _send(
    options: WriteOptions, times: tuple[int, int] | None, tasks: Iterable[_Task]
) -> Iterator[tuple[int, int]]:
    """Send the records of tasks and yield their number and bytes."""
    for task in tasks:
        sizes: list[int] = []
        written = write_task(options, _batches(options, times, task, sizes))
        yield written.records, sum(sizes)


def _batches(
    options: WriteOptions, times: tuple[int, int] | None, task: _Task, sizes: list[int]
) -> Iterator[pa.RecordBatch]:
    """The batches that the sink sends. `sizes` gets the bytes of their keys and values."""
    for part, files in task:
        for batch in rows_in_order(files, part.start, part.end, times):
            sizes.append(bytes_of(batch))
            columns = {name: batch.column(name) for name in ("key", "value", "headers")}
            count = batch.num_rows
            if options.topic is None:
                columns["topic"] = pa.repeat(part.topic, count)
            if options.partition is not None:
                columns["partition"] = pa.repeat(pa.scalar(part.partition, pa.int32()), count)
            if options.timestamp is not None:
                columns["timestamp"] = batch.column("timestamp")
            yield pa.RecordBatch.from_pydict(columns)
