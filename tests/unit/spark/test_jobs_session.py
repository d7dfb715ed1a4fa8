"""What a job does to Spark, with a Spark that is none."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cykafka.spark.jobs.config import load
from cykafka.spark.jobs.keys import JOBS
from cykafka.spark.jobs.report import Progress
from cykafka.spark.jobs.session import Run, Stop, Stopped, _settings

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
def run() -> Run:
    spark: Any = SimpleNamespace(sparkContext=Context())
    return Run(spark, load(JOBS["profile"], None, GIVEN, {}), Progress(1, Terminal()), Stop())


def test_the_result_of_the_work_is_given_back_and_its_errors_are(run: Run) -> None:
    def fail() -> int:
        raise ZeroDivisionError

    assert run.watched("work", lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        run.watched("work", fail)


def test_tasks_are_told_while_they_run(run: Run) -> None:
    stream: Any = run.progress._stream

    def work() -> None:
        deadline = threading.Event()
        for _ in range(100):
            if "work: 2 of 5 tasks" in stream.getvalue():
                return
            deadline.wait(0.1)
        pytest.fail(stream.getvalue())

    run.watched("work", work)


def test_jobs_are_cancelled_when_somebody_asks(run: Run) -> None:
    context: Any = run.spark.sparkContext

    def work() -> None:
        run.stop.ask()
        assert context.cancelled.wait(10)
        raise RuntimeError("cancelled")

    with pytest.raises(Stopped, match="work: stopped before it was done"):
        run.watched("work", work)


def test_work_that_is_done_nevertheless_counts(run: Run) -> None:
    def work() -> int:
        run.stop.ask()
        return 5

    assert run.watched("work", work) == 5


def test_what_is_given_wins_over_what_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "before")
    monkeypatch.delenv("SPARK_MASTER", raising=False)
    zone = {"spark.sql.session.timeZone": "Europe/Kyiv"}

    local = _settings(load(JOBS["profile"], None, GIVEN, {}), False)
    other = _settings(load(JOBS["profile"], None, {**GIVEN, **zone, "master": "yarn"}, {}), True)

    assert (local["spark.master"], local["spark.sql.session.timeZone"]) == ("local[*]", "UTC")
    assert local["spark.ui.enabled"] == "false"
    assert (other["spark.master"], other["spark.sql.session.timeZone"]) == ("yarn", "Europe/Kyiv")
    assert "spark.driver.host" not in other
    assert "jaas" in other["spark.sql.redaction.options.regex"]


def test_batches_come_at_their_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from cykafka.spark.jobs import pace

    now, slept = 100.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept.append(round(seconds, 3))

    monkeypatch.setattr(pace.time, "monotonic", lambda: now)
    monkeypatch.setattr(pace.time, "sleep", sleep)

    def batches() -> Iterator[Any]:
        nonlocal now
        for number in range(4):
            yield SimpleNamespace(num_rows=10)
            now += 3.0 if number == 1 else 0.0  # the sink was slow: that is not made up for

    taken = list(pace.paced(batches(), rate=10.0))

    assert len(taken) == 4
    assert slept == [1.0, 1.0]
