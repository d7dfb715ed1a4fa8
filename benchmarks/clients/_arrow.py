"""Spark's columns, built from Python lists with pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "timestampType": pa.int32(),
}


def record_batch(columns: dict[str, Sequence[Any]]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(columns[name], of) for name, of in TYPES.items()})


def of_records(records: Sequence[Any]) -> pa.RecordBatch:
    """Build a RecordBatch from records with attributes (aiokafka and kafka-python)."""
    return record_batch(
        {
            "key": [record.key for record in records],
            "value": [record.value for record in records],
            "topic": [record.topic for record in records],
            "partition": [record.partition for record in records],
            "offset": [record.offset for record in records],
            "timestamp": [record.timestamp for record in records],
            "timestampType": [record.timestamp_type for record in records],
        }
    )
