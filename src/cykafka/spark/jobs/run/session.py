"""Spark for a job: its session and driver, its run, and requests to stop."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cykafka.spark.clients.properties import REDACTED, is_secret
from cykafka.spark.java import find_java, java_version
from cykafka.spark.jobs.config import table_formats
from cykafka.spark.jobs.config.models import TableKeys
from cykafka.spark.jobs.folders import AnyFolder, ArrowFolder, ConnectFolder, Folder
from cykafka.spark.jobs.observing.report import Health, Summary
from cykafka.spark.jobs.problems import ConfigError, Stopped, explain_error, wrong_value
from cykafka.spark.jobs.records.outcome import BatchResults

if TYPE_CHECKING:
    from cykafka.spark.jobs.config.models import JobConfig
    from cykafka.spark.jobs.observing.endpoint import JobMetrics
    from cykafka.spark.jobs.observing.logs import SparkStderr
    from cykafka.spark.jobs.observing.report import ProgressLine

__all__ = ["ConnectDriver", "JobRun", "Stop", "server_of", "session"]

T = TypeVar("T")
C = TypeVar("C", bound="JobConfig", covariant=True)

_POLL_S = 0.25
_MOST_WARNINGS = 100
# Settings of all sessions.
_SETTINGS = {
    # Spark must not show secrets in plans or in its web UI.
    "spark.sql.redaction.options.regex": REDACTED,
    # For the dates of folders, and times in conditions.
    "spark.sql.session.timeZone": "UTC",
    # Keep the reports of many small micro-batches until the job reads them.
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


class Stop:
    """Requests to stop, by Ctrl-C or SIGTERM: the first ends the job cleanly, the second now."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, *_: object) -> None:
        self.asked += 1

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Treat SIGINT and SIGTERM as requests to stop."""
        before = {number: signal.signal(number, self.ask) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class JobRun(Generic[C]):
    """A job's run: Spark, the configuration, and where to report progress and warnings.

    Parameters
    ----------
    spark : SparkSession
    config : JobConfig
    progress : ProgressLine
    stop : Stop, optional
    log : SparkStderr, optional
        Spark's log, which the run searches for warnings.
    health : Health, optional
        Gets the run's progress.
    metrics : JobMetrics, optional
        Gets the run's counts.

    Attributes
    ----------
    summary : Summary
        The job's result so far, even if the job fails.
    driver : Driver
        The session's driver.
    results : BatchResults
        By micro-batch number: counts that Spark does not report.
    at_end : list of callable
        Functions to call after the query has ended.
    scratch : AnyFolder
        A directory on the driver's machine, created on demand.
    stop_file : Path
        A file in `scratch` whose existence stops the job's streams.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: C,
        progress: ProgressLine,
        stop: Stop | None = None,
        log: SparkStderr | None = None,
        health: Health | None = None,
        metrics: JobMetrics | None = None,
    ) -> None:
        self.spark = spark
        self.config = config
        self.progress = progress
        self.stop = Stop() if stop is None else stop
        self.health = Health() if health is None else health
        self.metrics = metrics
        self.summary = Summary(config.job, dry_run=config.is_dry_run)
        self.at_end: list[Callable[[], None]] = []
        self.driver = driver_of(spark)
        name = f"cykafka-run-{uuid.uuid4().hex}"
        folder = Path("/tmp" if self.driver.is_remote else tempfile.gettempdir(), name)
        self.scratch = self.driver.scratch(str(folder))
        self.stop_file = folder / "stop"
        self.results = BatchResults(self.scratch if self.driver.is_remote else None)
        self._log = log

    def place(self, address: str) -> str:
        """Return a directory's address for Spark's own readers and writers.

        With Spark Connect the address has a scheme, so that Spark uses the same file system as
        `driver`.
        """
        return self.driver.folder(address).address if self.driver.is_remote else address

    def stop_streams(self) -> None:
        """Create the file that stops the job's streams."""
        self.scratch.make()
        self.scratch.write(self.stop_file.name, "")

    def report_progress(self, words: str, **fields: Any) -> None:
        """Show the job's progress and new warnings, note that Spark responds, and export counts.

        `fields` are the numbers in `words`, for a JSON log.
        """
        self.health.note_response()
        self.pass_on_warnings()
        self.publish()
        self.progress.show(words, **fields)

    def publish(self) -> None:
        """Export the summary's counts."""
        if self.metrics is not None:
            self.metrics.set_summary(self.summary)

    def pass_on_warnings(self) -> None:
        """Print new warnings from the source and the sink."""
        for words in [] if self._log is None else self._log.read_warnings():
            self.warn(words)

    def warn(self, words: str) -> None:
        """Print a warning and keep it for the summary, but only once, because tasks repeat it."""
        words = self.config.redact(words)
        if words not in self.summary.warnings and len(self.summary.warnings) < _MOST_WARNINGS:
            self.summary.warnings.append(words)
            self.progress.warn(words)

    @contextmanager
    def pass_on_own_warnings(self) -> Iterator[None]:
        """Pass on the warnings that this process raises in the block."""
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            yield
        for warning in raised:
            self.warn(str(warning.message))

    def end(self) -> None:
        """Call the functions in `at_end`, even if some fail."""
        while self.at_end:
            try:
                self.at_end.pop()()
            except Exception as error:  # must not hide the error that ended the job
                self.warn(f"a cleanup at the end of the job failed: {explain_error(error)}")

    def watch(self, what: str, work: Callable[[], T]) -> T:
        """Return the result of `work`, which runs Spark jobs. Shows their tasks as progress.

        Raises
        ------
        Stopped
            A stop was requested before or during `work`; the driver cancels the jobs.
        """
        if self.stop.asked:
            raise Stopped(f"stopped before the start of: {what}")
        done = threading.Event()

        def report_tasks() -> None:
            while not done.wait(_POLL_S):
                try:
                    if self.stop.asked:
                        # Cancel each time: `work` may start another job after the last cancel.
                        self.driver.cancel()
                    done_tasks, tasks = self.driver.tasks()
                except Exception:  # Spark does not respond: `work` raises, or `health` reports it
                    continue
                self.health.note_progress()
                if self.metrics is not None:
                    self.metrics.set_tasks(done_tasks, tasks)
                words = f"{done_tasks} of {tasks} tasks" if tasks else "planning"
                self.report_progress(f"{what}: {words}", completed_tasks=done_tasks, tasks=tasks)

        # Run the work in this thread, to which the session belongs. The signal handler interrupts
        # it, but only sets a flag; so the watcher cancels the jobs.
        watcher = threading.Thread(target=report_tasks, name="cykafka-watcher", daemon=True)
        watcher.start()
        try:
            result = work()
        except Exception as error:
            if self.stop.asked:
                raise Stopped(f"{what}: stopped before it was done") from error
            raise
        finally:
            done.set()
            watcher.join()
        return result


