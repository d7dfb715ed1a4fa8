"""Spark for a job: its session, its run, and requests to stop."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cykafka.spark.jobs import formats
from cykafka.spark.jobs.batch_results import BatchResults
from cykafka.spark.jobs.config import TableKeys
from cykafka.spark.jobs.connect_session import connect_session, server_of
from cykafka.spark.jobs.drivers import driver_of
from cykafka.spark.jobs.errors import explained
from cykafka.spark.jobs.health import Health
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.report import Summary
from cykafka.spark.redaction import REDACTED, is_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cykafka.spark.jobs.config import JobConfig
    from cykafka.spark.jobs.log import Log
    from cykafka.spark.jobs.metrics import JobMetrics
    from cykafka.spark.jobs.report import Progress

__all__ = ["Run", "Stop", "Stopped", "session"]

T = TypeVar("T")
C = TypeVar("C", bound="JobConfig", covariant=True)

_POLL_S = 0.25
_MOST_WARNINGS = 100


class Stopped(Exception):
    """The job was stopped before it was done."""


class Stop:
    """Requests to stop, by Ctrl-C or SIGTERM: the first ends the job cleanly, the second now."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Turn SIGINT and SIGTERM into requests to stop."""

        def handler(_number: int, _frame: FrameType | None) -> None:
            self.ask()

        before = {number: signal.signal(number, handler) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Run(Generic[C]):
    """A run of a job: Spark, the configuration, and where it reports progress and warnings.

    Parameters
    ----------
    spark : SparkSession
    config : JobConfig
    progress : Progress
    stop : Stop, optional
    log : Log, optional
        Spark's log, to look for warnings in it.
    health : Health, optional
        Where the run notes its progress.
    metrics : JobMetrics, optional
        Where the run exports its counts.

    Attributes
    ----------
    summary : Summary
        The job's result so far, also if the job fails.
    driver : Driver
        What the session's driver can do.
    results : BatchResults
        By number of micro-batch: counts that Spark does not report.
    at_end : list of callable
        Functions to call after the query has ended.
    scratch : AnyFolder
        A folder on the driver's machine, which does not exist until it is needed.
    stop_file : Path
        The file in it whose existence stops the job's streams.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: C,
        progress: Progress,
        stop: Stop | None = None,
        log: Log | None = None,
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
        """The address of a folder for Spark's own readers and writers.

        With Spark Connect it has a scheme, so that Spark means the same file system as `driver`.
        """
        return self.driver.folder(address).address if self.driver.is_remote else address

    def stop_streams(self) -> None:
        """Make the file that stops the job's streams."""
        self.scratch.make()
        self.scratch.write(self.stop_file.name, "")

    def tell(self, words: str, **fields: Any) -> None:
        """Show the job's progress, which Spark has answered, and new warnings; export its counts.

        `fields` are the numbers in `words`, for a log of JSON.
        """
        self.health.answered()
        self.pass_on_warnings()
        self.publish()
        self.progress.show(words, **fields)

    def publish(self) -> None:
        """Export the counts of the summary."""
        if self.metrics is not None:
            self.metrics.take(self.summary)

    def pass_on_warnings(self) -> None:
        """Print new warnings of the source and the sink."""
        for words in [] if self._log is None else self._log.look():
            self.warn(words)

    def warn(self, words: str) -> None:
        """Print a warning and keep it for the summary; only once, because tasks repeat them."""
        words = self.config.redact(words)
        if words not in self.summary.warnings and len(self.summary.warnings) < _MOST_WARNINGS:
            self.summary.warnings.append(words)
            self.progress.warn(words)

    @contextmanager
    def own_warnings(self) -> Iterator[None]:
        """Pass on the warnings that this process raises in the block."""
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            yield
        for each in raised:
            self.warn(str(each.message))

    def end(self) -> None:
        """Call the functions of `at_end`, even if some fail."""
        while self.at_end:
            try:
                self.at_end.pop()()
            except Exception as error:  # must not hide the error that ended the job
                self.warn(f"a cleanup at the end of the job failed: {explained(error)}")

    def watched(self, what: str, work: Callable[[], T]) -> T:
        """The result of `work`, which runs Spark jobs; show their tasks as progress.

        Raises
        ------
        Stopped
            A stop was requested before or during `work`; the jobs are cancelled.
        """
        if self.stop.asked:
            raise Stopped(f"stopped before the start of: {what}")
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_POLL_S):
                try:
                    if self.stop.asked:
                        # Cancel each time: `work` may start another job after the last cancel.
                        self.driver.cancel()
                    done_tasks, tasks = self.driver.tasks()
                except Exception:  # Spark does not answer: `work` raises, or `health` reports it
                    continue
                self.health.moved()
                if self.metrics is not None:
                    self.metrics.set_tasks(done_tasks, tasks)
                words = f"{done_tasks} of {tasks} tasks" if tasks else "planning"
                self.tell(f"{what}: {words}", completed_tasks=done_tasks, tasks=tasks)

        # Run the work in this thread, to which the session belongs. The signal handler interrupts
        # it, but only sets a flag; so the watcher cancels the jobs.
        watcher = threading.Thread(target=watch, name="cykafka-watcher", daemon=True)
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
def session(config: JobConfig, log: Log | None = None) -> Iterator[SparkSession]:
    """A Spark session that ends with the block.

    Parameters
    ----------
    config : JobConfig
    log : Log, optional
        The destination of Spark's log; by default standard error, with all details.

    Raises
    ------
    ImportError
        pyspark or pyarrow is missing.
    RuntimeError
        There is no Java, or Spark did not start.
    """
    if log is not None:
        # This logger repeats, as JSON, errors that the job reports itself.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    server = server_of(config)
    if server is not None:
        with connect_session(config, server) as spark:
            yield spark
        return
    conf = _settings(config, log is None)
    from cykafka.spark.java import find_java, java_version

    java = find_java()
    os.environ["JAVA_HOME"] = str(java)
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

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
        builder = SparkSession.builder
        for name, value in conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    except Exception as error:
        said = "" if log is None else log.first_error()
        raise RuntimeError(
            f"Spark did not start, with Java {java_version(java)} of {java}: {said or error}"
        ) from error
    try:
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()


