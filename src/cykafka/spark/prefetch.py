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

from cykafka import KafkaException
from cykafka.spark.consumers import close_consumers
from cykafka.spark.loss import DataLossError
from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import ReadOptions
from cykafka.spark.reading import Reader
from cykafka.spark.stream import StreamPlan
from cykafka.spark.versions import SimpleReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["PlanningReader", "Prefetch"]

_log = logging.getLogger("cykafka.spark")

Read = Callable[[Sequence[PartitionRange], ReadOptions], Generator[pa.RecordBatch]]

# The driver reads up to maxRecordsOnDriver records, and so many bytes for each of these: it holds
# the rows as Java objects for a while.
RECORD_BYTES = 400
# How long the driver reads a micro-batch, s. Spark plans nothing else meanwhile.
PATIENCE_S = 1.0
# How long tasks read after the driver could not, s: at first, and at most. It doubles each time.
PAUSE_S = 60.0
PAUSE_MOST_S = 3600.0


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
        self._most = options.max_on_driver
        self._read = read
        self._clock = clock
        self._not_before = 0.0
        self._pause = PAUSE_S
        self._rows: list[pa.RecordBatch] | None = None

    @property
    def is_full(self) -> bool:
        """Whether rows wait for `take()`."""
        return self._rows is not None

    def fill(self, tasks: Sequence[Sequence[PartitionRange]]) -> None:
        """Read a small micro-batch of one task.

        The number of tasks must not depend on the outcome: the transactional sink needs the same
        tasks when Spark repeats a micro-batch.
        """
        self._rows = None
        if len(tasks) != 1 or self._clock() < self._not_before:
            return
        if not 0 < sum(each.size for each in tasks[0]) <= self._most:
            return
        reason: object = f"it is larger than {self._most * RECORD_BYTES:,} bytes, or slow"
        try:
            self._rows = self._all(tasks[0])
        except (KafkaException, TimeoutError, DataLossError, MemoryError) as error:
            reason = error  # the task meets it, too, and reports it if it lasts
        if self._rows is None:
            _log.info(
                "the driver could not read a small micro-batch, so tasks read for %g s: %s",
                self._pause,
                reason,
            )
            self._not_before = self._clock() + self._pause
            self._pause = min(2 * self._pause, PAUSE_MOST_S)
        else:
            self._pause = PAUSE_S

    def _all(self, ranges: Sequence[PartitionRange]) -> list[pa.RecordBatch] | None:
        until = self._clock() + PATIENCE_S
        rows, size = [], 0
        with closing(self._read(ranges, self._options)) as batches:
            for batch in batches:
                rows.append(batch)
                size += batch.nbytes
                if size > self._most * RECORD_BYTES or self._clock() > until:
                    return None
        return rows

    def take(self) -> Iterator[pa.RecordBatch]:
        """The rows; afterwards there are none."""
        rows, self._rows = self._rows, None
        return iter(rows or ())


class PlanningReader(Reader, DataSourceStreamReader):
    """What the readers of streams for all versions of PySpark have in common.

    While there are rows, the reader is an instance of PySpark's wrapper of simple readers, which
    PySpark asks for rows. At other times it is not, because PySpark does not ask a simple reader
    for the latest offset and gives it no limits.
    """

    prefetches = True

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.plan = StreamPlan(options)
        self.prefetch = Prefetch(options, self.read_ranges)
        # Spark compares the metadata of columns, such as comments, and Arrow batches have none. It
        # stores arrays in a class that Kryo does not know if classes must be registered.
        refused = '"metadata":{"' in schema.json() or "headers" in schema.names
        if refused or SimpleReader is None:
            self.prefetches = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        prefetch = getattr(self, "prefetch", None)
        return SimpleReader if prefetch is not None and prefetch.is_full else type(self)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = self.tasks(self.plan.ranges(start, end), on_driver=self.prefetches)
        if self.prefetches:
            self.prefetch.fill([task.value for task in tasks])
        return tasks

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        """The rows of the micro-batch that was planned last. PySpark calls a simple reader so."""
        return self.prefetch.take()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the offsets."""

    def stop(self) -> None:
        self.plan.close()
        close_consumers()
