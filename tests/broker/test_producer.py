"""Producing: acknowledgement, idempotence over lost connections, reports, the queue."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from typing import Any

import pytest
from fixture_types import MakeProducer, Read, Unique
from machine import WAIT_S

HOUR_MS = 3_600_000


class Reports(list[tuple[Any, Any]]):
    """A delivery callback that keeps its arguments."""

    def __call__(self, error: Any, message: Any) -> None:
        self.append((error, message))

    @property
    def errors(self) -> list[Any]:
        return [error for error, _ in self]

    @property
    def messages(self) -> list[Any]:
        return [message for _, message in self]


def cut_connections(cluster: Any) -> int:
    """Shut this process's connections to the cluster; answers in flight are lost."""
    ports = {int(port) for port in re.findall(r":(\d+)", cluster.bootstrap_servers)}
    cut = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.getpeername()[1] in ports:
                    connection.shutdown(socket.SHUT_RDWR)
                    cut += 1
    return cut


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks_of_each_kind_deliver(
    make_producer: MakeProducer, consumer: Any, kafka: Any, topic: str, read: Read, acks: int | str
) -> None:
    reports = Reports()
    producer = make_producer({"acks": acks, "on_delivery": reports})
    for number in range(10):
        producer.produce(topic, str(number), partition=0)

    assert producer.flush(WAIT_S) == 0

    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    assert [m.value() for m in read(consumer, 10)] == [str(n).encode() for n in range(10)]
    assert reports.errors == [None] * 10
    # Without acknowledgement the broker does not report the offset.
    expected = [None] * 10 if acks == 0 else list(range(10))
    assert [message.offset() for message in reports.messages] == expected


def produce_through_cuts(producer: Any, cluster: Any, topic: str, count: int) -> Reports:
    """Produce numbers while the connections are cut again and again."""
    reports = Reports()
    cut = 0
    for number in range(count):
        producer.produce(topic, str(number), partition=0, on_delivery=reports)
        if number % 100 == 99:
            before = len(reports)
            while len(reports) == before:  # some progress, while more records are in flight
                producer.poll(0.05)
            cut += cut_connections(cluster)
    assert producer.flush(30) == 0
    assert cut > 1
    assert reports.errors == [None] * count
    return reports


def read_to_the_end(consumer: Any, kafka: Any, topic: str, read: Read) -> list[int]:
    partition = kafka.TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=WAIT_S)
    consumer.assign([partition])
    return [int(message.value()) for message in read(consumer, end)]


