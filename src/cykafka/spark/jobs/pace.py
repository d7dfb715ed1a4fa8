"""The sink with a rate limit: records per second in each task."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter

from cykafka.spark.source import CyKafkaDataSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

__all__ = ["RATE", "PacedSource", "paced"]

# The option with the limit: records per second of a task.
RATE = "tasksrate"


def paced(batches: Iterator[pa.RecordBatch], rate: float) -> Iterator[pa.RecordBatch]:
    """Yield batches at most at `rate` records per second.

    Each batch waits until the time of the one before it is over. The end waits for the time of the
    last batch, because another task may follow. A batch that comes late does not speed up the next
    ones, because the rate would then exceed `rate`.
    """
    due = time.monotonic()
    for batch in batches:
        now = time.monotonic()
        if now < due:
            time.sleep(due - now)
        due = max(now, due) + batch.num_rows / rate
        yield batch
    time.sleep(max(0.0, due - time.monotonic()))


class PacedSource(CyKafkaDataSource):
    """``cykafka`` whose batch writers keep to the option `RATE`.

    The limit runs in the writing process, at no cost. A separate step before the sink would need
    another process, and pandas, which Spark requires to map Arrow batches.
    """

    @classmethod
    def name(cls) -> str:
        return "cykafka_paced"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from cykafka.spark.sink import batch_writer

        options = {name: value for name, value in self.options.items() if name != RATE}
        return _PacedWriter(batch_writer(options, schema, overwrite), float(self.options[RATE]))


class _PacedWriter(DataSourceArrowWriter):
    def __init__(self, writer: DataSourceArrowWriter, rate: float) -> None:
        self._writer = writer
        self._rate = rate

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._writer.write(paced(iterator, self._rate))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.abort(messages)
