"""Messages at the limits of client, topic and fetch."""

from __future__ import annotations

import os
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Read, Unique
from machine import WAIT_S

# The size of a batch of one record without the value, if the value has 8 KiB to 1 MiB. It has the
# batch header, and one byte each for the record's attributes, timestamp delta, offset delta,
# absent key and header count. The lengths of the record and of the value have three bytes each.
BATCH_OVERHEAD = 61 + 5 + 3 + 3

# librdkafka adds this to key and value before it compares them with message.max.bytes. It is the
# longest form of a record's fields.
RECORD_OVERHEAD = 36


def outcome(producer: Any, topic: str, value: bytes) -> Any:
    """Produce one message and return the error of its report."""
    reports: list[Any] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(WAIT_S) == 0
    (error,) = reports
    return error


@pytest.fixture
def small_topic(cluster: Any, unique: Unique) -> str:
    """A topic that accepts batches of up to 20,000 bytes."""
    name = unique("small")
    cluster.create_topic(name, 1, config={"max.message.bytes": "20000"})
    return name


def test_message_of_exactly_the_clients_limit_is_sent(
    make_producer: MakeProducer, consumer: Any, kafka: Any, topic: str, read: Read
) -> None:
    producer = make_producer({"message.max.bytes": 100_000})
    value = os.urandom(100_000 - RECORD_OVERHEAD)

    assert outcome(producer, topic, value) is None

    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    assert read(consumer, 1)[0].value() == value


def test_message_above_the_clients_limit_is_refused_at_once(
    make_producer: MakeProducer, kafka: Any, topic: str
) -> None:
    producer = make_producer({"message.max.bytes": 100_000})

    with pytest.raises(kafka.KafkaException) as caught:
        producer.produce(topic, bytes(100_000 - RECORD_OVERHEAD + 1), partition=0)

    assert caught.value.args[0] == kafka.KafkaError.MSG_SIZE_TOO_LARGE
    assert len(producer) == 0


def test_key_counts_toward_the_clients_message_limit(
    make_producer: MakeProducer, kafka: Any, topic: str
) -> None:
    producer = make_producer({"message.max.bytes": 100_000})

    with pytest.raises(kafka.KafkaException):
        producer.produce(topic, bytes(100_000 - RECORD_OVERHEAD), key=b"k", partition=0)


def test_batch_of_exactly_the_topics_limit_is_stored(
    producer: Any, consumer: Any, kafka: Any, small_topic: str, read: Read
) -> None:
    value = os.urandom(20_000 - BATCH_OVERHEAD)

    assert outcome(producer, small_topic, value) is None

    consumer.assign([kafka.TopicPartition(small_topic, 0, 0)])
    assert read(consumer, 1)[0].value() == value


def test_batch_above_the_topics_limit_fails_its_messages(
    producer: Any, kafka: Any, small_topic: str
) -> None:
    error = outcome(producer, small_topic, bytes(20_000 - BATCH_OVERHEAD + 1))

    assert error == kafka.KafkaError.MSG_SIZE_TOO_LARGE
    assert error.str() == "Broker: Message size too large"
    assert not error.retriable()


def test_messages_after_an_oversized_one_are_delivered(producer: Any, small_topic: str) -> None:
    errors: list[Any] = []
    for size in (10, 30_000, 10):
        producer.produce(
            small_topic, bytes(size), on_delivery=lambda error, _: errors.append(error)
        )
        producer.flush(WAIT_S)

    assert [error is None for error in errors] == [True, False, True]


def test_compression_brings_a_message_under_the_topics_limit(
    make_producer: MakeProducer, small_topic: str
) -> None:
    producer = make_producer({"compression.type": "zstd"})

    assert outcome(producer, small_topic, bytes(500_000)) is None


@pytest.mark.parametrize("limit", ["fetch.max.bytes", "max.partition.fetch.bytes"])
def test_message_above_the_fetch_limit_is_still_read(
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    kafka: Any,
    topic: str,
    read: Read,
    limit: str,
) -> None:
    values = [os.urandom(size) for size in (10, 300_000, 500_000, 10)]
    producer = make_producer()
    for value in values:
        producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0
    # librdkafka raises fetch.max.bytes to message.max.bytes, so both have to be small.
    consumer = make_consumer({"message.max.bytes": 1000, "fetch.max.bytes": 2000, limit: 2000})

    consumer.assign([kafka.TopicPartition(topic, 0, 0)])

    assert [message.value() for message in read(consumer, 4)] == values


def test_messages_of_several_megabytes_pass_if_both_sides_allow_them(
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    kafka: Any,
    cluster: Any,
    unique: Unique,
    read: Read,
) -> None:
    name = unique("large")
    cluster.create_topic(name, 1, config={"max.message.bytes": "9000000"})
    producer = make_producer({"message.max.bytes": 9_000_000})
    values = [os.urandom(8_000_000), os.urandom(3_000_000)]
    for value in values:
        assert outcome(producer, name, value) is None
    consumer = make_consumer()

    consumer.assign([kafka.TopicPartition(name, 0, 0)])

    assert [message.value() == values[i] for i, message in enumerate(read(consumer, 2))] == [
        True,
        True,
    ]
