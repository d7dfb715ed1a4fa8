"""The common part of batch and stream readers: how a task reads its ranges.

Spark pickles readers to the executors, so they hold values and no handles.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import ReadOptions
from cykafka.spark.planner import tasks_of
from cykafka.spark.schema import Projection
from cykafka.spark.worker import read_ranges

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Reader", "TaskRanges"]


class TaskRanges(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[PartitionRange]) -> None:
        super().__init__(tuple(ranges))

    def __repr__(self) -> str:
        return f"TaskRanges({', '.join(map(str, self.value))})"


class Reader:
    """A reader of ranges."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.projection = Projection(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If no partitions are planned, Spark reads None, or a partition whose value is None.
        ranges = None if partition is None else partition.value
        if not ranges:
            return iter(())
        return self.read_ranges(ranges, self.options)

    def read_ranges(
        self, ranges: Sequence[PartitionRange], options: ReadOptions
    ) -> Generator[pa.RecordBatch]:
        """The rows of ranges that Spark gets."""
        return read_ranges(ranges, options, self.projection.names, self.finish)

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that Spark gets."""
        return self.projection.finish(batch)

    def tasks(
        self, ranges: Sequence[PartitionRange], *, on_driver: bool = False
    ) -> list[InputPartition]:
        return [TaskRanges(task) for task in tasks_of(ranges, self.options, on_driver=on_driver)]
