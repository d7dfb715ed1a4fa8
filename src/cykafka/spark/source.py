"""The data source ``cykafka``, from which Spark gets readers and writers.

Spark pickles readers to the executors, so they hold values and no handles. `planner` makes the
clients on the driver, `worker` those on the executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

try:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError as error:
    raise ImportError(
        "Kafka in PySpark needs pyspark 4.2 or newer, and pyarrow: pip install 'cykafka[spark]'"
    ) from error

from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import ReadOptions
from cykafka.spark.planner import Planner, tasks_of
from cykafka.spark.schema import Projection, source_schema
from cykafka.spark.stream import StreamPlan
from cykafka.spark.worker import read_ranges

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, Filter
    from pyspark.sql.types import StructType

    from cykafka.spark.pushdown import Condition, RowCondition

__all__ = ["BatchReader", "CyKafkaDataSource", "StreamReader", "TaskRanges"]


class CyKafkaDataSource(DataSource):
    """Kafka for Spark, with the options and columns of the JVM's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "cykafka"

    def schema(self) -> StructType:
        value = str(self.options.get("includeheaders", "false"))
        return source_schema(value.strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.of(self.options, "batch")
        if options.pushdown:
            return PushdownReader(options, schema)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(ReadOptions.of(self.options, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from cykafka.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from cykafka.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


class TaskRanges(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[PartitionRange]) -> None:
        super().__init__(tuple(ranges))

    def __repr__(self) -> str:
        return f"TaskRanges({', '.join(map(str, self.value))})"


class _Reader:
    """The common part of batches and streams: how a task reads."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.projection = Projection(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        ranges = partition.value
        if not ranges:  # if no partitions are planned, Spark reads a partition whose value is None
            return iter(())
        return read_ranges(ranges, self.options, self.projection.names, self.finish)

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that Spark gets."""
        return self.projection.finish(batch)

    def tasks(self, ranges: Sequence[PartitionRange]) -> list[InputPartition]:
        return [TaskRanges(task) for task in tasks_of(ranges, self.options)]


class BatchReader(_Reader, DataSourceReader):
    """A batch read. Its start and end are fixed when it is planned."""

    def partitions(self) -> list[InputPartition]:
        with closing(Planner(self.options)) as planner:
            return self.tasks(self.ranges(planner))

    def ranges(self, planner: Planner) -> list[PartitionRange]:
        """The ranges to read."""
        return planner.batch_ranges()


class PushdownReader(BatchReader):
    """A batch read that applies filters itself; see `pushdown`.

    Only the option ``pushdown`` selects it: Spark refuses every reader with `pushFilters` while
    ``spark.sql.python.filterPushdown.enabled`` is false.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.conditions: list[Condition] = []
        self.of_rows: list[RowCondition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        from cykafka.spark.pushdown import RowCondition, condition_of

        for each in filters:
            condition = condition_of(each)
            if condition is None or not condition.exact:
                yield each
            if isinstance(condition, RowCondition):
                self.of_rows.append(condition)
            elif condition is not None:
                self.conditions.append(condition)

    def ranges(self, planner: Planner) -> list[PartitionRange]:
        from cykafka.spark.pushdown import narrow, since_ms

        ranges = planner.batch_ranges(partial(narrow, tuple(self.conditions)))
        since = since_ms(self.of_rows)
        return ranges if since is None else planner.since(ranges, since)

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from cykafka.spark.pushdown import matching

        return super().finish(matching(self.of_rows, batch) if self.of_rows else batch)


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. The reader on the driver plans offsets; its copies on the executors read."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.plan = StreamPlan(options)

    def initialOffset(self) -> dict[str, Any]:
        return self.plan.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark takes one limit from Python; `StreamPlan.latest` applies all limits of the options.
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.min_offsets is not None:
            return ReadMinRows(self.options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self.plan.latest(start, limited=not isinstance(limit, ReadAllAvailable))

    def prepareForTriggerAvailableNow(self) -> None:
        self.plan.freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self.plan.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self.tasks(self.plan.ranges(start, end))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the offsets."""

    def stop(self) -> None:
        self.plan.close()
