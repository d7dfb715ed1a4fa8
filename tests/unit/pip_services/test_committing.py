"""Commits of one partition by several threads never move the offset back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from machine import WAIT_S
from pip_services4_observability.count import CompositeCounters

from cykafka import Message, TopicPartition
from pip_services4_kafka._log import Log
from pip_services4_kafka.queues._measures import Measures
from pip_services4_kafka.queues._receiver import Receiver, ReceiverSettings


class Session:
    """Commits when the test allows it, and records the order."""

    topic = "t"
    subscription = SimpleNamespace(options={})

    def __init__(self) -> None:
        self.request_timeout = 0.2
        self.committed: list[int] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.awaited_by: int | None = None

    def request(self, *_: Any) -> list[TopicPartition]:
        return [TopicPartition("t", 0, 0)]

    def commit(self, positions: list[TopicPartition]) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(WAIT_S)
        self.committed.append(positions[0].offset)

    def is_awaited_by(self, thread: int) -> bool:
        return thread == self.awaited_by


@pytest.fixture
def receiver() -> Receiver:
    """Three messages of one partition that were handed over, without autocommit."""
    measures = Measures(lambda: "q", CompositeCounters(), Log())
    letters: Any = None
    made = Receiver(ReceiverSettings(auto_commit=False), {}, lambda _: [], None, letters, measures)
    session: Any = Session()
    made.started(session)
    made.assigned([0])
    made.local.add(0, range(3), ["0", "1", "2"])
    while made.local.take(0) is not None:
        pass
    return made


def started(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def going(receiver: Receiver) -> tuple[Any, threading.Thread]:
    """Start a commit of the first message, and complete the second one."""
    session: Any = receiver.session
    completing = started(lambda: receiver.complete(Message("t", partition=0, offset=0)))
    assert session.begun.wait(WAIT_S)
    receiver.local.finish(0, 1)
    return session, completing


def test_revoked_partition_is_committed_after_the_running_commit(receiver: Receiver) -> None:
    session, completing = going(receiver)
    session.request_timeout = WAIT_S
    revoking = started(lambda: receiver.revoked([0]))
    revoking.join(0.1)
    assert session.committed == []
    session.go_on.set()
    for thread in (completing, revoking):
        thread.join(WAIT_S)
    assert session.committed == [1, 2]


def test_partition_is_revoked_even_if_its_commit_never_ends(receiver: Receiver) -> None:
    session, completing = going(receiver)
    receiver.revoked([0])
    assert session.committed == []
    session.go_on.set()
    completing.join(WAIT_S)


def test_revocation_does_not_wait_for_a_thread_that_waits_for_it(receiver: Receiver) -> None:
    """A signal handler closes the queue in the thread that commits."""
    session, completing = going(receiver)
    session.request_timeout = WAIT_S
    session.awaited_by = completing.ident
    receiver.revoked([0])
    assert session.committed == [2]
    session.go_on.set()
    completing.join(WAIT_S)


def test_commit_carries_the_finished_messages_beyond_the_first_unfinished(
    receiver: Receiver,
) -> None:
    session: Any = receiver.session
    session.begin_commit = session.committed.append
    for offset in (2, 1):
        receiver.complete(Message("t", partition=0, offset=offset))
    receiver._ticked = 0
    receiver.polled()
    ((place,),) = session.committed
    assert (place.offset, place.metadata) == (0, "cykafka/1 0 1+2")

    receiver.committed(None, [place])
    receiver._ticked = 0
    receiver.polled()
    assert len(session.committed) == 1  # nothing has changed
