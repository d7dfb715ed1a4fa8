"""The counters, gauges and logs of queues."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_types import Unique
from pip_services4_observability.count import CachedCounters
from pip_services4_observability.log import Logger, LogLevel
from pip_services_queues import ONE, Counters, MakeQueue, Receiver, bodies, fail_at, received
from pip_services_rig import MakeReferences, Recorder, eventually

pytestmark = pytest.mark.ours


def test_counters_count_each_message_once_despite_other_queues(
    make_queue: MakeQueue,
    make_references: MakeReferences,
    unique: Unique,
    counters: Counters,
    cluster: Any,
) -> None:
    references = make_references(counters=counters)
    names = [unique("counted") for _ in range(2)]
    for name in names:
        cluster.create_topic(name, 4)
    queues = [make_queue(references=references, topic=name) for name in names]
    queues[0].set_references(references)  # again
    for queue in queues:
        queue.send_batch(None, bodies(3))
        received(queue, 3)
    for name in names:
        assert counters.value(f"queue.{name}.sent_messages") == 3
        assert counters.value(f"queue.{name}.received_messages") == 3


def test_gauges_report_lag_and_messages_in_flight(
    make_queue: MakeQueue, make_references: MakeReferences, counters: Counters, topic: str
) -> None:
    queue = make_queue(autocommit=False, references=make_references(counters=counters), **ONE)
    queue.send_batch(None, bodies(5))
    first, second = (queue.receive(None, 30_000) for _ in range(2))
    eventually(lambda: counters.value(f"queue.{topic}.in_flight") == 2)
    assert counters.value(f"queue.{topic}.lag") == 5  # behind the committed offset
    queue.complete(second)
    eventually(lambda: counters.value(f"queue.{topic}.in_flight") == 1)
    assert counters.value(f"queue.{topic}.lag") == 5
    eventually(lambda: counters.value(f"queue.{topic}.oldest_unfinished_age") > 1)
    assert counters.value(f"queue.{topic}.oldest_unfinished_offset") == 0
    queue.complete(first)
    eventually(lambda: counters.value(f"queue.{topic}.lag") == 3)
    assert counters.value(f"queue.{topic}.oldest_unfinished_age") == 0
    assert counters.value(f"queue.{topic}.errors") == 0


def test_error_gauge_counts_exceptions_of_receivers(
    make_queue: MakeQueue, make_references: MakeReferences, counters: Counters, topic: str
) -> None:
    queue = make_queue(references=make_references(counters=counters), **ONE)
    queue.send_batch(None, bodies(1))
    receiver = Receiver(fail_at("0", ZeroDivisionError()))
    queue.begin_listen(None, receiver)
    eventually(lambda: (counters.value(f"queue.{topic}.errors") or 0) >= 2)
    assert receiver.bodies()[:2] == ["0", "0"]


def test_exceptions_of_counters_and_loggers_do_no_harm(
    make_queue: MakeQueue, make_references: MakeReferences
) -> None:
    class Counters(CachedCounters):  # type: ignore[misc]
        def _save(self, counters: Any) -> None:
            pass

        def increment(self, name: str, value: float) -> None:
            raise RuntimeError("no counting")

        last = increment

    class Loud(Logger):  # type: ignore[misc]
        def _write(self, level: Any, context: Any, error: Any, message: Any) -> None:
            if "queue" in message.lower():
                raise RuntimeError("no logging")

    logger = Loud()
    logger.set_level(LogLevel.Trace)
    queue = make_queue(references=make_references(counters=Counters(), logger=logger), **ONE)
    queue.send_batch("123", bodies(3))
    assert received(queue, 3) == ["0", "1", "2"]


def test_messages_are_not_logged_above_debug_level(
    make_queue: MakeQueue, logger: Recorder
) -> None:
    logger.set_level(LogLevel.Info)
    queue = make_queue(**ONE)
    queue.send_batch("123", bodies(1000))
    received(queue, 1000)
    assert not any("message" in text for _, text, _ in logger.lines)
