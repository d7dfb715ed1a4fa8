"""Connections where only real Kafka can judge: topics, partitions, groups, restarts."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, Read, Unique
from machine import WAIT_S, wake_up_s
from pip_services4_commons.errors import (
    BadRequestException,
    ConflictException,
    ConnectionException,
    NotFoundException,
)
from pip_services_rig import Committed, Listener, MakeConnection, eventually

from pip_services4_kafka.connect import KafkaConnection

pytestmark = pytest.mark.ours


def test_topics_are_created_as_configured_and_deleted(
    make_connection: MakeConnection, unique: Unique, admin: Any
) -> None:
    connection, name = make_connection(options__num_partitions=3), unique("made")
    connection.create_queue(name)

    eventually(lambda: name in connection.read_queue_names())
    assert len(admin.list_topics(name, WAIT_S).topics[name].partitions) == 3
    connection.delete_queue(name)
    eventually(lambda: name not in connection.read_queue_names())


def test_creating_a_topic_that_exists_is_a_conflict(
    connection: KafkaConnection, topic: str
) -> None:
    with pytest.raises(ConflictException) as caught:
        connection.create_queue(topic)

    assert caught.value.code == "TOPIC_ALREADY_EXISTS"
    assert caught.value.details.get("topic") == topic


def test_too_many_replicas_are_refused_with_the_reason(
    make_connection: MakeConnection, unique: Unique
) -> None:
    connection = make_connection(options__replication_factor=77)
    with pytest.raises(BadRequestException) as caught:
        connection.create_queue(unique("t"))

    assert caught.value.code == "INVALID_REPLICATION_FACTOR"


def test_deleting_a_missing_topic_raises(connection: KafkaConnection, unique: Unique) -> None:
    with pytest.raises(NotFoundException) as caught:
        connection.delete_queue(unique("missing"))

    assert caught.value.code == "UNKNOWN_TOPIC_OR_PART"


def test_brokers_decide_which_message_is_too_large(
    connection: KafkaConnection, topic: str, make_consumer: MakeConsumer, read: Read
) -> None:
    sizes = [1, 1_048_000, 1_100_000, 2]
    messages = [{"value": b"x" * size, "partition": 0} for size in sizes]
    with pytest.raises(BadRequestException) as caught:
        connection.publish(topic, messages)

    assert caught.value.code == "MSG_SIZE_TOO_LARGE"
    assert caught.value.details.get("indices") == "2"
    consumer = make_consumer()
    consumer.subscribe([topic])
    assert [len(record.value()) for record in read(consumer, 3)] == [1, 1_048_000, 2]


def test_new_group_reads_messages_sent_before_and_after_it_subscribed(
    connection: KafkaConnection, topic: str, unique: Unique, committed: Committed
) -> None:
    group, listener = unique("group"), Listener()
    connection.publish(topic, [{"value": "before", "partition": 0}] * 3)
    connection.subscribe(topic, group, {}, listener)
    listener.wait(3)
    connection.publish(topic, [{"value": "after", "partition": 1}] * 3)

    assert listener.wait(6) == [b"before"] * 3 + [b"after"] * 3
    connection.close(None)
    assert committed(topic, group) == {0: 3, 1: 3}


def test_only_readable_partitions_are_read_and_committed(
    make_connection: MakeConnection, topic: str, unique: Unique, committed: Committed
) -> None:
    connection = make_connection(options__readable_partitions="1;3")
    group, listener = unique("group"), Listener()
    connection.subscribe(topic, group, {}, listener)
    connection.publish(topic, [{"value": str(n % 4), "partition": n % 4} for n in range(40)])

    assert sorted(listener.wait(20)) == [b"1"] * 10 + [b"3"] * 10
    connection.close(None)
    assert committed(topic, group) == {1: 10, 3: 10}


def test_group_shares_partitions_and_takes_over_those_of_a_lost_member(
    make_connection: MakeConnection, topic: str, unique: Unique
) -> None:
    group = unique("group")
    connections = [make_connection(), make_connection()]
    listeners = [Listener(), Listener()]
    for connection, listener in zip(connections, listeners, strict=True):
        connection.subscribe(topic, group, {"heartbeat.interval.ms": 500}, listener)
    sessions = [connection._subscriptions[0]._session for connection in connections]
    eventually(lambda: all(len(session.assigned()) == 2 for session in sessions), WAIT_S)
    connections[0].publish(topic, [{"value": "x", "partition": number} for number in range(4)])
    for listener in listeners:
        listener.wait(2)
    connections[0].close(None)
    eventually(lambda: sessions[1].assigned() == {0, 1, 2, 3}, WAIT_S)
    connections[1].publish(topic, [{"value": "y", "partition": number} for number in range(4)])

    listeners[1].wait(6)
    assert listeners[1].values().count(b"y") == 4
    assert len(listeners[0].values()) == 2


@pytest.mark.alone
def test_message_reaches_a_waiting_listener_in_milliseconds(
    connection: KafkaConnection, topic: str, unique: Unique
) -> None:
    took: list[float] = []
    there = threading.Event()
    sent = 0.0

    def callback(_: Any) -> None:
        took.append(time.perf_counter() - sent)
        there.set()

    listener = Listener(callback)
    connection.subscribe(topic, unique("group"), {}, listener)
    connection.publish(topic, [{"value": "x", "partition": 0}])
    there.wait(WAIT_S)
    took.clear()
    for _ in range(50):
        there.clear()
        sent = time.perf_counter()
        connection.publish(topic, [{"value": "x", "partition": 0}])
        assert there.wait(WAIT_S)

    # This includes sending. The published package needed at least 40 ms for receiving alone.
    # Only the fastest quarter counts, because a busy machine delays the others.
    assert statistics.quantiles(took)[0] < 0.02 + 4 * wake_up_s()


def test_listener_and_sender_recover_when_the_broker_restarts(
    new_connection: MakeConnection, kafka_cluster_factory: Callable[..., Any]
) -> None:
    cluster = kafka_cluster_factory()
    cluster.create_topic("t", 1)
    connection = new_connection(
        connection__uri=cluster.bootstrap_servers,
        options__connect_timeout=20_000,
        options__retry_timeout=500,
        options__request_timeout=3000,
    )
    connection.open(None)
    listener = Listener()
    connection.subscribe("t", "g", {}, listener)
    connection.publish("t", [{"value": "1"}])
    listener.wait(1)
    [node] = cluster.nodes
    node.kill()
    with pytest.raises(ConnectionException):
        connection.publish("t", [{"value": "lost"}])
    node.start()

    def sent() -> bool:
        try:
            connection.publish("t", [{"value": "2"}])
        except ConnectionException:
            return False
        return True

    eventually(sent, WAIT_S)
    eventually(lambda: b"2" in listener.values(), WAIT_S)
