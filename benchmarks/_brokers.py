"""The brokers that all clients talk to: librdkafka's mock cluster, or real Kafka."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from _floor import BenchmarkError
from cykafka import Consumer, TopicPartition
from cykafka.admin import AdminClient, NewTopic

TIMEOUT = 30.0
"""Seconds for one request to the broker."""
LEADERS_PAUSE = 0.02
"""Seconds until a topic without leaders is looked at again."""
RETENTION = {"retention.bytes": str(256 * 2**20), "segment.bytes": str(64 * 2**20)}
"""A partition's share of the disk where a process publishes."""


class Broker:
    """Topics of the benchmark in a cluster; a context manager.

    Attributes
    ----------
    name : str
        ``"mock"`` or ``"real"``.
    description : str
        For the report.
    bootstrap_servers : str
        Where clients connect.
    """

    name: str
    description: str

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._watcher = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench"})

    def create(self, topic: str, partitions: int) -> None:
        """A topic that stays until the end of the run."""
        raise NotImplementedError

    def fresh(self, topic: str, partitions: int) -> Iterator[str]:
        """A topic for one process that publishes: a context manager that gives its name."""
        raise NotImplementedError

    def end_offsets(self, topic: str, partitions: int) -> int:
        """The sum of the partitions' end offsets; waits for leaders of a topic just made."""
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = self._watcher.watermarks(asked, timeout=TIMEOUT)
            errors = [partition.error for partition in found if partition.error is not None]
            if not errors:
                return sum(ends.high for ends in found.values())
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{topic}: no end offsets: {errors[0]}")
            time.sleep(LEADERS_PAUSE)
            self._watcher.list_topics(topic, timeout=TIMEOUT)  # for its leaders

    def close(self) -> None:
        self._watcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class MockBroker(Broker):
    """The mock cluster, in a process of its own. A partition keeps about 5 MB of records.

    Parameters
    ----------
    program : Path
        The built `mock_broker`.
    """

    name = "mock"
    description = "librdkafka's mock cluster, one broker"

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [program, "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._topics: set[str] = set()
        bootstrap_servers = self._read_line()
        if not bootstrap_servers:
            raise BenchmarkError(f"{program} ended with status {self._process.wait()}")
        super().__init__(bootstrap_servers)

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def create(self, topic: str, partitions: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{topic} {partitions}\n")
        self._process.stdin.flush()
        answer = self._read_line()
        if answer != "created":
            raise BenchmarkError(f"the mock cluster does not create {topic}: {answer}")

    @contextmanager
    def fresh(self, topic: str, partitions: int) -> Iterator[str]:
        # It drops old records by itself and cannot delete topics.
        if topic not in self._topics:
            self.create(topic, partitions)
            self._topics.add(topic)
        yield topic

    def close(self) -> None:
        super().close()
        self._process.communicate(timeout=TIMEOUT)


class RealBroker(Broker):
    """A running cluster. A topic that is published to lives for one process, so that long runs
    do not fill the disk."""

    name = "real"

    def __init__(self, bootstrap_servers: str, description: str) -> None:
        super().__init__(bootstrap_servers)
        self.description = description
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._topics: set[str] = set()
        self._numbers = count(1)

    def create(self, topic: str, partitions: int, config: dict[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, config=config)
        self._admin.create_topics([new])[topic].result(timeout=TIMEOUT)
        self._topics.add(topic)

    def _delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(timeout=TIMEOUT)
        self._topics.discard(topic)

    @contextmanager
    def fresh(self, topic: str, partitions: int) -> Iterator[str]:
        name = f"{topic}-{next(self._numbers)}"
        self.create(name, partitions, RETENTION)
        try:
            yield name
        finally:
            self._delete(name)

    def close(self) -> None:
        try:
            for topic in sorted(self._topics):
                self._delete(topic)
        finally:
            self._admin.close()
            super().close()
