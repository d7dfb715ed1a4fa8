"""The brokers of the benchmarks: librdkafka's mock cluster, or real Kafka."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from _floor import BenchmarkError
from cykafka import Consumer, TopicPartition
from cykafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from cykafka.testing import KafkaCluster

TIMEOUT = 30.0
"""The time limit of a request to the broker, s."""
LEADERS_PAUSE = 0.02
"""The pause before the next request for the leaders of a new topic, s."""
RETENTION = {"retention.bytes": str(256 * 2**20), "segment.bytes": str(64 * 2**20)}
"""The disk limit of a partition that a process publishes to."""
KAFKA_SETTINGS = {
    # Free the disk of deleted topics, and of old records of live ones, soon.
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
}


class Broker:
    """A cluster with the topics of the benchmark. A context manager.

    Attributes
    ----------
    name : str
        ``"mock"`` or ``"real"``.
    description : str
        The broker's line in the report.
    bootstrap_servers : str
        The addresses for clients.
    """

    name: str
    description: str

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._watcher = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench"})

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic that stays until the end of the run."""
        raise NotImplementedError

    def fresh(self, topic: str, partitions: int) -> Iterator[str]:
        """A context manager: a topic for one publishing process. Yields its name."""
        raise NotImplementedError

    def share_group(self) -> str:
        """The name of a new share group, which begins at the first record."""
        raise BenchmarkError(f"the {self.name} broker has no share groups")

    def end_offsets(self, topic: str, partitions: int) -> int:
        """The sum of the partitions' end offsets. Waits for the leaders of a new topic."""
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = self._watcher.watermarks(asked, timeout=TIMEOUT)
            errors = [partition.error for partition in found if partition.error is not None]
            if not errors:
                return sum(ends.high for ends in found.values())
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{topic}: cannot get the end offsets: {errors[0]}")
            time.sleep(LEADERS_PAUSE)
            self._watcher.list_topics(topic, timeout=TIMEOUT)  # refreshes the leaders

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
    """The mock cluster in a separate process. A partition keeps about 5 MB of records.

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
            raise BenchmarkError(f"the mock cluster cannot create {topic}: {answer}")

    @contextmanager
    def fresh(self, topic: str, partitions: int) -> Iterator[str]:
        # The mock drops old records by itself and cannot delete topics.
        if topic not in self._topics:
            self.create(topic, partitions)
            self._topics.add(topic)
        yield topic

    def close(self) -> None:
        super().close()
        self._process.communicate(timeout=TIMEOUT)


class RealBroker(Broker):
    """A running cluster. Each publishing process gets a new topic, deleted afterwards, so that
    long runs do not fill the disk."""

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
        # Until the partitions are served, Java's idempotent producer may get stuck: a broker
        # refuses its first batch and takes the second one.
        self.end_offsets(topic, partitions)

    def share_group(self) -> str:
        name = f"bench-{next(self._numbers)}-{time.time_ns()}"
        earliest = ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
        group = ConfigResource(ResourceType.GROUP, name, incremental_configs=[earliest])
        self._admin.incremental_alter_configs([group])[group].result(timeout=TIMEOUT)
        return name

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


@contextmanager
def real_broker(running: str | None) -> Iterator[RealBroker]:
    """A running cluster at these addresses, or a node of Apache Kafka that is started for it."""
    with ExitStack() as stack:
        if running:
            broker = RealBroker(running, running)
        else:
            # More memory than in tests, so that garbage collection does not slow clients.
            cluster = KafkaCluster(
                java_options=["-Xmx1g", "-XX:TieredStopAtLevel=4"], properties=KAFKA_SETTINGS
            )
            stack.enter_context(cluster)
            broker = RealBroker(cluster.bootstrap_servers, "Apache Kafka, one node")
        yield stack.enter_context(broker)
