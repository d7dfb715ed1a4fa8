"""A stream that can be told that there is no more: what is at work is finished, nothing begun.

A query that is stopped in the midst of a micro-batch does it again after a restart, and what it
had sent is there twice. Spark asks the source, in a process of its own, how far the next one goes;
so the word is a file, which both processes see.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cykafka.spark.options import ReadOptions
from cykafka.spark.source import CyKafkaDataSource, StreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

__all__ = ["STOP_FILE", "StoppableSource"]

# The option with the file's name. It is there when the stream is to end.
STOP_FILE = "stopfile"


class StoppableSource(CyKafkaDataSource):
    """``cykafka``, whose streams have nothing more to read once the file is there."""

    @classmethod
    def name(cls) -> str:
        return "cykafka_stoppable"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = {name: value for name, value in self.options.items() if name != STOP_FILE}
        return _Reader(ReadOptions.of(options, "stream"), schema, self.options[STOP_FILE])


class _Reader(StreamReader):
    def __init__(self, options: ReadOptions, schema: StructType, stop_file: str) -> None:
        super().__init__(options, schema)
        self._stop_file = stop_file

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if os.path.exists(self._stop_file):
            return start
        return super().latestOffset(start, limit)
