"""The effects of a job on Spark, tested with a fake Spark."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.observing.logs import SparkStderr
from cykafka.spark.jobs.observing.report import ProgressLine
from cykafka.spark.jobs.problems import ConfigError, Stopped
from cykafka.spark.jobs.run.session import ConnectDriver, JobRun, Stop, _settings

GIVEN = {"kafka.bootstrap.servers": "a:1", "topics": "a"}


class Context:
    """A SparkContext whose jobs run until they are cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def cancelAllJobs(self) -> None:
        self.cancelled.set()

    def statusTracker(self) -> Any:
        stages = {7: SimpleNamespace(numCompletedTasks=2, numTasks=5), 8: None}
        return SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Where the progress goes."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    return Terminal()


@pytest.fixture
def run(stream: Terminal) -> JobRun:
    spark: Any = SimpleNamespace(sparkContext=Context())
    return JobRun(spark, load(JOBS["profile"], None, GIVEN, {}), ProgressLine(1, stream), Stop())


def test_watched_work_returns_its_result_and_raises_its_errors(run: JobRun) -> None:
    def fail() -> int:
        raise ZeroDivisionError

    assert run.watch("work", lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        run.watch("work", fail)


def test_progress_reports_running_tasks(run: JobRun, stream: Terminal) -> None:

    def work() -> None:
        deadline = threading.Event()
        for _ in range(100):
            if "work: 2 of 5 tasks" in stream.getvalue():
                return
            deadline.wait(0.1)
        pytest.fail(stream.getvalue())

    run.watch("work", work)


def test_spark_that_does_not_answer_is_not_healthy(run: JobRun) -> None:
    class Driver(ConnectDriver):
        asked = threading.Semaphore(0)

        def tasks(self) -> tuple[int, int]:
            self.asked.release()
            return super().tasks()

    class Session:
        """A session of Spark Connect whose server has ended."""

        registerProgressHandler = staticmethod(lambda _handler: None)

        @property
        def version(self) -> str:
            raise ConnectionRefusedError

    session: Any = Session()
    run.driver = driver = Driver(session)

    run.watch("work", lambda: [driver.asked.acquire(timeout=10) for _ in range(3)])

    assert run.health.readiness_problem() == "the job is starting"  # there was no answer


def test_stop_cancels_running_jobs(run: JobRun) -> None:
    context: Any = run.spark.sparkContext

    def work() -> None:
        run.stop.ask()
        assert context.cancelled.wait(10)
        raise RuntimeError("cancelled")

    with pytest.raises(Stopped, match="work: stopped before it was done"):
        run.watch("work", work)


def test_stop_cancels_jobs_that_start_later(run: JobRun) -> None:
    context: Any = run.spark.sparkContext

    def work() -> None:
        run.stop.ask()
        for _ in range(3):
            context.cancelled.clear()  # no job was running; the next one starts now
            assert context.cancelled.wait(10)
        raise RuntimeError("cancelled")

    with pytest.raises(Stopped):
        run.watch("work", work)


def test_work_does_not_start_after_a_stop(run: JobRun) -> None:
    run.stop.ask()

    with pytest.raises(Stopped, match="stopped before the start of: counting"):
        run.watch("counting", lambda: pytest.fail("it was begun"))


def test_work_that_finishes_despite_a_stop_counts(run: JobRun) -> None:
    def work() -> int:
        run.stop.ask()
        return 5

    assert run.watch("work", work) == 5


def test_explicit_settings_override_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "before")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    zone = {"spark.sql.session.timeZone": "Europe/Kyiv"}

    local = _settings(load(JOBS["profile"], None, GIVEN, {}), False)
    other = _settings(load(JOBS["profile"], None, {**GIVEN, **zone, "master": "yarn"}, {}), True)

    assert (local["spark.master"], local["spark.sql.session.timeZone"]) == ("local[*]", "UTC")
    assert local["spark.ui.enabled"] == "false"
    assert (other["spark.master"], other["spark.sql.session.timeZone"]) == ("yarn", "Europe/Kyiv")
    assert "spark.driver.host" not in other
    assert "jaas" in other["spark.sql.redaction.options.regex"]
    assert local["spark.python.daemon.module"] == "cykafka.spark.daemon"


def test_master_wins_over_the_variable_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "before")
    monkeypatch.setenv("SPARK_REMOTE", "sc://a")

    settings = _settings(load(JOBS["profile"], None, {**GIVEN, "master": "local[2]"}, {}), False)

    builder = SparkSession.Builder()
    for name, value in settings.items():
        builder.config(name, value)  # it raises an error if there are a server and a master
    assert settings["spark.master"] == "local[2]"


