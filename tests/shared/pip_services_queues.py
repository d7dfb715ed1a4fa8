"""Helpers and fixtures for the tests of queues, on the mock cluster and on real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from machine import WAIT_S
from pip_services4_components.context import Context
from pip_services4_components.refer import Descriptor, References
from pip_services4_messaging.queues import IMessageReceiver, MessageEnvelope
from pip_services4_observability.count import CachedCounters
from pip_services_rig import Committed, MakeReferences, config

from pip_services4_kafka.queues import KafkaMessageQueue
from pip_services4_kafka.queues._receiver import Receiver as Receiving

# The fixtures.
__all__ = ["committed", "counters", "make_queue"]

# Options of a queue that writes to one partition only.
ONE = {"options__write_partition": 1}

Then = Callable[[MessageEnvelope, KafkaMessageQueue], object]


class MakeQueue(Protocol):
    def __call__(
        self,
        kind: type[KafkaMessageQueue] = ...,
        *,
        opened: bool = True,
        references: References | None = None,
        name: str | None = None,
        **values: object,
    ) -> KafkaMessageQueue: ...


def receiving(queue: KafkaMessageQueue) -> Receiving:
    """The receiving side of a queue, which is private."""
    assert queue._session_receiver is not None
    return queue._session_receiver


def envelope(body: str | None = "body", kind: str = "test", trace: str = "trace") -> Any:
    return MessageEnvelope(Context.from_trace_id(trace), kind, body)


def bodies(count: int, first: int = 0) -> list[MessageEnvelope]:
    """Make that many envelopes with the bodies "0", "1", ..."""
    return [envelope(str(number)) for number in range(first, first + count)]


def received(queue: KafkaMessageQueue, count: int, timeout: float = WAIT_S) -> list[str]:
    """Receive that many messages and return their bodies."""
    found: list[str] = []
    for _ in range(count):
        message = queue.receive(None, timeout * 1000)
        assert message is not None, f"{len(found)} of {count} messages: {found}"
        found.append(message.get_message_as_string())
    return found


class Receiver(IMessageReceiver):  # type: ignore[misc]
    """Keeps its messages, after a call of `then(envelope, queue)`."""

    def __init__(self, then: Then | None = None) -> None:
        self.envelopes: list[MessageEnvelope] = []
        self.threads: set[str] = set()
        self._then = then
        self._changed = threading.Condition()

    def receive_message(self, envelope: MessageEnvelope, queue: KafkaMessageQueue) -> None:
        self.threads.add(threading.current_thread().name)
        try:
            if self._then is not None:
                self._then(envelope, queue)
        finally:
            with self._changed:
                self.envelopes.append(envelope)
                self._changed.notify_all()

    def bodies(self) -> list[str]:
        return [envelope.get_message_as_string() for envelope in list(self.envelopes)]

    def wait(self, count: int, timeout: float = WAIT_S) -> list[str]:
        """Wait until that many messages have arrived."""
        with self._changed:
            there = self._changed.wait_for(lambda: len(self.envelopes) >= count, timeout)
        assert there, f"{len(self.envelopes)} of {count} messages within {timeout} s"
        return self.bodies()


def at(body: str, then: Callable[[], object]) -> Then:
    """What a Receiver does with the message of this body."""

    def call(message: MessageEnvelope, _: KafkaMessageQueue) -> None:
        if message.get_message_as_string() == body:
            then()

    return call


def fail_at(body: str, error: BaseException) -> Then:
    """Raise for the message of this body."""

    def fail() -> None:
        raise error

    return at(body, fail)


class Counters(CachedCounters):  # type: ignore[misc]
    """Counters of pip-services that keep their values."""

    def _save(self, counters: object) -> None:
        pass

    def value(self, name: str) -> Any:
        for counter in self.get_all():
            if counter.name == name:
                return counter.count if counter.count is not None else counter.last
        return None


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def committed(committed: Committed, topic: str, group: str) -> Committed:
    """The committed offsets of `group` in `topic`."""

    def offsets(topic: str = topic, group: str = group, partitions: int = 4) -> dict[int, int]:
        return committed(topic, group, partitions)

    return offsets


@pytest.fixture
def make_queue(
    cluster: Any, topic: str, group: str, make_references: MakeReferences
) -> Iterator[MakeQueue]:
    """Make queues of `topic` and `group`, configured and open; `opened=False`: not open.

    They start at the first message, so that the time of open() does not matter.
    """
    made = []

    def make(
        kind: type[KafkaMessageQueue] = KafkaMessageQueue,
        *,
        opened: bool = True,
        references: References | None = None,
        name: str | None = None,
        **values: object,
    ) -> KafkaMessageQueue:
        queue = kind(name)
        defaults: dict[str, object] = {
            "connection__uri": f"tcp://{cluster.bootstrap_servers}",
            "topic": topic,
            "group_id": group,
            "from_beginning": True,
            "options__connect_timeout": 10000,
            # On the mock a new message does not end a waiting fetch.
            "options__kafka__fetch.wait.max.ms": 10,
            # A returning member rejoins at once.
            "options__kafka__group.protocol": "consumer",
        }
        if references is not None and references.get_one_optional(
            Descriptor("*", "connection", "kafka", "*", "1.0")
        ):
            del defaults["connection__uri"]
        given = {key: value for key, value in {**defaults, **values}.items() if value is not None}
        queue.configure(config(**given))
        queue.set_references(references or make_references())
        made.append(queue)
        if opened:
            queue.open(None)
        return queue

    yield make
    for queue in made:
        queue.close(None)