def test_idempotent_producer_survives_lost_connections_in_order(
    make_producer: MakeProducer, consumer: Any, kafka: Any, cluster: Any, topic: str, read: Read
) -> None:
    producer = make_producer(
        {
            "enable.idempotence": True,
            "batch.num.messages": 20,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )

    reports = produce_through_cuts(producer, cluster, topic, 1000)

    assert read_to_the_end(consumer, kafka, topic, read) == list(range(1000))
    assert [message.offset() for message in reports.messages] == list(range(1000))


def test_one_request_in_flight_keeps_order_over_lost_connections(
    make_producer: MakeProducer, consumer: Any, kafka: Any, cluster: Any, topic: str, read: Read
) -> None:
    producer = make_producer(
        {
            "max.in.flight": 1,
            "batch.num.messages": 20,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )

    produce_through_cuts(producer, cluster, topic, 1000)

    # A batch whose answer was lost is stored twice, but the order is unchanged.
    stored = read_to_the_end(consumer, kafka, topic, read)
    assert list(dict.fromkeys(stored)) == list(range(1000))


def test_report_has_partition_offset_and_timestamp(producer: Any, topic: str) -> None:
    reports = Reports()
    before = int(time.time() * 1000)
    for value in ("1", "2"):
        producer.produce(topic, value, "key", partition=2, on_delivery=reports)

    assert producer.flush(WAIT_S) == 0

    for offset, message in enumerate(reports.messages):
        assert (message.topic(), message.partition(), message.offset()) == (topic, 2, offset)
        assert message.timestamp()[0] == 1
        assert before <= message.timestamp()[1] <= time.time() * 1000
        assert 0 < message.latency() < WAIT_S
        assert message.error() is None


@pytest.mark.ours
def test_report_keeps_the_headers(producer: Any, topic: str) -> None:
    reports = Reports()

    producer.produce(topic, headers=[("a", "1"), ("a", None), ("", b"")], on_delivery=reports)
    producer.flush(WAIT_S)

    assert reports.messages[0].headers() == [("a", b"1"), ("a", None), ("", b"")]


def test_report_has_the_log_append_time_if_the_topic_uses_it(
    producer: Any, kafka: Any, cluster: Any, unique: Unique
) -> None:
    name = unique("log-append-time")
    cluster.create_topic(name, 1, config={"message.timestamp.type": "LogAppendTime"})
    reports = Reports()
    before = int(time.time() * 1000)

    producer.produce(name, timestamp=1234, on_delivery=reports)
    producer.flush(WAIT_S)

    kind, when = reports.messages[0].timestamp()
    assert kind == kafka.TIMESTAMP_LOG_APPEND_TIME
    assert before - 1000 <= when <= time.time() * 1000 + 1000


def test_timestamp_too_far_ahead_fails_with_the_brokers_message(
    producer: Any, kafka: Any, topic: str
) -> None:
    reports = Reports()
    ahead = int(time.time() * 1000) + 2 * HOUR_MS  # the broker's default limit is one hour

    producer.produce(topic, b"x", timestamp=ahead, on_delivery=reports)
    producer.flush(WAIT_S)

    ((error, message),) = reports
    assert error == kafka.KafkaError.INVALID_TIMESTAMP
    assert error.str() == "Broker: Invalid timestamp"
    assert message.value() == b"x"
    assert message.offset() is None


def test_compacted_topic_refuses_messages_without_a_key(
    producer: Any, kafka: Any, cluster: Any, unique: Unique
) -> None:
    name = unique("compacted")
    cluster.create_topic(name, 1, config={"cleanup.policy": "compact"})
    reports = Reports()

    producer.produce(name, b"no key", on_delivery=reports)
    producer.flush(WAIT_S)
    producer.produce(name, b"keyed", key=b"k", on_delivery=reports)
    producer.flush(WAIT_S)

    assert reports.errors == [kafka.KafkaError.INVALID_RECORD, None]
    assert reports.errors[0].str() == "Broker: Broker failed to validate record"


def test_missing_partition_fails_the_message(producer: Any, kafka: Any, topic: str) -> None:
    reports = Reports()
    producer.list_topics(topic, WAIT_S)

    with contextlib.suppress(kafka.KafkaException):  # raised at once if the topic is already known
        producer.produce(topic, b"x", partition=99, on_delivery=reports)
        assert producer.flush(WAIT_S) == 0
        assert reports.errors == [kafka.KafkaError._UNKNOWN_PARTITION]
        assert reports.messages[0].partition() == 99


def test_missing_topic_fails_the_message(
    make_producer: MakeProducer, kafka: Any, unique: Unique
) -> None:
    reports = Reports()
    producer = make_producer(
        {"allow.auto.create.topics": False, "topic.metadata.propagation.max.ms": 50}
    )

    producer.produce(unique("missing"), b"x", on_delivery=reports)

    assert producer.flush(WAIT_S) == 0
    assert reports.errors == [kafka.KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_topic_is_created_by_the_first_message(
    producer: Any, consumer: Any, kafka: Any, unique: Unique
) -> None:
    name = unique("created")
    assert consumer.list_topics(name, WAIT_S).topics[name].error is not None

    producer.produce(name, b"first")

    assert producer.flush(WAIT_S) == 0
    consumer.assign([kafka.TopicPartition(name, 0, 0)])
    assert consumer.poll(WAIT_S).value() == b"first"


def test_purge_fails_unsent_messages(
    make_producer: MakeProducer, consumer: Any, kafka: Any, topic: str
) -> None:
    reports = Reports()
    producer = make_producer({"linger.ms": 60_000})
    for value in ("1", "2"):
        producer.produce(topic, value, partition=0, on_delivery=reports)

    producer.purge()

    assert producer.flush(WAIT_S) == 0
    assert reports.errors == [kafka.KafkaError._PURGE_QUEUE] * 2
    partition = kafka.TopicPartition(topic, 0, 0)
    assert consumer.get_watermark_offsets(partition, timeout=WAIT_S) == (0, 0)


def test_flush_does_not_wait_for_the_linger(make_producer: MakeProducer, topic: str) -> None:
    reports = Reports()
    producer = make_producer({"linger.ms": 60_000})
    producer.produce(topic, b"1", on_delivery=reports)
    start = time.monotonic()

    assert producer.flush(WAIT_S) == 0

    assert time.monotonic() - start < 5
    assert reports.errors == [None]


@pytest.mark.ours
def test_produce_with_timeout_waits_for_room_in_the_queue(
    make_producer: MakeProducer, topic: str
) -> None:
    reports = Reports()
    producer = make_producer({"queue.buffering.max.messages": 10, "on_delivery": reports})

    for number in range(500):
        producer.produce(topic, str(number), partition=0, timeout=WAIT_S)

    assert producer.flush(WAIT_S) == 0
    assert [m.value() for m in reports.messages] == [str(n).encode() for n in range(500)]


@pytest.mark.ours
def test_produce_with_timeout_fails_if_the_queue_stays_full(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer({"linger.ms": 60_000, "queue.buffering.max.messages": 1})
    producer.produce(topic, b"1")
    start = time.monotonic()

    with pytest.raises(BufferError, match="Queue full"):
        producer.produce(topic, b"2", timeout=0.2)

    assert 0.15 < time.monotonic() - start < 5
