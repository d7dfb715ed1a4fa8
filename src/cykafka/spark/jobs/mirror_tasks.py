"""A mirror whose tasks send the records as they read them, so that no record passes the JVM.

It is for mirrors without SQL and schemas, which send every record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from cykafka.spark.jobs.sizes import bytes_of
from cykafka.spark.write_options import WriteOptions
from cykafka.spark.writing import write_task

__all__ = ["TRACE", "SendRecords"]

# The headers that say where a record comes from.
TRACE = ("source_topic", "source_partition", "source_offset", "source_timestamp")

_REPORT = pa.schema([(name, pa.int64()) for name in ("records", "bytes", "sent")])


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
    reports: ClassVar[str] = "records bigint, bytes bigint, sent bigint"

    def do(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the records, and report their number, their bytes, and how many Kafka has got."""
        records = size = 0

        def outgoing() -> Iterator[pa.RecordBatch]:
            nonlocal records, size
            for batch in batches:
                records += batch.num_rows
                size += bytes_of(batch)
                yield with_trace(batch) if self.trace else batch

        sent = write_task(self.options, outgoing()).records
        counts = [pa.array([count], pa.int64()) for count in (records, size, sent)]
        yield pa.RecordBatch.from_arrays(counts, schema=_REPORT)


def with_trace(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace the headers `TRACE` by those of this record; they come last."""
    times = pc.divide(batch["timestamp"].cast(pa.int64()), 1000)  # ms
    values = (batch["topic"], batch["partition"], batch["offset"], times)
    headers = batch["headers"]
    items, rows = headers.flatten(), pc.list_parent_indices(headers)
    others = pc.invert(pc.is_in(items.field("key"), pa.array(TRACE)))
    items, rows = items.filter(others), rows.filter(others)
    added = [_headers(name, each, items.type) for name, each in zip(TRACE, values, strict=True)]
    all_rows = pa.array(range(batch.num_rows), pa.int64())
    rows = pa.concat_arrays([rows, *[all_rows] * len(added)])
    order = pc.sort_indices(rows)  # stable, so a row's own headers come first
    # Each row has headers, so the runs of row numbers end where the lists end.
    ends = pc.run_end_encode(rows.take(order)).run_ends
    made = pa.ListArray.from_arrays(
        pa.concat_arrays([pa.array([0], pa.int32()), ends]),
        pa.concat_arrays([items, *added]).take(order),
        type=headers.type,
    )
    return batch.set_column(batch.schema.get_field_index("headers"), "headers", made)


def _headers(name: str, values: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """A header for each value, which becomes text."""
    names = pa.repeat(pa.scalar(name), len(values))
    return pa.StructArray.from_arrays(
        [names, values.cast(pa.string()).cast(pa.binary())], fields=list(kind)
    )
