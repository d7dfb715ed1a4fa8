"""Small micro-batches: the driver reads them while it plans them.

A task in Python has fixed costs. They are highest where Spark ends the task's worker because it
wants no more rows, as for ``isEmpty()`` in ``foreachBatch``. For Spark's own simple readers, Spark
takes a micro-batch's rows together with its plan and stores them as a block, which its tasks read.
So the rows are read once for all actions, and no task runs Python. If the block is gone, or the
driver cannot read the rows soon, the task reads them from the brokers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from cykafka.spark.consumers import close_consumers
from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import ReadOptions
from cykafka.spark.planner import PER_TASK
from cykafka.spark.reading import Reader
from cykafka.spark.stream import StreamPlan
from cykafka.spark.versions import SimpleReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["PlanningReader", "Prefetch"]

_log = logging.getLogger("cykafka.spark")

Read = Callable[[Sequence[PartitionRange], ReadOptions], Iterator[pa.RecordBatch]]

# The most bytes of a micro-batch that the driver reads. It holds them as Java objects for a while.
MOST_BYTES = 1024 * 1024
# How long the driver waits for a record, s. Spark plans nothing else meanwhile.
PATIENCE_S = 1.0
# How long tasks read after the driver could not, s.
PAUSE_S = 60.0


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
        self._not_before = 0.0
        self._rows: list[pa.RecordBatch] | None = None

    @property
    def is_full(self) -> bool:
        """Whether there are rows that nobody has taken."""
        return self._rows is not None

    def fill(self, tasks: Sequence[Sequence[PartitionRange]]) -> None:
        """Read a micro-batch of one small task. Otherwise, or after an error, there are no rows.

        An error needs no report: the task meets it, too, and is retried as Spark is told to.
        """
        self._rows = None
        if len(tasks) != 1 or self._clock() < self._not_before:
            return
        if sum(each.size for each in tasks[0]) > PER_TASK:
            return
        try:
            self._rows = self._small(tasks[0])
        except Exception as error:
            _log.debug("the driver could not read a small micro-batch: %s", error)
        if self._rows is None:
            self._not_before = self._clock() + PAUSE_S

    def _small(self, ranges: Sequence[PartitionRange]) -> list[pa.RecordBatch] | None:
        rows, size = [], 0
        for batch in self._read(ranges, self._options):
            rows.append(batch)
            size += batch.nbytes
            if size > MOST_BYTES:
                return None
        return rows

    def take(self) -> Iterator[Any]:
        """The rows; afterwards there are none."""
        rows, self._rows = self._rows, None
        return iter(rows or ())


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
        self._prefetch = Prefetch(options, self.read_ranges)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return SimpleReader if self._prefetch.is_full else type(self)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = self.tasks(self.plan.ranges(start, end))
        if self.prefetches and SimpleReader is not None:
            self._prefetch.fill([task.value for task in tasks])
        return tasks

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        """The rows of the micro-batch that was planned last. PySpark calls a simple reader so."""
        return self._prefetch.take()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the offsets."""

    def stop(self) -> None:
        self.plan.close()
        close_consumers()
