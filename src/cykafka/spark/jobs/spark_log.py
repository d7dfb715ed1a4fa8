"""Spark's log of an archive's files: the folder ``_spark_metadata``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.folders import Folder
from cykafka.spark.jobs.staged_files import UNFINISHED, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SPARK_LOG", "STAGING", "LoggedFiles", "has_spark_log"]

SPARK_LOG = "_spark_metadata"
# The folder in the archive for files that are not complete; readers skip it.
STAGING = "_cykafka.unfinished"


def has_spark_log(spark: SparkSession) -> bool:
    """Whether a session has the classes: Spark Connect has no JVM, and Spark may rename them."""
    # py4j takes an unknown name for a package, which cannot be called.
    return hasattr(spark, "_jvm") and callable(_sinks(spark).FileStreamSinkLog)


def _sinks(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.execution.streaming.sinks


class LoggedFiles:
    """Puts files that tasks have written into Spark's log, by the classes of Spark's own sink.

    A file counts for Spark once the log names it. The tasks write to the folder `STAGING`, and the
    files get their places when the micro-batch is complete. So other readers do not see half a
    file, and a stop within a micro-batch leaves them nothing.

    Parameters
    ----------
    spark : SparkSession
        A session with a JVM.
    address : str
        The archive's folder.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._folder = Folder(spark, address)
        self._staging = Folder(spark, f"{self._folder.address}/{STAGING}")
        self._staging.delete()  # a crash may have left files
        sinks = _sinks(spark)
        self._status = sinks.SinkFileStatus
        log, place = sinks.FileStreamSinkLog, f"{self._folder.address}/{SPARK_LOG}"
        self._log: Any = log(log.VERSION(), spark._jsparkSession, place, jvm.scala.Option.empty())

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a micro-batch, unless the log has it already."""
        last = self._log.getLatestBatchId()
        if last.isDefined() and number <= last.get():
            return
        staged = written(batch, self._staging)
        files = self._gateway.new_array(self._status, len(staged))
        for index, each in enumerate(staged):
            path = each.path.removesuffix(UNFINISHED)
            self._folder.make(each.folder)
            self._folder.take(self._staging, each.path, path)
            files[index] = self._status.apply(self._folder.status(path))
        if not self._log.add(number, files):
            for each in staged:  # the other query has these records
                self._folder.delete(each.path.removesuffix(UNFINISHED))
            raise RuntimeError(
                f"{self._folder.address}: another query has written micro-batch {number} to "
                f"{SPARK_LOG}; an archive takes one query at a time"
            )
        self._staging.delete()
