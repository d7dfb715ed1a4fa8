"""Commits of one partition by several threads never move the offset back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S
from pip_services4_observability.count import CompositeCounters
from pip_services4_observability.log import CompositeLogger

from cykafka import Message
from pip_services4_kafka.connect import KafkaSubscription
from pip_services4_kafka.queues._consuming import Consuming, Settings
from pip_services4_kafka.queues._measures import Measures


class Reader:
    """Commits when the test allows it, and records the order."""

    def __init__(self) -> None:
        self.commit_timeout = 0.2
        self.committed: list[int] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.awaited_by: int | None = None

    def commit(self, offsets: dict[int, int]) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(WAIT_S)
        self.committed.append(offsets[0])

    def is_awaited_by(self, thread: int) -> bool:
        return thread == self.awaited_by


@pytest.fixture
def consuming() -> Consuming:
    """Three delivered messages of one partition, without autocommit."""
    measures = Measures(lambda: "q", CompositeCounters(), CompositeLogger())
    made = Consuming(
        Settings(auto_commit=False), lambda: "q", lambda _: [], None, lambda: None, measures
    )  # type: ignore[arg-type, return-value]
    made.subscription, made.reader = KafkaSubscription("t"), Reader()  # type: ignore[assignment]
    made.assigned(made.subscription, [0])
    made.buffer.add(made.subscription, 0, range(3), ["0", "1", "2"])
    while made.take(0) is not None:
        pass
    return made


def started(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def complete(consuming: Consuming, offset: int) -> None:
    consuming.complete(Message("t", partition=0, offset=offset))


def going(consuming: Any) -> tuple[Reader, threading.Thread]:
    """Start a commit of the first message, and complete the second one."""
    reader = consuming.reader
    completing = started(lambda: complete(consuming, 0))
    assert reader.begun.wait(WAIT_S)
    consuming.buffer.settle(0, 1)
    return reader, completing


def test_revoked_partition_is_committed_after_the_running_commit(consuming: Any) -> None:
    reader, completing = going(consuming)
    reader.commit_timeout = WAIT_S
    revoking = started(lambda: consuming.revoked(consuming.subscription, [0]))
    revoking.join(0.1)
    assert reader.committed == []
    reader.go_on.set()
    for thread in (completing, revoking):
        thread.join(WAIT_S)
    assert reader.committed == [1, 2]


def test_partition_is_revoked_even_if_its_commit_never_ends(consuming: Any) -> None:
    reader, completing = going(consuming)
    consuming.revoked(consuming.subscription, [0])
    assert reader.committed == []
    reader.go_on.set()
    completing.join(WAIT_S)


def test_revocation_does_not_wait_for_a_thread_that_waits_for_it(consuming: Any) -> None:
    """A signal handler closes the queue in the thread that commits."""
    reader, completing = going(consuming)
    reader.commit_timeout = WAIT_S
    reader.awaited_by = completing.ident
    consuming.revoked(consuming.subscription, [0])
    assert reader.committed == [2]
    reader.go_on.set()
    completing.join(WAIT_S)