@contextmanager
def session(config: JobConfig, log: SparkStderr | None = None) -> Iterator[SparkSession]:
    """Open a Spark session that ends with the block. A Spark Connect server keeps running.

    Parameters
    ----------
    config : JobConfig
    log : SparkStderr, optional
        The destination of Spark's log; by default standard error, with all details.

    Raises
    ------
    ConfigError
        The server does not let a session change a setting in the table `spark`.
    ImportError
        The packages of PySpark's extra ``connect`` are missing.
    RuntimeError
        Java is missing, Spark did not start, or the server does not respond.
    """
    if log is not None:
        # This logger repeats as JSON the errors that the job reports itself.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    server = server_of(config)
    spark = _start(config, log) if server is None else _connect(server)
    try:
        if server is not None:
            _configure(spark, config)
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()


def _start(config: JobConfig, log: SparkStderr | None) -> SparkSession:
    """Start a session whose driver is a JVM. A PySpark only for Spark Connect cannot do this."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = _settings(config, log is None)
    java = find_java()
    os.environ["JAVA_HOME"] = str(java)
    # These become arguments of a process, which other users can see.
    public = [(name, value) for name, value in conf.items() if not is_secret(name)]
    settings = SparkConf(loadDefaults=False).setAll(public)
    try:
        if SparkContext._gateway is None:
            # Start the JVM in a new session, so that Ctrl-C reaches only this process, which ends
            # queries cleanly. The JVM ends after this process.
            kwargs: dict[str, Any] = {"start_new_session": True}
            if log is not None:
                kwargs["stderr"] = log.file
            launch: Any = launch_gateway
            gateway = launch(conf=settings, popen_kwargs=kwargs)
            SparkContext._ensure_initialized(gateway=gateway, conf=settings)
        return SparkSession.builder.config(map={**conf}).getOrCreate()
    except Exception as error:
        said = "" if log is None else log.first_error()
        raise RuntimeError(
            f"Spark did not start, with Java {java_version(java)} of {java}: {said or error}"
        ) from error


def _settings(config: JobConfig, verbose: bool) -> dict[str, str]:
    given = config.spark_options()
    master = config.master or given.get("spark.master")
    if not master and not _is_submitted():
        master = "local[*]"
    conf = {
        "spark.app.name": config.app_name or f"cykafka {config.job}",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN" if verbose else "ERROR",
        "spark.redaction.regex": REDACTED,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.daemon.module": "cykafka.spark.daemon",
        **_SETTINGS,
    }
    os.environ.pop("SPARK_REMOTE", None)  # the master takes precedence; PySpark rejects both
    if master is not None and master.startswith("local"):
        conf["spark.python.unix.domain.socket.enabled"] = "true"
        conf["spark.ui.enabled"] = "false"
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # This Python contains the package; the first one on PATH may not.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    elif not _is_submitted():
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = _workers_python()
    conf.update(given)
    if isinstance(config, TableKeys):
        conf.update(table_formats.settings(config, given))
    if master is not None:
        conf["spark.master"] = master
    return conf


def _workers_python() -> str:
    """Return the workers' Python: PYSPARK_PYTHON, or else this process's. This machine also needs
    it.

    Spark plans a Python source here and runs its tasks on the workers with a program of the same
    name: PYSPARK_PYTHON if the source was registered, PYSPARK_DRIVER_PYTHON if Spark found it.

    Raises
    ------
    ConfigError
        The program is missing on this machine.
    """
    name = os.environ.get("PYSPARK_PYTHON") or sys.executable  # contains the package
    if shutil.which(name) is None:
        raise ConfigError(
            f"PYSPARK_PYTHON={name}: this machine has no such program. Spark plans reads from "
            "Kafka on this machine, with the Python whose name the workers use: unpack a "
            "packed environment in this working directory as well"
        )
    return name


def _is_submitted() -> bool:
    """Whether spark-submit started this program, so that the JVM already runs with its master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


