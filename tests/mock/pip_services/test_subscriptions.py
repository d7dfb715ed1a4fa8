"""Subscriptions: messages reach the listener, also after errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from fixture_types import Unique
from pip_services_rig import (
    COMES_BACK,
    BatchListener,
    Committed,
    Listener,
    MakeConnection,
    Recorder,
    eventually,
)

from cykafka import KafkaError
from cykafka.testing import MockCluster
from pip_services4_kafka.connect import KafkaConnection

pytestmark = pytest.mark.ours


# -- messages that reach a listener


def test_null_keys_values_headers_and_bytes_reach_the_listener(
    connection: KafkaConnection, topic: str, group: str
) -> None:
    listener = Listener()
    connection.subscribe(topic, group, {}, listener)
    connection.publish(
        topic,
        [
            {"value": None, "key": None, "headers": {"trace_id": None}, "partition": 0},
            {"value": b"\xff\xfe", "key": b"\xff", "partition": 0},
            {"value": "x", "partition": 0},
        ],
    )

    assert listener.wait(3) == [None, b"\xff\xfe", b"x"]


def test_subscribe_does_not_change_the_options(
    connection: KafkaConnection, topic: str, group: str
) -> None:
    options = {"from_beginning": "beginning", "enable.auto.commit": False}
    listener = Listener()
    connection.subscribe(topic, group, options, listener)
    [subscription] = connection._subscriptions

    assert options == {"from_beginning": "beginning", "enable.auto.commit": False}
    assert (subscription.topic, subscription.group_id) == (topic, group)
    assert subscription.listener is listener
    assert subscription.options["enable.auto.commit"] is False
    assert subscription.handler.configuration()["enable.auto.commit"] == "false"


def test_group_none_means_default(connection: KafkaConnection, topic: str) -> None:
    listener = Listener()
    connection.subscribe(topic, None, None, listener)
    [subscription] = connection._subscriptions

    assert subscription.group_id is None
    assert subscription.handler.configuration()["group.id"] == "default"
    connection.unsubscribe(topic, "default", listener)
    assert connection._subscriptions == []


def test_many_subscriptions_share_a_connection_without_cross_talk(
    connection: KafkaConnection, cluster: Any, unique: Unique
) -> None:
    topics = [unique("shared") for _ in range(6)]
    listeners = []
    for name in topics:
        cluster.create_topic(name, 1)
        listeners.append(Listener())
        connection.subscribe(name, unique("group"), {}, listeners[-1])
    for name in topics:
        connection.publish(name, [{"value": f"{name}-{number}"} for number in range(20)])

    for name, listener in zip(topics, listeners, strict=True):
        assert listener.wait(20) == [f"{name}-{number}".encode() for number in range(20)]


def test_ended_subscription_gets_no_messages_and_others_continue(
    connection: KafkaConnection, topic: str, unique: Unique
) -> None:
    ended, other = Listener(), Listener()
    connection.subscribe(topic, unique("group"), {}, other)
    name = unique("group")
    connection.subscribe(topic, name, {}, ended)
    connection.publish(topic, [{"value": "1"}])
    ended.wait(1)
    connection.unsubscribe(topic, name, ended)
    connection.unsubscribe(topic, name, ended)
    connection.publish(topic, [{"value": "2"}])

    other.wait(2)
    assert ended.values() == [b"1"]
    assert len(connection._subscriptions) == 1


def test_only_readable_partitions_are_read_and_committed(
    make_connection: MakeConnection, topic: str, group: str, committed: Committed
) -> None:
    connection = make_connection(options__readable_partitions="1,3")
    listener = Listener()
    connection.subscribe(topic, group, {}, listener)
    connection.publish(
        topic, [{"value": f"{number % 4}", "partition": number % 4} for number in range(40)]
    )
    assert sorted(listener.wait(20)) == [b"1"] * 10 + [b"3"] * 10
    connection.close(None)

    assert committed(topic, group) == {1: 10, 3: 10}
    connection.open(None)
    again = Listener()
    connection.subscribe(topic, group, {}, again)
    connection.publish(topic, [{"value": "new", "partition": 3}])
    assert again.wait(1) == [b"new"]


# -- reading continues after errors


def test_listener_that_raises_gets_the_next_message(
    connection: KafkaConnection, topic: str, group: str, logger: Recorder
) -> None:
    def fail(message: Any) -> None:
        raise LookupError(f"no {message.value().decode()}")

    listener = Listener(fail)
    connection.subscribe(topic, group, {}, listener)
    connection.publish(topic, [{"value": str(number), "partition": 0} for number in range(3)])

    assert listener.wait(3) == [b"0", b"1", b"2"]
    connection.close(None)
    found = [error for _, text, error in logger.lines if "the listener raised" in text]
    assert len(found) == 1  # repeated errors are logged only now and then
    assert isinstance(found[0], LookupError)


def test_message_whose_listener_raised_is_redelivered_after_a_restart(
    connection: KafkaConnection, topic: str, group: str
) -> None:
    def fail(message: Any) -> None:
        raise LookupError

    first, second = Listener(fail), Listener()
    connection.subscribe(topic, group, COMES_BACK, first)
    connection.publish(topic, [{"value": "x"}])
    first.wait(1)
    connection.unsubscribe(topic, group, first)
    connection.subscribe(topic, group, COMES_BACK, second)

    assert second.wait(1) == [b"x"]


def test_consumer_error_is_logged_and_reading_continues(
    make_connection: MakeConnection, mock_cluster: MockCluster, logger: Recorder
) -> None:
    mock_cluster.create_topic("t", 1)
    connection = make_connection(connection__uri=mock_cluster.bootstrap_servers)
    listener = BatchListener()
    connection.subscribe("t", "g", {}, listener)
    connection.publish("t", [{"value": "1"}])
    eventually(lambda: listener.values == [b"1"])
    # Two errors, because the mock's answer has the end of the partition beside the error. When
    # librdkafka first gets there it reports the end instead. A real broker answers -1 for the end.
    mock_cluster.push_request_errors("Fetch", [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2)
    eventually(lambda: KafkaError.TOPIC_AUTHORIZATION_FAILED in listener.of("error"))
    connection.publish("t", [{"value": "2"}])

    eventually(lambda: listener.values == [b"1", b"2"])
    assert "consumer error; the subscription continues" in logger.all()
    connection.close(None)  # while the brokers are up, so that it can leave the group


def test_reading_continues_after_brokers_come_back(
    make_connection: MakeConnection, mock_cluster: MockCluster
) -> None:
    mock_cluster.create_topic("t", 1)
    connection = make_connection(connection__uri=mock_cluster.bootstrap_servers)
    listener = Listener()
    connection.subscribe("t", "g", {}, listener)
    connection.publish("t", [{"value": "1"}])
    listener.wait(1)
    mock_cluster.broker_down()
    mock_cluster.broker_up()
    connection.publish("t", [{"value": "2"}])

    assert listener.wait(2, 30) == [b"1", b"2"]
    connection.close(None)  # while the brokers are up, so that it can leave the group


CLASSIC = {
    "group.instance.id": "one",
    "heartbeat.interval.ms": 100,
    "session.timeout.ms": 1500,
}


@pytest.mark.parametrize(
    ("options", "request_name", "error"),
    [
        (CLASSIC, "Heartbeat", KafkaError.FENCED_INSTANCE_ID),
        # Somebody deleted the group: fatal since librdkafka 2.15.
        (COMES_BACK, "ConsumerGroupHeartbeat", KafkaError.GROUP_ID_NOT_FOUND),
    ],
    ids=["fenced member", "deleted group"],
)
def test_consumer_with_a_fatal_error_is_replaced(
    make_connection: MakeConnection,
    mock_cluster_factory: Callable[..., Any],
    options: dict[str, Any],
    request_name: str,
    error: int,
) -> None:
    mock_cluster = mock_cluster_factory(group_consumer_heartbeat_interval_ms=100)
    mock_cluster.create_topic("t", 2)
    connection = make_connection(connection__uri=mock_cluster.bootstrap_servers)
    listener = BatchListener()
    connection.subscribe("t", "g", options, listener)
    [subscription] = connection._subscriptions
    eventually(lambda: listener.of("assigned"))
    first = subscription.handler
    mock_cluster.push_request_errors(request_name, [error])
    eventually(lambda: len(listener.of("assigned")) > 1)
    connection.publish("t", [{"value": "x"}])

    eventually(lambda: listener.values == [b"x"])
    assert subscription.handler is not first
    assert sorted(chain.from_iterable(listener.of("lost") + listener.of("revoked"))) == [0, 1]
    connection.close(None)  # while the brokers are up, so that it can leave the group


def test_consumer_that_the_caller_closed_is_replaced(
    connection: KafkaConnection, topic: str, group: str
) -> None:
    listener = Listener()
    connection.subscribe(topic, group, COMES_BACK, listener)
    connection.publish(topic, [{"value": "1"}])
    listener.wait(1)
    connection._subscriptions[0].handler.close()
    connection.publish(topic, [{"value": "2"}])

    assert listener.wait(2)[-1] == b"2"
