"""Idempotent producers on a real broker, which accepts any first sequence of a producer that it
does not know."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique
from machine import WAIT_S
from relay import ADD_PARTITIONS_TO_TXN, PRODUCE, Relay, serving

import cykafka
from cykafka import TopicPartition
from cykafka.admin import AdminClient

pytestmark = pytest.mark.ours

SLOW_RETRY = {
    "retry.backoff.ms": 3000,
    "retry.backoff.max.ms": 3000,
    "message.max.bytes": 2_000_000,
}


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
    """Once armed: says that the request with `first` was stored too late for its replicas, so it
    may be stored, and damages the one with `second`, so it is not stored, and the next ones, which
    are in flight, have skipped a sequence."""

    def __init__(
        self, bootstrap_servers: str, topic: str, first: bytes, second: bytes | None = None
    ) -> None:
        super().__init__(bootstrap_servers)
        self.topic, self.first, self.second = topic.encode(), first, second
        self.armed = self.uncertain = False
        self.again = False  # say so for each request with `first`
        self.answered = threading.Event()

    def request(self, number: int, request: bytes) -> bytes:
        if number != PRODUCE:
            return request
        self.uncertain = False
        if self.armed and self.first in request:
            self.armed = self.again or self.second is not None
            self.uncertain = self.again or not self.answered.is_set()
        elif self.armed and self.second and self.second in request:
            self.armed = False
            return request.replace(self.second, self.second.swapcase())
        return request

    def answer(self, request: int, answer: bytes) -> bytes:
        if request == PRODUCE and self.uncertain:
            # The error is behind the topic, the count and the partition.
            at = answer.index(self.topic) + len(self.topic) + 1 + 4
            assert answer[at : at + 2] == b"\0\0", answer
            code = cykafka.KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            answer = answer[:at] + code.to_bytes(2, "big") + answer[at + 2 :]
            self.answered.set()
        return super().answer(request, answer)


class Holding(Relay):
    """Holds requests with `record`, and their connections, until `go_on` is set."""

    def __init__(self, bootstrap_servers: str, topic: str, record: bytes) -> None:
        super().__init__(bootstrap_servers)
        self.topic, self.record = topic.encode(), record
        self.arrived = threading.Semaphore(0)
        self.registered, self.go_on = threading.Event(), threading.Event()

    def request(self, number: int, request: bytes) -> bytes:
        if number == PRODUCE and self.record in request:
            self.arrived.release()
            assert self.go_on.wait(WAIT_S)
        return request

    def answer(self, request: int, answer: bytes) -> bytes:
        if request == ADD_PARTITIONS_TO_TXN:
            # The error is behind the topic, the count and the partition.
            at = answer.index(self.topic) + len(self.topic) + 4 + 4
            if answer[at : at + 2] == b"\0\0":
                self.registered.set()
        return super().answer(request, answer)


def produce(
    relay: Relay, make_producer: MakeProducer, size: int, **config: Any
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
            **config,
        },
        on_delivery=lambda error, _: errors.append(error),
    )
    return producer, errors


def stored(make_consumer: MakeConsumer, topic: str) -> list[bytes]:
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
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    size: int,
) -> None:
    values = [b"record-%d;" % number for number in range(100)]
    with serving(Damaging(kafka_cluster.bootstrap_servers, values[0])) as relay:
        producer, errors = produce(relay, make_producer, size)
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0
        producer.close()
        assert relay.record == b""
    assert errors == [None] * len(values)
    assert stored(make_consumer, topic) == values


def test_records_refused_by_a_recreated_topic_have_their_true_outcome(
    kafka_cluster: Any, unique: Unique, make_producer: MakeProducer, make_consumer: MakeConsumer
) -> None:
    """The producer's records are in order, or it fails: the broker has lost its sequence."""
    topic = unique("anew")
    values = [b"record-%d;" % number for number in range(100)]
    with (
        serving(Damaging(kafka_cluster.bootstrap_servers, values[0])) as relay,
        AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers}) as admin,
    ):
        kafka_cluster.create_topic(topic, 1)
        producer, errors = produce(relay, make_producer, 10)
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
def test_stored_record_is_not_stored_again_after_a_skipped_sequence(
    kafka_cluster: Any,
    topic: str,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    size: int,
) -> None:
    """As after a failover with several requests in flight."""
    values = [b"record-%d;" % number for number in range(5 * size)]
    uncertain = Uncertain(kafka_cluster.bootstrap_servers, topic, values[0], values[size])
    with serving(uncertain) as relay:
        producer, errors = produce(relay, make_producer, size)
        producer.produce(topic, b"known", partition=0)  # the broker knows the producer now
        assert producer.flush(WAIT_S) == 0
        relay.armed = True
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_S) == 0
        producer.close()
        assert relay.answered.is_set()
        assert not relay.armed
    assert errors == [None] * (1 + len(values))
    assert stored(make_consumer, topic) == [b"known", *values]


