"""Clients that continue after all their brokers were replaced behind one bootstrap address."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from relay import Switch

__all__ = ["clients_of", "go_on_with_other_brokers", "have_same_records"]

# A client with default settings needs about 2.5 s; without a new bootstrap it never continues.
LONGEST_S = 10.0


def have_same_records(
    clusters: Sequence[Any], topic: str, make_producer: Callable[..., Any]
) -> None:
    """Create the topic with the same first record in each cluster, so that one can replace
    another."""
    for cluster in clusters:
        cluster.create_topic(topic, 1)
        producer = make_producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce(topic, b"first", partition=0)
        assert producer.flush(30.0) == 0
        producer.close()


def clients_of(
    switch: Switch,
    topic: str,
    make_producer: Callable[..., Any],
    make_consumer: Callable[..., Any],
) -> tuple[Any, Any]:
    """A producer and a consumer that know only the switch, and have reached its broker."""
    base = {"bootstrap.servers": switch.bootstrap_servers, "log_level": 0}
    producer, consumer = make_producer(base), make_consumer(base)
    consumer.subscribe([topic])
    message = consumer.poll(30.0)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"first")
    assert topic in producer.list_topics(topic, 30.0).topics
    return producer, consumer


def go_on_with_other_brokers(producer: Any, consumer: Any, topic: str) -> None:
    """Send the next record and read it."""
    outcomes: list[Any] = []
    read: list[Any] = []
    producer.produce(topic, b"next", on_delivery=lambda error, _: outcomes.append(error))
    deadline = time.monotonic() + LONGEST_S
    while not outcomes or b"next" not in read:
        assert time.monotonic() < deadline, f"delivered {outcomes}, read {read}"
        producer.poll(0.02)
        message = consumer.poll(0.02)
        if message is not None and not message.error():
            read.append(message.value())
    assert outcomes == [None]
