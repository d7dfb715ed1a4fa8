"""The sink: what Spark calls to write a DataFrame or a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyarrow import RecordBatch
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter

from cykafka.spark.transactions import write_in_transaction
from cykafka.spark.versions import HAS_STREAM_ARROW_WRITER
from cykafka.spark.write_options import WriteOptions, write_options
from cykafka.spark.writing import Written, write_task

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType
else:
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)

__all__ = ["batch_writer", "stream_writer"]


class KafkaBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        return write_task(self._options, iterator)


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream.

    Delivery is at least once, because Spark may repeat a batch; with transactions a repeated batch
    is not written again.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        if self._options.transaction is None:
            return write_task(self._options, iterator)
        return write_in_transaction(self._options, iterator)


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of a batch query.

    Raises
    ------
    ValueError
        The save mode is overwrite; or see `write_options`.
    """
    if overwrite:
        raise ValueError(
            'the save mode "overwrite" is not supported, because records of a topic cannot be '
            'replaced; use .mode("append")'
        )
    return KafkaBatchWriter(write_options(options, schema, stream=False))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of a stream.

    In the output mode complete (`overwrite`), each batch writes the whole result again, as with
    the JVM connector.

    Raises
    ------
    ValueError
        PySpark is older than 4.1; or see `write_options`.
    """
    if not HAS_STREAM_ARROW_WRITER:
        raise ValueError(
            "a stream into Kafka needs PySpark 4.1 or newer; with PySpark 4.0 write the "
            'micro-batches: writeStream.foreachBatch() with batch.write.format("cykafka")'
        )
    return KafkaStreamWriter(write_options(options, schema, stream=True))
