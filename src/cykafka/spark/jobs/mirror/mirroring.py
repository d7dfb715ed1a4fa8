"""The job ``mirror``: sends records from topic to topic, with SQL transform and dead letters."""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cykafka.spark.jobs.config.models import Mirror
from cykafka.spark.jobs.mirror.send_records import SendRecords
from cykafka.spark.jobs.observing.report import Summary
from cykafka.spark.jobs.problems import ConfigError, explain_spark_error
from cykafka.spark.jobs.records import job_sink
from cykafka.spark.jobs.records.columns import (
    DEAD_LETTER,
    DEAD_LETTER_TIME,
    HEADERS,
    dead_letter_headers,
    drop_headers,
    fill_headers,
    header,
    milliseconds,
    with_headers,
)
from cykafka.spark.jobs.records.decoding import check_type, decode, encode
from cykafka.spark.jobs.records.outcome import (
    WOULD_SEND,
    BatchResults,
    JobHandling,
    Outcome,
    settle,
)
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.jobs.run.streams import (
    METRICS,
    count_by_topic,
    count_records,
    counts_of,
    finish,
    observed,
    records_stream,
    send,
    start,
)
from cykafka.spark.sink.write_options import write_options
from cykafka.spark.source.far_times import FAR_TIME
from cykafka.spark.source.schema import source_schema

__all__ = ["run"]

_VIEW = "records"
_SELECT = re.compile(r"\s*SELECT\s+(?!DISTINCT\b|ALL\b)", re.IGNORECASE)
_COLUMNS = ("value", "key", "headers", "topic", "partition", "timestamp", "error", "source")
# The types that a column may have, and the type to which it is cast.
_TYPES = {
    "value": (("binary", "string"), "binary"),
    "key": (("binary", "string"), "binary"),
    "topic": (("string",), "string"),
    "partition": (("int", "bigint", "smallint", "tinyint"), "int"),
    "timestamp": (("timestamp",), "timestamp"),
    "error": (("string", "void"), "string"),
    "headers": ((HEADERS, "void"), HEADERS),
}
_ORIGIN = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def run(run: JobRun[Mirror]) -> Summary:
    """Mirror the existing records, or run until a stop is requested."""
    config = run.config
    work = _work(run)
    if work is not None:
        reports = records_stream(run, work)
        totals = [F.sum(name).alias(name) for name in work.counts]
        run.results.is_used = True
        settle_batch = _batch_settler(JobHandling.of(config), run.results)
        reports = reports.observe(METRICS, *totals)
        finish(run, start(run, reports, lambda writer: writer.foreachBatch(settle_batch)))
        return run.summary
    records = decode(records_stream(run), config)
    records = count_records(records).withColumn("source", F.struct(*_ORIGIN))
    if config.transform and config.reads_values:
        # The transform must neither see nor drop unreadable records. So good and bad records take
        # two paths. Each micro-batch is persisted, so that both paths need only one read.
        _transformed(config, config.transform, records)  # reports mistakes in it now
        write = _batch_writer(run, config.transform)
        finish(run, start(run, records, lambda writer: writer.foreachBatch(write)))
        return run.summary
    if config.transform:
        records = _transformed(config, config.transform, records)
    elif config.encode != "none":
        _check_encoded(config, records, config.form)
    out = observed(_targets(config, records), **_counts())
    out = _rows_to_write(config, out)
    send(run, out, config.copy_options(timestamps=True))
    return run.summary


def _work(run: JobRun[Mirror]) -> SendRecords | None:
    """Return the work for tasks that send the records themselves; None if Spark handles them."""
    config = run.config
    by_sql = config.transform or config.reads_values or config.encode != "none"
    if by_sql or config.dry_run or not config.to:
        return None
    written = ["key", "value", "headers"]
    written += ["partition"] if config.keep_partitions else []
    written += ["timestamp"] if config.keep_timestamps else []
    source = source_schema(include_headers=True)
    options = {**config.copy_options(timestamps=config.keep_timestamps), "topic": config.to}
    with run.pass_on_own_warnings():
        sink = write_options(options, StructType([source[name] for name in written]), stream=True)
    return None if sink.transaction else SendRecords(sink, config.source_headers)


def _batch_settler(handling: JobHandling, results: BatchResults) -> Any:
    """Return a function that processes the task reports of a micro-batch."""

    def settle_batch(batch: DataFrame, number: int) -> None:
        texts = [row.outcome for row in batch.select("outcome").collect()]
        results.put(number, settle(handling, Outcome.sum(map(Outcome.from_text, texts))))

    return settle_batch


def _batch_writer(run: JobRun[Mirror], transform: str) -> Any:
    """Return a function that writes a micro-batch whose records may be unreadable."""
    # With Spark Connect, the function runs on the server, with copies of what it refers to.
    config, results, scratch = run.config, run.results, run.scratch
    results.is_used = True

    def write(batch: DataFrame, number: int) -> None:
        batch = batch.persist()
        try:
            good = _transformed(config, transform, batch.where("error IS NULL"))
            bad = batch.where("error IS NOT NULL").select("source", "error")
            seen = Observation()
            out = _targets(config, good).unionByName(_targets(config, bad))
            out = out.observe(seen, *counts_of(_counts()))
            out = _rows_to_write(config, out)
            more: dict[str, Any]
            if config.dry_run:
                more = {WOULD_SEND: count_by_topic(out)}
            else:
                options = config.copy_options(timestamps=True)
                more = settle(JobHandling.of(config), job_sink.write(out, options, scratch))
            results.put(number, {**seen.get, **more})
        finally:
            batch.unpersist()

    return write


