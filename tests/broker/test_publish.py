"""Batches on real Kafka: large, transactional, fenced, and refused by the broker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Read, Unique
from machine import WAIT_S

from cykafka import DeliveryError, KafkaError


def test_large_batch_arrives_in_order(
    make_producer: MakeProducer, consumer: Any, kafka: Any, topic: str, read: Read
) -> None:
    producer = make_producer({"linger.ms": 5, "queue.buffering.max.messages": 5000})
    count = 20_000
    values = [f"{number}-{'x' * (number % 300)}" for number in range(count)]

    delivery = producer.publish(
        topic,
        values,
        keys=[str(number % 100) for number in range(count)],
        headers={"same": b"1", "own": values},
        timestamps=range(1, count + 1),
    )
    delivery.wait(WAIT_S)

    consumer.subscribe([topic])
    messages = read(consumer, count)
    places = {(message.partition(), message.offset()): message for message in messages}
    for number, place in enumerate(zip(delivery.partitions, delivery.offsets, strict=True)):
        message = places[place]
        assert message.value() == values[number].encode()
        assert message.key() == str(number % 100).encode()
        assert message.headers() == [("same", b"1"), ("own", values[number].encode())]
        assert message.timestamp()[1] == number + 1
    # The records of a key went to one partition, in order.
    last: dict[bytes, tuple[int, int]] = {}
    for message in messages:
        partition, stamp = last.get(message.key(), (message.partition(), 0))
        assert (message.partition(), message.timestamp()[1] > stamp) == (partition, True)
        last[message.key()] = (partition, message.timestamp()[1])


def test_batches_of_a_transaction_are_committed_together(
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    unique: Unique,
    read: Read,
) -> None:
    producer = make_producer({"transactional.id": unique("tx")})
    producer.init_transactions(WAIT_S)
    outside = producer.publish(topic, ["outside"] * 5)
    producer.begin_transaction()
    aborted = producer.publish(topic, ["aborted"] * 500)
    aborted.wait(WAIT_S)
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    purged = producer.publish(topic, ["purged"] * 500)
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    committed = producer.publish(topic, ["committed"] * 500, headers={"h": "x"})
    producer.commit_transaction(WAIT_S)

    consumer = make_consumer({"isolation.level": "read_committed"})
    consumer.subscribe([topic])
    messages = read(consumer, 500)

    assert {message.value() for message in messages} == {b"committed"}
    assert committed.done
    assert committed.failed == 0
    assert purged.done
    assert {error.code() for error in purged.errors.values()} <= {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
    }
    assert {error.code() for error in outside.errors.values()} == {KafkaError._STATE}
    assert consumer.poll(0.2) is None


def test_fenced_producers_batch_fails(
    make_producer: MakeProducer, topic: str, unique: Unique
) -> None:
    name = unique("tx")
    older = make_producer({"transactional.id": name})
    older.init_transactions(WAIT_S)
    older.begin_transaction()
    older.publish(topic, ["a"]).wait(WAIT_S)
    newer = make_producer({"transactional.id": name})
    newer.init_transactions(WAIT_S)

    delivery = older.publish(topic, ["b"] * 10)
    with pytest.raises(DeliveryError):
        delivery.wait(WAIT_S)
    again = older.publish(topic, ["c"] * 10)

    assert delivery.failed == 10
    assert again.done
    assert again.failed == 10
    assert all(error.fatal() or error.code() < 0 for error in again.errors.values())


def test_records_too_large_for_the_topic_fail_with_the_brokers_error(
    make_producer: MakeProducer, admin: Any, api: Any, unique: Unique
) -> None:
    topic = unique("small")
    new = api.NewTopic(topic, 1, 1, config={"max.message.bytes": "2000"})
    for future in admin.create_topics([new]).values():
        future.result(WAIT_S)
    producer = make_producer({"batch.num.messages": 1})

    delivery = producer.publish(topic, ["a", b"x" * 5000, "c"])
    with pytest.raises(DeliveryError):
        delivery.wait(WAIT_S)

    assert {index: error.code() for index, error in delivery.errors.items()} == {
        1: KafkaError.MSG_SIZE_TOO_LARGE
    }


def test_coroutines_and_threads_share_a_producer(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer()
    failures: list[BaseException] = []

    async def main() -> None:
        await asyncio.gather(*[one(number) for number in range(50)])

    async def one(number: int) -> None:
        await producer.publish(topic, ["a"] * number, keys=["k"] * number)

    def work() -> None:
        try:
            for number in range(50):
                producer.publish(topic, ["a"] * number).wait(WAIT_S)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    asyncio.run(asyncio.wait_for(main(), WAIT_S))
    for thread in threads:
        thread.join(WAIT_S)

    assert failures == []
