"""Queues on real brokers: changing groups, transactions, dead letters, initial offsets."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S, wake_up_s
from pip_services4_commons.errors import ApplicationException

from cykafka import TopicPartition
from cykafka.admin import NewPartitions

pytestmark = pytest.mark.ours

ONE = {"options__write_partition": 1}
# Real brokers end a waiting fetch as soon as a message arrives.
REAL = {"options__kafka__fetch.wait.max.ms": 500}


def committed_reader(make_consumer: Callable[..., Any], topic: str) -> Any:
    consumer = make_consumer({"isolation.level": "read_committed"})
    consumer.subscribe([topic])
    return consumer


@pytest.mark.alone
def test_receive_gets_a_message_soon_after_it_was_sent(
    make_queue: Callable[..., Any], envelope: Callable[..., Any]
) -> None:
    queue = make_queue(**REAL)
    queue.send(None, envelope("first"))
    assert queue.receive(None, 60000) is not None
    waits = []
    for _ in range(30):
        sent: list[float] = []

        def send(sent: list[float] = sent) -> None:
            queue.send(None, envelope("x"))
            sent.append(time.perf_counter())

        thread = threading.Thread(target=send)
        thread.start()
        assert queue.receive(None, 30000) is not None
        got = time.perf_counter()
        thread.join()
        waits.append(got - sent[0])
    # The published package needs at least 0.04 s. Only the fastest quarter counts, because a busy
    # machine delays the others.
    assert statistics.quantiles(waits)[0] < 0.02 + 4 * wake_up_s()


def test_group_without_offsets_starts_at_the_end_and_misses_no_later_message(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    committed: Callable[..., Any],
    topic: str,
    group: str,
) -> None:
    sender = make_queue(group_id="sender", **ONE, **REAL)
    sender.send_batch(None, bodies(3))
    first = make_queue(from_beginning=False, **ONE, **REAL)
    assert committed(topic, group) == {0: 0, 1: 3, 2: 0, 3: 0}
    sender.send_batch(None, bodies(1, 3))
    first._subscribe(None)
    second = make_queue(from_beginning=False, **ONE, **REAL)  # the group may have members by now
    assert received(first, 1) == ["3"]
    sender.send_batch(None, bodies(2, 4))
    assert received(first, 2) == ["4", "5"]
    second.close(None)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("autocommit", [True, False])
def test_every_message_is_handled_while_members_join_and_leave(
    make_queue: Callable[..., Any],
    make_receiver: Callable[..., Any],
    make_producer: Callable[..., Any],
    eventually: Callable[..., Any],
    topic: str,
    autocommit: bool,
    protocol: str,
) -> None:
    total = 2000
    handled: Counter[str] = Counter()
    lock = threading.Lock()

    def then(message: Any, queue: Any) -> None:
        time.sleep(0.0005)  # the handling takes time
        with lock:
            handled[message.get_message_as_string()] += 1
        if not autocommit:
            queue.complete(message)

    def member() -> Any:
        queue = make_queue(
            autocommit=autocommit,
            read_partitions=2,
            options__max_pending=200,
            **{**REAL, "options__kafka__group.protocol": protocol},
        )
        queue.begin_listen(None, make_receiver(then))
        return queue

    members = [member()]
    producer = make_producer()
    for n in range(total):
        producer.produce(topic, str(n), partition=n % 4)
        if n % 500 == 250:
            producer.flush()
            members.append(member())
            time.sleep(0.3)  # it reads for a while before the next one joins
        if n % 500 == 499:
            producer.flush()
            members.pop(0).close(None)
    producer.flush()
    eventually(lambda: len(handled) == total, WAIT_S)
    # A rebalance may redeliver messages in progress and messages not yet committed.
    assert sum(handled.values()) < 2 * total


def test_a_dead_letter_and_its_offset_are_one_transaction(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    make_consumer: Callable[..., Any],
    read: Callable[..., Any],
    committed: Callable[..., Any],
    topic: str,
    group: str,
) -> None:
    queue = make_queue(autocommit=False, options__transactional=True, **ONE, **REAL)
    queue.send_batch(None, bodies(4))
    got = [queue.receive(None, 60000) for _ in range(4)]
    queue.move_to_dead_letter(got[0])
    assert committed(topic, group) == {1: 1}
    queue.move_to_dead_letter(got[2])  # an earlier one is unfinished, so no commit
    assert committed(topic, group) == {1: 1}
    queue.move_to_dead_letter(got[1])
    assert committed(topic, group) == {1: 3}
    queue.complete(got[3])
    assert committed(topic, group) == {1: 4}

    found = read(committed_reader(make_consumer, f"{topic}.dlq"), 3)
    assert sorted(record.value() for record in found) == [b"0", b"1", b"2"]


def test_a_dead_letter_whose_offset_cannot_be_committed_is_not_sent(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    make_consumer: Callable[..., Any],
    read: Callable[..., Any],
    committed: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    group: str,
) -> None:
    queue = make_queue(autocommit=False, options__transactional=True, **ONE, **REAL)
    queue.send_batch(None, bodies(1))
    message = queue.receive(None, 60000)
    reader = queue._connection._subscriptions[0]._reader
    with monkeypatch.context() as patch:
        patch.setattr(type(reader), "consumer_group_metadata", lambda _: b"no metadata")
        with pytest.raises(ApplicationException):
            queue.move_to_dead_letter(message)
    assert committed(topic, group) == {}
    queue.move_to_dead_letter(message)

    (record,) = read(committed_reader(make_consumer, f"{topic}.dlq"), 1)
    assert record.value() == b"0"
    assert committed(topic, group) == {1: 1}
    assert queue.receive(None, 200) is None


def test_messages_in_a_killed_process_transaction_are_redelivered(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    committed: Callable[..., Any],
    cluster: Any,
    topic: str,
    group: str,
) -> None:
    cluster.create_topic(f"{topic}.dlq", 1)
    values = {**ONE, **REAL, "options__kafka__transaction.timeout.ms": 2000}
    queue = make_queue(autocommit=False, options__transactional=True, **values)
    queue.send_batch(None, bodies(2))
    assert received(queue, 1) == ["0"]
    metadata = queue._inbox.consuming().reader.consumer_group_metadata()
    producer = queue._connection._make_transactional("killed")
    try:
        # The killed process got this far: it neither commits nor aborts.
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.publish(f"{topic}.dlq", [b"0"]).wait(WAIT_S)
        producer.send_offsets_to_transaction([TopicPartition(topic, 1, 1)], metadata, WAIT_S)
        queue.close(None)
        begin = time.monotonic()
        again = make_queue(autocommit=False, **values)
        assert received(again, 2, WAIT_S) == ["0", "1"]
        assert time.monotonic() - begin < 2 + 10 + 20, (
            "brokers look for late transactions every 10 s"
        )
    finally:
        producer.close()


def test_listener_moves_poison_messages_in_a_transaction(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    make_receiver: Callable[..., Any],
    make_consumer: Callable[..., Any],
    read: Callable[..., Any],
    committed: Callable[..., Any],
    cluster: Any,
    topic: str,
    group: str,
) -> None:
    def then(message: Any, _: Any) -> None:
        if message.get_message_as_string() in ("3", "7"):
            raise ValueError("poison")

    cluster.create_topic(f"{topic}.dlq", 1)
    queue = make_queue(options__transactional=True, options__max_attempts=2, **ONE, **REAL)
    queue.send_batch(None, bodies(10))
    receiver = make_receiver(then)
    queue.begin_listen(None, receiver)
    found = read(committed_reader(make_consumer, f"{topic}.dlq"), 2)
    assert sorted(record.value() for record in found) == [b"3", b"7"]
    queue.close(None)
    assert committed(topic, group) == {1: 10}
    assert Counter(receiver.bodies()) == {**dict.fromkeys("01245689", 1), "3": 2, "7": 2}


def test_queue_skips_the_offset_gaps_of_other_transactions(
    make_queue: Callable[..., Any],
    make_producer: Callable[..., Any],
    received: Callable[..., Any],
    committed: Callable[..., Any],
    unique: Callable[[str], str],
    topic: str,
    group: str,
) -> None:
    producer = make_producer({"transactional.id": unique("t")})
    producer.init_transactions(30)
    for n in range(6):
        producer.begin_transaction()
        producer.produce(topic, str(n), partition=1)
        if n % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    queue = make_queue(autocommit=False, **ONE, **REAL)
    got = [queue.receive(None, 60000) for _ in range(3)]
    assert [message.get_message_as_string() for message in got] == ["0", "2", "4"]
    queue.complete(got[1])
    queue.complete(got[0])
    (position,) = committed(topic, group).values()
    assert got[1].get_reference().offset() < position <= got[2].get_reference().offset()
    queue.abandon(got[2])
    assert received(queue, 1) == ["4"]


def test_partitions_added_later_are_read_from_their_beginning(
    make_queue: Callable[..., Any],
    admin: Any,
    received: Callable[..., Any],
    unique: Callable[[str], str],
) -> None:
    name = unique("growing")
    sender = make_queue(topic=name, group_id="sender", options__num_partitions=1, **REAL)
    refresh = {"options__kafka__topic.metadata.refresh.interval.ms": 500}
    queue = make_queue(topic=name, from_beginning=False, **REAL, **refresh)
    sender._connection.publish(name, [{"value": "0"}])
    assert received(queue, 1) == ["0"]
    admin.create_partitions([NewPartitions(name, 2)])[name].result(WAIT_S)
    late = make_queue(
        topic=name, group_id="sender", **REAL
    )  # the first producer knows only one partition
    late._connection.publish(name, [{"value": str(n), "partition": 1} for n in (1, 2)])
    assert received(queue, 2, WAIT_S) == ["1", "2"]


def test_two_concurrent_opens_create_the_topic(
    make_queue: Callable[..., Any],
    unique: Callable[[str], str],
    committed: Callable[..., Any],
    group: str,
) -> None:
    name = unique("fresh")
    queues = [make_queue(opened=False, topic=name, from_beginning=False) for _ in range(4)]
    errors = []

    def run(queue: Any) -> None:
        try:
            queue.open(None)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert name in queues[0]._connection.read_queue_names()
    assert committed(name, group, 1) == {0: 0}  # from_beginning is false
