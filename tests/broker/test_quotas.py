"""Quotas: a client over its quota gets the time for which the broker throttles it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Read, Unique, WaitUntil
from machine import WAIT_S

# The broker averages over ten seconds. So a client exceeds this rate per second if it sends ten
# times as much at once. The broker then throttles it for about a second.
BYTES_PER_S = 10_000
VALUE = bytes(55_000)


@pytest.fixture(scope="module")
def limited(cluster: Any, unique: Unique) -> Iterator[str]:
    """A client id with a quota for producing and for consuming."""
    name = unique("limited")
    entity = ("--alter", "--entity-type", "clients", "--entity-name", name)
    rates = f"producer_byte_rate={BYTES_PER_S},consumer_byte_rate={BYTES_PER_S}"
    cluster.tool("kafka-configs", *entity, "--add-config", rates)
    yield name
    cluster.tool(
        "kafka-configs", *entity, "--delete-config", "producer_byte_rate,consumer_byte_rate"
    )


def check(event: Any, client: Any) -> None:
    broker = client.list_topics(timeout=WAIT_S).brokers[event.broker_id]
    assert event.broker_name == f"{broker.host}:{broker.port}"
    assert 0 < event.throttle_time < 60


def test_producer_over_its_quota_gets_throttle_events(
    make_producer: MakeProducer, topic: str, limited: str, wait_until: WaitUntil
) -> None:
    events: list[Any] = []
    producer = make_producer({"client.id": limited, "throttle_cb": events.append})
    for _ in range(2):
        producer.produce(topic, VALUE, partition=0)

    wait_until(lambda: events, lambda: producer.poll(0.1))

    check(events[0], producer)
    # Throttled, not refused.
    assert producer.flush(30) == 0


def test_consumer_over_its_quota_gets_throttle_events(
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    kafka: Any,
    topic: str,
    limited: str,
    read: Read,
    wait_until: WaitUntil,
) -> None:
    producer = make_producer()
    for _ in range(3):
        producer.produce(topic, VALUE, partition=0)
        assert producer.flush(WAIT_S) == 0
    events: list[Any] = []
    # Each fetch returns one message, and the first two are within the quota.
    consumer = make_consumer(
        {
            "client.id": limited,
            "throttle_cb": events.append,
            "max.partition.fetch.bytes": 1000,
        }
    )
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])

    assert len(read(consumer, 1)) == 1
    wait_until(lambda: events, lambda: consumer.poll(0.1))

    check(events[0], consumer)


def test_client_without_quota_is_not_throttled(
    make_producer: MakeProducer, topic: str, limited: str
) -> None:
    events: list[Any] = []
    producer = make_producer({"client.id": f"not-{limited}", "throttle_cb": events.append})
    for _ in range(3):
        producer.produce(topic, VALUE, partition=0)

    assert producer.flush(WAIT_S) == 0

    producer.poll(0)
    assert events == []
