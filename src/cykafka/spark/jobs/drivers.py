"""The driver of a session: its running tasks, and whether it is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.arrow_folder import ArrowFolder
from cykafka.spark.jobs.folders import AnyFolder, Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ConnectDriver", "Driver", "JvmDriver", "driver_of"]


class JvmDriver:
    """A driver in a JVM that this process has started."""

    is_remote = False

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def warnings(self) -> list[str]:
        """What a user of this driver should know before the job begins."""
        return []

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
        except Exception:  # the JVM does not answer
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
        handler: Any = self._note
        spark.registerProgressHandler(handler)

    def _note(self, stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        found = list(stages or ())
        self._tasks = (
            sum(each.num_completed_tasks for each in found),
            sum(each.num_tasks for each in found),
        )

    def warnings(self) -> list[str]:
        """What a user of this driver should know before the job begins."""
        import pyspark

        server, client = self._spark.version, pyspark.__version__
        if server.split(".")[:2] == client.split(".")[:2]:
            return []
        # The client pickles functions and data sources, and the server's PySpark unpickles them.
        return [
            f"the server has Spark {server}, and this PySpark is {client}: expected the same "
            f"version; pip install 'pyspark[connect]=={server}'"
        ]

    def folder(self, address: str) -> AnyFolder:
        """A folder that the driver can reach."""
        from cykafka.spark.jobs.connect_folder import ConnectFolder

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

        The server must answer, because callers take the result for a sign of life.
        """
        _ = self._spark.version
        return self._tasks

    def parallelism(self) -> int:
        """How many tasks run at once, about."""
        from pyspark.sql import functions as F

        # Spark divides a range by its default parallelism.
        parts = self._spark.range(100_000).select(F.spark_partition_id().alias("part"))
        return parts.distinct().count()


Driver = JvmDriver | ConnectDriver


def driver_of(spark: SparkSession) -> Driver:
    """The driver of a session."""
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect.")
    return ConnectDriver(spark) if is_remote else JvmDriver(spark)
