"""Queues on real brokers: changing groups, initial offsets, gaps."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from typing import Any

import pytest
from fixture_types import MakeProducer, Unique
from machine import WAIT_S, wake_up_s
from new_partitions import add_partitions
from pip_services_queues import ONE, MakeQueue, Receiver, bodies, envelope, received
from pip_services_rig import Committed, eventually

pytestmark = pytest.mark.ours

# Real brokers end a waiting fetch as soon as a message arrives.
REAL = {"options__kafka__fetch.wait.max.ms": 500}


@pytest.mark.alone
def test_receive_gets_a_message_soon_after_it_was_sent(make_queue: MakeQueue) -> None:
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


def test_new_group_starts_at_the_end_and_misses_no_later_message(
    make_queue: MakeQueue, committed: Committed
) -> None:
    sender = make_queue(group_id="sender", **ONE, **REAL)
    sender.send_batch(None, bodies(3))
    first = make_queue(from_beginning=False, **ONE, **REAL)
    sender.send_batch(None, bodies(1, 3))
    assert committed() == {}
    first._subscribe(None)
    second = make_queue(from_beginning=False, **ONE, **REAL)  # the group may have members by now
    assert received(first, 1) == ["3"]
    sender.send_batch(None, bodies(2, 4))
    assert received(first, 2) == ["4", "5"]
    second.close(None)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("autocommit", [True, False])
def test_every_message_is_handled_while_members_join_and_leave(
    make_queue: MakeQueue, make_producer: MakeProducer, topic: str, autocommit: bool, protocol: str
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
        queue.begin_listen(None, Receiver(then))
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


def test_queue_skips_the_offset_gaps_of_other_transactions(
    make_queue: MakeQueue,
    make_producer: MakeProducer,
    committed: Committed,
    unique: Unique,
    topic: str,
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
    (position,) = committed().values()
    assert got[1].get_reference().offset() < position <= got[2].get_reference().offset()
    queue.abandon(got[2])
    assert received(queue, 1) == ["4"]


def test_partitions_added_later_are_read_from_their_beginning(
    make_queue: MakeQueue, admin: Any, unique: Unique
) -> None:
    name = unique("growing")
    sender = make_queue(topic=name, group_id="sender", options__num_partitions=1, **REAL)
    refresh = {"options__kafka__topic.metadata.refresh.interval.ms": 500}
    queue = make_queue(topic=name, from_beginning=False, **REAL, **refresh)
    sender._connection.publish(name, [{"value": "0"}])
    assert received(queue, 1) == ["0"]
    add_partitions(admin, name, 2)
    late = make_queue(
        topic=name, group_id="sender", **REAL
    )  # the first producer knows only one partition
    late._connection.publish(name, [{"value": str(n), "partition": 1} for n in (1, 2)])
    assert received(queue, 2, WAIT_S) == ["1", "2"]


def test_two_concurrent_opens_create_the_topic(
    make_queue: MakeQueue, unique: Unique, committed: Committed, group: str
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
    assert committed(name, group, 1) == {}
