"""Queues during close, without partitions, and when a thread cannot start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import MakeProducer, Unique
from live import live_before
from machine import WAIT_S
from pip_services4_commons.errors import (
    ApplicationException,
    ConnectionException,
    InvalidStateException,
)
from pip_services_queues import ONE, Counters, MakeQueue, Receiver, bodies, received, receiving
from pip_services_rig import (
    Committed,
    Gate,
    Listener,
    MakeConnection,
    MakeReferences,
    Recorder,
    eventually,
    finish,
    in_thread,
)

from cykafka import KafkaError
from cykafka.testing import MockCluster, live_handles
from pip_services4_kafka.connect._session import Session
from pip_services4_kafka.queues import KafkaMessageQueue, _receiver
from pip_services4_kafka.queues._measures import Measures

pytestmark = pytest.mark.ours

# -- during close


def test_running_receiver_can_dead_letter_its_message_during_close(
    make_queue: MakeQueue,
    records: Callable[[str, int], list[Any]],
    committed: Committed,
    cluster: Any,
    topic: str,
) -> None:
    gate = Gate()
    raised: list[Exception] = []

    def then(message: Any, queue: Any) -> None:
        gate.hold()
        try:
            queue.move_to_dead_letter(message)
        except Exception as error:
            raised.append(error)

    cluster.create_topic(f"{topic}.dlq", 1)
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
    assert records(f"{topic}.dlq", 1)[0].value() == b"0"


def test_close_repeats_a_commit_that_fails_meanwhile(
    make_queue: MakeQueue, committed: Committed, cluster: Any
) -> None:
    queue = make_queue(**ONE, **{"options__kafka__auto.commit.interval.ms": 3_600_000})
    queue.send_batch(None, bodies(1))
    assert received(queue, 1) == ["0"]
    failure = KafkaError.TOPIC_AUTHORIZATION_FAILED
    cluster.push_request_errors("OffsetCommit", [failure])
    receiver = receiving(queue)
    cluster.set_rtt(500)
    try:
        assert receiver._commits.begin(receiver.session)
        queue.close(None)
    finally:
        cluster.set_rtt(0)
        cluster.clear_request_errors("OffsetCommit")
    assert committed() == {1: 1}


def test_connection_opened_during_its_close_is_open(
    make_connection: MakeConnection, topic: str, group: str
) -> None:
    connection = make_connection()
    gate = Gate()

    connection.subscribe(topic, group, {}, Listener(gate.hold))
    connection.publish(topic, [{"value": "x"}])
    gate.wait()
    closing = in_thread(connection.close)
    eventually(lambda: not connection._subscriptions)
    opening = in_thread(connection.open)
    opening.join(0.1)
    assert opening.is_alive()
    gate.open()
    finish(closing, opening)
    assert connection.is_open()
    assert topic in connection.read_queue_names()


def test_open_in_a_listener_that_close_waits_for_raises(
    make_connection: MakeConnection, topic: str, group: str
) -> None:
    connection = make_connection()
    entered, raised = threading.Event(), []

    def then(_: Any) -> None:
        entered.set()
        eventually(lambda: not connection._subscriptions)
        try:
            connection.open(None)
        except InvalidStateException as error:
            raised.append(error.code)

    connection.subscribe(topic, group, {}, Listener(then))
    connection.publish(topic, [{"value": "x"}])
    assert entered.wait(WAIT_S)
    closing = in_thread(connection.close)
    finish(closing)
    assert raised == ["NOT_OPEN"]
    assert not connection.is_open()


def test_open_in_the_thread_that_closes_raises(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may do this."""
    queue = make_queue()
    connection = queue._connection
    raised: list[str] = []

    def reopen(what: Any) -> None:
        try:
            what.open(None)
        except InvalidStateException as error:
            raised.append(error.code)

    unsubscribe_all, end = connection.unsubscribe_all, connection._end_sessions

    def in_queue(listener: Any) -> None:
        reopen(queue)
        unsubscribe_all(listener)

    def in_connection(*arguments: Any) -> None:
        if connection._closing:
            reopen(connection)
        end(*arguments)

    monkeypatch.setattr(connection, "unsubscribe_all", in_queue)
    monkeypatch.setattr(connection, "_end_sessions", in_connection)
    closing = in_thread(queue.close)
    finish(closing)
    assert raised == ["NOT_OPENED", "NOT_OPEN"]
    monkeypatch.undo()
    queue.open(None)
    assert queue.is_open()


@pytest.mark.parametrize("autocommit", [False, True])
def test_close_ends_with_dead_brokers(
    make_queue: MakeQueue, mock_cluster: MockCluster, logger: Recorder, autocommit: bool
) -> None:
    mock_cluster.create_topic("t", 1)
    queue = make_queue(
        topic="t",
        autocommit=autocommit,
        connection__uri=mock_cluster.bootstrap_servers,
        options__request_timeout=3000,
        # librdkafka tries to leave the group for as long as a session lasts.
        **{"options__kafka__group.protocol": None, "options__kafka__session.timeout.ms": 1000},
    )
    queue.send_batch(None, bodies(3))
    received(queue, 1)
    mock_cluster.broker_down()
    begin = time.monotonic()
    queue.close(None)
    assert time.monotonic() - begin < 3 + 2.5, "longer than one request_timeout with a margin"
    eventually(lambda: not any("kafka-session" in t.name for t in threading.enumerate()))
    assert "cannot commit partitions [0]" in logger.all() or not autocommit


