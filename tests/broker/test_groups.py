"""Consumer groups on a real broker: members join and leave, in each protocol."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S

PARTITIONS = 8

PROTOCOLS: dict[str, dict[str, Any]] = {
    # Members of a classic group learn of a rebalance from their heartbeats.
    "eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 200},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 200,
    },
    "kip-848": {"group.protocol": "consumer"},
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    return PROTOCOLS[request.param]


class Ledger:
    """The records that the members of a group have handled and committed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.handled: Counter[tuple[int, int]] = Counter()
        self.committed: dict[int, int] = defaultdict(int)
        self.wrong: list[str] = []

    def handle(self, member: str, partition: int, offset: int) -> None:
        with self._lock:
            self.handled[partition, offset] += 1
            if offset < self.committed[partition]:
                self.wrong.append(
                    f"{member} was given {partition}/{offset}, which was committed before: "
                    f"{self.committed[partition]}"
                )

    def commit(self, partition: int, offset: int) -> None:
        with self._lock:
            if offset < self.committed[partition]:
                self.wrong.append(
                    f"commit of {partition}/{offset} behind {self.committed[partition]}"
                )
            self.committed[partition] = max(offset, self.committed[partition])


class Worker(threading.Thread):
    """A member that handles its records and commits them before its partitions are revoked."""

    def __init__(self, name: str, consumer: Any, kafka: Any, topic: str, ledger: Ledger) -> None:
        super().__init__(name=name)
        self.consumer, self.kafka, self.topic, self.ledger = consumer, kafka, topic, ledger
        self.stopping = threading.Event()
        self.assigned = threading.Event()
        self.error: BaseException | None = None
        self.done: dict[int, int] = {}

    def run(self) -> None:
        try:
            self.consumer.subscribe(
                [self.topic], on_assign=self.on_assign, on_revoke=self.on_revoke
            )
            while not self.stopping.is_set():
                self.handle()
                self.commit()
            self.consumer.close()
        except BaseException as exception:
            self.error = exception

    def handle(self) -> None:
        for message in self.consumer.consume(20, 0.1):
            if message.error():
                raise self.kafka.KafkaException(message.error())
            self.ledger.handle(self.name, message.partition(), message.offset())
            self.done[message.partition()] = message.offset() + 1

    def on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.assigned.set()

    def on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self.commit()

    def commit(self) -> None:
        if not self.done:
            return
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                results = self.commit_handled()
                break
            except self.kafka.KafkaException as exception:
                # The group moved on to its next generation (KIP-848: epoch) during the request.
                # This member will follow in a moment, and may then commit.
                error = self.kafka.KafkaError
                passing = (
                    error.ILLEGAL_GENERATION,
                    error.REBALANCE_IN_PROGRESS,
                    error.STALE_MEMBER_EPOCH,
                )
                if exception.args[0].code() not in passing or time.monotonic() > deadline:
                    raise
        for result in results:
            assert result.error is None, result
            self.ledger.commit(result.partition, result.offset)
        self.done.clear()

    def commit_handled(self) -> list[Any]:
        offsets = [self.kafka.TopicPartition(self.topic, p, o) for p, o in self.done.items()]
        results: list[Any] = self.consumer.commit(offsets=offsets, asynchronous=False)
        return results


class BatchWorker(Worker):
    """The same with batches: it commits each batch as a whole."""

    batch: Any = None

    def handle(self) -> None:
        self.batch = self.consumer.consume_batch(20, 0.1)
        assert self.batch.errors == []
        for partition, offset in zip(self.batch.partitions, self.batch.offsets, strict=True):
            self.ledger.handle(self.name, partition, offset)
            self.done[partition] = offset + 1

    def commit_handled(self) -> list[Any]:
        results: list[Any] = self.consumer.commit(self.batch, asynchronous=False)
        assert {result.partition: result.offset for result in results} == self.done
        return results