# -- Spark Connect

_PORT = 15002
_CONNECT_S = 30.0


def server_of(config: JobConfig) -> str | None:
    """Return the address of the Spark Connect server, ``sc://...``; None for other masters."""
    given = config.master or config.spark.get("master") or os.environ.get("SPARK_REMOTE", "")
    return given if given.startswith("sc://") else None


def _connect(server: str) -> SparkSession:
    """Open a session on a server."""
    try:
        # Connect once: PySpark itself would retry for ten minutes.
        address = urlsplit(server)
        place = (address.hostname or "localhost", address.port or _PORT)
        socket.create_connection(place, _CONNECT_S).close()
        spark = SparkSession.builder.remote(server).create()
        _ = spark.version
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'pyspark[connect]'") from error
    except Exception as error:
        raise RuntimeError(
            f"cannot connect to Spark at {server.partition(';')[0]}: {explain_error(error)}"
        ) from error
    return spark


def _configure(spark: SparkSession, config: JobConfig) -> None:
    """Configure a server's session."""
    given = config.spark_options()
    given.pop("spark.master", None)
    problems = []
    for name, value in {**_SETTINGS, **given}.items():
        try:
            spark.conf.set(name, value)
        except PySparkException:
            problems.append(
                f'key "{name}": a session of Spark Connect cannot set it; set it where the server '
                "starts"
            )
    if problems:
        raise ConfigError(*problems)


# -- drivers: their running tasks, and whether they are alive

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
            advice = f" --packages {needed}" if (needed := table_formats.package(name)) else ""
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


def driver_of(spark: SparkSession) -> JvmDriver | ConnectDriver:
    """The driver of a session."""
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect.")
    return ConnectDriver(spark) if is_remote else JvmDriver(spark)
