"""The messages that a queue receives; none is lost."""

from __future__ import annotations

import datetime
import itertools
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeProducer
from machine import wake_up_s
from pip_services4_messaging.queues import MessageEnvelope
from pip_services_queues import ONE, MakeQueue, bodies, envelope, received, receiving
from pip_services_rig import Committed, eventually, in_thread

from cykafka import Message

pytestmark = pytest.mark.ours


def test_a_message_arrives_as_it_was_sent(make_queue: MakeQueue, topic: str) -> None:
    queue = make_queue()
    sent = envelope("grüß", kind="order", trace="123")
    queue.send("123", sent)

    got = queue.receive("123")
    assert isinstance(got, MessageEnvelope)
    assert (got.message_id, got.trace_id, got.message_type) == (sent.message_id, "123", "order")
    assert got.get_message_as_string() == "grüß"
    assert got.sent_time.tzinfo is None
    assert abs(got.sent_time - datetime.datetime.now()) < datetime.timedelta(seconds=30)
    reference = got.get_reference()
    assert isinstance(reference, Message)
    assert reference.topic() == topic


def test_queue_reads_on_after_null_keys_values_headers_and_bytes(
    make_queue: MakeQueue, make_producer: MakeProducer, topic: str
) -> None:
    queue = make_queue(**ONE)
    producer = make_producer()
    producer.produce(topic, None, None, partition=1)
    producer.produce(topic, b"\xff", b"\xfe", partition=1, headers=[("trace_id", None)])
    producer.flush()
    queue.send(None, envelope("last"))

    first, second, third = (queue.receive(None, 30000) for _ in range(3))
    assert (first.message_id, first.message, first.message_type) == (None, None, None)
    assert (second.message, second.trace_id) == (b"\xff", None)
    assert third.get_message_as_string() == "last"


def shortest(receive: Callable[[], Any]) -> float:
    """The shortest of several waits without a message, s. A busy machine prolongs some."""
    took = []
    for _ in range(5):
        begin = time.monotonic()
        assert receive() is None
        took.append(time.monotonic() - begin)
    return min(took)


@pytest.mark.alone
def test_receive_waits_for_its_timeout(make_queue: MakeQueue) -> None:
    queue = make_queue()
    assert queue.receive(None, 0) is None
    assert 0.25 <= shortest(lambda: queue.receive(None, 250)) < 0.35 + 4 * wake_up_s()


@pytest.mark.alone
def test_receive_takes_a_lone_number_as_its_timeout(make_queue: MakeQueue) -> None:
    queue = make_queue()
    assert 0.25 <= shortest(lambda: queue.receive(250)) < 0.35 + 4 * wake_up_s()
    for context, wait in ((250, 300), (True, None)):
        with pytest.raises(TypeError, match="context: expected None, an IContext or a str"):
            queue.receive(context, wait)


@pytest.mark.alone
def test_receive_wakes_up_at_once(make_queue: MakeQueue) -> None:
    queue = make_queue()
    arrived: list[float] = []
    ready = threading.Semaphore(0)

    def receive() -> None:
        for _ in range(50):
            ready.release()
            assert queue.receive(None, 30000) is not None
            arrived.append(time.perf_counter())

    thread = in_thread(receive)
    sent = []
    for offset in range(50):
        assert ready.acquire(timeout=30)
        time.sleep(0.005)  # receive() waits by now; if not, its wait is only shorter
        sent.append(time.perf_counter())
        queue.on_message("topic", 77, Message(value=b"x", partition=77, offset=offset))
    thread.join(30)
    waits = [got - put for put, got in zip(sent, arrived, strict=True)]
    # Only the fastest quarter counts, because a busy machine delays the others.
    assert statistics.quantiles(waits)[0] < 0.001 + 4 * wake_up_s()


def test_closing_and_receiving_one_of_ten_leaves_the_other_nine(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(10))
    assert received(queue, 1) == ["0"]
    queue.close(None)

    queue.open(None)
    assert received(queue, 9) == [str(n) for n in range(1, 10)]
    assert queue.receive(None, 50) is None


