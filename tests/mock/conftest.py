"""One mock cluster for the whole run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixture_types import MakeConsumer, Read
from machine import WAIT_S


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A mock cluster of one broker, kept for the whole run. Each test uses its own topics, and
    pushes no errors for broker 1, which would then ignore errors for all brokers."""
    from cykafka.testing import MockCluster

    # Members learn of a rebalance from their next heartbeat, so heartbeats are frequent.
    with MockCluster(group_consumer_heartbeat_interval_ms=100) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def handles_are_freed(cluster: Any, no_handle_left: None) -> None:
    """Create the cluster's handle before the handles of a module are counted."""


@pytest.fixture
def records(make_consumer: MakeConsumer, read: Read) -> Callable[..., list[Any]]:
    """Read that many records of a topic, in the order of partitions and offsets."""

    def records(topic: str, count: int) -> list[Any]:
        consumer = make_consumer()
        consumer.subscribe([topic])
        messages = read(consumer, count)
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))

    return records


@pytest.fixture
def in_poll(make_consumer: MakeConsumer, topic: str) -> Iterator[tuple[Any, threading.Event]]:
    """A consumer whose poll() runs in another thread until the event is set; and the event."""
    entered, leave = threading.Event(), threading.Event()

    def slow(consumer: Any, partitions: Any) -> None:
        entered.set()
        assert leave.wait(WAIT_S)

    consumer = make_consumer()
    consumer.subscribe([topic], on_assign=slow)

    def poll() -> None:
        with contextlib.suppress(RuntimeError):  # closed
            consumer.poll(WAIT_S)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert entered.wait(WAIT_S)
        yield consumer, leave
    finally:
        leave.set()
        thread.join(WAIT_S)
    assert not thread.is_alive()


@pytest.fixture
def preload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Preload a C file of tests/shared into the scripts that the test runs."""
    compiler = shutil.which("cc")
    assert compiler is not None, "no C compiler found; the build needs one too"

    def preload(name: str) -> None:
        library = tmp_path / f"{name}.so"
        source = Path(__file__).parents[1] / "shared" / f"{name}.c"
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        # A sanitizer's library has to be preloaded first.
        earlier = os.environ.get("LD_PRELOAD", "").split()
        monkeypatch.setenv("LD_PRELOAD", " ".join([*earlier, str(library)]))

    return preload


@pytest.fixture
def stall(
    preload: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Stall the thread of librdkafka with this name in the scripts that the test runs.

    The thread stalls as long as the file STALLS (an environment variable) exists. The file
    STALLED exists once the thread stalls.
    """

    def stall(thread: str) -> None:
        preload("stall")
        monkeypatch.setenv("STALL_THREAD", thread)
        monkeypatch.setenv("STALLS", str(tmp_path / "stalls"))
        monkeypatch.setenv("STALLED", str(tmp_path / "stalled"))

    return stall


@pytest.fixture
def no_threads(
    preload: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make scripts that the test runs unable to start threads of cykafka or Python.

    This holds as long as the file NO_THREADS (an environment variable) exists.
    """
    preload("no_threads")
    monkeypatch.setenv("NO_THREADS", str(tmp_path / "no-threads"))
