"""The reader of a stream, for PySpark 4.2 and newer."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from cykafka.spark.prefetch import PlanningReader

__all__ = ["StreamReader"]


class StreamReader(PlanningReader, SupportsTriggerAvailableNow):
    """A stream. The reader on the driver plans offsets; its copies on the executors read."""

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
