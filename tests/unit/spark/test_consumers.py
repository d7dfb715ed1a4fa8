"""Consumers that stay open in a worker, tested with fake consumers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from spark_consumers import close_consumers

from cykafka import KafkaError, KafkaException
from cykafka.spark.clients import consumers
from cykafka.spark.clients.consumers import OpenConsumer, borrow_consumer
from cykafka.spark.clients.properties import ClientConfig


class Fake:
    def __init__(self, config: Any) -> None:
        self.closed = 0
        self.fails = False

    def poll(self, timeout: float) -> None: ...
    def resume(self, partitions: Any) -> None: ...
    def assign(self, partitions: Any) -> None: ...

    def assignment(self) -> list[Any]:
        return []

    def unassign(self) -> None:
        if self.fails:
            raise KafkaException(KafkaError(KafkaError._STATE))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Fake]]:
    """The created consumers, in order."""
    found: list[Fake] = []

    def make(config: Any) -> Fake:
        found.append(Fake(config))
        return found[-1]

    monkeypatch.setattr(consumers, "OpenConsumer", lambda config: OpenConsumer(config, make))  # type: ignore[arg-type]
    yield found
    close_consumers()


def config(name: str) -> ClientConfig:
    return ClientConfig({"bootstrap.servers": "h:1", "client.id": name})


def take(name: str) -> None:
    with borrow_consumer(config(name)) as mine:
        mine.assign([])


def test_one_consumer_per_configuration_stays_open(made: list[Fake]) -> None:
    for name in ("a", "b", "a", "b", "a"):
        take(name)
    assert len(made) == 2
    assert [each.closed for each in made] == [0, 0]


def test_least_recently_used_consumer_is_closed(made: list[Fake]) -> None:
    assert consumers.MAX_OPEN == 2
    for name in ("a", "b", "a", "c"):
        take(name)
    assert [each.closed for each in made] == [0, 1, 0]
    close_consumers()
    assert [each.closed for each in made] == [1, 1, 1]


def test_forked_child_leaves_its_parents_consumers_alone(
    made: list[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    take("a")
    take("b")
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a child
    take("a")
    take("b")
    assert len(made) == 4
    take("c")
    assert [each.closed for each in made] == [0, 0, 1, 0, 0]
    close_consumers()
    assert [each.closed for each in made] == [0, 0, 1, 1, 1]


def test_nested_tasks_have_their_own_consumers(made: list[Fake]) -> None:
    with borrow_consumer(config("a")) as outer, borrow_consumer(config("a")) as inner:
        assert inner is not outer
    assert sorted(each.closed for each in made) == [0, 1]


def test_consumer_of_a_failed_task_is_closed(made: list[Fake]) -> None:
    with pytest.raises(ZeroDivisionError), borrow_consumer(config("a")):
        raise ZeroDivisionError
    assert [each.closed for each in made] == [1]
    assert not consumers._kept


def abandoned(name: str) -> Iterator[int]:
    with borrow_consumer(config(name)) as mine:
        mine.assign([])
        yield 1


def test_cancelled_task_leaves_its_consumer_usable(made: list[Fake]) -> None:
    rows = abandoned("a")
    assert next(rows) == 1
    rows.close()  # type: ignore[attr-defined]
    assert [each.closed for each in made] == [0]
    assert len(consumers._kept) == 1


def test_consumer_that_cannot_be_unassigned_is_closed(made: list[Fake]) -> None:
    rows = abandoned("a")
    next(rows)
    made[0].fails = True
    with pytest.raises(KafkaException):
        rows.close()  # type: ignore[attr-defined]
    assert [each.closed for each in made] == [1]
    assert not consumers._kept
