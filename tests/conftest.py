"""What all tests share: the module under test, scripts that run in a process of their own, and
clients that are closed after each test.

The clients are those of the fixture `cluster`, which each folder that has a broker defines.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import hypothesis
import pytest

# No test is timed: on a busy machine any example may take long.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

WAIT_S = 10.0

# The tests of behaviour shared with confluent_kafka can run against it too, so that what they
# expect is checked against the reference and not only against what we believe of it.
PEER = os.environ.get("CYKAFKA_TEST_PEER")
MODULE = PEER or "cykafka"

PRELUDE = f"import {MODULE} as kafka\n"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ours: what cykafka does better or beside the peer; skipped for the peer"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if PEER:
        skip = pytest.mark.skip(reason=f"not behaviour of {PEER}")
        for item in items:
            if item.get_closest_marker("ours"):
                item.add_marker(skip)


def pytest_report_header() -> str:
    return f"module under test: {MODULE}"


def _heed_interrupts() -> None:
    # A background job of a shell ignores SIGINT, and so would the children that test Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_heed_interrupts()


@pytest.fixture(scope="session")
def kafka() -> ModuleType:
    """The module under test: cykafka, or the one that CYKAFKA_TEST_PEER names."""
    return importlib.import_module(MODULE)


@pytest.fixture(scope="session")
def script_command() -> Callable[..., list[str]]:
    """Make the command line that runs a script with `kafka` imported and a traceback on a crash.

    The arguments after the source arrive as `sys.argv[1:]`.
    """

    def command(source: str, *args: str) -> list[str]:
        code = PRELUDE + textwrap.dedent(source)
        return [sys.executable, "-X", "faulthandler", "-c", code, *args]

    return command


@pytest.fixture(scope="session")
def run_script(
    script_command: Callable[..., list[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script to its end and return the finished process; a hang fails after `timeout` s."""

    def run(source: str, *args: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            script_command(source, *args),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def no_handle_left(kafka: ModuleType) -> Iterator[None]:
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
    run = os.urandom(3).hex()  # a broker may remember an earlier run
    return lambda prefix: f"{prefix}-{run}-{next(numbers)}"


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