def test_batch_that_may_be_stored_keeps_its_epoch(
    kafka_cluster: Any, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer
) -> None:
    """A record of another partition that is refused for good bumps the epoch before the retry."""
    values = [b"record-%d;" % number for number in range(10)]
    with serving(Uncertain(kafka_cluster.bootstrap_servers, topic, values[0])) as relay:
        producer, errors = produce(relay, make_producer, 10, **SLOW_RETRY)
        for partition in (0, 1):
            producer.produce(topic, b"known", partition=partition)
        assert producer.flush(WAIT_S) == 0
        relay.armed = True
        for value in values:
            producer.produce(topic, value, partition=0)
        assert relay.answered.wait(WAIT_S)
        producer.produce(topic, bytes(1_100_000), partition=1)  # larger than the broker allows
        assert producer.flush(WAIT_S) == 0
        producer.close()
    refused = [error.code() for error in errors if error]
    assert refused == [cykafka.KafkaError.MSG_SIZE_TOO_LARGE]
    assert stored(make_consumer, topic) == [b"known", *values]


def test_batch_that_may_be_stored_times_out_as_a_whole(
    kafka_cluster: Any, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer
) -> None:
    """Without its first records, the broker would store the others again."""
    values = [b"record-%d;" % number for number in range(10)]
    config = {"linger.ms": 1200, "message.timeout.ms": 2500, "retry.backoff.ms": 50,
              "retry.backoff.max.ms": 100}  # fmt: skip
    with serving(Uncertain(kafka_cluster.bootstrap_servers, topic, values[0])) as relay:
        relay.again = True
        producer, errors = produce(relay, make_producer, 10, **config)
        producer.produce(topic, b"known", partition=0)
        assert producer.flush(WAIT_S) == 0
        relay.armed = True
        for value in values:
            producer.produce(topic, value, partition=0)
            producer.poll(0.1)
        assert relay.answered.wait(WAIT_S)
        while len(producer):
            producer.poll(WAIT_S)
        producer.close()
    assert errors[0] is None
    assert [error.code() for error in errors[1:]] == [cykafka.KafkaError._MSG_TIMED_OUT] * 10
    assert stored(make_consumer, topic) == [b"known", *values]


def test_next_transaction_is_stored_after_an_uncertain_batch(
    kafka_cluster: Any,
    topic: str,
    unique: Unique,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
) -> None:
    """The abort drops the batch before its retry. A new batch with its sequence would be taken for
    a copy of it."""
    dropped = [b"dropped-%d;" % number for number in range(10)]
    values = [b"record-%d;" % number for number in range(10)]
    with serving(Uncertain(kafka_cluster.bootstrap_servers, topic, dropped[0])) as relay:
        config = {**SLOW_RETRY, "transactional.id": unique("transaction")}
        producer, errors = produce(relay, make_producer, 10, **config)
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce(topic, b"known", partition=0)
        assert producer.flush(WAIT_S) == 0
        relay.armed = True
        for value in dropped:
            producer.produce(topic, value, partition=0)
        assert relay.answered.wait(WAIT_S)
        producer.abort_transaction(WAIT_S)
        del errors[:]
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.commit_transaction(WAIT_S)
        producer.close()
    assert errors == [None] * len(values)
    consumer = make_consumer({"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [consumer.poll(WAIT_S).value() for _ in values] == values


@pytest.fixture
def late(
    kafka_cluster: Any,
    topic: str,
    unique: Unique,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
) -> Callable[..., str]:
    """Abort a transaction whose request reaches the broker when the next one has begun, check that
    no transaction has its record, and return the record's error."""

    def run(give_up: Callable[[Any, Holding], None], **config: Any) -> str:
        with serving(Holding(kafka_cluster.bootstrap_servers, topic, b"late")) as relay:
            config["transactional.id"] = unique("transaction")
            producer, errors = produce(relay, make_producer, 1, **config)
            producer.init_transactions(WAIT_S)
            with producer.transaction():
                producer.produce(topic, b"first", partition=0)
            producer.begin_transaction()
            producer.produce(topic, b"late", partition=0)
            assert relay.arrived.acquire(timeout=WAIT_S)
            give_up(producer, relay)
            producer.abort_transaction(WAIT_S)
            relay.registered.clear()
            producer.begin_transaction()
            producer.produce(topic, b"next", partition=0)
            assert relay.registered.wait(WAIT_S)
            relay.go_on.set()
            producer.commit_transaction(WAIT_S)
            producer.close()
        consumer = make_consumer({"isolation.level": "read_committed"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [consumer.poll(WAIT_S).value() for _ in range(2)] == [b"first", b"next"]
        assert errors.count(None) == 2
        return str(errors[1].name())

    return run


def test_record_purged_in_flight_is_in_no_transaction(late: Callable[..., str]) -> None:
    assert late(lambda producer, relay: producer.purge()) == "_PURGE_INFLIGHT"


def test_record_whose_request_timed_out_is_in_no_other_transaction(
    late: Callable[..., str],
) -> None:
    """An abort fails it before its retry."""

    def retried(producer: Any, relay: Holding) -> None:
        assert relay.arrived.acquire(timeout=WAIT_S)

    assert late(retried, **{"socket.timeout.ms": 1000}) == "_PURGE_QUEUE"
