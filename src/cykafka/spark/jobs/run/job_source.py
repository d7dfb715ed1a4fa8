"""The source of the jobs' streams, which stops on request and whose tasks may do all the work.

A stream that stops cleanly finishes the running micro-batch and starts no other. If Spark stops a
query within a micro-batch, a restart repeats the micro-batch and sends its records twice. Spark
runs the source in a separate process and requests the end of the next micro-batch from it. So the
request to stop is a file, which both processes see.

If tasks do all the work with their records, Spark gets only the tasks' reports. Without SQL, a
record need not pass through the JVM. Converting a record to a Spark row, and on to a Parquet file
or back to Python, costs more than the rest of the work.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from cykafka.spark.data_source import CyKafkaDataSource
from cykafka.spark.source.read_options import ReadOptions
from cykafka.spark.source.schema import source_schema
from cykafka.spark.source.stream_reader import StreamReader

__all__ = ["STOP_FILE", "StoppableReader", "StoppableSource", "TaskWork", "working_source"]

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

    keeps_times = True

    def __init__(self, options: ReadOptions, schema: StructType, stop_file: str) -> None:
        super().__init__(options, schema)
        self._stop_file = stop_file

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if os.path.exists(self._stop_file):
            return self.plan.stay(start)
        return super().latestOffset(start, limit)


class TaskWork(Protocol):
    """The work of a stream's tasks. It is pickled to the workers.

    Attributes
    ----------
    columns : tuple of str
        The source columns that the work needs.
    reports : pa.Schema
        The columns of the rows that the tasks report.
    """

    columns: ClassVar[tuple[str, ...]]
    reports: ClassVar[pa.Schema]

    def run_task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task with its records, and yield the rows to report.

        Spark repeats a failed task, and may run a task twice at once. So a task's work counts only
        if the query gets its rows.
        """


def working_source(work: TaskWork) -> type[StoppableSource]:
    """Return a source for this work, to register with Spark.

    The work is part of the class instead of an option, because Spark shows options in plans, and
    the work may contain secrets. The name is unique, because two jobs may share a session.
    """
    unique = f"cykafka_working_{uuid.uuid4().hex}"

    class WorkingSource(StoppableSource):
        @classmethod
        def name(cls) -> str:
            return unique

        def schema(self) -> StructType:
            return from_arrow_schema(work.reports)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return WorkingReader(*self.stream_options(), work)

    return WorkingSource


class WorkingReader(StoppableReader):
    """Reads a stream's records for the work in each task."""

    def __init__(self, options: ReadOptions, stop_file: str, work: TaskWork) -> None:
        whole = source_schema(include_headers=True)
        super().__init__(options, StructType([whole[name] for name in work.columns]), stop_file)
        self._work = work

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._work.run_task(super().read(partition))
