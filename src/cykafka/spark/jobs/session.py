"""Spark for a job: a session of its own, and what becomes of its queries."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from cykafka.spark.jobs.report import Summary
from cykafka.spark.redaction import REDACTED, is_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cykafka.spark.jobs.config import Config
    from cykafka.spark.jobs.report import Progress

__all__ = ["Run", "Stop", "Stopped", "session"]

T = TypeVar("T")

_POLL_S = 0.25


class Stopped(Exception):
    """The job was asked to stop before it was done."""


class Stop:
    """Whether Ctrl-C or SIGTERM have asked the job to end; once: cleanly, twice: now."""

    def __init__(self) -> None:
        self.asked = 0
        self._event = threading.Event()

    def ask(self) -> None:
        self.asked += 1
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Sleep that long, or until somebody asks."""
        return self._event.wait(seconds)

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


class Run:
    """What a job runs with: Spark, its configuration, and whom it tells what.

    Parameters
    ----------
    spark : SparkSession
    config : Config
    progress : Progress
    stop : Stop

    Attributes
    ----------
    summary : Summary
        What the job has done so far, also when it fails.
    extra : dict
        Counts of micro-batches, by their numbers, that Spark does not report.
    at_end : list of callable
        What is to be done when the query has ended.
    """

    def __init__(
        self, spark: SparkSession, config: Config, progress: Progress, stop: Stop | None = None
    ) -> None:
        self.spark = spark
        self.config = config
        self.progress = progress
        self.stop = Stop() if stop is None else stop
        self.summary = Summary(config.job.name)
        self.extra: dict[int, dict[str, Any]] = {}
        self.at_end: list[Callable[[], None]] = []

    def tell_targets(self, rows: list[Any]) -> None:
        """Note what a dry run would send: rows of columns, the last of which is a count."""
        would = self.summary.details.setdefault("would_send", {})
        for row in rows:
            *names, count = row
            name = " ".join(str(part) for part in names)
            would[name] = would.get(name, 0) + count

    def watched(self, what: str, work: Callable[[], T]) -> T:
        """The result of `work`, a Spark job or several; their tasks are told while they run.

        Raises
        ------
        Stopped
            Somebody asked to stop; the jobs are cancelled.
        """
        done = threading.Event()

        def watch() -> None:
            cancelled = False
            while not done.wait(_POLL_S):
                if self.stop.asked and not cancelled:
                    cancelled = True
                    self.spark.sparkContext.cancelAllJobs()
                self.progress.show(f"{what}: {self._tasks()}")

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
def session(config: Config, verbose: bool = False) -> Iterator[SparkSession]:
    """A session of Spark that ends with the block.

    Parameters
    ----------
    config : Config
    verbose : bool
        Let Spark log to standard error; else it is shown only when Spark does not start.

    Raises
    ------
    ImportError
        pyspark or pyarrow is missing.
    RuntimeError
        No Java, or Spark does not start.
    """
    conf = _settings(config, verbose)
    from cykafka.spark.java import find_java

    os.environ["JAVA_HOME"] = str(find_java())
    with tempfile.TemporaryFile("w+b") as log:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        if not verbose:
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
                if not verbose:
                    kwargs["stderr"] = log
                launch: Any = launch_gateway
                gateway = launch(conf=settings, popen_kwargs=kwargs)
                SparkContext._ensure_initialized(gateway=gateway, conf=settings)
            builder = SparkSession.builder
            for name, value in conf.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
        except Exception as error:
            log.seek(0)
            said = log.read().decode(errors="replace").strip()
            raise RuntimeError(f"Spark did not start: {_first_cause(said) or error}") from error
        try:
            yield spark
        finally:
            with suppress(Exception):
                spark.stop()


def _first_cause(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if "rror" in line or "xception" in line]
    return lines[0] if lines else ""


def _settings(config: Config, verbose: bool) -> dict[str, str]:
    given = config.spark_options()
    master = config["master"] or given.get("spark.master") or os.environ.get("SPARK_MASTER", "")
    master = master or "local[*]"
    conf = {
        "spark.app.name": config["app_name"] or f"cykafka {config.job.name}",
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
    if master.startswith("local"):
        conf["spark.python.unix.domain.socket.enabled"] = "true"
        conf["spark.ui.enabled"] = "false"
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # This Python has the package; the one that is first on PATH may not.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf.update(given)
    conf["spark.master"] = master
    return conf
