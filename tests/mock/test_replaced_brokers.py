"""All brokers of a client are gone, or replaced by others behind the same bootstrap address.

Both cases need librdkafka's `rd_atomic32_set()` to return the old value. Its CMake build returns
the new one. The new brokers have the old ids, but other addresses: see patch 0013.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from machine import WAIT_S
from relay import API_VERSIONS, FIND_COORDINATOR, METADATA, Relay, serving, switch_to
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
# With this backoff a client does not reconnect to a broker within the test.
MUCH_LATER = {"reconnect.backoff.ms": 60_000, "reconnect.backoff.max.ms": 60_000}


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_error_cb_gets_the_error_that_all_brokers_are_down(
    kafka: Any, request: pytest.FixtureRequest, wait_until: Callable[..., None], kind: str
) -> None:
    calls: list[int] = []
    config = {
        "bootstrap.servers": NO_BROKER,
        "error_cb": lambda error: calls.append(error.code()),
        "log_level": 0,
    }
    client = request.getfixturevalue(f"make_{kind}")(config)
    wanted = {kafka.KafkaError._TRANSPORT, kafka.KafkaError._ALL_BROKERS_DOWN}
    wait_until(lambda: wanted <= set(calls), lambda: client.poll(0.1))


def test_clients_reconnect_when_all_brokers_are_replaced(
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


class Renaming(Relay):
    """A relay in front of a broker that replaces broker addresses in answers. `addresses` has, by
    request and broker, the address to use, or several addresses to use in turn."""

    def __init__(self, broker: str, addresses: dict[int, dict[str, list[str]]]) -> None:
        super().__init__(broker)
        self.addresses = addresses
        self.accepted = 0
        self.delays_s: dict[int, float] = {}

    def answer(self, request: int, answer: bytes) -> bytes:
        time.sleep(self.delays_s.get(request, 0))
        for broker, names in self.addresses.get(request, {}).items():
            answer = answer.replace(_packed(broker), _packed(names[0]))
            names.append(names.pop(0))
        return answer

    def process_request(self, request: Any, client_address: Any) -> None:
        self.accepted += 1
        super().process_request(request, client_address)


def _packed(address: str) -> bytes:
    host, port = address.split(":")
    return host.encode() + struct.pack(">i", int(port))


class TwoNames(NamedTuple):
    """Two brokers behind relays; the second one leads the topic, the first one has two relays."""

    addresses: dict[int, dict[str, list[str]]]
    first: str
    old: Renaming
    new: Renaming
    other: Renaming
    bootstrap_servers: str


@pytest.fixture
def two_names(mock_cluster_factory: Callable[..., Any], topic: str) -> Iterator[TwoNames]:
    cluster = mock_cluster_factory(brokers=2)
    cluster.create_topic(topic, 2)
    cluster.set_coordinator("transaction", topic, 1)
    first, second = cluster.bootstrap_servers.split(",")
    addresses: dict[int, dict[str, list[str]]] = {}
    with (
        serving(Renaming(first, addresses)) as old,
        serving(Renaming(first, addresses)) as new,
        serving(Renaming(second, addresses)) as other,
    ):
        for request in (METADATA, FIND_COORDINATOR):
            addresses[request] = {
                first: [old.bootstrap_servers],
                second: [other.bootstrap_servers],
            }
        for partition, leader in ((0, 1), (1, 2)):
            cluster.set_partition_leader(topic, partition, leader)
        yield TwoNames(addresses, first, old, new, other, other.bootstrap_servers)


def test_transaction_coordinator_keeps_its_found_address_if_metadata_is_old(
    two_names: TwoNames, make_producer: Callable[..., Any], topic: str
) -> None:
    producer = make_producer(
        {
            "bootstrap.servers": two_names.bootstrap_servers,
            "transactional.id": topic,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)

    def commit_one() -> None:
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=1)
        producer.commit_transaction(LONGEST_S)

    commit_one()
    two_names.addresses[FIND_COORDINATOR][two_names.first] = [two_names.new.bootstrap_servers]
    two_names.old.end()
    commit_one()
    producer.close()


@pytest.mark.parametrize("delays_s", [{}, {API_VERSIONS: 0.05, METADATA: 0.005}])
def test_brokers_that_disagree_on_an_address_cause_no_loop_of_reconnects(
    two_names: TwoNames,
    make_producer: Callable[..., Any],
    topic: str,
    wait_until: Callable[..., None],
    delays_s: dict[int, float],
) -> None:
    relays = (two_names.old, two_names.new)
    # With the delays, the next metadata arrives before the connection is up.
    for relay in (*relays, two_names.other):
        relay.delays_s = delays_s
    two_names.addresses[METADATA][two_names.first] = [relay.bootstrap_servers for relay in relays]
    refresh_s, connections = 0.3, 12
    producer = make_producer(
        {
            "bootstrap.servers": two_names.bootstrap_servers,
            "topic.metadata.refresh.interval.ms": int(refresh_s * 1000),
            "reconnect.backoff.max.ms": 2000,
            "log_level": 0,
        }
    )

    def produce() -> None:
        for partition in (0, 1):
            producer.produce(topic, b"x", partition=partition)
        producer.poll(0.005)

    started = time.monotonic()
    wait_until(lambda: sum(relay.accepted for relay in relays) >= connections, produce, WAIT_S)
    # Each refresh may change the address once, also the one after a closed connection.
    assert time.monotonic() - started > connections / 4 * refresh_s
    producer.close(0)


def test_coordinator_missing_from_metadata_is_looked_up_again_soon(
    mock_cluster_factory: Callable[..., Any], make_producer: Callable[..., Any], topic: str
) -> None:
    cluster = mock_cluster_factory(brokers=3)
    cluster.create_topic(topic, 1)
    cluster.set_partition_leader(topic, 0, 2)
    cluster.set_coordinator("transaction", topic, 1)
    producer = make_producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": topic,
            **MUCH_LATER,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    with producer.transaction():
        producer.produce(topic, b"x", partition=0)
    # Metadata omits the stopped broker, but FindCoordinator still names it.
    cluster.broker_down(1)
    while 1 in producer.list_topics(timeout=WAIT_S).brokers:
        producer.poll(0.05)
    cluster.start_request_tracking()
    cluster.wait_for_requests("FindCoordinator", 3)

    cluster.broker_up(1)
    with producer.transaction(timeout=LONGEST_S):
        producer.produce(topic, b"y", partition=0)
    producer.close()
