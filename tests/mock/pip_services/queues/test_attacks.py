"""Queues under misuse: odd sequences of calls that applications make by accident."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fixture_types import Unique
from machine import WAIT_S
from pip_services4_commons.errors import ApplicationException, BadRequestException
from pip_services_queues import ONE, MakeQueue, Receiver, bodies, envelope, received, receiving
from pip_services_rig import (
    Committed,
    Gate,
    MakeConnection,
    MakeReferences,
    eventually,
    finish,
    in_thread,
)

from pip_services4_kafka.connect import KafkaConnection
from pip_services4_kafka.queues import KafkaMessageQueue
from pip_services4_kafka.queues._listener import Listener

pytestmark = pytest.mark.ours


def test_close_during_a_batch_skips_no_unhandled_message(
    make_queue: MakeQueue, committed: Committed, topic: str
) -> None:
    gate = Gate()

    class Hearing(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any) -> None:
            if message.value() == b"5":
                gate.hold()
            super().on_message(topic, partition, message)

    queue = make_queue(Hearing, **ONE)
    queue.send_batch(None, bodies(10))
    assert received(queue, 5) == ["0", "1", "2", "3", "4"]
    gate.wait()
    closing = in_thread(queue.close)
    eventually(lambda: not queue.is_open())
    gate.open()
    finish(closing)
    assert committed() == {1: 5}


@pytest.mark.parametrize("autocommit", [True, False])
def test_message_of_another_topic_completes_nothing_in_this_queue(
    make_queue: MakeQueue,
    unique: Unique,
    cluster: Any,
    committed: Committed,
    topic: str,
    autocommit: bool,
) -> None:
    other = unique("other")
    cluster.create_topic(other, 4)
    cluster.create_topic(f"{topic}.dlq", 1)
    queue = make_queue(autocommit=autocommit, **ONE)
    elsewhere = make_queue(topic=other, group_id=unique("group"), **ONE)
    for sender in (queue, elsewhere):
        sender.send_batch(None, bodies(2))
    foreign = [elsewhere.receive(None, 30_000) for _ in range(2)]
    assert received(queue, 2) == ["0", "1"]
    for message in foreign:
        queue.complete(None, message)
        queue.abandon(None, message)
        with pytest.raises(BadRequestException, match="got one from topic"):
            queue.move_to_dead_letter(None, message)
    assert queue.receive(None, 50) is None  # abandon() had no effect
    queue.close(None)
    assert committed() == {1: 2 if autocommit else 0}


def test_two_listeners_of_a_queue_may_end_at_once(make_queue: MakeQueue) -> None:
    both = threading.Barrier(2, timeout=WAIT_S)

    def then(_: Any, queue: Any) -> None:
        both.wait()
        queue.end_listen(None)

    queue = make_queue()
    receivers = Receiver(then), Receiver(then)
    for receiver in receivers:
        queue.begin_listen(None, receiver)
    messages = [{"value": str(n), "partition": n} for n in range(2)]
    queue._connection.publish(queue._get_topic(), messages)
    assert [len(receiver.wait(1)) for receiver in receivers] == [1, 1]
    eventually(lambda: queue._receiver is None)


@pytest.mark.parametrize("wait", [2**63 - 1, 1e300, float("inf")])
def test_receive_with_an_unlimited_timeout_waits_for_a_message(
    make_queue: MakeQueue, wait: float
) -> None:
    queue = make_queue()
    later = threading.Timer(0.1, lambda: queue.send(None, envelope("at last")))
    later.start()
    assert queue.receive(None, wait).get_message_as_string() == "at last"


def test_interrupted_close_leaves_no_session(
    make_queue: MakeQueue,
    make_references: MakeReferences,
    make_connection: MakeConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = make_connection()
    queue = make_queue(references=make_references(connection=connection))
    queue.send_batch(None, bodies(1))
    receiver = Receiver()
    queue.begin_listen(None, receiver)
    receiver.wait(1)

    def interrupted(*_: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Listener, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.close(None)
    assert not connection._subscriptions
    eventually(lambda: not any("kafka-session" in t.name for t in threading.enumerate()))


def test_interrupted_close_of_a_connection_closes_it(
    connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_end_sessions", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.close(None)
    monkeypatch.undo()
    assert not connection.is_open()
    connection.open(None)
    assert connection.read_queue_names() is not None


def test_queue_opened_during_its_close_is_open(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.send_batch(None, bodies(1))
    assert received(queue, 1) == ["0"]
    gate = Gate()
    connection = queue._connection

    def slowly(listener: Any) -> None:
        gate.hold()
        del connection.unsubscribe_all
        connection.unsubscribe_all(listener)

    connection.unsubscribe_all = slowly
    in_thread(queue.close)
    gate.wait()
    # As if the call had waited since before close().
    assert queue._open_unless_closing(None) is False
    opening = in_thread(queue.open)
    gate.open()
    opening.join(WAIT_S)
    assert queue.is_open()
    assert queue._connection.is_open()
    queue.send_batch(None, bodies(1, 1))
    assert received(queue, 1) == ["1"]


def test_dead_letters_over_a_closed_connection_raise_a_typed_error(
    make_queue: MakeQueue, cluster: Any, topic: str
) -> None:
    cluster.create_topic(f"{topic}.dlq", 1)
    queue = make_queue()
    queue.send_batch(None, bodies(1))
    envelope = queue.receive(None, 30_000)
    queue._connection.get_producer().close()  # as another thread's close() does at this moment
    with pytest.raises(ApplicationException):
        queue.move_to_dead_letter(envelope)


@pytest.mark.parametrize("hears", [False, True])
@pytest.mark.parametrize("autocommit", [False, True])
def test_partition_with_a_new_log_restarts(
    make_queue: MakeQueue, committed: Committed, topic: str, hears: bool, autocommit: bool
) -> None:
    class Hearing(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any) -> None:
            super().on_message(topic, partition, message)

    kind = Hearing if hears else KafkaMessageQueue
    queue = make_queue(kind, autocommit=autocommit, **ONE)
    queue.send_batch(None, bodies(5))
    assert received(queue, 5) == ["0", "1", "2", "3", "4"]
    # librdkafka does this after the topic was deleted and created again.
    receiving(queue).session.seek(1, 0)
    again = [queue.receive(None, 30_000) for _ in range(3)]
    assert [e.get_message_as_string() for e in again] == ["0", "1", "2"]
    for message in again[:2]:
        queue.complete(None, message)
    queue.close(None)
    assert committed() == {1: 3 if autocommit else 2}


def test_refetched_messages_after_an_unfinished_one_are_delivered_once(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(5))
    assert received(queue, 5) == ["0", "1", "2", "3", "4"]
    receiving(queue).session.seek(1, 2)
    queue.send_batch(None, bodies(1, 5))
    assert received(queue, 1) == ["5"]


def test_signal_handler_may_complete_a_message_during_a_commit(
    make_queue: MakeQueue, committed: Committed
) -> None:
    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(2))
    first, second = (queue.receive(None, 30_000) for _ in range(2))
    session = receiving(queue).session
    commit = session.commit

    def interrupted(positions: Any) -> None:
        session.commit = commit
        commit(positions)
        queue.complete(None, second)  # as a handler that runs in this thread does

    session.commit = interrupted
    completing = in_thread(lambda: queue.complete(None, first))
    finish(completing)
    queue.close(None)
    assert committed() == {1: 2}
