"""The job ``archive``: writes topics to Parquet files or to a table."""

from __future__ import annotations

import re

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cykafka.spark.jobs.archive.batch_writers import (
    STAGING,
    Appends,
    LoggedFiles,
    NamedFiles,
    has_spark_log,
    staging,
)
from cykafka.spark.jobs.archive.ownership import Claim, Owner, check_columns
from cykafka.spark.jobs.archive.write_files import FOLDERS, WriteFiles, knows_zone
from cykafka.spark.jobs.config.models import Archive
from cykafka.spark.jobs.config.partition_by import Expression, parse
from cykafka.spark.jobs.config.table_formats import MARKERS
from cykafka.spark.jobs.folders import AnyFolder, convert_errors
from cykafka.spark.jobs.observing.report import Summary
from cykafka.spark.jobs.records.decoding import decode, task_decoder
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.jobs.run.streams import METRICS, count_records, finish, records_stream, start
from cykafka.spark.jobs.tables.iceberg import Table

__all__ = ["begin", "local_path", "run"]

# Settings of Spark's own Parquet writer, such as those of encryption.
_WRITER_SETTING = re.compile(r"(spark\.(sql|hadoop)\.)?parquet\.|spark\.sql\.files\.maxRecords")
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
RECORD = ("key", "value", "headers")
PLACE = ("partition", "offset", "timestamp", "timestampType")
_ENVELOPE = ("message_id", "trace_id", "message_type", "sent_time", "body")


def run(run: JobRun[Archive]) -> Summary:
    """Archive the existing records, or run until a stop is requested."""
    finish(run, begin(run))
    return run.summary


def begin(run: JobRun[Archive]) -> StreamingQuery:
    """Start the query."""
    run.driver.check_format(run.config.format)
    parts = [parse(text) for text in run.config.partitions]
    if run.config.format == "iceberg":
        return _start_iceberg_query(run, _rows(run, parts), parts)
    with convert_errors("path", run.config.folder):
        folder = run.driver.folder(run.config.folder)
    work = _work(run, folder, parts)
    return _start_folder_query(run, folder, work, parts)


def _work(run: JobRun[Archive], folder: AnyFolder, parts: list[Expression]) -> WriteFiles | None:
    """Return the work for tasks that write the files themselves; None if Spark must write them."""
    config = run.config
    folders = tuple(str(part) for part in parts)
    zone = str(run.spark.conf.get("spark.sql.session.timeZone"))
    timestamps = run.spark.conf.get(_TIMESTAMPS)
    by_sql = not {*folders} <= {*FOLDERS}
    if config.format != "parquet" or by_sql or _has_writer_settings(run.spark):
        return None
    if timestamps not in ("INT96", "TIMESTAMP_MICROS"):
        return None
    if config.file_names == "deterministic":
        address = run.driver.folder(staging(config, folder)).address
    elif has_spark_log(run.spark):
        address = f"{folder.address}/{STAGING}"
    else:
        return None
    archive, place = local_path(folder.address), local_path(address)
    if archive is None or place is None or not knows_zone(zone):
        return None
    by_partition = config.file_names == "deterministic"
    int96 = timestamps == "INT96"
    decoder = task_decoder(config) if config.reads_values else None
    if config.reads_values and (decoder is None or (int96 and decoder.has_local_times)):
        return None  # int96 is for times in UTC only
    left_out = () if config.keep_raw else RECORD
    return WriteFiles(
        place, folders, zone, config.compression, by_partition, int96, decoder, left_out
    )


def local_path(address: str) -> str | None:
    """Return the path for a directory's address, or None outside the local file system."""
    scheme, _, path = address.partition(":")
    return "/" + path.lstrip("/") if scheme == "file" else None


def _has_writer_settings(spark: SparkSession) -> bool:
    """Whether the session contains Parquet settings that the tasks' own writer would ignore."""
    settings: dict[str, str] = spark.conf.getAll
    return any(_WRITER_SETTING.match(name) and name != _TIMESTAMPS for name in settings)


