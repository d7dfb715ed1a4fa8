"""Idempotent producers on a real broker, which accepts any first sequence of a producer that it
does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S
from relay import PRODUCE, Relay, serving

import cykafka
from cykafka import TopicPartition
from cykafka.admin import AdminClient

pytestmark = pytest.mark.ours


class Damaging(Relay):
    """Changes a byte of one record on its way: the broker refuses the request once."""

    def __init__(self, bootstrap_servers: str, record: bytes) -> None:
        super().__init__(bootstrap_servers)
        self.record = record

    def request(self, number: int, request: bytes) -> bytes:
        if number == PRODUCE and self.record and self.record in request:
            request = request.replace(self.record, self.record.swapcase())
            self.record = b""
        return request


def produce(
    relay: Relay, make_producer: Callable[..., Any], topic: str, size: int
) -> tuple[Any, list[Any]]:
    """An idempotent producer whose requests have `size` records; the errors of its records."""
    errors: list[Any] = []
    producer = make_producer(
        {
            "bootstrap.servers": relay.bootstrap_servers,
            "enable.idempotence": True,
            "batch.num.messages": size,
            "linger.ms": 100,
            "log_level": 0,
        },
        on_delivery=lambda error, _: errors.append(error),
    )
    return producer, errors


def stored(make_consumer: Callable[..., Any], topic: str) -> list[bytes]:
    consumer = make_consumer()
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=WAIT_S)
    consumer.assign([partition])
    found: list[bytes] = []
    while len(found) < end:
        found += [message.value() for message in consumer.consume(end - len(found), WAIT_S)]
    return found


@pytest.mark.parametrize("size", [1, 10])
def test_records_of_a_refused_first_request_are_not_lost(
    kafka_cluster: Any,
    topic: str,
    make_producer: Callable[..., Any],
    make_consumer: Callable[..., Any],
    size: int,
) -> None:
    values = [b"record-%d;" % number for number in range(100)]
    with serving(Damaging(kafka_cluster.bootstrap_servers, values[0])) as relay:
        producer, errors = produce(relay, make_producer, topic, size)
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0
        producer.close()
        assert relay.record == b""
    assert errors == [None] * len(values)
    assert stored(make_consumer, topic) == values


def test_records_refused_by_a_topic_that_was_created_anew_have_their_true_outcome(
    kafka_cluster: Any,
    unique: Callable[[str], str],
    make_producer: Callable[..., Any],
    make_consumer: Callable[..., Any],
) -> None:
    """The producer's records are in order, or it fails: the broker has lost its sequence."""
    topic = unique("anew")
    values = [b"record-%d;" % number for number in range(100)]
    with (
        serving(Damaging(kafka_cluster.bootstrap_servers, values[0])) as relay,
        AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as admin,
    ):
        kafka_cluster.create_topic(topic, 1)
        producer, errors = produce(relay, make_producer, topic, 10)
        for number in range(30):
            producer.produce(topic, b"before-%d" % number, partition=0)
        assert producer.flush(WAIT_S) == 0
        assert errors == [None] * 30
        del errors[:]
        admin.delete_topics([topic])[topic].result(WAIT_S)
        kafka_cluster.create_topic(topic, 1)
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0
        producer.close()
        assert relay.record == b""
    assert len(errors) == len(values)
    assert errors.count(None) == len(stored(make_consumer, topic)) < len(values)
    assert {error.code() for error in errors if error} <= {
        cykafka.KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        cykafka.KafkaError._PURGE_QUEUE,
    }