def _settings(config: JobConfig, verbose: bool) -> dict[str, str]:
    given = config.spark_options()
    master = config.master or given.get("spark.master")
    if not master and not _is_submitted():
        master = "local[*]"
    conf = {
        "spark.app.name": config.app_name or f"cykafka {config.job}",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN" if verbose else "ERROR",
        # Spark must not show secrets in plans or in its web UI.
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
        # For the dates of folders, and times in conditions.
        "spark.sql.session.timeZone": "UTC",
        # Keep the reports of many small micro-batches until the job reads them.
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    os.environ.pop("SPARK_REMOTE", None)  # the master wins, but PySpark refuses to have both
    if master is not None and master.startswith("local"):
        conf["spark.python.unix.domain.socket.enabled"] = "true"
        conf["spark.ui.enabled"] = "false"
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # This Python has the package; the first one on PATH may not.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    elif not _is_submitted():
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = _workers_python()
    conf.update(given)
    if isinstance(config, TableKeys):
        conf.update(formats.settings(config, given))
    if master is not None:
        conf["spark.master"] = master
    return conf


def _workers_python() -> str:
    """The workers' Python: PYSPARK_PYTHON, or else this process's. This machine needs it, too.

    Spark plans a Python source here and runs its tasks on the workers with a program of the same
    name: PYSPARK_PYTHON if the source was registered, PYSPARK_DRIVER_PYTHON if Spark found it.

    Raises
    ------
    ConfigError
        This machine does not have the program.
    """
    name = os.environ.get("PYSPARK_PYTHON") or sys.executable  # this one has the package
    if shutil.which(name) is None:
        raise ConfigError(
            [
                f"PYSPARK_PYTHON={name}: this machine has no such program. Spark plans reads from "
                "Kafka on this machine, with the Python whose name the workers use: unpack a "
                "packed environment in this working directory as well"
            ]
        )
    return name


def _is_submitted() -> bool:
    """Whether spark-submit started this program: then the JVM already runs and has its master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
