"""Helpers and fixtures for the tests of pip_services4_kafka, on the mock and on real brokers.

Connections use the fixture `cluster` of the test's folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from fixture_types import MakeConsumer, Unique
from machine import WAIT_S
from pip_services4_components.config import ConfigParams
from pip_services4_components.refer import Descriptor, References
from pip_services4_observability.log import Logger

from cykafka import KafkaError, Message, MessageBatch, TopicPartition
from pip_services4_kafka.connect import IKafkaMessageListener, KafkaConnection
from pip_services4_kafka.connect._session import Handler, Session

# The packages of pip-services use deprecated features of Python.
QUIET = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:pip_services4_(?!kafka)")

# The fixtures.
__all__ = [
    "committed",
    "connection",
    "group",
    "logger",
    "make_connection",
    "make_references",
    "new_connection",
]


# The mock readmits a member of a classic group only after its session timeout.
COMES_BACK = {"group.protocol": "consumer"}

# Returns the committed offsets of a group in a topic.
Committed = Callable[..., dict[int, int]]


class MakeReferences(Protocol):
    def __call__(self, **components: object) -> References: ...


class MakeConnection(Protocol):
    def __call__(
        self,
        config: dict[str, Any] | None = None,
        /,
        *,
        references: References | None = None,
        **values: object,
    ) -> KafkaConnection: ...


def in_thread(call: Callable[[], object]) -> threading.Thread:
    """Start a call in a daemon thread."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def finish(*threads: threading.Thread) -> None:
    """Wait for the end of threads."""
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def quieten(items: list[pytest.Item], folder: Path) -> None:
    """Ignore the warnings of pip-services in a folder's tests."""
    for item in items:
        if folder in item.path.parents:
            item.add_marker(QUIET)


def config(given: dict[str, Any] | None = None, /, **values: object) -> ConfigParams:
    """Make a ConfigParams; a double underscore in a keyword is a dot."""
    return ConfigParams(
        {**(given or {}), **{key.replace("__", "."): values[key] for key in values}}
    )


def eventually(happened: Callable[[], object], timeout: float = WAIT_S) -> None:
    """Wait until a condition is true; fail after the timeout."""
    deadline = time.monotonic() + timeout
    while not happened():
        assert time.monotonic() < deadline, f"the condition is still false after {timeout} s"
        time.sleep(0.01)


class Gate:
    """Holds a thread in `hold` until the test calls `open`."""

    def __init__(self) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()

    def hold(self, *_: object) -> None:
        self._reached.set()
        assert self._opened.wait(WAIT_S)

    def wait(self) -> None:
        """Wait until a thread is in `hold`."""
        assert self._reached.wait(WAIT_S)

    def open(self) -> None:
        self._opened.set()


class Recorder(Logger):  # type: ignore[misc]
    """A logger that keeps its calls in `lines`: (level, text, error)."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str, Any]] = []

    def _write(self, level: int, context: object, error: Any, message: str) -> None:
        self.lines.append((level, message, error))

    def all(self) -> str:
        return "\n".join(f"{text} {error!r} {error}" for _, text, error in self.lines)


@pytest.fixture
def logger() -> Recorder:
    return Recorder()


@pytest.fixture
def make_references(logger: Recorder) -> MakeReferences:
    """Make references with the logger and other components, by kind, such as a connection."""

    def make(**components: object) -> References:
        references = References()
        for kind, component in {"logger": logger, **components}.items():
            name = kind.replace("_", "-")
            references.put(Descriptor("test", name, "kafka", "default", "1.0"), component)
        return references

    return make


@pytest.fixture
def new_connection(make_references: MakeReferences) -> Iterator[MakeConnection]:
    """Make configured connections with the logger; the test opens them. Close them at the end."""
    made = []

    def make(
        given: dict[str, Any] | None = None,
        /,
        *,
        references: References | None = None,
        **values: object,
    ) -> KafkaConnection:
        connection = KafkaConnection()
        connection.configure(config(given, **values))
        connection.set_references(references or make_references())
        made.append(connection)
        return connection

    yield make
    for connection in made:
        connection.close(None)


@pytest.fixture
def make_connection(new_connection: MakeConnection, cluster: Any) -> MakeConnection:
    """Make open connections to the cluster."""

    def make(given: dict[str, Any] | None = None, /, **values: Any) -> KafkaConnection:
        connection = new_connection(
            given,
            **{
                "connection__uri": f"tcp://{cluster.bootstrap_servers}",
                "options__connect_timeout": 10000,
                # On the mock a new message does not end a waiting fetch.
                "options__kafka__fetch.wait.max.ms": 10,
                **values,
            },
        )
        connection.open(None)
        return connection

    return make


@pytest.fixture
def connection(make_connection: MakeConnection) -> KafkaConnection:
    return make_connection()


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


class Listener(IKafkaMessageListener):
    """Keeps its messages, and calls `then` with each of them."""

    def __init__(self, then: Callable[[Message], object] | None = None) -> None:
        self.messages: list[Message] = []
        self._then = then
        self._changed = threading.Condition()

    def on_message(self, topic: str, partition: int, message: Message) -> None:
        assert (topic, partition) == (message.topic(), message.partition())
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()
        if self._then is not None:
            self._then(message)

    def values(self) -> list[bytes | None]:
        return [message.value() for message in self.messages]

    def wait(self, count: int, timeout: float = WAIT_S) -> list[bytes | None]:
        """Wait until that many messages have arrived."""
        with self._changed:
            there = self._changed.wait_for(lambda: len(self.messages) >= count, timeout)
        assert there, f"{len(self.messages)} of {count} messages within {timeout} s"
        return self.values()


class BatchListener(IKafkaMessageListener, Handler):
    """Takes batches and rebalance callbacks, and keeps both."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.values: list[bytes | None] = []
        self.threads: set[str] = set()
        self.session: Session

    def on_message(self, topic: str, partition: int, message: Message) -> None:
        raise AssertionError("batches only")

    def _session_handler(self, _: object) -> Handler:
        return self

    def started(self, session: Session) -> None:
        self.session = session

    def batch(self, batch: MessageBatch) -> None:
        self.threads.add(threading.current_thread().name)
        self.values += batch.values()
        self.events.append(("batch", len(batch)))
        places = self.session.places(set(batch.partitions))
        for place in places:
            mine = (
                o
                for n, o in zip(batch.partitions, batch.offsets, strict=True)
                if n == place.partition
            )
            place.offset = max(mine) + 1
        self.session.consumer.store_offsets(offsets=places)

    def assigned(self, partitions: list[int]) -> dict[int, int]:
        self.threads.add(threading.current_thread().name)
        self.events.append(("assigned", partitions))
        return {}

    def revoked(self, partitions: list[int]) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.append(("revoked", partitions))

    def lost(self, partitions: list[int]) -> None:
        self.events.append(("lost", partitions))

    def failed(self, error: KafkaError) -> None:
        self.events.append(("error", error.code()))

    def committed(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        self.events.append(("committed", (error, positions)))

    def of(self, kind: str) -> list[Any]:
        return [what for name, what in list(self.events) if name == kind]


@pytest.fixture
def committed(make_consumer: MakeConsumer) -> Committed:
    """The committed offsets of a group in a topic of four partitions."""

    def committed(topic: str, group: str, partitions: int = 4) -> dict[int, int]:
        consumer = make_consumer({"group.id": group})
        places = [TopicPartition(topic, number) for number in range(partitions)]
        found = consumer.committed(places, WAIT_S)
        consumer.close()
        return {place.partition: place.offset for place in found if place.offset >= 0}

    return committed
