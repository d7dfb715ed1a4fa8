"""Batch readers, and the common part of all readers: how a task reads its ranges.

Spark pickles readers for the executors, so readers contain values but never handles.
`stream_reader` contains the stream readers for PySpark 4.2 and newer. `OldStreamReader` is for
older versions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from cykafka.spark.source.offsets import PartitionRange
from cykafka.spark.source.planner import Planner, tasks_of
from cykafka.spark.source.read_options import ReadOptions
from cykafka.spark.source.schema import Projection
from cykafka.spark.source.stream import StreamPlan
from cykafka.spark.source.worker import read_ranges

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from cykafka.spark.source.pushdown import Condition, RowCondition

__all__ = [
    "BatchReader",
    "OldStreamReader",
    "PushdownReader",
    "Reader",
    "StreamingReader",
]


class Reader:
    """Reads ranges."""

    keeps_times = False

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.projection = Projection(schema, null_headers=options.null_headers)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # For a plan without partitions, Spark reads None, or a partition whose value is None.
        ranges = None if partition is None else partition.value
        if not ranges:
            return iter(())
        return self.read_ranges(ranges)

    def read_ranges(self, ranges: Sequence[PartitionRange]) -> Generator[pa.RecordBatch]:
        """Read ranges and yield the rows for Spark."""
        names, keep = self.projection.names, self.keeps_times
        return read_ranges(ranges, self.options, names, self.finish, keep_times=keep)

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that Spark gets."""
        return self.projection.finish(batch)

    def tasks(self, ranges: Sequence[PartitionRange]) -> list[InputPartition]:
        return [InputPartition(task) for task in tasks_of(ranges, self.options)]


class BatchReader(Reader, DataSourceReader):
    """A batch read. Planning fixes its start and end."""

    def partitions(self) -> list[InputPartition]:
        with closing(Planner(self.options)) as planner:
            return self.tasks(self.ranges(planner))

    def ranges(self, planner: Planner) -> list[PartitionRange]:
        """Return the ranges to read."""
        return planner.batch_ranges()


class PushdownReader(BatchReader):
    """A batch read that applies filters itself; see `pushdown`.

    Only the option ``pushdown`` selects this reader. Spark rejects every reader with `pushFilters`
    while ``spark.sql.python.filterPushdown.enabled`` is false.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.conditions: list[Condition] = []
        self.of_rows: list[RowCondition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        from cykafka.spark.source.pushdown import RowCondition, condition_of

        for comparison in filters:
            condition = condition_of(comparison)
            if condition is None or not condition.exact:
                yield comparison
            if isinstance(condition, RowCondition):
                self.of_rows.append(condition)
            elif condition is not None:
                self.conditions.append(condition)

    def ranges(self, planner: Planner) -> list[PartitionRange]:
        from cykafka.spark.source.pushdown import narrow, since_ms

        ranges = planner.batch_ranges(partial(narrow, tuple(self.conditions)))
        since = since_ms(self.of_rows)
        return ranges if since is None else planner.since(ranges, since)

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from cykafka.spark.source.pushdown import filter_rows

        return super().finish(filter_rows(self.of_rows, batch) if self.of_rows else batch)


class StreamingReader(Reader, DataSourceStreamReader):
    """The common base of stream readers that read on executors, for all versions of PySpark."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.plan = StreamPlan(options)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self.tasks(self.plan.ranges(start, end))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint contains the offsets."""

    def stop(self) -> None:
        self.plan.close()


# -- streams of PySpark 4.0 and 4.1


class OldStreamReader(StreamingReader):
    """A stream without limits.

    In these versions Spark requests a micro-batch's end without passing the start. So the reader
    remembers the last micro-batch's end. After a restart it does not know a start before the first
    micro-batch.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._start: dict[str, Any] | None = None

    def _check(self) -> None:
        # PySpark 4.0 replaces an exception from the reader's constructor with its own.
        for name, is_set in (
            ("readOn=driver", self.options.read_on == "driver"),
            ("maxOffsetsPerTrigger", self.options.max_offsets is not None),
            ("minOffsetsPerTrigger", self.options.min_offsets is not None),
        ):
            if is_set:
                raise ValueError(
                    f"option {name} needs PySpark 4.2 or newer: older versions do not pass a "
                    "source the position of its stream; remove the option, or upgrade"
                )

    def initialOffset(self) -> dict[str, Any]:
        self._check()
        start = self.plan.initial()
        if self._start is None:
            self._start = start
        return start

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        self._check()
        if self._start is None:
            # With Trigger.AvailableNow, Spark requests this end first and then the initial offset,
            # which must not lie behind it.
            self.plan.freeze()
            self._start = self.plan.latest({}, limited=False)
        else:
            self.plan.unfreeze()
            self._start = self.plan.latest(self._start, limited=False)
        return self._start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._start = end
        return super().partitions(start, end)
