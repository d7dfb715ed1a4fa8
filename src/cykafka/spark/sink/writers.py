"""The sink: what Spark calls to write a DataFrame or a stream."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyarrow import RecordBatch
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter

from cykafka.spark.sink.transactions import write_in_transaction
from cykafka.spark.sink.write_options import WriteOptions, write_options
from cykafka.spark.sink.writing import Written, write_task

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.types import StructType
else:
    DataSourceStreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", object)

__all__ = ["KafkaStreamWriter", "batch_writer", "stream_writer"]

# Only PySpark 4.1 and newer pass Arrow batches to a stream writer.
_HAS_STREAM_ARROW_WRITER = hasattr(datasource, "DataSourceStreamArrowWriter")
# The sink warns about a batch with this many null `headers`, because they slow Spark down.
_MANY_NULLS = 5_000


class KafkaBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        return write_task(self._options, _warn_of_null_headers(self._options, iterator))


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream.

    Delivery is at least once, because Spark may repeat a batch. With transactions the sink writes
    a repeated batch only once.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        batches = _warn_of_null_headers(self._options, iterator)
        if self._options.transaction is None:
            return write_task(self._options, batches)
        return write_in_transaction(self._options, batches)


def _warn_of_null_headers(
    options: WriteOptions, batches: Iterator[RecordBatch]
) -> Iterator[RecordBatch]:
    """Warn once about many null `headers`: for each row, Spark visits all earlier null rows."""
    name = options.headers
    for batch in batches:
        if name is not None and batch.column(name).null_count >= _MANY_NULLS:
            name = None
            warnings.warn(
                "the column headers is null in many rows, which takes Spark up to 10 us a row; "
                "write empty arrays instead: coalesce(headers, array())",
                stacklevel=1,
            )
        yield batch


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer for a batch query.

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
    """Return the writer for a stream.

    In the output mode complete (`overwrite`), each batch writes the whole result again, like the
    JVM connector.

    Raises
    ------
    ValueError
        PySpark is older than 4.1; or see `write_options`.
    """
    if not _HAS_STREAM_ARROW_WRITER:
        raise ValueError(
            "a stream into Kafka needs PySpark 4.1 or newer; with PySpark 4.0 write the "
            'micro-batches: writeStream.foreachBatch() with batch.write.format("cykafka")'
        )
    return KafkaStreamWriter(write_options(options, schema, stream=True))
