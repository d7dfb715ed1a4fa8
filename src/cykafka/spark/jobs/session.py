"""Spark for a job: a session of its own, and what becomes of its queries."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cykafka.spark.jobs.errors import ConfigError, explained
from cykafka.spark.jobs.report import Summary
from cykafka.spark.redaction import REDACTED, is_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cykafka.spark.jobs.config import JobConfig
    from cykafka.spark.jobs.log import Log
    from cykafka.spark.jobs.report import Progress

__all__ = ["Run", "Stop", "Stopped", "session"]

T = TypeVar("T")
C = TypeVar("C", bound="JobConfig", covariant=True)

_POLL_S = 0.25
_MOST_WARNINGS = 100


class Stopped(Exception):
    """The job was asked to stop before it was done."""


class Stop:
    """Whether Ctrl-C or SIGTERM have asked the job to end; once: cleanly, twice: now."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Be asked by SIGINT and SIGTERM."""

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
    """What a job runs with: Spark, its configuration, and whom it tells what.

    Parameters
    ----------
    spark : SparkSession
    config : JobConfig
    progress : Progress
    stop : Stop, optional
    log : Log, optional
        What Spark writes, to look for warnings in it.

    Attributes
    ----------
    summary : Summary
        What the job has done so far, also when it fails.
    extra : dict
        Counts of micro-batches, by their numbers, that Spark does not report.
    at_end : list of callable
        What is to be done when the query has ended.
    stop_file : Path
        Once it is there, the job's streams have nothing more to read.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: C,
        progress: Progress,
        stop: Stop | None = None,
        log: Log | None = None,
    ) -> None:
        self.spark = spark
        self.config = config
        self.progress = progress
        self.stop = Stop() if stop is None else stop
        self.summary = Summary(config.job, dry_run=config.is_dry_run)
        self.extra: dict[int, dict[str, Any]] = {}
        self.at_end: list[Callable[[], None]] = []
        self.stop_file = Path(tempfile.gettempdir(), f"cykafka-stop-{uuid.uuid4().hex}")
        self._log = log

    def tell_targets(self, rows: list[Any]) -> None:
        """Note what a dry run would send: rows of columns, the last of which is a count."""
        would = self.summary.details.setdefault("would_send", {})
        for row in rows:
            *names, count = row
            name = " ".join(str(part) for part in names)
            would[name] = would.get(name, 0) + count

    def tell(self, words: str) -> None:
        """Tell how far the job is, and what the source and the sink have warned of."""
        self.pass_on_warnings()
        self.progress.show(words)

    def pass_on_warnings(self) -> None:
        """Tell what is new of the source's and the sink's warnings."""
        for words in [] if self._log is None else self._log.look():
            self.warn(words)

    def warn(self, words: str) -> None:
        """Tell a warning, and keep it for the summary; once, for tasks repeat them."""
        words = self.config.redact(words)
        if words not in self.summary.warnings and len(self.summary.warnings) < _MOST_WARNINGS:
            self.summary.warnings.append(words)
            self.progress.note(f"warning: {words}")

    def end(self) -> None:
        """Do what is to be done at the end, whatever has happened."""
        while self.at_end:
            try:
                self.at_end.pop()()
            except Exception as error:  # a JVM that has died must not hide why
                self.warn(f"not all could be put away: {explained(error)}")

    def has_lost_spark(self) -> bool:
        """Whether Spark has ended under the job: a cluster has ended it, or its JVM has died.

        A streaming query does not notice before there is something to read.
        """
        try:
            context: Any = self.spark.sparkContext._jsc
            return bool(context.sc().isStopped())
        except Exception:  # nobody is there to answer
            return True

    def watched(self, what: str, work: Callable[[], T]) -> T:
        """The result of `work`, a Spark job or several; their tasks are told while they run.

        Raises
        ------
        Stopped
            Somebody asked to stop, before or meanwhile; the jobs are cancelled.
        """
        if self.stop.asked:
            raise Stopped(f"stopped before this was begun: {what}")
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_POLL_S):
                if self.stop.asked:
                    # Each time: the next job may not have begun when the last one was cancelled.
                    self.spark.sparkContext.cancelAllJobs()
                self.tell(f"{what}: {self._tasks()}")

        # The work stays in this thread, which Spark knows as the session's; a signal's handler
        # runs in the midst of it, and only leaves word.
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

    def _tasks(self) -> str:
        tracker = self.spark.sparkContext.statusTracker()
        done = total = 0
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done, total = done + info.numCompletedTasks, total + info.numTasks
        return f"{done} of {total} tasks" if total else "planning"


@contextmanager
def session(config: JobConfig, log: Log | None = None) -> Iterator[SparkSession]:
    """A session of Spark that ends with the block.

    Parameters
    ----------
    config : JobConfig
    log : Log, optional
        What Spark logs goes there; by default all of it goes to standard error.

    Raises
    ------
    ImportError
        pyspark or pyarrow is missing.
    RuntimeError
        No Java, or Spark does not start.
    """
    conf = _settings(config, log is None)
    from cykafka.spark.java import find_java, java_version

    java = find_java()
    os.environ["JAVA_HOME"] = str(java)
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if log is not None:
        # It repeats, as JSON, each error that is told anyhow.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    # These become arguments of a process, which others can see.
    public = [(name, value) for name, value in conf.items() if not is_secret(name)]
    settings = SparkConf(loadDefaults=False).setAll(public)
    try:
        if SparkContext._gateway is None:
            # A session of its own: Ctrl-C is for this process, which ends queries in order;
            # the JVM ends when this process has.
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
        # Spark must not show them in plans or on its pages.
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
        # Dates of folders, and times in conditions.
        "spark.sql.session.timeZone": "UTC",
        # Many small micro-batches between two looks at them must not be missed.
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if master is not None and master.startswith("local"):
        conf["spark.python.unix.domain.socket.enabled"] = "true"
        conf["spark.ui.enabled"] = "false"
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # This Python has the package; the one that is first on PATH may not.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    elif not _is_submitted():
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = _workers_python()
    conf.update(given)
    if master is not None:
        conf["spark.master"] = master
    return conf


def _workers_python() -> str:
    """The name of the workers' Python, which this machine has to have, too; if none is told, of
    this one.

    Spark plans a Python source here and runs its tasks there with one and the same program:
    PYSPARK_PYTHON if the source was registered, PYSPARK_DRIVER_PYTHON if Spark has found it.

    Raises
    ------
    ConfigError
        This machine has no such program.
    """
    name = os.environ.get("PYSPARK_PYTHON") or sys.executable  # the only one known to have it all
    if shutil.which(name) is None:
        raise ConfigError(
            [
                f"PYSPARK_PYTHON={name}: there is no such program here. Spark plans what it reads "
                "of Kafka on this machine with the Python of its workers, by the same name: a "
                "packed environment has to be unpacked in this working directory as well"
            ]
        )
    return name


def _is_submitted() -> bool:
    """Whether spark-submit has started this program: the JVM is there, and knows its master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
