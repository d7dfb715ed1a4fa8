"""The data source ``cykafka``, from which Spark gets readers and writers.

`planner` makes the clients on the driver, `worker` those on the executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

try:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ImportError as error:
    raise ImportError(
        "Kafka in PySpark needs pyspark 4.0 or newer, and pyarrow: pip install 'cykafka[spark]'"
    ) from error

from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import ReadOptions
from cykafka.spark.planner import Planner
from cykafka.spark.reading import Reader
from cykafka.spark.schema import source_schema
from cykafka.spark.versions import HAS_FILTERS, HAS_READ_LIMITS

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        Filter,
    )
    from pyspark.sql.types import StructType

    from cykafka.spark.pushdown import Condition, RowCondition

__all__ = ["BatchReader", "CyKafkaDataSource"]


class CyKafkaDataSource(DataSource):
    """Kafka for Spark, with the options and columns of the JVM's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "cykafka"

    def schema(self) -> StructType:
        value = str(self.options.get("includeheaders", "false"))
        return source_schema(value.strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.of(self.options, "batch")
        if options.pushdown:
            if not HAS_FILTERS:
                raise ValueError("option pushdown needs PySpark 4.1 or newer; remove it")
            return PushdownReader(options, schema)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = ReadOptions.of(self.options, "stream")
        if HAS_READ_LIMITS:
            from cykafka.spark.stream_reader import StreamReader

            return StreamReader(options, schema)
        from cykafka.spark.old_stream_reader import OldStreamReader

        return OldStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from cykafka.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from cykafka.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


class BatchReader(Reader, DataSourceReader):
    """A batch read. Its start and end are fixed when it is planned."""

    def partitions(self) -> list[InputPartition]:
        with closing(Planner(self.options)) as planner:
            return self.tasks(self.ranges(planner))

    def ranges(self, planner: Planner) -> list[PartitionRange]:
        """The ranges to read."""
        return planner.batch_ranges()


class PushdownReader(BatchReader):
    """A batch read that applies filters itself; see `pushdown`.

    Only the option ``pushdown`` selects it: Spark refuses every reader with `pushFilters` while
    ``spark.sql.python.filterPushdown.enabled`` is false.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.conditions: list[Condition] = []
        self.of_rows: list[RowCondition] = []

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        from cykafka.spark.pushdown import RowCondition, condition_of

        for each in filters:
            condition = condition_of(each)
            if condition is None or not condition.exact:
                yield each
            if isinstance(condition, RowCondition):
                self.of_rows.append(condition)
            elif condition is not None:
                self.conditions.append(condition)

    def ranges(self, planner: Planner) -> list[PartitionRange]:
        from cykafka.spark.pushdown import narrow, since_ms

        ranges = planner.batch_ranges(partial(narrow, tuple(self.conditions)))
        since = since_ms(self.of_rows)
        return ranges if since is None else planner.since(ranges, since)

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from cykafka.spark.pushdown import matching

        return super().finish(matching(self.of_rows, batch) if self.of_rows else batch)
