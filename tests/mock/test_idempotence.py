"""Idempotent producers: the requests of a partition that are in flight at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from machine import WAIT_S

from cykafka import Producer
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
