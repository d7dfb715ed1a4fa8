"""A session's driver: its running tasks, and whether it is alive."""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cykafka.spark.jobs.config.table_formats import package
from cykafka.spark.jobs.folders import AnyFolder, ArrowFolder, ConnectFolder, Folder
from cykafka.spark.jobs.problems import wrong_value

__all__ = ["ConnectDriver", "Driver", "JvmDriver", "driver_of"]

# A class of each format.
_CLASSES = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.hadoop.HadoopTables",
}


class JvmDriver:
    """A driver in a JVM that this process has started."""

    is_remote = False

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def warnings(self) -> list[str]:
        """What a user of this driver should know before the job begins."""
        return []

    def check_format(self, name: str) -> None:
        """Check that jobs can use the format of an archive.

        Raises
        ------
        ConfigError
            Spark lacks the format's classes. With spark-submit, only spark-submit itself can add
            packages.
        """
        if name == "parquet":
            return
        jvm = self._spark._jvm
        assert jvm is not None
        try:
            jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_CLASSES[name])
        except Exception:  # of Java
            advice = f" --packages {needed}" if (needed := package(name)) else ""
            raise wrong_value(
                "format",
                name,
                f"Spark {self._spark.version} has no jar for this format; set one in spark.jars, "
                f"or start with spark-submit{advice}",
            ) from None

    def folder(self, address: str) -> AnyFolder:
        """A folder that the driver can reach."""
        return Folder(self._spark, address)

    def scratch(self, path: str) -> AnyFolder:
        """A local folder of the driver's machine."""
        return ArrowFolder(path)

    def has_ended(self) -> bool:
        """Whether the cluster has ended the application, or the JVM died."""
        try:
            context: Any = self._spark.sparkContext._jsc
            return bool(context.sc().isStopped())
        except Exception:  # the JVM does not respond
            return True

    def cancel(self) -> None:
        """Cancel all running jobs."""
        self._spark.sparkContext.cancelAllJobs()

    def tasks(self) -> tuple[int, int]:
        """The number of completed tasks and of all tasks of the active stages."""
        tracker = self._spark.sparkContext.statusTracker()
        done = total = 0
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done, total = done + info.numCompletedTasks, total + info.numTasks
        return done, total

    def parallelism(self) -> int:
        """How many tasks run at once, about."""
        return self._spark.sparkContext.defaultParallelism


class ConnectDriver:
    """A driver behind a Spark Connect server."""

    is_remote = True

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tasks = (0, 0)
        handler: Any = self._set_tasks
        spark.registerProgressHandler(handler)

    def _set_tasks(self, stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        found = list(stages or ())
        self._tasks = (
            sum(stage.num_completed_tasks for stage in found),
            sum(stage.num_tasks for stage in found),
        )

    def warnings(self) -> list[str]:
        """What a user of this driver should know before the job begins."""
        server, client = self._spark.version, pyspark.__version__
        if server.split(".")[:2] == client.split(".")[:2]:
            return []
        # The client pickles functions and data sources, and the server's PySpark unpickles them.
        return [
            f"the server has Spark {server}, and this PySpark is {client}: expected the same "
            f"version; pip install 'pyspark[connect]=={server}'"
        ]

    def check_format(self, name: str) -> None:
        """Check that jobs can use the format of an archive.

        Raises
        ------
        ConfigError
            The format is a table format, and a Spark Connect client lacks a JVM.
        """
        if name != "parquet":
            words = "tables need a driver with a JVM: use another master than sc://..."
            raise wrong_value("format", name, words)

    def folder(self, address: str) -> AnyFolder:
        """A folder that the driver can reach."""
        return ConnectFolder(self._spark, address)

    scratch = folder

    def has_ended(self) -> bool:
        """Always False: requests to a server that has ended fail."""
        return False

    def cancel(self) -> None:
        """Cancel all running jobs of the session."""
        self._spark.interruptAll()

    def tasks(self) -> tuple[int, int]:
        """The number of completed tasks and of all tasks of the last request.

        The server must respond, because callers treat the result as a sign of life.
        """
        _ = self._spark.version
        return self._tasks

    def parallelism(self) -> int:
        """How many tasks run at once, about."""
        # Spark divides a range by its default parallelism.
        parts = self._spark.range(100_000).select(F.spark_partition_id().alias("part"))
        return parts.distinct().count()


Driver = JvmDriver | ConnectDriver


def driver_of(spark: SparkSession) -> Driver:
    """The driver of a session."""
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect.")
    return ConnectDriver(spark) if is_remote else JvmDriver(spark)
