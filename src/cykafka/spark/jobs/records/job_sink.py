"""The jobs' sink, which reports records that brokers reject and may limit the rate."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from cykafka.spark.data_source import CyKafkaDataSource
from cykafka.spark.jobs.folders import AnyFolder, ArrowFolder
from cykafka.spark.jobs.records.outcome import BatchResults, JobHandling, Outcome, settle
from cykafka.spark.sink.transactions import write_in_transaction
from cykafka.spark.sink.write_options import WriteOptions, write_options
from cykafka.spark.sink.writers import KafkaStreamWriter
from cykafka.spark.sink.writing import Written, report_task

__all__ = ["RATE", "JobSink", "limit_rate", "stream_sink", "write"]

# The option with the rate limit: records per second and task.
RATE = "tasksrate"
# The options with the directory and the name of the outcome file.
_FOLDER, _FILE = "outcomefolder", "outcomefile"


def write(
    rows: DataFrame, options: Mapping[str, str], scratch: AnyFolder, rate: float | None = None
) -> Outcome:
    """Send rows. Their column ``source`` contains their origin.

    Parameters
    ----------
    rows : DataFrame
    options : mapping of str to str
        The options of the sink.
    scratch : AnyFolder
        A local directory on the driver's machine. Spark finishes a write in a separate process,
        which stores the outcome there.
    rate : float, optional
        The most records per second and task.
    """
    name = f"outcome-{uuid.uuid4().hex}.json"
    more = {_FOLDER: scratch.address, _FILE: name}
    if rate is not None:
        more[RATE] = repr(rate)
    rows.sparkSession.dataSource.register(JobSink)
    rows.write.format(JobSink.name()).mode("append").options(**options, **more).save()
    outcome = Outcome.from_text(scratch.read(name))
    with suppress(OSError):
        scratch.delete(name)
    return outcome


def stream_sink(handling: JobHandling, results: BatchResults) -> type[CyKafkaDataSource]:
    """Return a sink for a job's stream, to register with Spark.

    Parameters
    ----------
    handling : JobHandling
        Becomes part of the class instead of an option, because Spark shows options in plans.
    results : BatchResults
        Receives the counts of micro-batches with rejected records. It needs a directory.
    """
    unique = f"cykafka_job_{uuid.uuid4().hex}"

    class StreamSink(CyKafkaDataSource):
        @classmethod
        def name(cls) -> str:
            return unique

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
            options = write_options(self.options, schema, stream=True)
            return _StreamWriter(options, handling, results)

    return StreamSink


class _StreamWriter(KafkaStreamWriter):
    """Settles the outcome of records before Spark commits the micro-batch."""

    def __init__(
        self, options: WriteOptions, handling: JobHandling, results: BatchResults
    ) -> None:
        super().__init__(options)
        self._handling = handling
        self._results = results

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._options.transaction is None:
            return report_task(self._options, iterator)
        return write_in_transaction(self._options, iterator, self._handling)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        counts = settle(self._handling, _outcome(messages))
        if counts:
            self._results.put(batchId, counts)


def _outcome(messages: list[WriterCommitMessage | None]) -> Outcome:
    written = (message for message in messages if isinstance(message, Written))
    return Outcome.sum(map(Outcome.of, written))


class JobSink(CyKafkaDataSource):
    """``cykafka`` whose batch writers report an `Outcome` and obey the option `RATE`."""

    @classmethod
    def name(cls) -> str:
        return "cykafka_job"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        options = dict(self.options)
        folder, name = options.pop(_FOLDER), options.pop(_FILE)
        rate = options.pop(RATE, None)
        limit = None if rate is None else float(rate)
        return _Writer(write_options(options, schema, stream=False), folder, name, limit)


class _Writer(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, folder: str, name: str, rate: float | None) -> None:
        self._options = options
        self._folder = folder
        self._name = name
        self._rate = rate

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        # The rate limit runs in the writing process without extra cost. A separate step before the
        # sink would need another process, and pandas, which Spark requires to map Arrow batches.
        return report_task(
            self._options, iterator if self._rate is None else limit_rate(iterator, self._rate)
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        folder = ArrowFolder(self._folder)
        folder.make()
        folder.write(self._name, _outcome(messages).text())


def limit_rate(batches: Iterator[pa.RecordBatch], rate: float) -> Iterator[pa.RecordBatch]:
    """Yield batches at most at `rate` records per second.

    Each batch waits until the time slot of the previous one is over. The end waits for the last
    batch's slot, because another task may follow. A late batch does not speed up the next ones,
    because they would then exceed `rate`.
    """
    due = time.monotonic()
    for batch in batches:
        now = time.monotonic()
        if now < due:
            time.sleep(due - now)
        due = max(now, due) + batch.num_rows / rate
        yield batch
    time.sleep(max(0.0, due - time.monotonic()))
