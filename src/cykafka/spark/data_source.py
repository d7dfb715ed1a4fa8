"""The data source ``cykafka``, which creates Spark's readers and writers.

`source.planner` creates the clients on the driver, `source.worker` those on the executors.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

try:
    import pyarrow  # noqa: F401
    from pyspark.sql import datasource
    from pyspark.sql.datasource import DataSource, DataSourceReader
except ImportError as error:
    raise ImportError(
        "Kafka in PySpark needs pyspark 4.0 or newer, and pyarrow: pip install 'cykafka[spark]'"
    ) from error

from cykafka.spark.source.read_options import ReadOptions
from cykafka.spark.source.reading import BatchReader, OldStreamReader, PushdownReader
from cykafka.spark.source.schema import source_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        SimpleDataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

__all__ = ["HAS_READ_LIMITS", "CyKafkaDataSource"]

# PySpark 4.1 and newer pass filters to a batch reader.
_HAS_FILTERS = hasattr(datasource, "Filter")
# PySpark 4.2 and newer pass a micro-batch's start and limit to a stream reader.
HAS_READ_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None


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
            if not _HAS_FILTERS:
                raise ValueError("option pushdown needs PySpark 4.1 or newer; remove it")
            return PushdownReader(options, schema)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = ReadOptions.of(self.options, "stream")
        if not HAS_READ_LIMITS:
            return OldStreamReader(options, schema)
        if options.read_on == "driver":
            # This method raises an error, and so PySpark calls simpleStreamReader().
            return super().streamReader(schema)
        from cykafka.spark.source.stream_reader import StreamReader

        return StreamReader(options, schema)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        from cykafka.spark.source.stream_reader import DriverReader

        return DriverReader(ReadOptions.of(self.options, "stream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from cykafka.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from cykafka.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)
