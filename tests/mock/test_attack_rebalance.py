"""Rebalances while members read small batches: only the owner of a partition gets records."""

from __future__ import annotations

import contextlib
import threading
import time
from types import ModuleType
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read, Unique
from machine import WAIT_S

pytestmark = pytest.mark.ours

RECORDS = 4000
PROTOCOLS = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


class Member(threading.Thread):
    """Reads until `leave` is set, with consume() or consume_batch(). It collects records of
    partitions that it does not own."""

    def __init__(
        self, consumer: Any, method: str, topic: str, most: int, read: dict[int, int]
    ) -> None:
        super().__init__(daemon=True)
        self.consumer = consumer
        self.method = method
        self.most = most
        self.read = read  # partition -> the offset after the last returned record
        self.owned: set[int] = set()
        self.assigned = threading.Event()
        self.leave = threading.Event()
        self.foreign: list[tuple[int, int]] = []
        self.failure: BaseException | None = None
        self.topic = topic

    def on_assign(self, _: Any, partitions: list[Any]) -> None:
        self.owned.update(partition.partition for partition in partitions)
        if self.owned:
            self.assigned.set()

    def on_revoke(self, _: Any, partitions: list[Any]) -> None:
        self.owned.difference_update(partition.partition for partition in partitions)

    def run(self) -> None:
        try:
            # Subscribe only now: a member that does not poll delays the rebalance of the others.
            self.consumer.subscribe(
                [self.topic], on_assign=self.on_assign, on_revoke=self.on_revoke
            )
            while not self.leave.is_set():
                for message in getattr(self.consumer, self.method)(self.most, 0.02):
                    if message.error() is not None:
                        continue
                    number, offset = message.partition(), message.offset()
                    if number not in self.owned:
                        self.foreign.append((number, offset))
                    self.read[number] = max(self.read.get(number, 0), offset + 1)
            self.consumer.close()
        except BaseException as exception:
            self.failure = exception


@pytest.mark.parametrize("method", ["consume", "consume_batch"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_records_of_revoked_partitions_are_not_returned(
    kafka: Any,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    unique: Unique,
    protocol: str,
    method: str,
) -> None:
    producer = make_producer()
    for number in range(RECORDS):
        producer.produce(topic, b"value", partition=number % 4)
    assert producer.flush(WAIT_S) == 0
    group = unique("group")
    read: dict[int, int] = {}
    config = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 20,
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 2000,  # the mock waits this long for a member to rejoin
        **PROTOCOLS[protocol],
    }
    if protocol == "consumer":
        # The broker sets these.
        del config["heartbeat.interval.ms"], config["session.timeout.ms"]
    members = [Member(make_consumer(config), method, topic, most, read) for most in (7, 3)]
    first, second = members
    first.start()
    assert first.assigned.wait(WAIT_S)
    second.start()
    assert second.assigned.wait(WAIT_S)  # so the first one has lost partitions
    second.leave.set()
    second.join(WAIT_S)
    assert not second.is_alive()
    deadline = time.monotonic() + WAIT_S
    while sum(read.values()) < RECORDS and time.monotonic() < deadline:
        first.join(0.02)
    first.leave.set()
    first.join(WAIT_S)
    assert not first.is_alive()

    assert [member.failure for member in members] == [None, None]
    assert [member.foreign for member in members] == [[], []]
    assert read == dict.fromkeys(range(4), RECORDS // 4)
    committed = make_consumer({"group.id": group}).committed(
        [kafka.TopicPartition(topic, number) for number in range(4)], WAIT_S
    )
    # Commits never go beyond the returned records.
    assert all(partition.offset <= RECORDS // 4 for partition in committed)


def test_partition_unassigned_twice_in_one_call_is_refused(
    kafka: ModuleType, make_consumer: MakeConsumer, topic: str
) -> None:
    consumer = make_consumer()
    first, second = (kafka.TopicPartition(topic, number) for number in (0, 1))
    consumer.assign([first, second])
    with pytest.raises(
        kafka.KafkaException, match=rf"{topic} \[0\] appears twice in the list"
    ) as caught:
        consumer.incremental_unassign([first, second, first])
    assert caught.value.args[0] == kafka.KafkaError._INVALID_ARG
    assert consumer.assignment() == [first, second]
    consumer.incremental_unassign([first])
    assert consumer.assignment() == [second]


def test_odd_partitions_leave_the_consumer_usable(
    kafka: ModuleType, make_consumer: MakeConsumer, fill: Fill, read: Read, topic: str
) -> None:
    fill(topic, 1)
    consumer = make_consumer({"log_level": 0})
    fair = kafka.TopicPartition(topic, 1, 0)
    for name, number, offset in [
        ("", 0, 0), (topic, -1, 0), (topic, -(2**31), 0), (topic, 2**31 - 1, 0), (topic, 0, -5),
        (topic, 0, -(2**63)), (topic, 0, 2**63 - 1), (topic + "-none", 0, 0), ("x" * 300, 0, 0),
    ]:  # fmt: skip
        odd = kafka.TopicPartition(name, number, offset)
        for call in (
            consumer.assign, consumer.incremental_assign, consumer.pause, consumer.position,
            consumer.resume, consumer.incremental_unassign,
        ):  # fmt: skip
            for partitions in ([odd, odd], [odd, fair], [odd]):
                with contextlib.suppress(kafka.KafkaException, ValueError):
                    call(partitions)
                consumer.poll(0)
    consumer.assign([kafka.TopicPartition(topic, 0, kafka.OFFSET_BEGINNING)])
    assert [message.value() for message in read(consumer, 1)] == [b"0"]


def test_synchronous_commit_after_close_in_a_callback_returns_the_offsets(
    kafka: ModuleType, make_consumer: MakeConsumer, fill: Fill, topic: str
) -> None:
    committed: list[Any] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        consumer.close()  # after this callback
        offsets = [kafka.TopicPartition(topic, partitions[0].partition, 1)]
        committed.extend(consumer.commit(offsets=offsets, asynchronous=False))
        committed.extend(consumer.watermarks(offsets))

    fill(topic, 3)
    consumer = make_consumer({"enable.auto.commit": False})
    consumer.subscribe([topic], on_assign=on_assign)

    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(WAIT_S)

    assert [item.offset for item in committed] == [1, kafka.OFFSET_INVALID]
