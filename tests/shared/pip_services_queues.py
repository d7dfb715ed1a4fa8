"""Fixtures for the tests of pip_services4_kafka's queues, on the mock and on real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pip_services_rig import WAIT_S

__all__ = ["bodies", "counters", "envelope", "group", "make_queue", "make_receiver", "received"]


def receiving(queue: Any) -> Any:
    """The receiving side of a queue, which is private."""
    return queue._KafkaMessageQueue__receiver


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def envelope() -> Callable[..., Any]:
    """Make envelopes: a body, and optionally type and trace id."""
    from pip_services4_components.context import Context
    from pip_services4_messaging.queues import MessageEnvelope

    def make(body: str | None = "body", kind: str = "test", trace: str = "trace") -> Any:
        return MessageEnvelope(Context.from_trace_id(trace), kind, body)

    return make


@pytest.fixture
def bodies(envelope: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Make that many envelopes with the bodies "0", "1", ..."""
    return lambda count, first=0: [envelope(str(n)) for n in range(first, first + count)]


@pytest.fixture
def make_queue(
    cluster: Any,
    topic: str,
    group: str,
    config: Callable[..., Any],
    make_references: Callable[..., Any],
) -> Iterator[Callable[..., Any]]:
    """Make queues of `topic` and `group`, configured and open; `opened=False`: not open.

    They start at the first message, so that the time of open() does not matter.
    """
    from pip_services4_kafka.queues import KafkaMessageQueue

    made = []

    def make(
        kind: type = KafkaMessageQueue,
        *,
        opened: bool = True,
        references: Any = None,
        name: str | None = None,
        **values: Any,
    ) -> Any:
        queue = kind(name)
        defaults = {
            "connection__uri": f"tcp://{cluster.bootstrap_servers}",
            "topic": topic,
            "group_id": group,
            "from_beginning": True,
            "options__connect_timeout": 10000,
            # On the mock a new message does not end a waiting fetch.
            "options__kafka__fetch.wait.max.ms": 10,
            # A returning member rejoins at once.
            "options__kafka__group.protocol": "consumer",
            **values,
        }
        if references is not None and "connection__uri" not in values:
            from pip_services4_components.refer import Descriptor

            if references.get_one_optional(Descriptor("*", "connection", "kafka", "*", "1.0")):
                del defaults["connection__uri"]
        if defaults["options__kafka__group.protocol"] is None:
            del defaults["options__kafka__group.protocol"]
        queue.configure(config(**{k: v for k, v in defaults.items() if v is not None}))
        queue.set_references(references or make_references())
        made.append(queue)
        if opened:
            queue.open(None)
        return queue

    yield make
    for queue in made:
        queue.close(None)


@pytest.fixture
def received() -> Callable[..., list[str]]:
    """Receive that many messages and return their bodies."""

    def receive(queue: Any, count: int, timeout: float = WAIT_S) -> list[str]:
        found = []
        for _ in range(count):
            envelope = queue.receive(None, timeout * 1000)
            assert envelope is not None, f"{len(found)} of {count} messages: {found}"
            found.append(envelope.get_message_as_string())
        return found

    return receive


@pytest.fixture
def make_receiver() -> Callable[..., Any]:
    """Make receivers that keep their messages, after a call of `then(envelope, queue)`."""
    from pip_services4_messaging.queues import IMessageReceiver

    class Receiver(IMessageReceiver):  # type: ignore[misc]
        def __init__(self, then: Callable[[Any, Any], object] | None = None) -> None:
            self.envelopes: list[Any] = []
            self.threads: set[str] = set()
            self._then = then
            self._changed = threading.Condition()

        def receive_message(self, envelope: Any, queue: Any) -> None:
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

    return Receiver


@pytest.fixture
def counters() -> Any:
    """Counters of pip-services that keep their values: `value(name)`."""
    from pip_services4_observability.count import CachedCounters

    class Counters(CachedCounters):  # type: ignore[misc]
        def _save(self, counters: Any) -> None:
            pass

        def value(self, name: str) -> Any:
            for counter in self.get_all():
                if counter.name == name:
                    return counter.count if counter.count is not None else counter.last
            return None

    return Counters()
