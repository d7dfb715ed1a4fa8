"""Columns of records on their way out: headers added, taken, and where a record came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "DEAD_LETTER",
    "DEAD_LETTER_TIME",
    "HEADERS",
    "dead_letter_headers",
    "header",
    "last_header",
    "milliseconds",
    "with_headers",
    "without",
]

HEADERS = "array<struct<key:string,value:binary>>"

# What pip_services4_kafka writes when it moves a message to its dead letters.
DEAD_LETTER = ("dlq_topic", "dlq_partition", "dlq_offset", "dlq_error", "dlq_attempts")
# And what mirror adds: a dead letter has the time it was sent at, or retention would take it
# before anybody has seen it.
DEAD_LETTER_TIME = "dlq_timestamp"


def header(name: str, value: Column) -> Column:
    """A header with a text."""
    from pyspark.sql import functions as F

    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def with_headers(headers: Column, more: list[Column]) -> Column:
    """Headers, null where there are none, and more behind them."""
    from pyspark.sql import functions as F

    if not more:
        return headers.cast(HEADERS)
    none = F.array().cast(HEADERS)
    return F.concat(F.coalesce(headers.cast(HEADERS), none), F.array(*more).cast(HEADERS))


def without(headers: Column, names: tuple[str, ...]) -> Column:
    """Headers but for those of these names."""
    from pyspark.sql import functions as F

    return F.filter(headers, lambda each: ~each["key"].isin(*names))


def last_header(headers: Column, name: str) -> Column:
    """The text of the last header of a name: whoever writes one adds it behind the others."""
    from pyspark.sql import functions as F

    named = F.filter(headers, lambda each: each["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")


def dead_letter_headers(source: str, error: Column) -> list[Column]:
    """The headers of a dead letter, of a struct `source` with where it was, and its timestamp."""
    from pyspark.sql import functions as F

    return [
        header("dlq_topic", F.col(f"{source}.topic")),
        header("dlq_partition", F.col(f"{source}.partition")),
        header("dlq_offset", F.col(f"{source}.offset")),
        header("dlq_error", error),
        header("dlq_attempts", F.lit("1")),
        header(DEAD_LETTER_TIME, milliseconds(F.col(f"{source}.timestamp"))),
    ]


def milliseconds(timestamp: Column) -> Column:
    """A timestamp as ms since 1970."""
    from pyspark.sql import functions as F

    return F.unix_millis(timestamp)
