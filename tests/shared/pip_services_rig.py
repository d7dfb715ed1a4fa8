"""Fixtures for the tests of pip_services4_kafka, on the mock cluster and on real brokers.

Connections use the fixture `cluster` of the test's folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S

# The packages of pip-services use deprecated features of Python.
QUIET = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:pip_services4_(?!kafka)")

__all__ = [
    "committed",
    "config",
    "connection",
    "eventually",
    "logger",
    "make_batch_listener",
    "make_connection",
    "make_listener",
    "make_references",
    "new_connection",
]


def in_thread(call: Callable[[], object]) -> threading.Thread:
    """Start a call in a daemon thread."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def quieten(items: list[pytest.Item], folder: Path) -> None:
    """Ignore the warnings of pip-services in a folder's tests."""
    for item in items:
        if folder in item.path.parents:
            item.add_marker(QUIET)


@pytest.fixture
def config() -> Callable[..., Any]:
    """Make a ConfigParams; a double underscore in a keyword is a dot."""
    from pip_services4_components.config import ConfigParams

    def config(_: dict[str, Any] | None = None, /, **values: Any) -> Any:
        given = {**(_ or {}), **{key.replace("__", "."): values[key] for key in values}}
        return ConfigParams(given)

    return config


@pytest.fixture
def logger() -> Any:
    """A logger of pip-services that keeps its calls in `lines`: (level, text, error)."""
    from pip_services4_observability.log import Logger

    class Recorder(Logger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lines: list[tuple[int, str, Any]] = []

        def _write(self, level: int, context: Any, error: Any, message: str) -> None:
            self.lines.append((level, message, error))

        def all(self) -> str:
            return "\n".join(f"{text} {error!r} {error}" for _, text, error in self.lines)

    return Recorder()


@pytest.fixture
def make_references(logger: Any) -> Callable[..., Any]:
    """Make references with the logger and other components, by kind."""
    from pip_services4_components.refer import Descriptor, References

    def make(**components: Any) -> Any:
        found = {"logger": logger, **components}
        return References.from_tuples(
            *(
                part
                for kind, component in found.items()
                for part in (
                    Descriptor("test", kind.replace("_", "-"), "test", "default", "1.0"),
                    component,
                )
            )
        )

    return make


@pytest.fixture
def new_connection(
    config: Callable[..., Any], make_references: Callable[..., Any]
) -> Iterator[Callable[..., Any]]:
    """Make configured connections with the logger; the test opens them. Close them at the end."""
    from pip_services4_kafka.connect import KafkaConnection

    made = []

    def make(*args: Any, references: Any = None, **values: Any) -> Any:
        connection = KafkaConnection()
        connection.configure(config(*args, **values))
        connection.set_references(references or make_references())
        made.append(connection)
        return connection

    yield make
    for connection in made:
        connection.close(None)


@pytest.fixture
def make_connection(new_connection: Callable[..., Any], cluster: Any) -> Callable[..., Any]:
    """Make open connections to the cluster."""

    def make(*args: Any, **values: Any) -> Any:
        connection = new_connection(
            *args,
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
def connection(make_connection: Callable[..., Any]) -> Any:
    return make_connection()


@pytest.fixture
def make_listener() -> Callable[..., Any]:
    """Make listeners that keep their messages, after a call of `then` with each message."""
    from pip_services4_kafka.connect import IKafkaMessageListener

    class Listener(IKafkaMessageListener):
        def __init__(self, then: Callable[[Any], object] | None = None) -> None:
            self.messages: list[Any] = []
            self._then = then
            self._changed = threading.Condition()

        def on_message(self, topic: str, partition: int, message: Any) -> None:
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

    return Listener


@pytest.fixture
def make_batch_listener() -> Callable[..., Any]:
    """Make listeners that take batches and rebalance callbacks, and keep both."""

    from pip_services4_kafka.connect import IKafkaMessageListener
    from pip_services4_kafka.connect._session import Handler

    class Batches(IKafkaMessageListener, Handler):
        def __init__(self) -> None:
            self.events: list[tuple[str, Any]] = []
            self.values: list[bytes | None] = []
            self.threads: set[str] = set()
            self.session: Any = None

        def on_message(self, topic: str, partition: int, message: Any) -> None:
            raise AssertionError("batches only")

        def _session_handler(self, _: Any) -> Handler:
            return self

        def started(self, session: Any) -> None:
            self.session = session

        def batch(self, batch: Any) -> None:
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

        def failed(self, error: Any) -> None:
            self.events.append(("error", error.code()))

        def committed(self, error: Any, positions: Any) -> None:
            self.events.append(("committed", (error, positions)))

        def of(self, kind: str) -> list[Any]:
            return [what for name, what in list(self.events) if name == kind]

    return Batches


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait until a condition is true; fail after the timeout."""

    def eventually(happened: Callable[[], Any], timeout: float = WAIT_S) -> None:
        deadline = time.monotonic() + timeout
        pause = threading.Event()
        while not happened():
            assert time.monotonic() < deadline, f"the condition is still false after {timeout} s"
            pause.wait(0.01)

    return eventually


@pytest.fixture
def committed(make_consumer: Callable[..., Any], kafka: Any) -> Callable[..., dict[int, int]]:
    """The committed offsets of a group in a topic of four partitions."""

    def committed(topic: str, group: str, partitions: int = 4) -> dict[int, int]:
        consumer = make_consumer({"group.id": group})
        asked = [kafka.TopicPartition(topic, number) for number in range(partitions)]
        found = consumer.committed(asked, WAIT_S)
        consumer.close()
        return {place.partition: place.offset for place in found if place.offset >= 0}

    return committed
