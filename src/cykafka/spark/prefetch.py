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


class _TooLargeError(Exception):
    """The driver stops reading a micro-batch."""


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
        # Until this time the driver reads only micro-batches of up to so many records.
        self._pause_until = 0.0
        self._most_in_pause = 0
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
        pausing = self._clock() < self._pause_until
        size = sum(each.size for each in tasks[0]) if len(tasks) == 1 else 0
        if not 0 < size <= (self._most_in_pause if pausing else self._most):
            return
        try:
            self._rows = self._all(tasks[0])
        except _TooLargeError as error:
            self._begin_pause(size, size // 2, error)
        except (KafkaException, TimeoutError, DataLossError, MemoryError) as error:
            # The task meets it, too, and reports it if it lasts.
            self._begin_pause(size, 0, error)
        else:
            if not pausing:
                self._pause = PAUSE_S

    def _begin_pause(self, size: int, most: int, reason: Exception) -> None:
        _log.info(
            "the driver could not read a micro-batch of %d records, so for %g s a task reads "
            "those of more than %d: %s",
            size,
            self._pause,
            most,
            reason,
        )
        self._pause_until = self._clock() + self._pause
        self._most_in_pause = most
        self._pause = min(2 * self._pause, PAUSE_MOST_S)

    def _all(self, ranges: Sequence[PartitionRange]) -> list[pa.RecordBatch]:
        until = self._clock() + PATIENCE_S
        most = self._most * RECORD_BYTES
        rows, size = [], 0
        with closing(self._read(ranges, self._options)) as batches:
            for batch in batches:
                rows.append(batch)
                size += batch.nbytes
                if size > most:
                    raise _TooLargeError(f"its rows have more than {most:,} bytes")
                if self._clock() > until:
                    raise _TooLargeError(f"it takes longer than {PATIENCE_S:g} s")
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
        if '"metadata":{"' in schema.json() or "headers" in schema.names:
            self.prefetches = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        prefetch = getattr(self, "prefetch", None)
        return SimpleReader if prefetch is not None and prefetch.is_full else type(self)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = self.tasks(self.plan.ranges(start, end), on_driver=True)
        if self.prefetches and SimpleReader is not None:
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
