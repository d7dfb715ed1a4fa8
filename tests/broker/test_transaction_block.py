"""`with producer.transaction(consumer):` on a real broker skips and repeats no record."""
# ruff: noqa: PT012 -- the end of the block raises, not a statement in it

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Read, Unique, WaitUntil
from machine import WAIT_S

pytestmark = pytest.mark.ours

PARTITIONS = 4


@pytest.fixture
def source(cluster: Any, unique: Unique, make_producer: MakeProducer) -> str:
    """A topic with 200 numbers."""
    name = unique("source")
    cluster.create_topic(name, PARTITIONS)
    producer = make_producer()
    for number in range(200):
        producer.produce(name, str(number), partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    return name


@pytest.fixture
def values_of(
    kafka: Any, make_consumer: MakeConsumer, read: Read
) -> Callable[[str, int], list[int]]:
    """Exactly `count` numbers committed to a topic."""

    def values_of(topic: str, count: int) -> list[int]:
        consumer = make_consumer()
        consumer.assign([kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        values = [int(message.value()) for message in read(consumer, count)]
        assert consumer.consume(1, 0.5) == []
        return values

    return values_of


def test_exception_hides_the_records(
    make_transactional: MakeProducer, topic: str, values_of: Callable[..., list[int]]
) -> None:
    producer = make_transactional()
    with pytest.raises(LookupError), producer.transaction():
        producer.produce(topic, b"1")
        assert producer.flush(WAIT_S) == 0
        raise LookupError
    with producer.transaction():
        producer.produce(topic, b"2")

    assert values_of(topic, 1) == [2]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_failed_blocks_neither_skip_nor_repeat_records(
    kafka: Any,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    source: str,
    topic: str,
    values_of: Callable[..., list[int]],
    protocol: str,
    reset: str,
) -> None:
    """Blocks fail at any point. They read messages in the block or before it."""
    chance = random.Random(f"{protocol} {reset}")
    consumer = make_consumer({"group.protocol": protocol, "auto.offset.reset": reset})
    if reset == "latest":  # all partitions have committed offsets, so the reset does not apply
        start = [kafka.TopicPartition(source, p, 0) for p in range(PARTITIONS)]
        consumer.commit(offsets=start, asynchronous=False)
    consumer.subscribe([source])
    producer = make_transactional()
    done = 0
    outcomes: Counter[str] = Counter()
    while done < 200:
        before = chance.random() < 0.5
        fails = chance.choice(["", "at once", "late", "by hand", "seek"])
        messages = consumer.consume(20, 1) if before else []
        try:
            with producer.transaction(consumer, timeout=WAIT_S):
                if not before:
                    messages = consumer.consume(20, 1)
                assert [m.error() for m in messages] == [None] * len(messages)
                if fails == "at once":
                    raise LookupError
                for message in messages:
                    producer.produce(topic, message.value(), partition=message.partition())
                if fails == "late":
                    assert producer.flush(WAIT_S) == 0
                    raise LookupError
                if fails == "by hand":
                    producer.abort_transaction(WAIT_S)
                if fails == "seek" and messages:
                    consumer.seek(kafka.TopicPartition(source, messages[0].partition(), 45))
        except LookupError:
            pass
        except kafka.KafkaException as error:
            if fails != "seek" or not error.args[0].txn_requires_abort():
                raise
        outcomes[fails] += bool(messages)
        done += 0 if fails else len(messages)

    assert done == 200
    assert min(outcomes[fails] for fails in ("", "at once", "late", "by hand", "seek")) > 0
    committed = consumer.committed(
        [kafka.TopicPartition(source, p) for p in range(PARTITIONS)], WAIT_S
    )
    assert [partition.offset for partition in committed] == [50] * PARTITIONS
    assert Counter(values_of(topic, 200)) == Counter(range(200))


def test_partition_without_a_commit_restarts_at_its_first_message(
    make_transactional: MakeProducer, make_consumer: MakeConsumer, source: str, read: Read
) -> None:
    consumer = make_consumer()
    consumer.subscribe([source])
    producer = make_transactional()
    first = read(consumer, 200)

    with pytest.raises(LookupError), producer.transaction(consumer):
        raise LookupError

    again = read(consumer, 200)
    assert sorted(m.value() for m in again) == sorted(m.value() for m in first)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("inside", [True, False], ids=["in the block", "before it"])
def test_rebalance_moves_the_records_to_the_other_member_only(
    kafka: Any,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    source: str,
    topic: str,
    unique: Unique,
    read: Read,
    wait_until: WaitUntil,
    values_of: Callable[..., list[int]],
    strategy: str,
    inside: bool,
) -> None:
    group = {
        "group.id": unique("group"),
        "group.protocol": "classic",
        "partition.assignment.strategy": strategy,
    }
    consumer, other = make_consumer(group), make_consumer(group)
    consumer.subscribe([source])
    producer, heir = make_transactional(), make_transactional()

    messages = read(consumer, 200)

    def rebalance() -> None:
        other.subscribe([source])
        wait_until(other.assignment, lambda: (other.poll(0), consumer.poll(0.1)), WAIT_S)

    if not inside:
        rebalance()
    with pytest.raises(kafka.KafkaException) as caught, producer.transaction(consumer):
        assert inside
        for message in messages:
            producer.produce(topic, message.value(), partition=message.partition())
        rebalance()
    assert caught.value.args[0] == kafka.KafkaError._ASSIGNMENT_LOST

    done = 0
    for _ in range(60):
        for reader, writer in ((consumer, producer), (other, heir)):
            try:
                with writer.transaction(reader, timeout=WAIT_S):
                    messages = reader.consume(200, 0.5)
                    for message in messages:
                        assert message.error() is None
                        writer.produce(topic, message.value(), partition=message.partition())
                done += len(messages)
            except kafka.KafkaException as error:
                if not (error.args[0].txn_requires_abort() or error.args[0].retriable()):
                    raise
        if done == 200:
            break
    assert Counter(values_of(topic, 200)) == Counter(range(200))


def test_fenced_producer_raises_and_its_consumer_seeks_back(
    kafka: Any,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    source: str,
    topic: str,
    unique: Unique,
    read: Read,
    values_of: Callable[..., list[int]],
) -> None:
    name = unique("shared")
    consumer = make_consumer()
    consumer.subscribe([source])
    producer = make_transactional(**{"transactional.id": name})

    with pytest.raises(kafka.KafkaException) as caught, producer.transaction(consumer):
        for message in read(consumer, 200):
            producer.produce(topic, message.value())
        newer = make_transactional(**{"transactional.id": name})
        newer.init_transactions(WAIT_S)
    assert caught.value.args[0].fatal()

    with newer.transaction(consumer):
        for message in read(consumer, 200):
            newer.produce(topic, message.value())
    assert Counter(values_of(topic, 200)) == Counter(range(200))
