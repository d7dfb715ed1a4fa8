"""Garbage collections in Spark's workers."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext

from cykafka.spark import garbage
from cykafka.spark.garbage import exempt_modules


@pytest.fixture(autouse=True)
def unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_are_exempt", False)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_first_task_of_a_worker_exempts_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())

    exempt_modules()

    count = gc.get_freeze_count()
    assert count > 10_000  # the modules of pytest alone have more
    later = [object()]
    exempt_modules()
    assert gc.get_freeze_count() <= count
    assert any(each is later for each in gc.get_objects())


def test_other_processes_keep_their_collections() -> None:
    exempt_modules()

    assert gc.get_freeze_count() == 0
