"""Small micro-batches: the driver reads them while it plans them.

A task in Python has fixed costs. They are highest where Spark ends the task's worker because it
wants no more rows, as for ``isEmpty()`` in ``foreachBatch``. For Spark's own simple readers, Spark
takes a micro-batch's rows together with its plan and stores them as a block, which its only task
reads. So the rows are read once for all actions, and no task runs Python. If the block is gone, or
the driver cannot read the rows soon, the task reads them from the brokers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from cykafka.spark.consumers import close_consumers
from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import ReadOptions
from cykafka.spark.planner import tasks_of
from cykafka.spark.reading import Reader, TaskRanges
from cykafka.spark.stream import StreamPlan
from cykafka.spark.versions import SimpleReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["PlanningReader", "Prefetch"]

_log = logging.getLogger("cykafka.spark")

Read = Callable[[Sequence[PartitionRange], ReadOptions], Generator[pa.RecordBatch]]

# The most that the driver reads, in records and bytes. It holds them as Java objects for a while.
MOST_RECORDS = 50_000
MOST_BYTES = 8 * 1024 * 1024
# How long the driver waits for a record, s. Spark plans nothing else meanwhile.
PATIENCE_S = 1.0
# How long tasks read after the driver could not, s.
PAUSE_S = 60.0
# Micro-batches of several tasks become one up to so many records, as long as they take at most
# SLOW_S. After a slower one, tasks share the work for SHARING times the time that it took.
COMBINED_RECORDS = 10_000
SLOW_S = 1.0
SHARING = 30


class Prefetch:
    """The rows of the micro-batch that is being planned, if the driver has read them.

    Parameters
    ----------
    options : ReadOptions
    read : callable
        Reads ranges with the options that it is given.
    clock : callable, optional
        The time, s.
    """

    def __init__(
        self, options: ReadOptions, read: Read, clock: Callable[[], float] = time.monotonic
    ) -> None:
        patience = min(PATIENCE_S, options.poll_timeout_s)
        self._options = replace(options, poll_timeout_s=patience)
        self._read = read
        self._clock = clock
        self._read_after = self._combine_after = 0.0
        self._combined_at: float | None = None
        self._is_new = True
        self._rows: list[pa.RecordBatch] | None = None

    @property
    def is_full(self) -> bool:
        """Whether there are rows that nobody has taken."""
        return self._rows is not None

    def fill(self, tasks: list[tuple[PartitionRange, ...]]) -> list[tuple[PartitionRange, ...]]:
        """Read a small micro-batch, and return its tasks: one, if there are rows.

        An error needs no report: the task meets it, too, and is retried as Spark is told to.
        """
        self._rows = None
        now = self._clock()
        ranges = tuple(each for task in tasks for each in task)
        if now < self._read_after or not self._is_small(tasks, sum(each.size for each in ranges)):
            return tasks
        try:
            self._rows = self._all(ranges)
        except Exception as error:
            _log.debug("the driver could not read a small micro-batch: %s", error)
        if self._rows is None:
            self._read_after = now + PAUSE_S
            return tasks
        self._combined_at = now if len(tasks) > 1 else None
        return [ranges]

    def _is_small(self, tasks: Sequence[Any], records: int) -> bool:
        if len(tasks) <= 1:
            return 0 < records <= MOST_RECORDS
        wanted = self._options.min_partitions or self._options.max_records
        return not wanted and records <= COMBINED_RECORDS and self._clock() >= self._combine_after

    def _all(self, ranges: Sequence[PartitionRange]) -> list[pa.RecordBatch] | None:
        rows, size = [], 0
        with closing(self._read(ranges, self._options)) as batches:
            for batch in batches:
                rows.append(batch)
                size += batch.nbytes
                if size > MOST_BYTES:
                    return None
        return rows

    def take(self) -> Iterator[pa.RecordBatch]:
        """The rows; afterwards there are none."""
        rows, self._rows = self._rows, None
        return iter(rows or ())

    def end(self) -> None:
        """Spark wants to plan again, so the last micro-batch has ended, perhaps long ago."""
        if self._combined_at is None:
            return
        took = self._clock() - self._combined_at
        self._combined_at = None
        # Java runs a query's first micro-batch slowly.
        if took > SLOW_S and not self._is_new:
            self._combine_after = self._clock() + SHARING * took
        self._is_new = False


class PlanningReader(Reader, DataSourceStreamReader):
    """What the readers of streams for all versions of PySpark have in common.

    While there are rows, the reader is an instance of Spark's wrapper of simple readers, which
    Spark asks for rows. It is none otherwise, because Spark does not ask a simple reader for the
    latest offset, nor passes it limits.
    """

    prefetches = True

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.plan = StreamPlan(options)
        self.prefetch = Prefetch(options, self.read_ranges)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return SimpleReader if self.prefetch.is_full else type(self)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = tasks_of(self.plan.ranges(start, end), self.options)
        if self.prefetches and SimpleReader is not None:
            tasks = self.prefetch.fill(tasks)
        return [TaskRanges(task) for task in tasks]

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        """The rows of the micro-batch that was planned last. PySpark calls a simple reader so."""
        return self.prefetch.take()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the offsets."""

    def stop(self) -> None:
        self.plan.close()
        close_consumers()
