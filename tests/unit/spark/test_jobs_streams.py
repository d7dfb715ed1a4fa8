"""How a job watches its query, tested with a fake query and Spark."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.observing.report import Health, ProgressLine
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.jobs.run.streams import finish

GIVEN = {
    "kafka.bootstrap.servers": "a:1", "topics": "a", "to": "b", "checkpoint": "c",
    "trigger": "continuous",
}  # fmt: skip


class Query:
    """A query without records. Its Spark ends at the wait number `ends`."""

    lastProgress = None
    recentProgress = ()
    isActive = True
    status: ClassVar[dict[str, Any]] = {"isTriggerActive": False, "message": "Waiting for data"}

    def __init__(self, ends: int, fails: bool, jvm_dies: bool) -> None:
        self.waited, self._ends, self._fails, self._jvm_dies = 0, ends, fails, jvm_dies

    def awaitTermination(self, _timeout: float) -> None:
        self.waited += 1
        if self._fails and self.waited == self._ends:
            raise ValueError("something is null")
        assert self.waited <= self._ends, "the job still waits for records"

    def isStopped(self) -> bool:
        if self._jvm_dies and self.waited == self._ends:
            raise ConnectionRefusedError
        return self.waited == self._ends

    def sc(self) -> Query:
        return self


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("jvm_dies", [False, True])
def test_finish_does_not_wait_for_a_query_of_a_stopped_spark(fails: bool, jvm_dies: bool) -> None:
    query: Any = Query(3, fails, jvm_dies)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=query))
    run = JobRun(spark, load(JOBS["mirror"], None, GIVEN, {}), ProgressLine(1, io.StringIO()))

    with pytest.raises(RuntimeError, match="Spark ended while the job was running") as raised:
        finish(run, query)

    assert query.waited == 3
    assert run.summary.outcome == "failed"
    assert isinstance(raised.value.__cause__, ValueError if fails else type(None))


def test_finish_raises_other_errors_of_a_query_of_a_running_spark() -> None:
    query: Any = Query(3, True, False)
    context: Any = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context))
    run = JobRun(spark, load(JOBS["mirror"], None, GIVEN, {}), ProgressLine(1, io.StringIO()))

    with pytest.raises(ValueError, match="something is null"):
        finish(run, query)


@pytest.mark.parametrize(
    ("active", "message", "reports", "last"),
    [
        (False, "Waiting for data to arrive", [None] * 5, None),
        (True, "Getting offsets from org.Stream@288bc477", ["1", "2", "3", "4", "5"], None),
        (True, "Getting offsets from org.Stream@288bc477", ["1"] * 5,
         "80 s (health_timeout: 60 s); Spark: Getting offsets from Kafka"),
        (False, "Initializing sources", [None] * 5,
         "120 s (health_timeout: 60 s); Spark: Initializing sources"),
    ],
)  # fmt: skip
def test_idle_query_and_query_with_new_reports_are_ready(
    active: bool, message: str, reports: list[str | None], last: str | None
) -> None:
    """Every 40 s the query waits for records, or has a new report, or neither."""
    now = 0.0
    found: list[str | None] = []

    class Slow(Query):
        status: ClassVar[dict[str, Any]] = {"isTriggerActive": active, "message": message}

        @property
        def lastProgress(self) -> Any:
            time = reports[self.waited - 1]
            report = {"batchId": 0, "numInputRows": 0, "sources": []}
            return time and SimpleNamespace(batchId=0, timestamp=time, json=json.dumps(report))

        def awaitTermination(self, timeout: float) -> None:
            nonlocal now
            if self.waited:
                found.append(run.health.readiness_problem())
            super().awaitTermination(timeout)
            now += 40

    query: Any = Slow(4, False, False)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=query))
    config = load(JOBS["mirror"], None, GIVEN, {})
    health = Health(60.0, lambda: now)
    run = JobRun(spark, config, ProgressLine(1, io.StringIO()), health=health)

    with pytest.raises(RuntimeError, match="Spark ended while the job was running"):
        finish(run, query)

    assert found[0] is None
    assert found[2] == (last and f"the micro-batch has not ended for {last}")
