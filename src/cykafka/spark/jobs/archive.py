"""The job ``archive``: writes topics to Parquet, by topic and date."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cykafka.spark.jobs.archive_claim import Claim
from cykafka.spark.jobs.archive_files import Files
from cykafka.spark.jobs.folders import naming
from cykafka.spark.jobs.report import Summary
from cykafka.spark.jobs.streams import counted, finish, records_stream, start
from cykafka.spark.jobs.values import decoded

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
    records, folders = _rows(run)
    config = run.config
    with naming("path", config.path):
        folder = run.driver.folder(config.path)
    with naming("checkpoint", config.checkpoint):
        claim = Claim(run, folder, folders)
    claim.check()
    by_spark = config.file_names == "spark"

    def prepare(writer: DataStreamWriter) -> DataStreamWriter:
        claim.make()
        if not by_spark:
            return writer.foreachBatch(Files(run, folder, folders, claim).write)
        return (
            writer.format("parquet")
            .partitionBy(*folders)
            .option("compression", config.compression)
            .option("path", run.place(config.path))
        )

    query = start(run, records, prepare)
    if by_spark:
        try:
            claim.take()
        except BaseException:
            query.stop()
            raise
    return query


def _rows(run: Run[Archive]) -> tuple[DataFrame, list[str]]:
    """The rows to write, and the columns that become folders."""
    from pyspark.sql import functions as F

    config = run.config
    records = decoded(records_stream(run), config.decode, config.value_schema)
    records = counted(records, bad=F.col("error").isNotNull())
    records = records.withColumn("date", F.date_format("timestamp", "yyyy-MM-dd"))
    columns = [*(RECORD if config.keep_raw else ()), *PLACE]
    folders = ["topic", "date"]
    if config.reads_values:
        # Bad records have their own folders, so readers of status=good never see them.
        status = F.when(F.col("error").isNull(), "good").otherwise("bad")
        records = records.withColumn("status", status)
        columns += ["error", *(_ENVELOPE if config.decode != "none" else ())]
        columns += ["json"] if config.value_schema is not None else []
        folders.insert(0, "status")
    return records.select(*columns, *folders), folders
