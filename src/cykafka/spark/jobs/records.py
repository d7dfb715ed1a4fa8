"""Columns of outgoing records: add, remove and read headers, and the headers of dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "DEAD_LETTER",
    "DEAD_LETTER_TIME",
    "HEADERS",
    "dead_letter_headers",
    "filled",
    "header",
    "last_header",
    "with_headers",
    "without",
]

HEADERS = "array<struct<key:string,value:binary>>"

# The headers that pip_services4_kafka adds to a dead letter.
DEAD_LETTER = ("dlq_topic", "dlq_partition", "dlq_offset", "dlq_error", "dlq_attempts")
# The job mirror adds the record's time. The dead letter itself has the time of sending: with an
# old timestamp, the topic's retention could delete it before anybody sees it.
DEAD_LETTER_TIME = "dlq_timestamp"


def header(name: str, value: Column) -> Column:
    """A header whose value is a text."""
    from pyspark.sql import functions as F

    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def filled(headers: Column) -> Column:
    """An empty array instead of null, for rows that Spark sends to Python.

    For each row, Spark computes the size of its Arrow batch, and Arrow then looks at all rows
    before it whose array is null: 10 us a row in batches of 10,000.
    """
    from pyspark.sql import functions as F

    return F.coalesce(headers.cast(HEADERS), F.array().cast(HEADERS))


def with_headers(headers: Column, more: list[Column]) -> Column:
    """Append headers; `headers` may be null."""
    from pyspark.sql import functions as F

    return F.concat(filled(headers), F.array(*more).cast(HEADERS))


def without(headers: Column, names: tuple[str, ...]) -> Column:
    """Remove the headers with these names."""
    from pyspark.sql import functions as F

    return F.filter(headers, lambda each: ~each["key"].isin(*names))


def last_header(headers: Column, name: str) -> Column:
    """The text of the last header with this name: writers append the newest one."""
    from pyspark.sql import functions as F

    named = F.filter(headers, lambda each: each["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")


def dead_letter_headers(error: Column) -> list[Column]:
    """The headers of a dead letter. The column `source` has the record's origin and timestamp."""
    from pyspark.sql import functions as F

    return [
        header("dlq_topic", F.col("source.topic")),
        header("dlq_partition", F.col("source.partition")),
        header("dlq_offset", F.col("source.offset")),
        header("dlq_error", error),
        header("dlq_attempts", F.lit("1")),
        header(DEAD_LETTER_TIME, F.unix_millis("source.timestamp")),
    ]
