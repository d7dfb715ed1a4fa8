"""Sends a mirror's records in the tasks that read them, so that records bypass the JVM.

This is for mirrors without SQL and schemas, which send every record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from cykafka.spark.jobs.records.columns import bytes_of, replace_headers
from cykafka.spark.jobs.records.outcome import Outcome
from cykafka.spark.sink.write_options import WriteOptions
from cykafka.spark.sink.writing import report_task
from cykafka.spark.source.far_times import in_milliseconds, restore_times

__all__ = ["TRACE", "SendRecords"]

# The headers that say where a record comes from.
TRACE = ("source_topic", "source_partition", "source_offset", "source_timestamp")


@dataclass(frozen=True)
class SendRecords:
    """The tasks' work: send the records.

    Parameters
    ----------
    options : WriteOptions
        The sink's, with one topic for all records.
    trace : bool
        Whether to add the headers `TRACE`.
    """

    options: WriteOptions
    trace: bool

    columns: ClassVar[tuple[str, ...]] = (
        "key", "value", "headers", "topic", "partition", "offset", "timestamp",
    )  # fmt: skip
    counts: ClassVar[tuple[str, ...]] = ("records", "bytes", "sent")
    reports: ClassVar[pa.Schema] = pa.schema(
        [*((name, pa.int64()) for name in counts), ("outcome", pa.string())]
    )

    def run_task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the records, and report their count, their bytes, how many were sent, and an
        `Outcome`. The count of sent records includes rejected ones."""
        records = size = 0

        def outgoing() -> Iterator[pa.RecordBatch]:
            nonlocal records, size
            for batch in batches:
                records += batch.num_rows
                size += bytes_of(batch)
                batch = restore_times(batch)
                yield with_trace(batch) if self.trace else batch

        outcome = Outcome.of(report_task(self.options, outgoing()))
        sent = outcome.records + len(outcome.refused)
        report = [[records], [size], [sent], [outcome.text()]]
        yield pa.record_batch(report, schema=self.reports)


def with_trace(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace the headers `TRACE` with each record's own; they come last."""
    times = in_milliseconds(batch["timestamp"])
    values = (batch["topic"], batch["partition"], batch["offset"], times)
    return replace_headers(batch, dict(zip(TRACE, values, strict=True)))
