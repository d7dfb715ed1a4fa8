"""Idempotent producers: the requests of a partition that are in flight at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from machine import WAIT_S

from cykafka import Consumer, KafkaError, Producer, TopicPartition
from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

WINDOW = 5  # the most requests of a partition
RTT_MS = 1500


@pytest.fixture
def tracked(mock_cluster_factory: Callable[..., MockCluster]) -> MockCluster:
    cluster = mock_cluster_factory()
    cluster.create_topic("t", partitions=1)
    cluster.start_request_tracking()
    return cluster


@contextmanager
def slow_producer(tracked: MockCluster, linger_ms: int) -> Iterator[Producer]:
    """Its requests have ten records, and their answers take RTT_MS."""
    config = {
        "bootstrap.servers": tracked.bootstrap_servers,
        "enable.idempotence": True,
        "linger.ms": linger_ms,
        "batch.num.messages": 10,
    }
    with Producer(config) as producer:
        producer.produce("t", "first")
        assert producer.flush(WAIT_S) == 0
        tracked.set_rtt(RTT_MS)
        tracked.clear_requests()
        yield producer
        tracked.set_rtt(0)


def produce(producer: Producer, requests: int, delivered: list[object]) -> None:
    for _ in range(requests * 10):
        producer.produce("t", "v", on_delivery=lambda error, _: delivered.append(error))


def test_requests_do_not_wait_for_the_answer_of_the_first_one(tracked: MockCluster) -> None:
    delivered: list[object] = []
    with slow_producer(tracked, linger_ms=60_000) as producer:
        for sent in range(1, WINDOW + 1):
            produce(producer, 1, delivered)
            tracked.wait_for_requests("Produce", sent, timeout=RTT_MS / 1000)
        producer.poll(0)
        assert delivered == []
        produce(producer, 1, delivered)  # it waits for an answer
        assert producer.flush(WAIT_S) == 0
    assert delivered == [None] * 10 * (WINDOW + 1)
    stamps = [request.timestamp for request in tracked.requests("Produce")]
    assert len(stamps) == WINDOW + 1
    assert stamps[WINDOW] - stamps[0] > RTT_MS / 1000 * 0.9


def test_producer_that_waits_for_answers_uses_no_cpu(tracked: MockCluster) -> None:
    delivered: list[object] = []
    # The records have lingered, and could be sent but for the limit.
    with slow_producer(tracked, linger_ms=1) as producer:
        produce(producer, 10 * WINDOW, delivered)
        tracked.wait_for_requests("Produce", timeout=RTT_MS / 1000)
        before = time.process_time()  # of all threads
        time.sleep(RTT_MS / 1000 / 2)
        assert time.process_time() - before < RTT_MS / 1000 / 10
        tracked.set_rtt(0)
        assert producer.flush(WAIT_S) == 0
    assert delivered == [None] * 10 * 10 * WINDOW


def test_first_request_of_a_partition_is_sent_alone(tracked: MockCluster) -> None:
    """A broker that does not know the producer would accept the second one without the first."""
    delivered: list[object] = []
    tracked.set_rtt(RTT_MS)
    config = {"bootstrap.servers": tracked.bootstrap_servers, "enable.idempotence": True}
    with Producer({**config, "batch.num.messages": 10, "linger.ms": 1}) as producer:
        produce(producer, 3, delivered)
        tracked.wait_for_requests("Produce", timeout=WAIT_S)
        assert producer.flush(WAIT_S) == 0
    assert delivered == [None] * 30
    first, *others = (request.timestamp for request in tracked.requests("Produce"))
    assert len(others) == 2
    assert min(others) - first > RTT_MS / 1000 * 0.9
    assert max(others) - min(others) < RTT_MS / 1000


@pytest.mark.parametrize("refused", range(WINDOW + 1))
def test_refused_records_are_sent_again_whatever_the_broker_accepts_later(
    tracked: MockCluster, refused: int
) -> None:
    # The mock does not check the sequence of requests, as if it did not know the producer.
    delivered: list[object] = []
    with slow_producer(tracked, linger_ms=5) as producer:
        errors = [KafkaError.NO_ERROR] * refused + [KafkaError.NOT_LEADER_FOR_PARTITION]
        tracked.push_request_errors("Produce", errors)
        produce(producer, WINDOW + 1, delivered)
        tracked.wait_for_requests("Produce", min(refused + 1, WINDOW), timeout=WAIT_S)
        tracked.set_rtt(0)
        assert producer.flush(WAIT_S) == 0
    assert delivered == [None] * 10 * (WINDOW + 1)
    servers = {"bootstrap.servers": tracked.bootstrap_servers, "group.id": "g"}
    with Consumer(servers) as consumer:
        _, end = consumer.get_watermark_offsets(TopicPartition("t", 0))
    assert end == 1 + len(delivered)


def test_refused_request_is_sent_again_without_a_pause(tracked: MockCluster) -> None:
    """The records behind it wait in the output queue, and return to their own."""
    config = {
        "bootstrap.servers": tracked.bootstrap_servers,
        "enable.idempotence": True,
        "max.in.flight": 1,
        "batch.num.messages": 10,
        "retry.backoff.ms": 10,
        "topic.metadata.refresh.interval.ms": -1,
    }
    delivered: list[object] = []
    waits = []
    with Producer(config) as producer:
        producer.produce("t", "first")
        assert producer.flush(WAIT_S) == 0
        tracked.set_rtt(20)
        for _ in range(8):
            tracked.push_request_errors("Produce", [KafkaError.NOT_ENOUGH_REPLICAS])
            begun = time.monotonic()
            produce(producer, 2, delivered)
            while len(producer):
                producer.poll(WAIT_S)
            waits.append(time.monotonic() - begun)
    assert delivered == [None] * 10 * 2 * 8
    assert min(waits) < 0.5, waits  # a thread that misses its wake-up sleeps for 1 s