def test_only_uncompleted_messages_are_redelivered(
    make_queue: MakeQueue, committed: Committed
) -> None:
    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(6))
    got = [queue.receive(None, 30000) for _ in range(6)]
    for place in (1, 3, 0):
        queue.complete(got[place])
    assert committed() == {1: 2}
    queue.complete("123", got[4])
    assert committed() == {1: 2}
    queue.close(None)

    queue.open(None)
    assert received(queue, 2) == ["2", "5"]
    assert queue.receive(None, 50) is None


def test_completing_the_first_message_commits_completed_messages_after_it(
    make_queue: MakeQueue, committed: Committed
) -> None:
    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(4))
    got = [queue.receive(None, 30000) for _ in range(4)]
    for place in (3, 2, 1):
        queue.complete(got[place])
        assert committed() == {1: 0}
    queue.complete(got[0])
    queue.complete(got[0])  # the second call does nothing
    assert committed() == {1: 4}


@pytest.mark.parametrize("autocommit", [True, False])
def test_only_the_abandoned_message_is_redelivered(
    make_queue: MakeQueue, autocommit: bool
) -> None:
    queue = make_queue(autocommit=autocommit, options__retry_backoff=1000, **ONE)
    queue.send_batch(None, bodies(4))
    got = [queue.receive(None, 30000) for _ in range(3)]
    queue.abandon(got[1])
    queue.abandon("123", got[1])  # the second call does nothing

    assert received(queue, 2) == ["3", "1"]  # the abandoned one after its delay
    assert queue.receive(None, 50) is None


@pytest.mark.parametrize("autocommit", [True, False])
def test_abandoned_message_is_redelivered_after_a_restart(
    make_queue: MakeQueue, autocommit: bool
) -> None:
    queue = make_queue(autocommit=autocommit, **ONE)
    queue.send_batch(None, bodies(3))
    got = [queue.receive(None, 30000) for _ in range(3)]
    queue.complete(got[0])
    queue.complete(got[2])
    queue.abandon(got[1])
    queue.close(None)

    queue.open(None)
    assert received(queue, 1) == ["1"]  # the commit's metadata says that "2" is finished
    assert queue.receive(None, 50) is None


def test_complete_ignores_unknown_messages(make_queue: MakeQueue, committed: Committed) -> None:
    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(1))
    assert received(queue, 1) == ["0"]
    queue.complete(envelope())
    queue.abandon(envelope())
    strange = envelope()
    strange.set_reference(Message("other", partition=9, offset=5))
    queue.complete(strange)
    queue.abandon(strange)
    strange.set_reference({"partition": 0})
    queue.complete(strange)
    queue.close(None)
    assert committed() == {1: 0}


def test_message_from_before_a_reopening_comes_again(make_queue: MakeQueue) -> None:
    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(3))
    old = [queue.receive(None, 30000) for _ in range(3)]
    queue.close(None)
    queue.open(None)
    assert received(queue, 1) == ["0"]
    eventually(lambda: len(queue.peek_batch(None, 2)) == 2)
    queue.complete(old[2])  # the topic may be another one of the same name
    assert received(queue, 2) == ["1", "2"]


def test_peek_returns_the_next_message_without_waiting(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    begin = time.monotonic()
    assert queue.peek(None) is None
    assert queue.peek_batch("123", 5) == []
    assert time.monotonic() - begin < 2  # it joins the group in the background
    queue.send_batch(None, bodies(5))
    eventually(lambda: len(queue.peek_batch(None, 10)) == 5)

    assert queue.peek(None) is queue.peek(None)
    assert [e.get_message_as_string() for e in queue.peek_batch(None, 3)] == ["0", "1", "2"]
    assert len(queue._messages) == 5
    assert received(queue, 5) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("autocommit", [True, False])
def test_cleared_messages_are_completed(
    make_queue: MakeQueue, committed: Committed, autocommit: bool
) -> None:
    queue = make_queue(autocommit=autocommit, **ONE)
    queue.send_batch(None, bodies(5))
    eventually(lambda: len(queue.peek_batch(None, 10)) == 5)
    queue.clear("123")
    assert queue.peek(None) is None
    queue.send_batch(None, bodies(1, 5))
    assert received(queue, 1) == ["5"]
    queue.close(None)
    assert committed() == {1: 6 if autocommit else 5}


def test_seeking_back_redelivers_messages(
    make_queue: MakeQueue, committed: Committed, topic: str, group: str
) -> None:
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(4))
    assert received(queue, 3) == ["0", "1", "2"]
    queue._connection.seek(topic, group, 1, 1, queue)
    assert received(queue, 3) == ["1", "2", "3"]
    queue.close(None)
    assert committed() == {1: 4}