def _start_folder_query(
    run: JobRun[Archive], folder: AnyFolder, work: WriteFiles | None, parts: list[Expression]
) -> StreamingQuery:
    """Start a query that writes to a directory with Parquet files, or to a Delta table."""
    config = run.config
    rows = _folder_rows(run, parts) if work is None else _reports(run, work)
    folders = [part.name for part in parts]
    with convert_errors("checkpoint", config.checkpoint):
        claim = Claim(run, folder, parts)
    claim.check()
    if config.format == "delta" and folder.exists(MARKERS["delta"]):
        table = run.spark.read.format("delta").load(run.place(config.folder))
        check_columns(run, table.schema, rows.schema)
    has_offsets = config.format == "parquet" and config.file_names == "deterministic"

    def prepare(writer: DataStreamWriter) -> DataStreamWriter:
        claim.create_folder()
        if has_offsets:
            by_tasks = work is not None
            return writer.foreachBatch(NamedFiles(run, folder, folders, claim, by_tasks).write)
        if work is not None:
            return writer.foreachBatch(LoggedFiles(run.spark, folder.address).write)
        writer = (
            writer.format(config.format)
            .partitionBy(*folders)
            .option("compression", config.compression)
            .option("path", run.place(config.folder))
        )
        return writer.option("mergeSchema", "true") if config.merge_schema else writer

    query = start(run, rows, prepare)
    if not has_offsets:
        try:
            claim.write_note()
        except BaseException:
            query.stop()
            raise
    return query


def _start_iceberg_query(
    run: JobRun[Archive], records: DataFrame, parts: list[Expression]
) -> StreamingQuery:
    """Start a query that writes to an Iceberg table."""
    config = run.config
    with convert_errors("checkpoint", config.checkpoint):
        owner = Owner(run, parts)
    if config.path is not None:
        with convert_errors("path", config.path):
            folder = run.driver.folder(config.path)
        Claim(run, folder, parts).check_kind()
    appends = Appends(run, Table(run), owner, records, parts)
    appends.check()
    return start(run, records, lambda writer: writer.foreachBatch(appends.write))


def _reports(run: JobRun[Archive], work: WriteFiles) -> DataFrame:
    """The files that the tasks write."""
    bad = F.when(F.col("folder").startswith("status=bad"), F.col("records"))
    counts = {"records": F.col("records"), "bytes": F.col("bytes"), "bad": bad}
    sums = (F.coalesce(F.sum(of), F.lit(0)).alias(name) for name, of in counts.items())
    return records_stream(run, work).observe(METRICS, *sums)


def _folder_rows(run: JobRun[Archive], parts: list[Expression]) -> DataFrame:
    """Return the rows to write, with one column per directory level."""
    records = _rows(run, parts)
    for part in parts:  # Spark partitions by columns only
        if part.name not in records.columns:
            records = records.withColumn(part.name, part.value(records))
    return records


def _rows(run: JobRun[Archive], parts: list[Expression]) -> DataFrame:
    """The rows to write."""
    config = run.config
    records = decode(records_stream(run), config)
    records = count_records(records, bad=F.col("error").isNotNull())
    date = F.when(F.year("timestamp") < 10_000, F.date_format("timestamp", "yyyy-MM-dd"))
    records = records.withColumn("date", date)  # null for other years, as in WriteFiles
    columns = [*(RECORD if config.keep_raw else ()), *PLACE]
    if config.reads_values:
        # Bad records get their own directories, so readers of status=good never see them.
        status = F.when(F.col("error").isNull(), "good").otherwise("bad")
        records = records.withColumn("status", status)
        columns += ["error", *(_ENVELOPE if config.envelope != "none" else ())]
        columns += [config.form] if config.form != "none" else []
    used = {"topic", *(part.column for part in parts)}
    columns += [name for name in ("status", "topic", "date") if name in used]
    return records.select(*columns)
