"""Many queues on one connection, and groups whose members join and leave."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Unique
from machine import WAIT_S
from pip_services_queues import MakeQueue, Receiver, bodies, envelope
from pip_services_rig import (
    Committed,
    MakeConnection,
    MakeReferences,
    Recorder,
    config,
    eventually,
)
from pip_services_workers import new_seed

from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = [pytest.mark.ours, pytest.mark.timeout(300)]


def test_queues_on_one_connection_get_only_their_own_messages(
    cluster: Any,
    make_connection: MakeConnection,
    make_references: MakeReferences,
    committed: Committed,
    logger: Recorder,
    unique: Unique,
) -> None:

    connection = make_connection(options__num_partitions=2)
    references = make_references(connection=connection)
    topics = [unique("own") for _ in range(4)]
    # Each topic has two groups. They differ in autocommit, acks and how they receive.
    queues: dict[tuple[str, str], Any] = {}
    receivers: dict[tuple[str, str], Any] = {}
    for number, topic in enumerate(topics):
        for group in ("one", "two"):
            queue = KafkaMessageQueue()
            queue.configure(
                config(
                    topic=topic,
                    group_id=f"{topic}-{group}",
                    from_beginning=True,
                    autocommit=group == "one",
                    options__acks=(-1, 1, 0)[number % 3],
                )
            )
            queue.set_references(references)
            queue.open(None)
            assert queue._connection is connection
            queues[topic, group] = queue
            receivers[topic, group] = Receiver(lambda message, of: of.complete(message))
    try:
        for key, queue in queues.items():
            queue.begin_listen(None, receivers[key])

        def send(first: int, to: list[str]) -> None:
            threads = [
                threading.Thread(
                    target=lambda topic=topic: [
                        queues[topic, "two"].send(None, envelope(f"{topic} {n}"))
                        for n in range(first, first + 50)
                    ]
                )
                for topic in to
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        def of(topic: str, count: int) -> Counter[str]:
            return Counter(f"{topic} {n}" for n in range(count))

        send(0, topics)
        for (topic, _), receiver in receivers.items():
            receiver.wait(50, WAIT_S)
            assert Counter(receiver.bodies()) == of(topic, 50)

        # One group of each of the first two topics ends. The connection and the others continue.
        for topic in topics[:2]:
            queues[topic, "one"].close(None)
        assert connection.is_open()
        assert len(connection._subscriptions) == 6
        send(50, topics)
        for (topic, group), receiver in receivers.items():
            ended = group == "one" and topic in topics[:2]
            receiver.wait(50 if ended else 100, WAIT_S)
            assert Counter(receiver.bodies()) == of(topic, 50 if ended else 100)
        assert sum(committed(topics[0], f"{topics[0]}-one", 2).values()) == 50

        # The queue opens again and resumes at its offset.
        queues[topics[0], "one"].open(None)
        queues[topics[0], "one"].begin_listen(None, receivers[topics[0], "one"])
        receivers[topics[0], "one"].wait(100, WAIT_S)
        assert Counter(receivers[topics[0], "one"].bodies()) == of(topics[0], 100)
    finally:
        for queue in queues.values():
            queue.close(None)
    assert connection._subscriptions == []
    for topic in topics:
        assert sum(committed(topic, f"{topic}-two", 2).values()) == 100
    assert [error for level, _, error in logger.lines if level <= 2 and error is not None] == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_full_queue_resumes_partitions_that_it_lost_and_regained(
    make_queue: MakeQueue, protocol: str
) -> None:
    settings = {
        "autocommit": False,
        "options__write_partition": 0,
        "options__max_pending": 3,
        "options__kafka__group.protocol": protocol,
        "options__kafka__fetch.wait.max.ms": 500,
    }
    queue = make_queue(**settings)
    queue.send_batch(None, bodies(20))
    in_hand = [queue.receive(None, WAIT_S * 1000) for _ in range(3)]
    assert None not in in_hand
    session = queue._connection._subscriptions[0]._session
    eventually(lambda: 0 in session._paused, WAIT_S)
    others = [make_queue(**settings) for _ in range(4)]
    for other in others:
        other.peek(None)
    eventually(
        lambda: len(session.assigned()) < 2, WAIT_S
    )  # five members share four partitions: one may get none
    for other in others:
        other.close(None)
    eventually(lambda: len(session.assigned()) == 4, WAIT_S)

    for message in in_hand:  # if the partition stayed, else they are redelivered
        queue.complete(message)
    found = {message.get_message_as_string() for message in in_hand}
    while len(found) < 20:
        message = queue.receive(None, WAIT_S * 1000)
        assert message is not None, found
        found.add(message.get_message_as_string())
        queue.complete(message)
    assert found == {str(n) for n in range(20)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_with_changing_members_leave_no_message_unread(
    cluster: Any,
    make_connection: MakeConnection,
    make_references: MakeReferences,
    committed: Committed,
    topic: str,
    unique: Unique,
    protocol: str,
) -> None:
    """Members of two groups on three connections join and leave at random."""

    seed = new_seed()
    dice = random.Random(seed)
    heartbeats = {"options__kafka__heartbeat.interval.ms": 200} if protocol == "classic" else {}
    connections = [
        make_connection(
            **{
                "options__connect_timeout": 30000,
                "options__kafka__fetch.wait.max.ms": 500,
                "options__kafka__group.protocol": protocol,
                **heartbeats,
                "options__kafka__auto.commit.interval.ms": 100,
            }
        )
        for _ in range(3)
    ]
    groups = {unique("group"): autocommit for autocommit in (True, False)}
    handled: dict[str, Counter[str]] = {group: Counter() for group in groups}
    members: dict[str, list[Callable[[], None]]] = {group: [] for group in groups}
    errors: list[BaseException] = []
    lock = threading.Lock()

    def handle(group: str, message: Any, queue: Any) -> None:
        time.sleep(0.0005)
        with lock:
            handled[group][message.get_message_as_string()] += 1
        if not groups[group]:
            queue.complete(message)

    def join(group: str) -> None:
        references = make_references(connection=dice.choice(connections))
        queue = KafkaMessageQueue()
        queue.configure(
            config(
                topic=topic,
                group_id=group,
                from_beginning=True,
                autocommit=groups[group],
                read_partitions=dice.choice([1, 2]),
                options__max_pending=dice.choice([20, 10000]),
            )
        )
        queue.set_references(references)
        queue.open(None)
        if dice.random() < 0.6:
            queue.begin_listen(None, Receiver(lambda m, q: handle(group, m, q)))
            members[group].append(lambda: queue.close(None))
            return
        end = threading.Event()

        def receive() -> None:
            try:
                while not end.is_set():
                    message = queue.receive(None, 100)
                    if message is not None:
                        handle(group, message, queue)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()

        def leave() -> None:
            end.set()  # the member handles what it received before it leaves
            thread.join()
            queue.close(None)

        members[group].append(leave)

    sender = KafkaMessageQueue()
    sender.configure(config(topic=topic, from_beginning=True))
    sender.set_references(make_references(connection=connections[0]))
    sender.open(None)
    total = 0
    try:
        for group in groups:
            join(group)
        for _ in range(16):
            for _ in range(10):
                sender.send_batch(None, bodies(20, total))
                total += 20
                time.sleep(dice.random() * 0.02)
            group = dice.choice(list(groups))
            if len(members[group]) > 1 and dice.random() < 0.5:
                members[group].pop(dice.randrange(len(members[group])))()
            else:
                join(group)
        wanted = {str(n) for n in range(total)}
        eventually(
            lambda: errors or all(set(bodies) == wanted for bodies in list(handled.values())),
            WAIT_S,
        )
    except AssertionError as error:
        missing = {group: len(wanted - set(bodies)) for group, bodies in handled.items()}
        error.add_note(f"{missing} of {total} are missing; CYKAFKA_TEST_SEED={seed}")
        raise
    finally:
        for leaves in members.values():
            for leave in leaves:
                leave()
        sender.close(None)
    assert errors == [], f"CYKAFKA_TEST_SEED={seed}"
    for group in groups:
        assert sum(committed(topic, group).values()) == total, f"CYKAFKA_TEST_SEED={seed}"