def test_message_count_is_the_number_of_undelivered_messages(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    assert queue.read_message_count() == 0
    queue.send_batch(None, bodies(5))
    assert queue.read_message_count() == 5
    first = queue.receive(None, 30000)
    assert queue.read_message_count() == 4
    received(queue, 2)
    assert queue.read_message_count() == 2
    queue.abandon(first)
    assert queue.read_message_count() == 3


def test_group_without_offsets_starts_at_the_end_the_topic_had_at_open(
    make_queue: MakeQueue, committed: Committed
) -> None:
    sender = make_queue(group_id="sender", **ONE)
    sender.send_batch(None, bodies(3))
    late = make_queue(from_beginning=False, **ONE)
    assert committed() == {}  # it only sends, as far as anybody knows
    sender.send_batch(None, bodies(3, 3))
    late.peek(None)
    eventually(lambda: committed() == {0: 0, 1: 3, 2: 0, 3: 0})
    late.close(None)  # it ends before it reads anything

    again = make_queue(from_beginning=False, **ONE)
    assert received(again, 3) == ["3", "4", "5"]


def test_queue_that_only_sends_takes_no_messages_from_later_readers(make_queue: MakeQueue) -> None:
    sender = make_queue(from_beginning=False, **ONE)
    sender.send_batch(None, bodies(3))
    sender.close(None)
    sender.open(None)
    sender.close(None)
    assert received(make_queue(from_beginning=True, **ONE), 3) == ["0", "1", "2"]


def test_from_beginning_starts_at_the_first_message(make_queue: MakeQueue) -> None:
    make_queue(group_id="sender", **ONE).send_batch(None, bodies(3))
    assert received(make_queue(from_beginning=True, **ONE), 3) == ["0", "1", "2"]


def test_local_queue_is_bounded_and_resumes_when_it_has_room(make_queue: MakeQueue) -> None:
    queue = make_queue(options__max_pending=40, **ONE)  # four partitions share it
    queue._subscribe(None)
    queue.send_batch(None, bodies(300))
    eventually(lambda: any(partition.paused for partition in receiving(queue).local.partitions()))
    waiting = len(queue._messages)
    queue.send_batch(None, bodies(300, 300))
    time.sleep(0.3)  # a message would arrive within a fetch, 10 ms
    assert len(queue._messages) == waiting <= 300
    assert received(queue, 600) == [str(n) for n in range(600)]


def test_the_last_attempt_of_a_received_message_makes_it_a_dead_letter(
    make_queue: MakeQueue,
    records: Callable[[str, int], list[Any]],
    topic: str,
    cluster: Any,
) -> None:
    cluster.create_topic(f"{topic}.dlq", 1)
    queue = make_queue(options__max_attempts=2, **ONE)
    queue.send_batch(None, bodies(1))
    for _ in range(2):
        envelope = queue.receive(None, 30_000)
        assert envelope.get_message_as_string() == "0"
        queue.abandon(envelope)
    queue.send_batch(None, bodies(1, 1))
    assert received(queue, 1) == ["1"]
    (letter,) = records(f"{topic}.dlq", 1)
    assert (letter.value(), dict(letter.headers())["dlq_attempts"]) == (b"0", b"2")


def test_abandoned_message_waits_longer_each_time_and_starves_no_other(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(
        options__max_attempts=5, options__retry_backoff=50, options__retry_backoff_max=150, **ONE
    )
    queue.send_batch(None, bodies(101))
    times: list[float] = []
    others: list[str] = []
    while len(times) < 4 or len(others) < 100:
        message = queue.receive(None, 30_000)
        if message.get_message_as_string() == "0":
            times.append(time.monotonic())
            if len(times) < 4:
                queue.abandon(message)
        else:
            others.append(message.get_message_as_string())

    assert others == [str(n) for n in range(1, 101)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    for gap, delay in zip(gaps, (0.05, 0.1, 0.15), strict=True):
        assert gap >= delay
