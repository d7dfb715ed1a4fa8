"""The job ``redrive``: sends dead letters back to the topics that they came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cykafka.spark.jobs.errors import told_by_spark
from cykafka.spark.jobs.problems import wrong_value
from cykafka.spark.jobs.records import (
    DEAD_LETTER,
    DEAD_LETTER_TIME,
    HEADERS,
    header,
    last_header,
    with_headers,
    without,
)
from cykafka.spark.jobs.streams import counted, records_stream, send

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from cykafka.spark.jobs.config import Redrive
    from cykafka.spark.jobs.report import Summary
    from cykafka.spark.jobs.session import Run

__all__ = ["run"]

ATTEMPTS = "redrive_attempts"
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999


def run(run: Run[Redrive]) -> Summary:
    """Redrive the existing records, or run until a stop is requested."""
    from pyspark.sql import functions as F

    config = run.config
    # Each record has one fate: skipped by `where`, bad, exhausted (sent too often), or sent.
    rows = _with_targets(run, _told(records_stream(run)))
    rows = rows.withColumn("_fate", _fate(run, rows))
    fates = ("sent", "exhausted", "skipped", "bad")
    rows = counted(rows, **{fate: F.col("_fate") == fate for fate in fates})
    out = _out(run, rows)
    options = {**config.sink_options(), "includeHeaders": "true"}
    options["includeTimestamp"] = "true" if config.keep_timestamps else "false"
    send(run, out, options)
    return run.summary


def _told(records: DataFrame) -> DataFrame:
    """Add columns with the values of the dead letter headers."""
    from pyspark.sql import functions as F

    headers = F.col("headers")
    kinds = {"dlq_partition": "int", "dlq_offset": "bigint", "dlq_attempts": "int"}
    columns = {
        name: last_header(headers, name).try_cast(kinds.get(name, "string"))
        for name in DEAD_LETTER
    }
    attempts = last_header(headers, ATTEMPTS).try_cast("int")
    columns[ATTEMPTS] = F.coalesce(attempts, F.lit(0))
    return records.withColumns(columns)


def _with_targets(run: Run[Redrive], rows: DataFrame) -> DataFrame:
    """Add `_partitions`: the number of partitions of the record's original topic; null without it.

    Records of deleted topics are bad. If they were sent, the sink would fail after each restart.
    """
    from pyspark.sql import functions as F

    from cykafka.spark.jobs.targets import topics_of

    there = topics_of(run.spark, run.config.sink_options())
    there = there.select(
        F.col("target").alias("_target"), F.col("partitions").alias("_partitions")
    )
    joined = rows.join(F.broadcast(there), F.col("dlq_topic") == F.col("_target"), "left")
    return joined.drop("_target")


def _fate(run: Run[Redrive], rows: DataFrame) -> Column:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    config = run.config
    where, partition = config.where, F.coalesce("dlq_partition", F.lit(0))
    is_bad = F.col("_partitions").isNull() | (partition < 0)
    if config.keep_partitions:
        is_bad = is_bad | (partition >= F.col("_partitions"))
    exhausted = F.col(ATTEMPTS) >= config.max_attempts
    fate = F.when(is_bad, "bad").when(exhausted, "exhausted").otherwise("sent")
    if where is None:
        return fate
    try:
        condition = F.expr(where)
        _ = rows.where(condition).schema  # Spark Connect analyzes a condition only here
    except AnalysisException as error:  # ParseException, too
        raise wrong_value("where", where, told_by_spark(error)) from None
    return F.when(F.coalesce(condition, F.lit(False)), fate).otherwise("skipped")


def _out(run: Run[Redrive], rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    config = run.config
    sent = F.col("_fate") == "sent"
    parking = config.parking_topic
    rows = rows.where("_fate <> 'skipped'" if parking else "_fate = 'sent'")
    # The headers from before the record became a dead letter, plus the counter.
    back = with_headers(
        without(F.col("headers"), (*DEAD_LETTER, DEAD_LETTER_TIME, ATTEMPTS)),
        [header(ATTEMPTS, F.col(ATTEMPTS) + 1)],
    )
    told = last_header(F.col("headers"), DEAD_LETTER_TIME).try_cast("bigint")
    # Ignore other times: brokers refuse negative ones, and Spark fails at times out of its range.
    then = F.when(told.between(0, _LATEST_MS), F.timestamp_millis(told))
    partition = F.col("dlq_partition") if config.keep_partitions else F.lit(None).cast("int")
    return rows.select(
        "key",
        "value",
        F.when(sent, back).otherwise(F.col("headers")).cast(HEADERS).alias("headers"),
        F.when(sent, F.col("dlq_topic")).otherwise(F.lit(parking).cast("string")).alias("topic"),
        F.when(sent, partition).alias("partition"),
        F.when(sent, F.coalesce(then, "timestamp"))
        .otherwise(F.col("timestamp"))
        .alias("timestamp"),
    )
