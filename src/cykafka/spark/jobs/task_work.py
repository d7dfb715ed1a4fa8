"""Streams whose tasks do all the work with their records; Spark gets only what the tasks report.

A record that no SQL touches need not pass the JVM. Its way into a row of Spark, and on into a
Parquet file or back to Python, costs more than the rest of the work.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from cykafka.spark.jobs.stopping import StoppableReader, StoppableSource
from cykafka.spark.options import ReadOptions
from cykafka.spark.schema import source_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.types import StructType

__all__ = ["TaskWork", "working_source"]


class TaskWork(Protocol):
    """The work of a stream's tasks. It is pickled to the workers.

    Attributes
    ----------
    columns : tuple of str
        The columns of the source that the work needs.
    reports : str
        The columns of the rows that the tasks report, as DDL.
    """

    columns: ClassVar[tuple[str, ...]]
    reports: ClassVar[str]

    def do(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work of one task with its records, and yield the rows to report.

        Spark repeats a task that fails, and may run it twice at once. So the work of a task counts
        only if the query gets its rows.
        """


def working_source(work: TaskWork) -> type[StoppableSource]:
    """A source for this work, to be registered with Spark.

    The work is a part of the class and not one of its options, because Spark shows options in
    plans, and the work may have secrets. The name is unique, because two jobs may share a session.
    """
    unique = f"cykafka_working_{uuid.uuid4().hex}"

    class WorkingSource(StoppableSource):
        @classmethod
        def name(cls) -> str:
            return unique

        def schema(self) -> Any:
            return work.reports

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return WorkingReader(*self.stream_options(), work)

    return WorkingSource


class WorkingReader(StoppableReader):
    """Reads a stream's records for the work in each task."""

    prefetches = False  # the work belongs in a task

    def __init__(self, options: ReadOptions, stop_file: str, work: TaskWork) -> None:
        from pyspark.sql.types import StructType

        whole = source_schema(include_headers=True)
        super().__init__(options, StructType([whole[name] for name in work.columns]), stop_file)
        self._work = work

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._work.do(super().read(partition))
