"""The data source ``cykafka``: what Spark asks for readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:
    raise ImportError(
        "Kafka in PySpark wants pyspark 4.2 or newer: pip install 'cykafka[spark]'"
    ) from error

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["CyKafkaDataSource"]


class CyKafkaDataSource(DataSource):
    """Kafka for Spark, with the options and columns of the JVM's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "cykafka"

    def schema(self) -> StructType | str:
        raise NotImplementedError

    def reader(self, schema: StructType) -> DataSourceReader:
        raise NotImplementedError

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        raise NotImplementedError

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from cykafka.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from cykafka.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
