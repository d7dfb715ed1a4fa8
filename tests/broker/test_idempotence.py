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


class Uncertain(Relay):
    """From step 0 on: says that the first request was stored too late for its replicas, and
    damages the second one. So the first may be stored, the second is not, and the next ones, which
    are in flight, have skipped a sequence."""

    def __init__(self, bootstrap_servers: str, topic: str, first: bytes, second: bytes) -> None:
        super().__init__(bootstrap_servers)
        self.topic, self.first, self.second = topic.encode(), first, second
        self.step = 0

    def request(self, number: int, request: bytes) -> bytes:
        self.uncertain = False
        if number == PRODUCE and self.step == 0 and self.first in request:
            self.step, self.uncertain = 1, True
        elif number == PRODUCE and self.step == 1 and self.second in request:
            self.step = 2
            return request.replace(self.second, self.second.swapcase())
        return request

    def answer(self, request: int, answer: bytes) -> bytes:
        if self.uncertain:  # the error is behind the topic, the count and the partition
            at = answer.index(self.topic) + len(self.topic) + 1 + 4
            assert answer[at : at + 2] == b"\0\0", answer
            code = cykafka.KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            answer = answer[:at] + code.to_bytes(2, "big") + answer[at + 2 :]
        return super().answer(request, answer)


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
    assert errors.count(None) == len(stored(make_consumer, topic))
    assert {error.code() for error in errors if error} <= {
        cykafka.KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        cykafka.KafkaError._PURGE_QUEUE,
    }


@pytest.mark.parametrize("size", [1, 10])
def test_record_that_may_be_stored_is_not_stored_again_after_a_skipped_sequence(
    kafka_cluster: Any,
    topic: str,
    make_producer: Callable[..., Any],
    make_consumer: Callable[..., Any],
    size: int,
) -> None:
    """As after a failover with several requests in flight."""
    values = [b"record-%d;" % number for number in range(5 * size)]
    relayed = Uncertain(kafka_cluster.bootstrap_servers, topic, values[0], values[size])
    relayed.step = 2  # the first record makes the producer known to the broker
    with serving(relayed) as relay:
        producer, errors = produce(relay, make_producer, topic, size)
        producer.produce(topic, b"known", partition=0)
        assert producer.flush(WAIT_S) == 0
        relay.step = 0
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0
        producer.close()
        assert relay.step == 2
    assert errors == [None] * (1 + len(values))
    assert stored(make_consumer, topic) == [b"known", *values]
