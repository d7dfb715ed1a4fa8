"""The parts of a record round-trip: key, value, headers, timestamps, epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Read, Unique
from machine import WAIT_S


@pytest.fixture
def topic(cluster: Any, unique: Unique) -> str:
    """A topic of four partitions that keeps records of any age."""
    name = unique("topic")
    cluster.create_topic(name, 4, config={"retention.ms": "-1"})
    return name


@pytest.fixture
def round_trip(
    producer: Any, make_consumer: MakeConsumer, kafka: Any, topic: str, read: Read
) -> Callable[..., Any]:
    """Produce one record and return it as a consumed message."""

    def round_trip(**record: Any) -> Any:
        producer.produce(topic, partition=0, **record)
        assert producer.flush(WAIT_S) == 0
        # A consumer that is already connected looks for an unknown topic only once a second.
        consumer = make_consumer()
        consumer.assign([kafka.TopicPartition(topic, 0, 0)])
        (message,) = read(consumer, 1)
        return message

    return round_trip


@pytest.mark.parametrize(
    "headers",
    [
        [("null", None)],
        [("empty", b"")],
        [("", b"a header without a name")],
        [("b", b"1"), ("a", b"2"), ("b", None), ("a", b""), ("b", b"1")],
        [("bytes", bytes(range(256)))],
        [("größe", b"\xff\xfe"), ("日本", "語".encode())],
        [(f"key-{number % 7}", str(number).encode()) for number in range(2000)],
        [("large", bytes(200_000))],
    ],
    ids=["null", "empty", "no name", "repeated", "bytes", "unicode", "many", "large"],
)
def test_headers_round_trip(
    round_trip: Callable[..., Any], headers: list[tuple[str, bytes | None]]
) -> None:
    assert round_trip(value=b"x", headers=headers).headers() == headers


def test_record_without_headers_has_none(round_trip: Callable[..., Any]) -> None:
    assert round_trip(value=b"x").headers() is None


def test_headers_of_a_record_without_value_round_trip(round_trip: Callable[..., Any]) -> None:
    message = round_trip(value=None, headers=[("only", b"this")])

    assert (message.value(), message.key()) == (None, None)
    assert message.headers() == [("only", b"this")]


@pytest.mark.parametrize("value", [None, b"", b"\x00", b"\xff\x00\xfe"], ids=repr)
@pytest.mark.parametrize("key", [None, b"", b"\x00"], ids=repr)
def test_null_and_empty_values_stay_distinct(
    round_trip: Callable[..., Any], key: bytes | None, value: bytes | None
) -> None:
    message = round_trip(key=key, value=value)

    assert (message.key(), message.value()) == (key, value)
    assert message.error() is None


@pytest.mark.parametrize("when", [1, 1234, 1_500_000_000_123], ids=str)
def test_record_keeps_its_explicit_timestamp(
    round_trip: Callable[..., Any], kafka: Any, when: int
) -> None:
    assert round_trip(timestamp=when).timestamp() == (kafka.TIMESTAMP_CREATE_TIME, when)


def test_default_timestamp_is_the_time_of_the_call(
    round_trip: Callable[..., Any], kafka: Any
) -> None:
    before = int(time.time() * 1000)

    kind, when = round_trip(value=b"x").timestamp()

    assert kind == kafka.TIMESTAMP_CREATE_TIME
    assert before <= when <= time.time() * 1000


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_each_record_of_a_batch_keeps_its_timestamp(
    make_producer: MakeProducer, consumer: Any, kafka: Any, topic: str, read: Read, codec: str
) -> None:
    producer = make_producer({"linger.ms": 1000, "compression.type": codec})
    times = [5_000_000, 1, 6_000_000, 5_999_999]  # deltas of both signs
    for when in times:
        producer.produce(topic, partition=0, timestamp=when)
    producer.flush(WAIT_S)

    consumer.assign([kafka.TopicPartition(topic, 0, 0)])

    assert [message.timestamp()[1] for message in read(consumer, 4)] == times


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_timestamp_is_the_log_append_time_if_the_topic_uses_it(
    make_producer: MakeProducer,
    consumer: Any,
    kafka: Any,
    cluster: Any,
    unique: Unique,
    read: Read,
    codec: str,
) -> None:
    name = unique("log-append-time")
    cluster.create_topic(name, 1, config={"message.timestamp.type": "LogAppendTime"})
    producer = make_producer({"linger.ms": 1000, "compression.type": codec})
    before = int(time.time() * 1000)
    for when in (1, 2, 3):
        producer.produce(name, b"x" * 100, timestamp=when)
    producer.flush(WAIT_S)

    consumer.assign([kafka.TopicPartition(name, 0, 0)])
    stamps = [message.timestamp() for message in read(consumer, 3)]

    assert {kind for kind, _ in stamps} == {kafka.TIMESTAMP_LOG_APPEND_TIME}
    assert all(before - 1000 <= when <= time.time() * 1000 + 1000 for _, when in stamps)


def test_leader_epoch_of_a_fresh_topic_is_zero(round_trip: Callable[..., Any]) -> None:
    assert round_trip(value=b"x").leader_epoch() == 0


def test_consumed_message_has_no_latency(round_trip: Callable[..., Any]) -> None:
    assert round_trip(value=b"x").latency() is None


def test_records_of_all_partitions_are_read_in_order(
    producer: Any, consumer: Any, kafka: Any, topic: str, read: Read
) -> None:
    for number in range(2000):
        producer.produce(topic, str(number), partition=number % 4)
    producer.flush(WAIT_S)

    consumer.assign([kafka.TopicPartition(topic, partition, 0) for partition in range(4)])
    messages = read(consumer, 2000)

    for partition in range(4):
        found = [(m.offset(), int(m.value())) for m in messages if m.partition() == partition]
        assert found == [(offset, 4 * offset + partition) for offset in range(500)]
