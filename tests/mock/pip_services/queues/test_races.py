"""Queues whose application does two things at once, or things in an order of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pip_services4_commons.errors import InvalidStateException

from pip_services4_kafka.connect._clients import Clients
from pip_services4_kafka.queues._dead_letters import DeadLetters

pytestmark = pytest.mark.ours

ONE = {"options__write_partition": 1}


def test_what_was_abandoned_comes_after_a_restart_although_it_was_committed_meanwhile(
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


def test_closing_a_connection_in_the_thread_that_subscribes_ends_the_subscription(
    connection: Any, make_listener: Callable[..., Any], topic: str, monkeypatch: Any
) -> None:
    """As a signal handler does."""
    make = Clients._make
    raised = []

    def close_first(self: Any, *args: Any) -> Any:
        made = make(self, *args)
        connection.close(None)
        return made

    def subscribe() -> None:
        try:
            connection.subscribe(topic, "group", {}, make_listener())
        except InvalidStateException as error:
            raised.append(error.code)

    monkeypatch.setattr(Clients, "_make", close_first)
    thread = threading.Thread(target=subscribe, daemon=True)
    thread.start()
    thread.join(20)
    assert raised == ["NOT_OPEN"]
    assert not connection.is_open()
    assert connection._subscriptions == []


def test_closing_a_queue_in_the_thread_of_a_transaction_ends_that(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    monkeypatch: Any,
) -> None:
    """As a signal handler does."""
    queue = make_queue(options__transactional=True, autocommit=False, **ONE)
    queue.send_batch(None, bodies(1))
    envelope = queue.receive(None, 30000)
    queue._inbox.dead_letters()._exists = True  # the mock cannot create topics
    publish = DeadLetters._publish
    raised = []

    def close_first(self: Any, *args: Any) -> Any:
        queue.close(None)
        return publish(self, *args)

    def bury() -> None:
        try:
            queue.move_to_dead_letter(envelope)
        except InvalidStateException as error:
            raised.append(error.code)

    monkeypatch.setattr(DeadLetters, "_publish", close_first)
    thread = threading.Thread(target=bury, daemon=True)
    thread.start()
    thread.join(20)
    assert raised == ["NOT_OPEN"]
