"""The reader of a stream, for PySpark 4.2 and newer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from cykafka.spark.options import ReadOptions
from cykafka.spark.reading import Reader
from cykafka.spark.stream import StreamPlan

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["StreamReader"]


class StreamReader(Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
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
