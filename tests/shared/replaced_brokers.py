"""Checks that clients continue after new brokers took over their bootstrap address, or after
their broker moved to another address."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from fixture_types import MakeConsumer, MakeProducer, WaitUntil
from machine import WAIT_S
from relay import Switch, relay_before, switch_to

from cykafka import Consumer, Producer

__all__ = [
    "LONGEST_S",
    "MovingBroker",
    "clients_of",
    "go_on_with_other_brokers",
    "group_commits_at_both_addresses",
    "have_same_records",
    "moving_broker",
    "transaction_commits_at_the_new_address",
]

# A client with default settings needs about 2.5 s; without a new bootstrap it never continues.
LONGEST_S = 10.0


def have_same_records(clusters: Sequence[Any], topic: str, make_producer: MakeProducer) -> None:
    """Create the topic with the same first record in each cluster, so that one can replace
    another."""
    for cluster in clusters:
        cluster.create_topic(topic, 1)
        producer = make_producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce(topic, b"first", partition=0)
        assert producer.flush(30.0) == 0
        producer.close()


def clients_of(
    switch: Switch, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer
) -> tuple[Producer, Consumer]:
    """A producer and a consumer that know only the switch, and have reached its broker."""
    base = {"bootstrap.servers": switch.bootstrap_servers, "log_level": 0}
    producer, consumer = make_producer(base), make_consumer(base)
    consumer.subscribe([topic])
    message = consumer.poll(30.0)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"first")
    assert topic in producer.list_topics(topic, 30.0).topics
    return producer, consumer


def go_on_with_other_brokers(producer: Producer, consumer: Consumer, topic: str) -> None:
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


class MovingBroker(NamedTuple):
    """A broker that keeps its id and its data when it gets another address."""

    bootstrap_servers: str  # stays the same
    move: Callable[[], None]


@contextmanager
def moving_broker(bootstrap_servers: str) -> Iterator[MovingBroker]:
    """A cluster's only broker behind an address that `move()` takes away, for another one."""
    with (
        relay_before(bootstrap_servers) as old,
        relay_before(bootstrap_servers) as new,
        switch_to(old.bootstrap_servers) as switch,
    ):

        def move() -> None:
            switch.turn_to(new.bootstrap_servers)
            old.end()

        yield MovingBroker(switch.bootstrap_servers, move)


def group_commits_at_both_addresses(
    moving: MovingBroker,
    topic: str,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    wait_until: WaitUntil,
) -> None:
    """A member of a group commits a record's offset, the broker moves, and it commits the next."""
    group = {"group.id": f"moved-{topic}"}
    producer, observer = make_producer(), make_consumer(group)
    consumer = make_consumer(
        {
            **group,
            "bootstrap.servers": moving.bootstrap_servers,
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 100,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])

    def committed() -> int:
        partitions = observer.committed(consumer.assignment(), WAIT_S)
        return int(partitions[0].offset) if partitions else 0

    producer.produce(topic, b"before", partition=0)
    wait_until(lambda: committed() == 1, lambda: consumer.poll(0.1), WAIT_S)
    moving.move()
    producer.produce(topic, b"behind", partition=0)
    wait_until(lambda: committed() == 2, lambda: consumer.poll(0.1), LONGEST_S)
    consumer.close()


def transaction_commits_at_the_new_address(
    moving: MovingBroker, topic: str, make_producer: MakeProducer
) -> None:
    """A transactional producer has its id, the broker moves, and a transaction is committed."""
    producer = make_producer(
        {
            "bootstrap.servers": moving.bootstrap_servers,
            "transactional.id": f"moved-{topic}",
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    moving.move()
    producer.begin_transaction()
    producer.produce(topic, b"behind")
    producer.commit_transaction(LONGEST_S)
    producer.close()
