"""Queues whose application makes concurrent calls, or calls in an unusual order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pip_services4_commons.errors import InvalidStateException
from pip_services_rig import in_thread

from cykafka import Consumer
from pip_services4_kafka.connect import _clients
from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = pytest.mark.ours

ONE = {"options__write_partition": 1}


def test_abandoned_message_is_redelivered_after_a_restart_despite_a_commit(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    committed: Callable[..., Any],
    eventually: Callable[..., Any],
    topic: str,
    group: str,
) -> None:
    queue = make_queue(**{"options__kafka__auto.commit.interval.ms": 10}, **ONE)
    queue.send_batch(None, bodies(1))
    envelope = queue.receive(None, 30000)
    eventually(lambda: committed(topic, group) == {1: 1})
    queue.abandon(envelope)
    # Its process may die now.
    eventually(lambda: committed(topic, group) == {1: 0})
    queue.close(None)
    queue.open(None)
    assert received(queue, 1) == ["0"]


def test_subclass_with_its_own_subscribe_gets_messages(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    committed: Callable[..., Any],
    topic: str,
    group: str,
) -> None:
    class Subscribing(KafkaMessageQueue):
        def _subscribe(self, context: Any = None) -> None:
            if not self._subscribed:
                options = {"enable.auto.commit": self._auto_commit}
                self._connection.subscribe(self._get_topic(), self._group_id, options, self)
                self._subscribed = True

    queue = make_queue(Subscribing, **ONE)
    queue.send_batch(None, bodies(3))
    assert received(queue, 2) == ["0", "1"]
    queue.close(None)
    assert committed(topic, group) == {1: 2}
    queue.open(None)
    assert received(queue, 1) == ["2"]


def test_running_receiver_can_complete_its_message_during_close(
    make_queue: Callable[..., Any],
    make_receiver: Callable[..., Any],
    bodies: Callable[..., Any],
    committed: Callable[..., Any],
    eventually: Callable[..., Any],
    topic: str,
    group: str,
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    raised = []

    def then(message: Any, queue: Any) -> None:
        entered.set()
        assert go_on.wait(30)
        try:
            queue.complete(message)
        except Exception as error:
            raised.append(error)

    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(1))
    queue.begin_listen(None, make_receiver(then))
    assert entered.wait(30)
    closing = in_thread(lambda: queue.close(None))
    eventually(lambda: not queue.is_open())
    go_on.set()
    closing.join(30)
    assert not closing.is_alive()
    assert raised == []
    assert committed(topic, group) == {1: 1}


def test_messages_in_on_message_during_close_are_redelivered(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    called, go_on = threading.Event(), threading.Event()

    class Hearing(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any) -> None:
            if message.value() == b"1":
                called.set()
                assert go_on.wait(30)
            super().on_message(topic, partition, message)

    queue = make_queue(Hearing, **ONE)
    queue.send_batch(None, bodies(3))
    assert received(queue, 1) == ["0"]
    assert called.wait(30)
    closing = in_thread(lambda: queue.close(None))
    eventually(lambda: not queue.is_open())
    go_on.set()
    closing.join(30)
    queue.open(None)
    assert received(queue, 2) == ["1", "2"]


def test_close_in_the_thread_that_subscribes_ends_the_subscription(
    connection: Any, make_listener: Callable[..., Any], topic: str, monkeypatch: Any
) -> None:
    """A signal handler may do this."""
    raised = []

    def close_first(config: dict[str, Any]) -> Any:
        made = Consumer(config)
        connection.close(None)
        return made

    def subscribe() -> None:
        try:
            connection.subscribe(topic, "group", {}, make_listener())
        except InvalidStateException as error:
            raised.append(error.code)

    monkeypatch.setattr(_clients, "Consumer", close_first)
    thread = in_thread(subscribe)
    thread.join(20)
    assert raised == ["NOT_OPEN"]
    assert not connection.is_open()
    assert connection._subscriptions == []
