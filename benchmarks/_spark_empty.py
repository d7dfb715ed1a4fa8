"""A data source without Kafka: the minimum that Spark requires of sources and sinks in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

ROWS = 2


class EmptySource(DataSource):
    """Two constant rows per micro-batch; a sink that drops its rows."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset bigint, "
            "timestamp timestamp, timestampType int"
        )

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return EmptyReader()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return DroppingWriter()


class DroppingWriter(DataSourceArrowWriter):
    """Takes Arrow batches and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class EmptyReader(DataSourceStreamReader):
    """One range per micro-batch, like a topic with one partition."""

    def __init__(self) -> None:
        self._at = 0

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        self._at += ROWS
        return {"at": self._at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        start, end = partition.value
        rows = end - start
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([None] * rows, pa.binary()),
                pa.array([b"value"] * rows, pa.binary()),
                pa.array(["topic"] * rows, pa.string()),
                pa.array([0] * rows, pa.int32()),
                pa.array(range(start, end), pa.int64()),
                pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
                pa.array([0] * rows, pa.int32()),
            ],
            ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
        )

    def commit(self, end: dict[str, int]) -> None:
        pass

    def stop(self) -> None:
        pass
