"""Record timestamps beyond the range of Spark and Arrow, which ends in the year 294247.

Kafka accepts any number of milliseconds; Spark counts microseconds in 64 bits. For such a record
the column ``timestamp`` is null. The jobs keep the milliseconds in a header while the record is in
Spark or an archive, and restore the timestamp when they send the record.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cykafka import TIMESTAMP_NOT_AVAILABLE, MessageBatch

__all__ = [
    "FAR_TIME",
    "add_time_header",
    "find_far_times",
    "in_milliseconds",
    "restore_times",
    "warn_of_far_times",
]

_log = logging.getLogger("cykafka.spark")

# The header with a record's time in ms.
FAR_TIME = "cykafka_timestamp_ms"
_UNKNOWN = -1
_MOST = 2**63 - 1

_warned: set[tuple[str, int]] = set()


def find_far_times(batch: MessageBatch, rows: pa.RecordBatch) -> dict[int, int]:
    """Return the timestamps (ms, by row) that a batch's column ``timestamp`` cannot hold."""
    if "timestamp" not in rows.schema.names or not rows.column("timestamp").null_count:
        return {}
    times, kinds = batch.timestamps, batch.timestamp_types
    nulls = pc.indices_nonzero(rows.column("timestamp").is_null()).to_pylist()
    return {
        row: times[row]
        for row in nulls
        if kinds[row] != TIMESTAMP_NOT_AVAILABLE and times[row] != _UNKNOWN
    }


def warn_of_far_times(batch: MessageBatch, times: dict[int, int]) -> None:
    """Log a warning for the first such record per partition in this process."""
    for row, time in times.items():
        message = batch[row]
        place = str(message.topic()), int(message.partition() or 0)
        if place not in _warned:
            _warned.add(place)
            _log.warning(
                "%s [%d]: the record of offset %s has the time %d ms, which is beyond the times "
                "of Spark, so its timestamp is null; so are those of further such records",
                *place, message.offset(), time,
            )  # fmt: skip


def add_time_header(rows: pa.RecordBatch, times: dict[int, int]) -> pa.RecordBatch:
    """Add these times to the rows, in the header `FAR_TIME`."""
    headers = rows.column("headers")
    lists = headers.to_pylist()
    for row, time in times.items():
        lists[row] = [*(lists[row] or ()), {"key": FAR_TIME, "value": b"%d" % time}]
    at = rows.schema.get_field_index("headers")
    return rows.set_column(at, rows.schema.field(at), pa.array(lists, headers.type))


def _is_kept(header: Mapping[str, Any]) -> bool:
    """Whether `add_time_header` added a header. Producers may also send such headers."""
    value = header["value"] or b""
    is_number = header["key"] == FAR_TIME and value.isdigit() and len(value) <= len(str(_MOST))
    return is_number and _MOST // 1000 < int(value) <= _MOST


def in_milliseconds(times: pa.Array) -> pa.Int64Array:
    """Convert a column to ms: timestamps in us, or a column from `restore_times`."""
    if pa.types.is_timestamp(times.type):
        return pc.divide(times.cast(pa.int64()), 1000)
    return times


def restore_times(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Move the times from these headers to the column ``timestamp``, which then is in ms."""
    times, headers = rows.column("timestamp"), rows.column("headers")
    if (
        not times.null_count
        or FAR_TIME not in pc.unique(headers.flatten().field("key")).to_pylist()
    ):
        return rows
    lists = headers.to_pylist()
    numbers = in_milliseconds(times).to_pylist()
    for row, given in enumerate(lists):
        if numbers[row] is None and given and _is_kept(given[-1]):
            *lists[row], last = given
            numbers[row] = int(last["value"])
    names = rows.schema.names
    rows = rows.set_column(names.index("headers"), "headers", pa.array(lists, headers.type))
    return rows.set_column(names.index("timestamp"), "timestamp", pa.array(numbers, pa.int64()))
