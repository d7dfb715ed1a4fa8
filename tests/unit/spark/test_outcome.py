"""What becomes of records that brokers refuse, on the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the group spark is not installed")
pytest.importorskip("pyspark", reason="the group spark is not installed")

from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.records import outcome
from cykafka.spark.jobs.records.outcome import JobHandling, Outcome, settle
from cykafka.spark.sink.writing import Refused

COUNT = 10_000
ERROR = "Broker: Message size too large (MSG_SIZE_TOO_LARGE), larger than the brokers allow"


def refused(count: int) -> tuple[Refused, ...]:
    return tuple(Refused("a-topic", n % 2, n, "target", ERROR) for n in range(count))


def test_outcome_of_many_refused_records_is_a_short_text() -> None:
    given = Outcome(7, refused(COUNT), ("oh",))

    text = given.text()
    again = Outcome.from_text(text)

    assert (again.records, sorted(again.refused), again.errors) == (
        7,
        sorted(given.refused),
        ("oh",),
    )
    assert len(text) < 10 * COUNT


def test_dead_letters_that_do_not_fit_take_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    forms: list[str] = []

    def letters(_handling: JobHandling, refused: Any, form: str) -> Iterator[Any]:
        forms.append(form)
        assert len(refused) == COUNT
        return iter(())

    def write(_sink: Any, _batches: Any, rest: list[Refused]) -> None:
        rest.extend(refused(COUNT) if forms == ["whole"] else ())

    monkeypatch.setattr(JobHandling, "letters", letters)
    monkeypatch.setattr(outcome, "_write", write)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topics": "a-topic", "to": "target",
             "checkpoint": "/c", "dead_letter_topic": "dead"}  # fmt: skip
    config: Any = load(JOBS["mirror"], None, given, {})

    began = time.process_time()
    counts = settle(JobHandling.of(config), Outcome(0, refused(COUNT)))

    assert (counts, forms) == ({"refused": COUNT}, ["whole", "without value"])
    assert time.process_time() - began < 2