def test_settings_of_spark_submit_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)

    submitted = _settings(load(JOBS["profile"], None, GIVEN, {}), False)
    chosen = _settings(load(JOBS["profile"], None, {**GIVEN, "master": "yarn"}, {}), False)

    assert "spark.master" not in submitted
    assert "spark.driver.host" not in submitted
    assert chosen["spark.master"] == "yarn"
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


def test_queries_are_planned_with_the_python_of_the_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    config = load(JOBS["profile"], None, {**GIVEN, "master": "yarn"}, {})

    with pytest.raises(ConfigError, match="unpack a packed environment in this") as raised:
        _settings(config, False)
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (tmp_path / "environment" / "bin" / "python").symlink_to(sys.executable)
    _settings(config, False)

    assert "PYSPARK_PYTHON=./environment/bin/python: " in str(raised.value)
    assert os.environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "./environment/bin/python"


def test_workers_use_this_python_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")

    _settings(load(JOBS["profile"], None, {**GIVEN, "master": "yarn"}, {}), False)

    names = {os.environ[name] for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    assert names == {sys.executable}


def test_warnings_of_the_source_are_logged_once(run: JobRun, stream: Terminal) -> None:
    log = SparkStderr()
    run._log = log
    lost = "orders [3]: offsets 5 to 8 are gone; they are skipped, since failOnDataLoss is false"
    log.file.write(b"26/01/01 WARN Something: else\n" + lost.encode() + b"\nhalf a")
    log.file.flush()

    run.report_progress("working")
    log.file.write(b" line: failOnDataLoss is false\n" + lost.encode() + b"\n")
    log.file.write(b"/a/cykafka/b.py:182: UserWarning: option kafka.x is left out\n  warn(\n")
    log.file.write(b"/a/other/b.py:182: UserWarning: something else\n")
    log.file.flush()
    run.report_progress("working")

    half = "half a line: failOnDataLoss is false"
    assert run.summary.warnings == [lost, half, "option kafka.x is left out"]
    assert stream.getvalue().count(f"warning: {lost}\n") == 1
    assert f"  warning: {half}" in run.summary.lines()
    assert run.summary.as_dict()["warnings"] == run.summary.warnings
    assert log.last()[:2] == ["26/01/01 WARN Something: else", lost]
    log.close()


def test_log_does_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cykafka.spark.jobs.observing.logs._MOST", 100)
    log = SparkStderr()

    for number in range(20):
        log.file.write(b"line %d of a log\n" % number)
        log.file.flush()
        log.read_warnings()

    assert os.fstat(log.file.fileno()).st_size < 120
    assert log.last() == [f"line {number} of a log" for number in range(20)]
    log.close()


def test_failed_cleanup_is_a_warning(run: JobRun) -> None:
    done = []

    def fail() -> None:
        raise RuntimeError("the JVM is gone")

    run.at_end += [lambda: done.append(1), fail]

    run.end()

    assert done == [1]
    assert run.summary.warnings == ["a cleanup at the end of the job failed: the JVM is gone"]


def test_batches_are_paced_by_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from cykafka.spark.jobs.records import job_sink

    now, slept = 100.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept.append(round(seconds, 3))

    # Patch only this module, because a thread of py4j sleeps too.
    monkeypatch.setattr(job_sink, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))

    def batches() -> Iterator[Any]:
        nonlocal now
        for number in range(4):
            yield SimpleNamespace(num_rows=10)
            now += 3.0 if number == 1 else 0.0  # the sink was slow; later batches do not catch up

    taken = list(job_sink.limit_rate(batches(), rate=10.0))

    assert len(taken) == 4
    # The last batch is followed by a pause too, because another task may follow it.
    assert slept == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            "26/01/01 ERROR SparkContext: Error initializing SparkContext.\n"
            "org.apache.spark.SparkIllegalArgumentException: [NO] Insufficient driver memory\n"
            "\tat org.apache.spark.X\nCaused by: a.BException: further\n",
            "org.apache.spark.SparkIllegalArgumentException: [NO] Insufficient driver memory",
        ),
        ("Error: no such master\n", "Error: no such master"),
        ("all is well\n", ""),
    ],
)
def test_first_error_of_a_log_is_its_exception(said: str, expected: str) -> None:
    log = SparkStderr()
    log.file.write(said.encode())
    log.file.flush()

    assert log.first_error() == expected
    log.close()
