"""The reader of a stream, for PySpark 4.0 and 4.1.

There Spark requests the end of a micro-batch without its start. So the reader remembers the end of
the last one. After a restart it does not know a start before the first micro-batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from cykafka.spark.options import ReadOptions
from cykafka.spark.prefetch import PlanningReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["OldStreamReader"]


class OldStreamReader(PlanningReader):
    """A stream without limits."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._start: dict[str, Any] | None = None

    def _check(self) -> None:
        # PySpark 4.0 hides an error of the reader's constructor behind one of its own.
        for name, limit in (
            ("maxOffsetsPerTrigger", self.options.max_offsets),
            ("minOffsetsPerTrigger", self.options.min_offsets),
        ):
            if limit is not None:
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
