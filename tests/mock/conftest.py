"""One mock cluster for the whole run, and clients of it that are closed after each test."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

WAIT_S = 10.0


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A mock cluster of one broker, kept for the whole run: tests take topics of their own."""
    from cykafka.testing import MockCluster

    # Members hear of a rebalance with their next heartbeat: often, then.
    with MockCluster(group_consumer_heartbeat_interval_ms=100) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def no_handle_left(kafka: ModuleType, cluster: Any) -> Iterator[None]:
    """Fail the module that leaves a client handle alive."""
    if kafka.__name__ != "cykafka":
        yield
        return
    from cykafka._handle import live_handles

    before = live_handles()
    yield
    gc.collect()
    assert live_handles() == before


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Make names that no other test uses."""
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}-{next(numbers)}"


@pytest.fixture
def topic(cluster: Any, unique: Callable[[str], str]) -> str:
    """A fresh topic of four partitions."""
    name = unique("topic")
    cluster.create_topic(name, 4)
    return name


@pytest.fixture
def make_producer(kafka: ModuleType, cluster: Any) -> Iterator[Callable[..., Any]]:
    """Make producers for the cluster that do not linger; they are purged and closed at the end."""
    made = []

    def make(config: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        base = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
        producer = kafka.Producer({**base, **(config or {})}, **kwargs)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        # What is still queued must not hold up the next test; a closed one has nothing queued.
        with contextlib.suppress(RuntimeError):
            producer.purge()
        producer.close()


@pytest.fixture
def make_consumer(
    kafka: ModuleType, cluster: Any, unique: Callable[[str], str]
) -> Iterator[Callable[..., Any]]:
    """Make consumers of a group of their own that read from the start and commit nothing."""
    made = []

    def make(config: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        base = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": unique("group"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # An idle fetch would hold up seeks and watermark queries for half a second.
            "fetch.wait.max.ms": 20,
        }
        consumer = kafka.Consumer({**base, **(config or {})}, **kwargs)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture
def producer(make_producer: Callable[..., Any]) -> Any:
    return make_producer()


@pytest.fixture
def consumer(make_consumer: Callable[..., Any]) -> Any:
    return make_consumer()


@pytest.fixture
def fill(make_producer: Callable[..., Any]) -> Callable[..., None]:
    """Produce the values `b"0"`, `b"1"`, ... to one partition and wait until they are there."""

    def fill(topic: str, count: int = 10, partition: int = 0) -> None:
        producer = make_producer()
        for number in range(count):
            producer.produce(topic, str(number), key=f"key-{number}", partition=partition)
        assert producer.flush(WAIT_S) == 0

    return fill


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Serve a client until something has happened; fail when it has not within the time."""

    def wait(
        happened: Callable[[], Any], serve: Callable[[], Any], timeout: float = WAIT_S
    ) -> None:
        deadline = time.monotonic() + timeout
        while not happened():
            assert time.monotonic() < deadline, f"nothing happened within {timeout} s"
            serve()

    return wait


@pytest.fixture
def read(wait_until: Callable[..., None]) -> Callable[..., list[Any]]:
    """Read that many messages, failing on an error message or when they do not arrive."""

    def read(consumer: Any, count: int) -> list[Any]:
        messages: list[Any] = []
        wait_until(
            lambda: len(messages) >= count,
            lambda: messages.extend(consumer.consume(count - len(messages), timeout=0.5)),
        )
        assert [message.error() for message in messages] == [None] * count
        return messages

    return read