def test_close_waits_for_all_stuck_subscriptions_at_once(
    make_connection: MakeConnection, unique: Unique, cluster: Any, logger: Recorder
) -> None:
    connection = make_connection(options__request_timeout=2000)
    go_on = threading.Event()
    listeners = [Listener(lambda _: go_on.wait(WAIT_S)) for _ in range(3)]
    for listener in listeners:
        name = unique("stuck")
        cluster.create_topic(name, 1)
        connection.subscribe(name, name, {}, listener)
        connection.publish(name, [{"value": "x"}])
    for listener in listeners:
        listener.wait(1)
    sessions = [item._session for item in connection._subscriptions]
    begin = time.monotonic()
    connection.close(None)
    assert 2 <= time.monotonic() - begin < 5
    assert logger.all().count("did not end") == 3
    go_on.set()
    assert all(session.stop(WAIT_S) for session in sessions)


# -- without partitions


def test_message_count_is_the_groups_lag_without_partitions(make_queue: MakeQueue) -> None:
    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(5))
    received(queue, 2)
    assert queue.read_message_count() == 3
    receiver = receiving(queue)
    numbers = sorted(receiver.session.assigned())
    receiver.lost(numbers)
    assert queue.read_message_count() == 5
    receiver.assigned(numbers)
    queue.send_batch(None, bodies(1, 5))
    received(queue, 1)
    assert queue.read_message_count() == 0


def test_message_count_raises_while_brokers_are_down(
    make_queue: MakeQueue, mock_cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mock_cluster.create_topic("t", 1)
    queue = make_queue(
        topic="t",
        connection__uri=mock_cluster.bootstrap_servers,
        options__retry_timeout=200,
    )
    queue.send_batch(None, bodies(3))
    received(queue, 1)
    assert queue.read_message_count() == 2
    monkeypatch.setattr(_receiver, "_REQUEST_S", 0.5)
    mock_cluster.broker_down()
    with pytest.raises(ConnectionException):
        queue.read_message_count()
    mock_cluster.broker_up()

    def again() -> bool:
        try:
            return bool(queue.read_message_count() == 2)
        except ApplicationException:
            return False

    eventually(again)
    queue.close(None)


# -- without a thread


def test_subscription_whose_thread_cannot_start_leaves_no_consumer(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    before = live_before()["handles"]

    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ApplicationException, match="can't start new thread"):
            queue.peek(None)
    assert live_handles()["handles"] == before
    assert queue._connection._subscriptions == []
    assert queue.peek(None) is None


@pytest.fixture
def interrupted_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A signal comes while Thread.start() waits for the thread that it has started."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        yield


def test_subscription_whose_start_is_interrupted_ends(
    make_queue: MakeQueue, request: pytest.FixtureRequest
) -> None:
    queue = make_queue()
    before, threads = live_before()["handles"], threading.active_count()
    request.getfixturevalue("interrupted_start")

    with pytest.raises(KeyboardInterrupt):
        queue.peek(None)

    eventually(lambda: threading.active_count() == threads)
    assert live_handles()["handles"] == before
    assert queue._connection._subscriptions == []


# -- unreadable messages


@pytest.mark.parametrize("autocommit", [False, True])
def test_unreadable_messages_are_committed_and_logged_once_per_batch(
    make_queue: MakeQueue,
    make_producer: MakeProducer,
    make_references: MakeReferences,
    committed: Committed,
    counters: Counters,
    logger: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    autocommit: bool,
) -> None:
    class Picky(KafkaMessageQueue):
        def _to_message(self, msg: Any) -> Any:
            if msg.value() == b"bad":
                raise ValueError("picky")
            return super()._to_message(msg)

    commits: list[Any] = []
    calls: list[int] = []
    commit, failed = Session.commit, Measures.failed

    def counted(self: Any, positions: Any) -> None:
        commits.append(positions)
        commit(self, positions)

    def callback(self: Any, count: int = 1) -> None:
        calls.append(count)
        failed(self, count)

    monkeypatch.setattr(Session, "commit", counted)
    monkeypatch.setattr(Measures, "failed", callback)
    producer = make_producer()
    for _ in range(300):
        producer.produce(topic, b"bad", partition=1)
    producer.flush()
    queue = make_queue(
        Picky,
        autocommit=autocommit,
        options__max_attempts=0,
        references=make_references(counters=counters),
        **ONE,
    )
    queue.send_batch(None, bodies(1))
    assert received(queue, 1) == ["0"]
    queue.close(None)
    assert committed() == {1: 301 if autocommit else 300}
    batches = len(calls)
    assert sum(calls) == 300 == counters.value(f"queue.{topic}.failed_messages")
    assert batches < 20
    assert len(commits) <= batches + 1
    lines = [text for _, text, _ in logger.lines if "cannot read the message" in text]
    assert len(lines) == batches
