"""Queues whose application makes concurrent calls, or calls in an unusual order."""

from __future__ import annotations

from typing import Any

import pytest
from pip_services4_commons.errors import InvalidStateException
from pip_services_queues import ONE, MakeQueue, Receiver, bodies, received
from pip_services_rig import Committed, Gate, Listener, eventually, finish, in_thread

from cykafka import Consumer
from pip_services4_kafka.connect import KafkaConnection, _clients
from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = pytest.mark.ours


def test_abandoned_message_is_redelivered_despite_an_earlier_commit(
    make_queue: MakeQueue, committed: Committed
) -> None:
    queue = make_queue(**{"options__kafka__auto.commit.interval.ms": 10}, **ONE)
    queue.send_batch(None, bodies(1))
    envelope = queue.receive(None, 30000)
    eventually(lambda: committed() == {1: 1})
    queue.abandon(envelope)
    # Its process may die now.
    eventually(lambda: committed() == {1: 0})
    queue.close(None)
    queue.open(None)
    assert received(queue, 1) == ["0"]


def test_subclass_with_its_own_subscribe_gets_messages(
    make_queue: MakeQueue, committed: Committed
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
    assert committed() == {1: 2}
    queue.open(None)
    assert received(queue, 1) == ["2"]


def test_running_receiver_can_complete_its_message_during_close(
    make_queue: MakeQueue, committed: Committed
) -> None:
    gate = Gate()
    raised = []

    def then(message: Any, queue: Any) -> None:
        gate.hold()
        try:
            queue.complete(message)
        except Exception as error:
            raised.append(error)

    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(1))
    queue.begin_listen(None, Receiver(then))
    gate.wait()
    closing = in_thread(lambda: queue.close(None))
    eventually(lambda: not queue.is_open())
    gate.open()
    finish(closing)
    assert raised == []
    assert committed() == {1: 1}


def test_messages_in_on_message_during_close_are_redelivered(make_queue: MakeQueue) -> None:
    gate = Gate()

    class Hearing(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any) -> None:
            if message.value() == b"1":
                gate.hold()
            super().on_message(topic, partition, message)

    queue = make_queue(Hearing, **ONE)
    queue.send_batch(None, bodies(3))
    assert received(queue, 1) == ["0"]
    gate.wait()
    closing = in_thread(lambda: queue.close(None))
    eventually(lambda: not queue.is_open())
    gate.open()
    closing.join(30)
    queue.open(None)
    assert received(queue, 2) == ["1", "2"]


def test_close_in_the_thread_that_subscribes_ends_the_subscription(
    connection: KafkaConnection, topic: str, monkeypatch: Any
) -> None:
    """A signal handler may do this."""
    raised = []

    def close_first(config: dict[str, Any]) -> Any:
        made = Consumer(config)
        connection.close(None)
        return made

    def subscribe() -> None:
        try:
            connection.subscribe(topic, "group", {}, Listener())
        except InvalidStateException as error:
            raised.append(error.code)

    monkeypatch.setattr(_clients, "Consumer", close_first)
    thread = in_thread(subscribe)
    thread.join(20)
    assert raised == ["NOT_OPEN"]
    assert not connection.is_open()
    assert connection._subscriptions == []
