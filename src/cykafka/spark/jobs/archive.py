"""The job ``archive``: writes topics to Parquet files or to a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cykafka.spark.jobs.archive_claim import Claim, Owner
from cykafka.spark.jobs.archive_files import Files
from cykafka.spark.jobs.folders import naming
from cykafka.spark.jobs.formats import MARKERS
from cykafka.spark.jobs.partitions import Expression, parse
from cykafka.spark.jobs.report import Summary
from cykafka.spark.jobs.schemas.columns import decoded
from cykafka.spark.jobs.streams import counted, finish, records_stream, start
from cykafka.spark.jobs.tables import check_columns, check_loaded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from cykafka.spark.jobs.config import Archive
    from cykafka.spark.jobs.session import Run

__all__ = ["begin", "run"]

RECORD = ("key", "value", "headers")
PLACE = ("partition", "offset", "timestamp", "timestampType")
_ENVELOPE = ("message_id", "trace_id", "message_type", "sent_time", "body")


def run(run: Run[Archive]) -> Summary:
    """Archive the existing records, or run until a stop is requested."""
    finish(run, begin(run))
    return run.summary


def begin(run: Run[Archive]) -> StreamingQuery:
    """Start the query."""
    check_loaded(run)
    records, parts = _rows(run)
    return (_iceberg if run.config.format == "iceberg" else _folder)(run, records, parts)


def _folder(run: Run[Archive], records: DataFrame, parts: list[Expression]) -> StreamingQuery:
    """Start a query into a folder of Parquet files, or a Delta table."""
    config = run.config
    for part in parts:  # Spark partitions by columns only
        if part.name not in records.columns:
            records = records.withColumn(part.name, part.value(records))
    folders = [part.name for part in parts]
    with naming("path", config.folder):
        folder = run.driver.folder(config.folder)
    with naming("checkpoint", config.checkpoint):
        claim = Claim(run, folder, parts)
    claim.check()
    if config.format == "delta" and folder.exists(MARKERS["delta"]):
        table = run.spark.read.format("delta").load(run.place(config.folder))
        check_columns(run, table.schema, records.schema)
    by_spark = config.format == "delta" or config.file_names == "spark"

    def prepare(writer: DataStreamWriter) -> DataStreamWriter:
        claim.make()
        if not by_spark:
            return writer.foreachBatch(Files(run, folder, folders, claim).write)
        writer = (
            writer.format(config.format)
            .partitionBy(*folders)
            .option("compression", config.compression)
            .option("path", run.place(config.folder))
        )
        return writer.option("mergeSchema", "true") if config.merge_schema else writer

    query = start(run, records, prepare)
    if by_spark:
        try:
            claim.take()
        except BaseException:
            query.stop()
            raise
    return query


def _iceberg(run: Run[Archive], records: DataFrame, parts: list[Expression]) -> StreamingQuery:
    """Start a query into an Iceberg table."""
    from cykafka.spark.jobs.iceberg import Table
    from cykafka.spark.jobs.iceberg_appends import Appends

    config = run.config
    with naming("checkpoint", config.checkpoint):
        owner = Owner(run, parts)
    if config.path is not None:
        with naming("path", config.path):
            folder = run.driver.folder(config.path)
        Claim(run, folder, parts).check_kind()
    appends = Appends(run, Table(run), owner, records, parts)
    appends.check()
    return start(run, records, lambda writer: writer.foreachBatch(appends.write))


def _rows(run: Run[Archive]) -> tuple[DataFrame, list[Expression]]:
    """The rows to write, and what partitions them."""
    from pyspark.sql import functions as F

    config = run.config
    records = decoded(records_stream(run), config)
    records = counted(records, bad=F.col("error").isNotNull())
    records = records.withColumn("date", F.date_format("timestamp", "yyyy-MM-dd"))
    columns = [*(RECORD if config.keep_raw else ()), *PLACE]
    if config.reads_values:
        # Bad records have their own folders, so readers of status=good never see them.
        status = F.when(F.col("error").isNull(), "good").otherwise("bad")
        records = records.withColumn("status", status)
        columns += ["error", *(_ENVELOPE if config.envelope != "none" else ())]
        columns += [config.form] if config.form != "none" else []
    parts = [parse(text) for text in config.partitions]
    used = {"topic", *(part.column for part in parts)}
    columns += [name for name in ("status", "topic", "date") if name in used]
    return records.select(*columns), parts
