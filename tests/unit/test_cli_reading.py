"""A member of a group that `cykafka consume -G` makes: its end, and its commits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cykafka import KafkaError, TopicPartition
from cykafka.cli.records.reading import Member

BOTH = [TopicPartition("t", 0), TopicPartition("t", 1)]
Step = Callable[[dict[str, Any]], "Batch"]


class Batch(SimpleNamespace):
    """The parts of a MessageBatch that a member reads: ends of partitions, and positions."""

    @classmethod
    def of(cls, ended: list[TopicPartition] = [], read: list[TopicPartition] = []) -> Batch:  # noqa: B006
        def end(each: TopicPartition) -> SimpleNamespace:
            return SimpleNamespace(
                error=lambda: KafkaError(KafkaError._PARTITION_EOF),
                topic=lambda: each.topic,
                partition=lambda: each.partition,
            )

        return cls(errors=[end(each) for each in ended], positions=lambda: read)


class Scripted:
    """A consumer whose batches, with their rebalances, are given."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.callbacks: dict[str, Any] = {}
        self.committed: list[list[TopicPartition]] = []

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def consume_batch(self, count: int, timeout: float) -> Batch:
        return self.steps.pop(0)(self.callbacks)

    def commit(self, offsets: list[TopicPartition]) -> None:
        self.committed.append(offsets)


def rebalance(name: str, partitions: list[TopicPartition], **batch: Any) -> Step:
    def step(callbacks: dict[str, Any]) -> Batch:
        callbacks[name](None, partitions)
        return Batch.of(**batch)

    return step


def nothing(callbacks: dict[str, Any]) -> Batch:
    return Batch.of()


def test_member_does_not_end_in_the_middle_of_a_rebalance() -> None:
    consumer = Scripted(
        rebalance("on_assign", BOTH),
        rebalance("on_revoke", BOTH, ended=BOTH[:1]),
        nothing,
        rebalance("on_assign", BOTH[:1]),
        lambda _: Batch.of(ended=BOTH[:1]),
    )
    member = Member(consumer, ["t"], True, 1)  # type: ignore[arg-type]
    assert len(list(member.batches())) == 5


def test_member_without_partitions_is_at_the_end() -> None:
    consumer = Scripted(nothing, rebalance("on_assign", []))
    assert len(list(Member(consumer, ["t"], True, 1).batches())) == 2  # type: ignore[arg-type]


def test_member_commits_printed_records_while_no_others_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("cykafka.cli.records.reading.time.monotonic", lambda: now[0])
    position = TopicPartition("t", 0, 7)
    consumer = Scripted(rebalance("on_assign", BOTH), *[nothing] * 4)
    member = Member(consumer, ["t"], False, 1)  # type: ignore[arg-type]
    batches = member.batches()
    member.note_printed(Batch.of(read=[position], ended=[]) if next(batches) else None)  # type: ignore[arg-type]
    next(batches)
    assert consumer.committed == []  # too soon
    now[0] = 5.0
    next(batches)
    next(batches)
    assert consumer.committed == [[position]]  # once
