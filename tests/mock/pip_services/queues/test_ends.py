"""Queues during close, without partitions, and when a thread cannot start."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S
from pip_services4_commons.errors import (
    ApplicationException,
    ConnectionException,
    InvalidStateException,
)
from pip_services_rig import in_thread

from cykafka import TopicPartition
from cykafka.testing import live_handles
from pip_services4_kafka.connect._clients import Clients
from pip_services4_kafka.connect._reader import Reader
from pip_services4_kafka.queues import _counting
from pip_services4_kafka.queues._dead_letters import DeadLetters
from pip_services4_kafka.queues._measures import Measures

pytestmark = pytest.mark.ours

ONE = {"options__write_partition": 1}


# -- during close


@pytest.mark.parametrize("transactional", [False, True])
def test_running_receiver_can_dead_letter_its_message_during_close(
    make_queue: Callable[..., Any],
    make_receiver: Callable[..., Any],
    bodies: Callable[..., Any],
    make_consumer: Callable[..., Any],
    read: Callable[..., Any],
    committed: Callable[..., Any],
    eventually: Callable[..., Any],
    cluster: Any,
    topic: str,
    group: str,
    transactional: bool,
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    raised: list[Exception] = []

    def then(message: Any, queue: Any) -> None:
        entered.set()
        assert go_on.wait(WAIT_S)
        try:
            queue.move_to_dead_letter(message)
        except Exception as error:
            raised.append(error)

    cluster.create_topic(f"{topic}.dlq", 1)
    queue = make_queue(autocommit=False, options__transactional=transactional, **ONE)
    queue.send_batch(None, bodies(1))
    queue.begin_listen(None, make_receiver(then))
    assert entered.wait(WAIT_S)
    closing = in_thread(lambda: queue.close(None))
    eventually(lambda: queue._inbox._connection is None)
    go_on.set()
    closing.join(WAIT_S)

    assert not closing.is_alive()
    assert raised == []
    if not transactional:  # the mock keeps no offsets of transactions
        assert committed(topic, group) == {1: 1}
    consumer = make_consumer()
    consumer.subscribe([f"{topic}.dlq"])
    assert read(consumer, 1)[0].value() == b"0"
    assert queue._inbox._dead_letters is None


def test_connection_opened_during_its_close_is_open(
    make_connection: Callable[..., Any],
    make_listener: Callable[..., Any],
    eventually: Callable[..., Any],
    topic: str,
    group: str,
) -> None:
    connection = make_connection()
    entered, go_on = threading.Event(), threading.Event()

    def then(_: Any) -> None:
        entered.set()
        assert go_on.wait(WAIT_S)

    connection.subscribe(topic, group, {}, make_listener(then))
    connection.publish(topic, [{"value": "x"}])
    assert entered.wait(WAIT_S)
    closing = in_thread(connection.close)
    eventually(lambda: not connection._subscriptions)
    opening = in_thread(connection.open)
    opening.join(0.1)
    assert opening.is_alive()
    go_on.set()
    for thread in (closing, opening):
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert connection.is_open()
    assert topic in connection.read_queue_names()


def test_open_in_a_listener_that_close_waits_for_raises(
    make_connection: Callable[..., Any],
    make_listener: Callable[..., Any],
    eventually: Callable[..., Any],
    topic: str,
    group: str,
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

    connection.subscribe(topic, group, {}, make_listener(then))
    connection.publish(topic, [{"value": "x"}])
    assert entered.wait(WAIT_S)
    closing = in_thread(connection.close)
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert raised == ["NOT_OPEN"]
    assert not connection.is_open()


def test_open_in_the_thread_that_closes_raises(
    make_queue: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
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

    inbox_close, end = queue._inbox.close, connection._KafkaConnection__readers.end

    def in_queue() -> None:
        reopen(queue)
        inbox_close()

    def in_connection(*arguments: Any) -> None:
        reopen(connection)
        end(*arguments)

    monkeypatch.setattr(queue._inbox, "close", in_queue)
    monkeypatch.setattr(connection._KafkaConnection__readers, "end", in_connection)
    closing = in_thread(queue.close)
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert raised == ["NOT_OPENED", "NOT_OPEN"]
    monkeypatch.undo()
    queue.open(None)
    assert queue.is_open()


@pytest.mark.parametrize("autocommit", [False, True])
def test_close_ends_with_dead_brokers(
    make_queue: Callable[..., Any],
    mock_cluster: Any,
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    eventually: Callable[..., Any],
    logger: Any,
    autocommit: bool,
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
    eventually(lambda: not any("kafka-reader" in t.name for t in threading.enumerate()))
    assert "committing {0: 1} failed" in logger.all() or not autocommit


def test_close_waits_for_all_stuck_subscriptions_at_once(
    make_connection: Callable[..., Any],
    make_listener: Callable[..., Any],
    unique: Callable[[str], str],
    cluster: Any,
    logger: Any,
) -> None:
    connection = make_connection(options__request_timeout=2000)
    go_on = threading.Event()
    listeners = [make_listener(lambda _: go_on.wait(WAIT_S)) for _ in range(3)]
    for listener in listeners:
        name = unique("stuck")
        cluster.create_topic(name, 1)
        connection.subscribe(name, name, {}, listener)
        connection.publish(name, [{"value": "x"}])
    for listener in listeners:
        listener.wait(1)
    readers = [each._reader for each in connection._subscriptions]
    begin = time.monotonic()
    connection.close(None)
    assert 2 <= time.monotonic() - begin < 5
    assert logger.all().count("does not end") == 3
    go_on.set()
    assert all(reader.stop(WAIT_S) for reader in readers)


# -- without partitions


def test_message_count_is_the_lag_of_the_group_while_all_partitions_are_lost(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    topic: str,
) -> None:
    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(5))
    received(queue, 2)
    assert queue.read_message_count() == 3
    reader = queue._inbox.consuming().reader
    numbers = reader.assigned()
    places = [TopicPartition(topic, number) for number in numbers]
    reader._on_lose(reader.consumer, places)
    assert queue.read_message_count() == 5
    reader._on_assign(reader.consumer, places)
    queue.send_batch(None, bodies(1, 5))
    received(queue, 1)
    assert queue.read_message_count() == 0


def test_message_count_raises_while_brokers_are_down(
    make_queue: Callable[..., Any],
    mock_cluster: Any,
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
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
    monkeypatch.setattr(_counting, "_COUNT_S", 0.5)
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
    make_queue: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    before = live_handles()["handles"]

    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ApplicationException, match="can't start new thread"):
            queue.peek(None)
    assert live_handles()["handles"] == before
    assert queue._connection._subscriptions == []
    assert queue.peek(None) is None


# -- unreadable messages


@pytest.mark.parametrize("autocommit", [False, True])
def test_unreadable_messages_are_committed_logged_and_counted_once(
    make_queue: Callable[..., Any],
    make_producer: Callable[..., Any],
    make_references: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    committed: Callable[..., Any],
    counters: Any,
    logger: Any,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    group: str,
    autocommit: bool,
) -> None:
    commits: list[dict[int, int]] = []
    calls: list[int] = []
    commit, failed = Reader.commit, Measures.failed

    def counted(self: Any, offsets: Any) -> None:
        commits.append(offsets)
        commit(self, offsets)

    def callback(self: Any, count: int = 1) -> None:
        calls.append(count)
        failed(self, count)

    monkeypatch.setattr(Reader, "commit", counted)
    monkeypatch.setattr(Measures, "failed", callback)
    producer = make_producer()
    for _ in range(300):
        producer.produce(topic, b"{no json", partition=1)
    producer.flush()
    queue = make_queue(
        autocommit=autocommit,
        options__envelope="json",
        references=make_references(counters=counters),
        **ONE,
    )
    queue.send_batch(None, bodies(1))
    assert received(queue, 1) == ["0"]
    queue.close(None)
    assert committed(topic, group) == {1: 301 if autocommit else 300}
    batches = len(calls)
    assert sum(calls) == 300 == counters.value(f"queue.{topic}.failed_messages")
    assert batches < 20
    assert len(commits) <= batches + 1
    lines = [text for _, text, _ in logger.lines if "cannot be read" in text]
    assert len(lines) == batches


# -- dead letters


def test_transactions_of_dead_letters_take_any_request_timeout(
    make_connection: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    make = Clients._make

    def remember(self: Any, kind: Any, properties: Any) -> Any:
        made.append(properties)
        return make(self, kind, properties)

    monkeypatch.setattr(Clients, "_make", remember)
    for timeout, longest in ((100, 1000), (30_000, 60_000), (2_000_000, 900_000)):
        connection = make_connection(options__request_timeout=timeout)
        connection._make_transactional("t").close()
        assert made[-1]["transaction.timeout.ms"] == longest
    connection = make_connection(**{"options__kafka__transaction.timeout.ms": 7000})
    connection._make_transactional("t").close()
    assert made[-1]["transaction.timeout.ms"] == "7000"


def test_close_leaves_a_running_transaction_to_free_its_producer(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = make_queue(autocommit=False, options__transactional=True, **ONE)
    queue.send_batch(None, bodies(1))
    envelope = queue.receive(None, 30_000)
    letters = queue._inbox.dead_letters()
    letters._exists = True  # the mock cannot create topics
    entered, go_on = threading.Event(), threading.Event()
    publish = DeadLetters._publish

    def slowly(self: Any, *args: Any) -> Any:
        entered.set()
        assert go_on.wait(WAIT_S)
        return publish(self, *args)

    monkeypatch.setattr(DeadLetters, "_publish", slowly)

    def move() -> None:
        with contextlib.suppress(ApplicationException):
            letters.send_and_commit(envelope.get_reference(), "", 1, 1, b"no metadata")

    moving = in_thread(move)
    assert entered.wait(WAIT_S)
    closing = in_thread(letters.close)
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert letters._producer is not None
    go_on.set()
    moving.join(WAIT_S)
    assert letters._producer is None


def test_dead_letter_error_of_a_closed_queue_names_it(make_queue: Callable[..., Any]) -> None:
    queue = make_queue()
    letters: DeadLetters = queue._inbox.dead_letters()
    letters.close()
    with pytest.raises(InvalidStateException, match=queue.get_name()):
        letters._transactional(1.0)