def _transformed(config: Mirror, query: str, records: DataFrame) -> DataFrame:
    """The query's result for the records, with the column `source`."""
    records.createOrReplaceTempView(_VIEW)
    # Add the column source to a plain SELECT.
    attempts = [query]
    if _SELECT.match(query):
        attempts.insert(0, _SELECT.sub("SELECT source, ", query, count=1))
    for attempt in attempts:
        try:
            out = records.sparkSession.sql(attempt)
            columns = out.columns  # Spark Connect analyzes a query only here
        except AnalysisException as error:  # ParseException, too
            failure = error
            continue
        if columns.count("source") > 1:
            continue  # the query selects it itself
        _check(config, out)
        return out
    raise ConfigError(f'key "transform": {explain_spark_error(failure)}')


def _check(config: Mirror, out: DataFrame) -> None:
    problems = []
    if "source" not in out.columns:
        problems.append(
            'key "transform": the column source is missing, which traces a record to its '
            "origin: also select it"
        )
    if "value" not in out.columns:
        problems.append('key "transform": the column value is missing: select it')
    for field in out.schema.fields:
        kind = field.dataType.simpleString()
        if field.name == "value" and config.encode != "none":
            continue
        if field.name not in _COLUMNS:
            problems.append(
                f'key "transform": the column {field.name} cannot be sent; expected '
                f"{', '.join(_COLUMNS[:-1])}"
            )
        elif field.name in _TYPES and kind not in _TYPES[field.name][0]:
            expected = " or ".join(_TYPES[field.name][0])
            hint = ': use to_json(), or the key "encode"' if field.name == "value" else ""
            problems.append(
                f'key "transform": the column {field.name} is of type {kind}, expected '
                f"{expected}{hint}"
            )
    if problems:
        raise ConfigError(*problems)
    if config.encode != "none":
        _check_encoded(config, out, "value")


def _check_encoded(config: Mirror, rows: DataFrame, column: str) -> None:
    """Raise ConfigError if the values of a column cannot be encoded."""
    words = check_type(config, rows.schema[column].dataType, config.to)
    if words:
        raise ConfigError(f'key "encode": the column {column} cannot be encoded: {words}')


def _targets(config: Mirror, rows: DataFrame) -> DataFrame:
    """The columns to write, and `is_bad`."""

    def given(name: str) -> Column:
        column = F.col(name) if name in rows.columns else F.col(f"source.{name}")
        return column.cast(_TYPES[name][1])

    def or_null(name: str) -> Column:
        column = F.col(name) if name in rows.columns else F.lit(None)
        return column.cast(_TYPES[name][1])

    is_plain = not config.transform
    topic = F.lit(config.to) if config.to else or_null("topic")
    errors = [or_null("error"), F.when(topic.isNull(), "the transform returns no topic")]
    value = "value" if config.transform else config.form
    if config.encode != "none" and value in rows.columns:
        rows = rows.withColumn("_encoded", encode(config, F.col(value), topic))
        rows = rows.withColumn("value", F.col("_encoded.value"))
        errors.append(F.col("_encoded.error"))
    error = F.coalesce(*errors)
    is_bad = error.isNotNull()
    partition = F.lit(None).cast("int")
    if config.keep_partitions:
        partition = F.col("source.partition")
    elif not is_plain:
        partition = or_null("partition")
    source_ms = milliseconds("source.timestamp", "source.headers")
    sent = drop_headers(given("headers"), (FAR_TIME,))
    if config.source_headers:
        trace = {
            "source_topic": F.col("source.topic"),
            "source_partition": F.col("source.partition"),
            "source_offset": F.col("source.offset"),
            "source_timestamp": source_ms,
        }
        added = [header(name, value) for name, value in trace.items()]
        sent = with_headers(drop_headers(given("headers"), (FAR_TIME, *trace)), added)
    dead = with_headers(
        drop_headers(F.col("source.headers"), (*DEAD_LETTER, DEAD_LETTER_TIME, FAR_TIME)),
        dead_letter_headers(error, source_ms),
    )
    now = F.unix_millis(F.current_timestamp())
    stamp = now
    if config.keep_timestamps:
        own = "timestamp" in rows.columns and not is_plain
        stamp = F.unix_millis(given("timestamp")) if own else source_ms

    def choose(good: Column, bad: Column) -> Column:
        return F.when(is_bad, bad).otherwise(good)

    return rows.select(
        choose(given("key"), F.col("source.key")).alias("key"),
        choose(given("value"), F.col("source.value")).alias("value"),
        fill_headers(choose(sent, dead)).alias("headers"),
        choose(topic, F.lit(config.dead_letter_topic).cast("string")).alias("topic"),
        choose(partition, F.lit(None).cast("int")).alias("partition"),
        choose(stamp, now).alias("timestamp"),
        is_bad.alias("is_bad"),
        F.struct(*(f"source.{name}" for name in ("topic", "partition", "offset"))).alias("source"),
    )


def _counts() -> dict[str, Column]:
    return {"sent": ~F.col("is_bad"), "bad": F.col("is_bad")}


def _rows_to_write(config: Mirror, out: DataFrame) -> DataFrame:
    if not config.dead_letter_topic:
        out = out.where("NOT is_bad")
    return out.drop("is_bad")