@pytest.mark.parametrize(
    "worker_class", [Worker, pytest.param(BatchWorker, marks=pytest.mark.ours)]
)
def test_members_that_join_and_leave_read_every_record_once(
    kafka: Any,
    cluster: Any,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    unique: Unique,
    protocol: dict[str, Any],
    worker_class: type[Worker],
) -> None:
    topic, group = unique("topic"), unique("group")
    cluster.create_topic(topic, PARTITIONS)
    ledger = Ledger()
    producer = make_producer()
    members: list[Worker] = []
    written = 0

    def write(count: int) -> None:
        nonlocal written
        for _ in range(count):
            producer.produce(topic, b"x", partition=written % PARTITIONS)
            written += 1
        assert producer.flush(WAIT_S) == 0

    def join(name: str) -> Worker:
        config = {"group.id": group, **protocol}
        worker = worker_class(name, make_consumer(config), kafka, topic, ledger)
        worker.start()
        return worker

    def leave(worker: Worker) -> None:
        worker.stopping.set()
        worker.join(WAIT_S)
        assert not worker.is_alive(), f"{worker.name} hangs"
        assert worker.error is None, f"{worker.name}: {worker.error!r}"

    def write_until(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            assert [worker.error for worker in members] == [None] * len(members)
            assert time.monotonic() < deadline, "not in time"
            write(PARTITIONS)

    members.append(join("first"))
    write_until(members[0].assigned.is_set)
    for name in ("second", "third"):
        members.append(join(name))
        write_until(members[-1].assigned.is_set)
    # Twice, the oldest member leaves and a new one joins.
    for name in ("fourth", "fifth"):
        leave(members.pop(0))
        members.append(join(name))
        write_until(members[-1].assigned.is_set)
    write(500)
    for worker in members:
        leave(worker)

    last = join("last")  # reads the records that the others left
    write_until(last.assigned.is_set)
    deadline = time.monotonic() + WAIT_S
    while len(ledger.handled) < written:
        assert time.monotonic() < deadline, f"{written - len(ledger.handled)} records are missing"
        last.join(0.05)
    leave(last)
    assert ledger.wrong == []
    assert set(ledger.handled.values()) == {1}, "records were handled twice"


def test_member_closed_without_time_to_leave_leaves_the_group_later(
    make_consumer: MakeConsumer,
    cluster: Any,
    unique: Unique,
    wait_until: WaitUntil,
    protocol: dict[str, Any],
) -> None:
    """The other member gets its partitions long before its session times out (45 s)."""
    topic, group = unique("topic"), unique("group")
    cluster.create_topic(topic, PARTITIONS)
    first, second = (make_consumer({"group.id": group, **protocol}) for _ in range(2))
    first.subscribe([topic])
    wait_until(lambda: len(first.assignment()) == PARTITIONS, lambda: first.poll(0.1), WAIT_S)

    assert first.close(timeout=0) is False

    second.subscribe([topic])
    wait_until(lambda: len(second.assignment()) == PARTITIONS, lambda: second.poll(0.1), WAIT_S)


def test_member_that_was_not_polled_in_time_joins_again(
    make_consumer: MakeConsumer,
    make_producer: MakeProducer,
    kafka: Any,
    topic: str,
    wait_until: WaitUntil,
    protocol: dict[str, Any],
) -> None:
    """With librdkafka before 2.15 the error of a KIP-848 member could be fatal."""
    config = {**protocol, "group.id": topic, "max.poll.interval.ms": 1000, "log_level": 0}
    if "group.protocol" not in protocol:
        config["session.timeout.ms"] = 1000  # not above the other
    consumer = make_consumer(config)
    consumer.subscribe([topic])
    errors: list[Any] = []
    values: list[bytes] = []

    def serve() -> None:
        for message in consumer.consume(10, 0.1):
            if message.error() is not None:
                errors.append(message.error())
            else:
                values.append(message.value())

    def serve_late() -> None:
        time.sleep(1.5)  # busy with something else
        serve()

    wait_until(lambda: len(consumer.assignment()) == 4, serve, WAIT_S)
    wait_until(lambda: errors, serve_late, WAIT_S)
    assert [error.code() for error in errors] == [kafka.KafkaError._MAX_POLL_EXCEEDED]
    assert not errors[0].fatal()
    producer = make_producer()
    producer.produce(topic, b"x")
    assert producer.flush(WAIT_S) == 0
    wait_until(lambda: values, serve, WAIT_S)
    assert (values, len(errors)) == ([b"x"], 1)
    consumer.close()
