"""All brokers of a client are gone, or replaced by others behind the same bootstrap address.

Both need librdkafka's `rd_atomic32_set()` to return the old value. Its CMake build returns the
new one. Brokers that replace others here have their ids, but other addresses: patch 0013.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from machine import WAIT_S
from relay import switch_to
from replaced_brokers import (
    LONGEST_S,
    MovingBroker,
    clients_of,
    go_on_with_other_brokers,
    group_commits_at_both_addresses,
    have_same_records,
    moving_broker,
    transaction_commits_at_the_new_address,
)

NO_BROKER = "127.0.0.1:1"
# A client that waits this long before it tries a broker again does not go on within the test.
MUCH_LATER = {"reconnect.backoff.ms": 60_000, "reconnect.backoff.max.ms": 60_000}


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_error_cb_hears_that_all_brokers_are_down(
    kafka: Any, request: pytest.FixtureRequest, wait_until: Callable[..., None], kind: str
) -> None:
    heard: list[int] = []
    config = {
        "bootstrap.servers": NO_BROKER,
        "error_cb": lambda error: heard.append(error.code()),
        "log_level": 0,
    }
    client = request.getfixturevalue(f"make_{kind}")(config)
    wanted = {kafka.KafkaError._TRANSPORT, kafka.KafkaError._ALL_BROKERS_DOWN}
    wait_until(lambda: wanted <= set(heard), lambda: client.poll(0.1))


def test_clients_go_on_when_all_brokers_are_replaced(
    mock_cluster_factory: Callable[..., Any],
    make_producer: Callable[..., Any],
    make_consumer: Callable[..., Any],
    unique: Callable[[str], str],
) -> None:
    topic = unique("replaced")
    old, new = mock_cluster_factory(brokers=3), mock_cluster_factory(brokers=3)
    have_same_records((old, new), topic, make_producer)
    with switch_to(old.bootstrap_servers.split(",")[0]) as switch:
        producer, consumer = clients_of(switch, topic, make_producer, make_consumer)
        switch.turn_to(new.bootstrap_servers.split(",")[0])
        old.close()
        go_on_with_other_brokers(producer, consumer, topic)
        producer.close()
        consumer.close()


@pytest.fixture
def moving(cluster: Any) -> Iterator[MovingBroker]:
    with moving_broker(cluster.bootstrap_servers) as moving:
        yield moving


def test_new_address_of_a_broker_is_tried_at_once(
    moving: MovingBroker, make_producer: Callable[..., Any], topic: str
) -> None:
    base = {"bootstrap.servers": moving.bootstrap_servers, "log_level": 0}
    producer = make_producer({**base, **MUCH_LATER})
    producer.produce(topic, b"to the old address")
    assert producer.flush(WAIT_S) == 0
    moving.move()
    producer.produce(topic, b"to the new address")
    left = producer.flush(LONGEST_S)
    producer.close(0)
    assert left == 0


def test_group_follows_its_coordinator_to_a_new_address(
    moving: MovingBroker,
    make_consumer: Callable[..., Any],
    make_producer: Callable[..., Any],
    topic: str,
    wait_until: Callable[..., None],
) -> None:
    group_commits_at_both_addresses(moving, topic, make_producer, make_consumer, wait_until)


def test_transactions_follow_their_coordinator_to_a_new_address(
    moving: MovingBroker, make_producer: Callable[..., Any], topic: str
) -> None:
    transaction_commits_at_the_new_address(moving, topic, make_producer)
