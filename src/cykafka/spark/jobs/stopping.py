"""A stream that stops cleanly on request: it finishes the running micro-batch and starts no other.

If Spark stops a query within a micro-batch, a restart repeats the micro-batch, and records that it
had sent are there twice. Spark runs the source in a separate process and asks it for the end of
the next micro-batch. So the request to stop is a file, which both processes see.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cykafka.spark.options import ReadOptions
from cykafka.spark.source import CyKafkaDataSource
from cykafka.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

__all__ = ["STOP_FILE", "StoppableReader", "StoppableSource"]

# The option with the name of the file whose existence stops the stream.
STOP_FILE = "stopfile"


class StoppableSource(CyKafkaDataSource):
    """``cykafka`` whose streams plan no more micro-batches once the file exists."""

    @classmethod
    def name(cls) -> str:
        return "cykafka_stoppable"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options, stop_file = self.stream_options()
        return StoppableReader(options, schema, stop_file)

    def stream_options(self) -> tuple[ReadOptions, str]:
        """The options of a stream, and the name of the file."""
        options = {name: value for name, value in self.options.items() if name != STOP_FILE}
        return ReadOptions.of(options, "stream"), self.options[STOP_FILE]


class StoppableReader(StreamReader):
    """Reads a stream, and plans no more micro-batches once the file exists."""

    def __init__(self, options: ReadOptions, schema: StructType, stop_file: str) -> None:
        super().__init__(options, schema)
        self._stop_file = stop_file

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if os.path.exists(self._stop_file):
            return self.plan.stay(start)
        return super().latestOffset(start, limit)
