"""Record columns in Spark and Arrow: headers, dead letter headers, sizes and times.

Tasks use the functions for Arrow, without Spark's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from cykafka.spark.source.far_times import FAR_TIME

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "DEAD_LETTER",
    "DEAD_LETTER_TIME",
    "HEADERS",
    "WITHOUT_VALUE",
    "bytes_of",
    "dead_letter_headers",
    "drop_headers",
    "fill_headers",
    "header",
    "last_header",
    "milliseconds",
    "replace_headers",
    "total_bytes",
    "with_headers",
]

HEADERS = "array<struct<key:string,value:binary>>"

# The headers that pip_services4_kafka adds to a dead letter.
DEAD_LETTER = ("dlq_topic", "dlq_partition", "dlq_offset", "dlq_error", "dlq_attempts")
# The job mirror adds the record's timestamp. The dead letter's own timestamp is the time of
# sending: with an old timestamp, retention could delete the letter before anybody sees it.
DEAD_LETTER_TIME = "dlq_timestamp"
# The header of a dead letter whose value did not fit. The value is still in the original record.
WITHOUT_VALUE = "dlq_without_value"


def header(name: str, value: Column) -> Column:
    """A header whose value is a text."""
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def fill_headers(headers: Column) -> Column:
    """An empty array instead of null, for rows that Spark sends to Python.

    For each row, Spark computes the size of its Arrow batch. Arrow then visits all earlier rows
    whose array is null: 10 us per row in batches of 10,000.
    """
    return F.coalesce(headers.cast(HEADERS), F.array().cast(HEADERS))


def with_headers(headers: Column, more: list[Column]) -> Column:
    """Append headers; `headers` may be null."""
    return F.concat(fill_headers(headers), F.array(*more).cast(HEADERS))


def drop_headers(headers: Column, names: tuple[str, ...]) -> Column:
    """Remove the headers with these names."""
    return F.filter(headers, lambda item: ~item["key"].isin(*names))


def last_header(headers: Column, name: str) -> Column:
    """Return the text of the last header with this name: writers append the newest one."""
    named = F.filter(headers, lambda item: item["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")


def milliseconds(timestamp: str, headers: str) -> Column:
    """Return a record's timestamp in ms, even outside Spark's range."""
    far = F.when(
        F.col(timestamp).isNull(), last_header(F.col(headers), FAR_TIME).try_cast("bigint")
    )
    return F.coalesce(F.unix_millis(timestamp), far)


def dead_letter_headers(error: Column, milliseconds: Column) -> list[Column]:
    """Return a dead letter's headers. The column `source` contains the record's origin."""
    return [
        header("dlq_topic", F.col("source.topic")),
        header("dlq_partition", F.col("source.partition")),
        header("dlq_offset", F.col("source.offset")),
        header("dlq_error", error),
        header("dlq_attempts", F.lit("1")),
        header(DEAD_LETTER_TIME, milliseconds),
    ]


def total_bytes() -> Column:
    """An aggregation: the bytes of the columns key and value."""
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    return F.sum(size.cast("bigint"))


# -- in Arrow


def bytes_of(rows: pa.RecordBatch | pa.Table) -> int:
    """The bytes of the columns key and value."""
    sums = (pc.sum(pc.binary_length(rows[name])).as_py() for name in ("key", "value"))
    return sum(total or 0 for total in sums)


def replace_headers(batch: pa.RecordBatch, added: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Replace the headers with these names; they come last.

    Parameters
    ----------
    batch : RecordBatch
        With the column ``headers`` of the source.
    added : mapping of str to Array
        By name: the value of each row, which becomes text.
    """
    if not added:
        return batch
    headers = batch["headers"]
    items, rows = headers.flatten(), pc.list_parent_indices(headers)
    others = pc.invert(pc.is_in(items.field("key"), pa.array([*added], pa.string())))
    items, rows = items.filter(others), rows.filter(others)
    new = [_headers(name, values, items.type) for name, values in added.items()]
    all_rows = pa.array(range(batch.num_rows), pa.int64())
    rows = pa.concat_arrays([rows, *[all_rows] * len(new)])
    order = pc.sort_indices(rows)  # stable, so a row's own headers come first
    # Each row has headers, so the runs of row numbers end where the lists end.
    ends = pc.run_end_encode(rows.take(order)).run_ends
    made = pa.ListArray.from_arrays(
        pa.concat_arrays([pa.array([0], pa.int32()), ends]),
        pa.concat_arrays([items, *new]).take(order),
        type=headers.type,
    )
    return batch.set_column(batch.schema.get_field_index("headers"), "headers", made)


def _headers(name: str, values: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """A header for each value, which becomes text."""
    names = pa.repeat(pa.scalar(name), len(values))
    return pa.StructArray.from_arrays(
        [names, values.cast(pa.string()).cast(pa.binary())], fields=list(kind)
    )
