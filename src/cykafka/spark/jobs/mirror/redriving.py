"""The job ``redrive``: sends dead letters back to the topics that they came from."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cykafka.spark.jobs.config.models import Redrive
from cykafka.spark.jobs.observing.report import Summary
from cykafka.spark.jobs.problems import explain_spark_error, wrong_value
from cykafka.spark.jobs.records.columns import (
    DEAD_LETTER,
    DEAD_LETTER_TIME,
    HEADERS,
    WITHOUT_VALUE,
    drop_headers,
    header,
    last_header,
    with_headers,
)
from cykafka.spark.jobs.records.targets import topics_of
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.jobs.run.streams import count_records, records_stream, send
from cykafka.spark.source.far_times import FAR_TIME

__all__ = ["run"]

ATTEMPTS = "redrive_attempts"
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999


def run(run: JobRun[Redrive]) -> Summary:
    """Redrive the existing records, or run until a stop is requested."""
    config = run.config
    # Each record has one fate: skipped by `where`, bad, exhausted (sent too often), or sent.
    rows = _with_targets(run, _add_dead_letter_columns(records_stream(run)))
    rows = rows.withColumn("_fate", _decide_fate(run, rows))
    fates = ("sent", "exhausted", "skipped", "bad")
    rows = count_records(rows, **{fate: F.col("_fate") == fate for fate in fates})
    out = _rows_to_send(run, rows)
    send(run, out, config.copy_options(timestamps=config.keep_timestamps))
    return run.summary


def _add_dead_letter_columns(records: DataFrame) -> DataFrame:
    """Add columns with the values of the dead letter headers."""
    headers = F.col("headers")
    kinds = {"dlq_partition": "int", "dlq_offset": "bigint", "dlq_attempts": "int"}
    columns = {
        name: last_header(headers, name).try_cast(kinds.get(name, "string"))
        for name in DEAD_LETTER
    }
    attempts = last_header(headers, ATTEMPTS).try_cast("int")
    columns[ATTEMPTS] = F.coalesce(attempts, F.lit(0))
    return records.withColumns(columns)


def _with_targets(run: JobRun[Redrive], rows: DataFrame) -> DataFrame:
    """Add `_partitions`: the number of partitions of the record's original topic; null without it.

    Records of deleted topics are bad. If they were sent, the sink would fail after each restart.
    """
    there = topics_of(run.spark, run.config.sink_options())
    there = there.select(
        F.col("target").alias("_target"), F.col("partitions").alias("_partitions")
    )
    joined = rows.join(F.broadcast(there), F.col("dlq_topic") == F.col("_target"), "left")
    return joined.drop("_target")


def _decide_fate(run: JobRun[Redrive], rows: DataFrame) -> Column:
    config = run.config
    where, partition = config.where, F.coalesce("dlq_partition", F.lit(0))
    # Without its value, the record would be a tombstone.
    lacks_value = last_header(F.col("headers"), WITHOUT_VALUE).isNotNull()
    is_bad = F.col("_partitions").isNull() | (partition < 0) | lacks_value
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
        raise wrong_value("where", where, explain_spark_error(error)) from None
    return F.when(F.coalesce(condition, F.lit(False)), fate).otherwise("skipped")


def _rows_to_send(run: JobRun[Redrive], rows: DataFrame) -> DataFrame:
    config = run.config
    sent = F.col("_fate") == "sent"
    parking = config.parking_topic
    rows = rows.where("_fate <> 'skipped'" if parking else "_fate = 'sent'")
    # The headers from before the record became a dead letter, plus the counter.
    back = with_headers(
        drop_headers(F.col("headers"), (*DEAD_LETTER, DEAD_LETTER_TIME, ATTEMPTS, FAR_TIME)),
        [header(ATTEMPTS, F.col(ATTEMPTS) + 1)],
    )
    original = last_header(F.col("headers"), DEAD_LETTER_TIME).try_cast("bigint")
    # Ignore other times: brokers refuse negative ones, and Spark fails at times out of its range.
    then = F.when(original.between(0, _LATEST_MS), F.timestamp_millis(original))
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
        F.struct("topic", "partition", "offset").alias("source"),
    )
