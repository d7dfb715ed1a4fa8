"""listen(): the delivery of messages to receivers, and messages that fail."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeProducer, Unique
from machine import WAIT_S
from pip_services4_commons.errors import BadRequestException
from pip_services_queues import (
    ONE,
    Counters,
    MakeQueue,
    Receiver,
    at,
    bodies,
    envelope,
    fail_at,
    received,
    receiving,
)
from pip_services_rig import (
    Committed,
    Gate,
    MakeReferences,
    Recorder,
    eventually,
    finish,
    in_thread,
)

from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = pytest.mark.ours


@pytest.mark.parametrize("end", ["end_listen", "close"])
def test_listen_blocks_until_it_is_ended(make_queue: MakeQueue, end: str) -> None:
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(3))
    receiver = Receiver()
    thread = in_thread(lambda: queue.listen("123", receiver))
    assert receiver.wait(3) == ["0", "1", "2"]
    assert thread.is_alive()
    assert queue._receiver is receiver
    getattr(queue, end)("123")
    finish(thread)
    assert queue._receiver is None


def test_listen_delivers_buffered_messages_first(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(5))
    assert received(queue, 1) == ["0"]
    eventually(lambda: len(queue._messages) == 4)
    receiver = Receiver()
    queue.begin_listen(None, receiver)
    queue.send_batch(None, bodies(2, 5))
    assert receiver.wait(6) == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_receiver_may_call_the_queue(make_queue: MakeQueue, autocommit: bool) -> None:
    queue = make_queue(autocommit=autocommit, **ONE)
    done = threading.Event()

    def then(message: Any, same: Any) -> None:
        assert same is queue
        body = message.get_message_as_string()
        if body == "0":
            queue.peek_batch(None, 10)
            queue.read_message_count()
            queue.send(None, envelope("more"))
            queue.complete(message)
        elif body == "1" and not done.is_set():
            done.set()
            queue.abandon(message)
        elif body == "1":
            queue.clear(None)
            queue.end_listen(None)

    receiver = Receiver(then)
    queue.send_batch(None, bodies(2))
    thread = in_thread(lambda: queue.listen(None, receiver))
    finish(thread)
    assert sorted(receiver.bodies()) == ["0", "1", "1", "more"]


def test_a_receiver_may_close_the_queue(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(3))
    receiver = Receiver(lambda message, same: same.close(None))
    begin = time.monotonic()
    queue.listen(None, receiver)
    assert time.monotonic() - begin < 20
    assert receiver.bodies() == ["0"]
    assert not queue.is_open()

    queue.open(None)
    assert received(queue, 3) == ["0", "1", "2"]  # the first was in progress, so it is redelivered


def test_failed_message_is_redelivered_and_other_partitions_continue(
    make_queue: MakeQueue,
    make_references: MakeReferences,
    counters: Counters,
    logger: Recorder,
    topic: str,
) -> None:
    times: list[float] = []

    def then(message: Any, _: Any) -> None:
        if message.get_message_as_string() == "1":
            times.append(time.monotonic())
            if len(times) < 4:
                raise ValueError("not now")

    queue = make_queue(references=make_references(counters=counters), **ONE)
    queue.send_batch(None, bodies(3))
    receiver = Receiver(then)
    queue.begin_listen(None, receiver)

    assert receiver.wait(6) == ["0", "1", "2", "1", "1", "1"]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert [round(gap, 1) for gap in gaps] == pytest.approx([0.2, 0.4, 0.8], abs=0.11)
    assert "not now" in logger.all()
    assert counters.value(f"queue.{topic}.failed_messages") == 3


@pytest.mark.parametrize("autocommit", [True, False])
def test_no_commit_passes_a_message_that_always_fails(
    make_queue: MakeQueue, committed: Committed, autocommit: bool
) -> None:
    def then(message: Any, queue: Any) -> None:
        if message.get_message_as_string() == "2":
            raise ValueError("never")
        queue.complete(message)

    queue = make_queue(autocommit=autocommit, **ONE)
    queue.send_batch(None, bodies(5))
    receiver = Receiver(then)
    queue.begin_listen(None, receiver)
    receiver.wait(7)
    queue.close(None)
    assert committed() == {1: 2}


def test_poison_message_becomes_a_dead_letter(
    make_queue: MakeQueue,
    make_references: MakeReferences,
    records: Callable[[str, int], list[Any]],
    committed: Committed,
    counters: Counters,
    cluster: Any,
    topic: str,
    logger: Recorder,
) -> None:
    cluster.create_topic(f"{topic}.dlq", 1)

    queue = make_queue(
        options__max_attempts=3, references=make_references(counters=counters), **ONE
    )
    sent = bodies(3)
    queue.send_batch(None, sent)
    receiver = Receiver(fail_at("1", ValueError("poison")))
    queue.begin_listen(None, receiver)
    (record,) = records(f"{topic}.dlq", 1)

    assert Counter(receiver.bodies()) == {"0": 1, "1": 3, "2": 1}
    assert (record.key(), record.value()) == (sent[1].message_id.encode(), b"1")
    assert record.headers() == [
        ("message_type", b"test"),
        ("trace_id", b"trace"),
        ("dlq_topic", topic.encode()),
        ("dlq_partition", b"1"),
        ("dlq_offset", b"1"),
        ("dlq_timestamp", dict(record.headers())["dlq_timestamp"]),
        ("dlq_error", b"ValueError: poison"),
        ("dlq_attempts", b"3"),
    ]
    assert abs(int(dict(record.headers())["dlq_timestamp"]) / 1000 - time.time()) < 600
    queue.close(None)
    assert committed() == {1: 3}
    assert counters.value(f"queue.{topic}.dead_letter_messages") == 1
    assert "partition 1, offset 1: sent a dead letter to" in logger.all()


def test_invalid_receiver_is_refused(make_queue: MakeQueue) -> None:
    queue = make_queue()
    for call in (queue.listen, queue.begin_listen):
        for receiver in (None, print):
            with pytest.raises(BadRequestException, match=r"with receive_message\(") as raised:
                call("123", receiver)
            assert raised.value.code == "NO_RECEIVER"


@pytest.mark.parametrize("autocommit", [True, False])
def test_the_application_moves_a_message_to_its_dead_letter_topic(
    make_queue: MakeQueue,
    records: Callable[[str, int], list[Any]],
    committed: Committed,
    unique: Unique,
    cluster: Any,
    autocommit: bool,
) -> None:
    graveyard = unique("graveyard")
    cluster.create_topic(graveyard, 1)
    queue = make_queue(autocommit=autocommit, options__dead_letter_topic=graveyard, **ONE)
    queue.send_batch(None, bodies(2))
    queue.abandon(queue.receive(None, 30000))
    queue.move_to_dead_letter(queue.receive(None, 30000))
    queue.move_to_dead_letter("123", queue.receive(None, 30000))  # the abandoned one
    found = records(graveyard, 2)

    assert [dict(record.headers())["dlq_attempts"] for record in found] == [b"1", b"2"]
    queue.close(None)
    assert committed() == {1: 2}


def test_read_partitions_limits_concurrency_and_keeps_partition_order(
    make_queue: MakeQueue, make_producer: MakeProducer, topic: str
) -> None:
    busy: list[int] = []
    most: list[int] = []
    lock = threading.Lock()
    together = threading.Barrier(3)
    meet = [True]

    def then(message: Any, _: Any) -> None:
        number = message.get_reference().partition()
        with lock:
            assert number not in busy
            busy.append(number)
            most.append(len(busy))
        if meet[0]:
            together.wait(WAIT_S)
            meet[0] = False
        with lock:
            busy.remove(number)

    queue = make_queue(read_partitions=3)
    producer = make_producer()
    for n in range(50):
        for number in range(4):
            producer.produce(topic, f"{number}/{n}", partition=number)
    producer.flush()
    receiver = Receiver(then)
    thread = in_thread(lambda: queue.listen(None, receiver))
    found = receiver.wait(200)
    queue.end_listen(None)
    finish(thread)
    assert max(most) == 3
    for number in range(4):
        mine = [body for body in found if body.startswith(f"{number}/")]
        assert mine == [f"{number}/{n}" for n in range(50)]


def test_end_listen_waits_for_the_receiver_and_keeps_other_messages(
    make_queue: MakeQueue,
) -> None:
    gate = Gate()

    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(6))
    receiver = Receiver(at("2", gate.hold))
    queue.begin_listen(None, receiver)
    gate.wait()
    ending = in_thread(lambda: queue.end_listen(None))
    ending.join(0.1)
    assert ending.is_alive()
    gate.open()
    ending.join(WAIT_S)
    assert receiver.bodies() == ["0", "1", "2"]
    assert received(queue, 3) == ["3", "4", "5"]


def test_close_commits_the_messages_that_the_receiver_handled(
    make_queue: MakeQueue, committed: Committed
) -> None:
    gate = Gate()

    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(10))
    queue.begin_listen(None, Receiver(at("4", gate.hold)))
    gate.wait()
    closing = in_thread(lambda: queue.close(None))
    gate.open()
    finish(closing)
    assert committed() == {1: 5}


def test_keyboard_interrupt_ends_listen_and_redelivers_its_message(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(3))
    with pytest.raises(KeyboardInterrupt):
        queue.listen(None, Receiver(fail_at("1", KeyboardInterrupt())))
    assert received(queue, 2) == ["1", "2"]


@pytest.mark.parametrize("overridden", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_system_exit_in_a_receiver_of_begin_listen_is_logged(
    make_queue: MakeQueue, logger: Recorder, workers: int, overridden: bool
) -> None:
    class Listening(KafkaMessageQueue):
        def listen(self, *args: Any, **kwargs: Any) -> None:
            super().listen(*args, **kwargs)

    kind = Listening if overridden else KafkaMessageQueue
    queue = make_queue(kind, read_partitions=workers, **ONE)
    queue.send_batch(None, bodies(3))
    queue.begin_listen("123", Receiver(fail_at("1", SystemExit("enough"))))
    eventually(lambda: "stopped listening: SystemExit: enough" in logger.all())
    assert queue.get_name() in logger.all()
    eventually(lambda: queue._receiver is None)
    assert received(queue, 2) == ["1", "2"]


def test_two_listeners_share_the_messages(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    first, second = Receiver(), Receiver()
    queue.begin_listen(None, first)
    queue.begin_listen(None, second)
    queue.send_batch(None, bodies(100))
    eventually(lambda: len(first.envelopes) + len(second.envelopes) == 100)
    queue.end_listen(None)
    assert sorted(map(int, first.bodies() + second.bodies())) == list(range(100))


def test_end_listen_right_after_begin_listen_ends_it(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    for _ in range(20):
        queue.begin_listen(None, Receiver())
        queue.end_listen(None)
    assert queue._receiver is None
    queue.send_batch(None, bodies(2))
    assert received(queue, 2) == ["0", "1"]


def test_message_that_always_fails_does_not_fill_the_memory(make_queue: MakeQueue) -> None:
    def then(message: Any, _: Any) -> None:
        raise ValueError("never")

    queue = make_queue(options__max_pending=20, **ONE)
    queue.send_batch(None, bodies(100))
    receiver = Receiver(then)
    queue.begin_listen(None, receiver)
    receiver.wait(100)
    eventually(lambda: any(partition.paused for partition in receiving(queue).local.partitions()))
    queue.send_batch(None, bodies(100, 100))
    time.sleep(0.3)  # a message would arrive within a fetch, 10 ms
    assert max(map(int, receiver.bodies())) < 100
