"""Stream readers for PySpark 4.2 and newer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from cykafka.spark.source.read_options import ReadOptions
from cykafka.spark.source.reading import Reader, StreamingReader
from cykafka.spark.source.stream import StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["DriverReader", "StreamReader"]


class StreamReader(StreamingReader, SupportsTriggerAvailableNow):
    """A stream. The reader on the driver plans offsets; its copies on the executors read them."""

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


class DriverReader(Reader, SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that the driver reads (``readOn=driver``).

    PySpark keeps the rows from `read` until Spark has committed the next micro-batch, and Spark
    stores them as a block for all actions. If the block is missing, for example after a restart,
    a task calls `readBetweenOffsets` on a copy of the reader.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if '"metadata":{"' in schema.json():
            raise ValueError(
                "schema: Spark cannot compare comments with the driver's rows; remove the "
                "comments of the columns, or the option readOn=driver"
            )
        self.plan = StreamPlan(options)

    def initialOffset(self) -> dict[str, Any]:
        return self.plan.initial()

    def prepareForTriggerAvailableNow(self) -> None:
        self.plan.freeze()

    def read(  # type: ignore[override]
        self, start: dict[str, Any]
    ) -> tuple[Iterator[pa.RecordBatch], dict[str, Any]]:
        end = self.plan.latest(start, limited=True)
        rows = list(self.read_ranges(self.plan.ranges(start, end)))
        return iter(rows), end  # PySpark copies the iterator, so it cannot be a generator

    def readBetweenOffsets(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        is_first = context and context.getLocalProperty("streaming.sql.batchId") == "0"
        with closing(self.plan):
            ranges = self.plan.ranges(start, end, is_first=bool(is_first))
        return self.read_ranges(ranges)
