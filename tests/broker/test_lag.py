"""Watermarks and lag with deleted, compacted and transactional records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read, Unique, WaitUntil
from machine import WAIT_S

from cykafka import KafkaError, TopicPartition, Watermarks

pytestmark = pytest.mark.ours

MANY = 60


def by_number(found: dict[TopicPartition, Any]) -> dict[int, Any]:
    assert [key.error for key in found] == [None] * len(found)
    return {key.partition: value for key, value in found.items()}


def test_watermarks_of_many_partitions_match_each_partition(
    cluster: Any, unique: Unique, consumer: Any, fill: Fill
) -> None:
    topic = unique("many")
    cluster.create_topic(topic, MANY)
    for number in range(0, MANY, 7):
        fill(topic, number, partition=number)
    partitions = [TopicPartition(topic, number) for number in range(MANY)]

    found = consumer.watermarks(partitions, WAIT_S)

    assert by_number(found) == {
        partition.partition: consumer.get_watermark_offsets(partition, WAIT_S)
        for partition in partitions
    }
    assert found[TopicPartition(topic, 56)] == Watermarks(0, 56)
    assert sum(consumer.lag(partitions, WAIT_S).values()) == sum(range(0, MANY, 7))


def test_deleted_records_count_in_neither_watermarks_nor_lag(
    topic: str, consumer: Any, fill: Fill, delete_records: Callable[[Any, int], None]
) -> None:
    fill(topic, 10)
    partition = TopicPartition(topic, 0)
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    assert consumer.lag([partition], WAIT_S) == {partition: 8}

    delete_records(partition, 6)

    assert consumer.watermarks([partition], WAIT_S) == {partition: Watermarks(6, 10)}
    assert consumer.lag([partition], WAIT_S) == {partition: 4}


@pytest.mark.parametrize(("level", "high"), [("read_committed", 5), ("read_uncommitted", 8)])
def test_read_committed_high_watermark_ends_before_an_open_transaction(
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    unique: Unique,
    topic: str,
    fill: Fill,
    wait_until: WaitUntil,
    level: str,
    high: int,
) -> None:
    fill(topic, 5)
    transactional = make_producer({"transactional.id": unique("transaction")})
    transactional.init_transactions(WAIT_S)
    transactional.begin_transaction()
    for _ in range(3):
        transactional.produce(topic, b"open", partition=0)
    assert transactional.flush(WAIT_S) == 0
    partition = TopicPartition(topic, 0)
    consumer = make_consumer({"isolation.level": level})

    assert consumer.watermarks([partition], WAIT_S) == {partition: Watermarks(0, high)}
    assert consumer.lag([partition], WAIT_S) == {partition: high}

    transactional.commit_transaction(WAIT_S)
    # The marker, which is written a little later, has an offset too.
    wait_until(
        lambda: consumer.watermarks([partition], WAIT_S) == {partition: Watermarks(0, 9)},
        lambda: consumer.poll(0.05),
    )


def test_lag_is_zero_after_a_transaction_marker(
    make_producer: MakeProducer, consumer: Any, unique: Unique, topic: str, wait_until: WaitUntil
) -> None:
    transactional = make_producer({"transactional.id": unique("transaction")})
    transactional.init_transactions(WAIT_S)
    transactional.begin_transaction()
    transactional.produce(topic, b"one", partition=0)
    transactional.commit_transaction(WAIT_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert next(consumer).value() == b"one"

    wait_until(
        lambda: list(consumer.lag(timeout=WAIT_S).values()) == [0], lambda: consumer.poll(0.1)
    )


def test_consumer_outside_the_group_gets_its_lag(
    make_consumer: MakeConsumer, unique: Unique, topic: str, fill: Fill, read: Read
) -> None:
    group = unique("group")
    for number in range(4):
        fill(topic, 5, partition=number)
    with make_consumer({"group.id": group}) as member:
        member.subscribe([topic])
        read(member, 12)
        member.commit(asynchronous=False)
        own = sum(member.lag(timeout=WAIT_S).values())
    watcher = make_consumer({"group.id": group})

    lag = watcher.lag([TopicPartition(topic, number) for number in range(4)], WAIT_S)

    assert sum(by_number(lag).values()) == own == 8


def test_watermarks_report_the_missing_partitions_and_return_the_others(
    consumer: Any, topic: str, unique: Unique, fill: Fill
) -> None:
    fill(topic, 3)
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 77), TopicPartition(unique("no"), 0)]

    found = consumer.watermarks(asked, WAIT_S)

    good, *bad = found
    assert found[good] == (0, 3)
    codes = [key.error.code() if key.error else None for key in bad]
    assert codes[0] == KafkaError._UNKNOWN_PARTITION
    assert codes[1] in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def test_watermarks_of_only_missing_partitions_report_the_error(consumer: Any, topic: str) -> None:
    (key,) = consumer.watermarks([TopicPartition(topic, 77)], WAIT_S)

    assert key.error is not None
    assert "No broker leads" in key.error.str()
    assert consumer.lag([key], WAIT_S) == {key: None}
