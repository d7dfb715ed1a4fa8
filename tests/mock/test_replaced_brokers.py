"""All brokers of a client are gone, or replaced by others behind the same bootstrap address.

Both cases need librdkafka's `rd_atomic32_set()` to return the old value. Its CMake build returns
the new one. The new brokers have the old ids, but other addresses: see patch 0013.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S
from relay import (
    API_VERSIONS,
    FIND_COORDINATOR,
    METADATA,
    Relay,
    serving,
    switch_to,
    without_broker,
)
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
    kafka: Any, request: pytest.FixtureRequest, wait_until: WaitUntil, kind: str
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
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    unique: Unique,
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
    moving: MovingBroker, make_producer: MakeProducer, topic: str
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
    make_consumer: MakeConsumer,
    make_producer: MakeProducer,
    topic: str,
    wait_until: WaitUntil,
) -> None:
    group_commits_at_both_addresses(moving, topic, make_producer, make_consumer, wait_until)


def test_transactions_follow_their_coordinator_to_a_new_address(
    moving: MovingBroker, make_producer: MakeProducer, topic: str
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


def test_transaction_coordinator_keeps_its_address_if_metadata_is_old(
    two_names: TwoNames, make_producer: MakeProducer, topic: str
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
    make_producer: MakeProducer,
    topic: str,
    wait_until: WaitUntil,
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
    mock_cluster_factory: Callable[..., Any], make_producer: MakeProducer, topic: str
) -> None:
    cluster = mock_cluster_factory(brokers=3)
    cluster.create_topic(topic, 1)
    cluster.set_partition_leader(topic, 0, 2)
    cluster.set_coordinator("transaction", topic, 1)
    producer = make_producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": topic,
            "reconnect.backoff.ms": 500,
            "reconnect.backoff.max.ms": 60_000,
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


class Hiding(Renaming):
    """Leaves a broker out of its metadata answers, if one is set."""

    hidden = ""

    def answer(self, request: int, answer: bytes) -> bytes:
        if request == METADATA and self.hidden:
            answer = without_broker(answer, _packed(self.hidden))
        return super().answer(request, answer)


class Lost(Hiding):
    """Gives no metadata answer that names a topic before `go_on` is set. It may die instead."""

    def __init__(self, *arguments: Any, topic: str, dies: bool) -> None:
        super().__init__(*arguments)
        self.topic, self.dies = topic.encode(), dies
        self.asked, self.go_on = threading.Event(), threading.Event()

    def answer(self, request: int, answer: bytes) -> bytes:
        if request == METADATA and self.topic in answer:
            self.asked.set()
            if self.dies:
                self.end()
            else:
                self.go_on.wait(WAIT_S)
        return super().answer(request, answer)


class OnceAsked(Hiding):
    """Gives its metadata answers after another broker was asked for the topic. The client may ask
    this one first. Then its connections end, and the client turns to the other."""

    def __init__(self, *arguments: Any, asked: threading.Event) -> None:
        super().__init__(*arguments)
        self.asked = asked

    def answer(self, request: int, answer: bytes) -> bytes:
        if request == METADATA and not self.asked.wait(1):
            self.cut()
        return super().answer(request, answer)


# Only with a pattern the client always asks the coordinator for the brokers when it connects.
@pytest.mark.parametrize(("pattern", "dies"), [(True, False), (True, True), (False, True)])
def test_group_is_joined_soon_if_the_broker_of_the_request_is_lost(
    mock_cluster_factory: Callable[..., Any],
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    pattern: bool,
    dies: bool,
) -> None:
    cluster = mock_cluster_factory(brokers=2)
    have_same_records([cluster], topic, make_producer)
    cluster.set_partition_leader(topic, 0, 2)
    cluster.set_coordinator("group", topic, 2)
    first, second = cluster.bootstrap_servers.split(",")
    names: dict[str, list[str]] = {}
    addresses = {METADATA: names, FIND_COORDINATOR: names}
    with (
        serving(Lost(first, addresses, topic=topic, dies=dies)) as lost,
        serving(OnceAsked(second, addresses, asked=lost.asked)) as coordinator,
    ):
        names.update({first: [lost.bootstrap_servers], second: [coordinator.bootstrap_servers]})
        lost.hidden = second  # so that the first broker is asked
        if not dies:
            coordinator.hidden = first
        consumer = make_consumer(
            {"bootstrap.servers": lost.bootstrap_servers, "group.id": topic, "log_level": 0}
        )
        consumer.subscribe([f"^{topic}$" if pattern else topic])
        message = consumer.poll(LONGEST_S)
        lost.go_on.set()
        consumer.close()
        assert lost.asked.is_set()
        assert message is not None
        assert (message.error(), message.value()) == (None, b"first")


@pytest.mark.parametrize("keeps", [False, True])
def test_new_topics_are_joined_if_the_broker_of_the_request_is_lost(
    mock_cluster_factory: Callable[..., Any],
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    wait_until: WaitUntil,
    topic: str,
    keeps: bool,
) -> None:
    cluster = mock_cluster_factory(brokers=2)
    new = f"{topic}-new"
    for name, leader in ((topic, 1), (new, 2)):
        have_same_records([cluster], name, make_producer)
        cluster.set_partition_leader(name, 0, leader)
    cluster.set_coordinator("group", topic, 1)
    consumer = make_consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers.split(",")[0],
            "group.id": topic,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 6000,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    assert consumer.poll(WAIT_S).topic() == topic
    cluster.start_request_tracking()
    cluster.set_rtt(3000, 1)
    consumer.subscribe([topic, new] if keeps else [new])
    cluster.wait_for_requests("Metadata")
    cluster.set_coordinator("group", topic, 2)
    cluster.set_partition_leader(topic, 0, 2)
    cluster.broker_down(1)

    def read() -> bool:
        message = consumer.poll(0.1)
        return message is not None and not message.error() and message.topic() == new

    wait_until(read, lambda: None)
    consumer.close()
