"""What a team that changes over from the published package must not be surprised by."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from typing import Any

import pytest
from fixture_types import MakeConsumer, Unique
from machine import WAIT_S
from pip_services4_commons.errors import BadRequestException, InvalidStateException
from pip_services4_observability.log import LogLevel
from pip_services_queues import ONE, Counters, MakeQueue, Receiver, bodies, fail_at, received
from pip_services_rig import Committed, MakeReferences, Recorder, eventually, finish

from pip_services4_kafka.queues import KafkaMessageQueue, _receiver
from pip_services4_kafka.queues._commits import encode_ranges

pytestmark = pytest.mark.ours

# -- where a group begins


def test_queue_that_only_sends_leaves_its_messages_to_later_readers(
    make_queue: MakeQueue, committed: Committed
) -> None:
    for first in (0, 10):
        sender = make_queue(from_beginning=False, **ONE)
        sender.send_batch(None, bodies(10, first))
        sender.close(None)
    assert committed() == {}
    reader = make_queue(from_beginning=True, **ONE)
    assert received(reader, 20) == [str(n) for n in range(20)]


def test_queue_begins_at_its_open_although_the_group_has_another_member(
    make_queue: MakeQueue, committed: Committed, cluster: Any, unique: Unique
) -> None:
    other = unique("other")
    cluster.create_topic(other, 1)
    member = make_queue(topic=other)  # of the same group
    member.peek(None)
    eventually(lambda: member._connection._subscriptions[0]._session.assigned())
    sender = make_queue(group_id=unique("sender"), **ONE)
    sender.send_batch(None, bodies(5))
    late = make_queue(from_beginning=False, **ONE)
    sender.send_batch(None, bodies(5, 5))
    assert received(late, 5) == [str(n) for n in range(5, 10)]
    assert late.receive(None, 300) is None
    late.close(None)
    assert committed()[1] == 10


def test_group_begins_where_its_first_reader_began_even_if_that_one_dies(
    make_queue: MakeQueue, committed: Committed, unique: Unique
) -> None:
    sender = make_queue(group_id=unique("sender"), **ONE)
    sender.send_batch(None, bodies(3))
    first = make_queue(from_beginning=False, **ONE)
    first.peek(None)
    eventually(lambda: committed().get(1) == 3)  # as it would find it after a crash
    sender.send_batch(None, bodies(3, 3))
    first.close(None)
    assert received(make_queue(from_beginning=False, **ONE), 3) == ["3", "4", "5"]


# -- a message that fails


def test_message_that_always_fails_does_not_hold_back_the_others(
    make_queue: MakeQueue, committed: Committed, cluster: Any, topic: str
) -> None:
    queue = make_queue(
        options__retry_backoff=10,
        options__retry_backoff_max=20,
        **{"options__kafka__auto.commit.interval.ms": 100},
        **ONE,
    )
    queue.send_batch(None, bodies(1000))
    receiver = Receiver(fail_at("0", ValueError("poison")))
    queue.begin_listen(None, receiver)
    eventually(lambda: committed().get(1) == 1000)
    counts = Counter(receiver.bodies())
    assert counts.pop("0") == 10  # options.max_attempts
    assert set(counts.values()) == {1}
    assert len(counts) == 999
    assert f"{topic}.dlq" in queue._connection.read_queue_names()


@pytest.mark.parametrize("ends", ["closed", "lost"])
def test_restart_repeats_the_unfinished_message_only(
    make_queue: MakeQueue, committed: Committed, ends: str
) -> None:
    count = 30_000
    queue = make_queue(autocommit=False, **{"options__kafka__auto.commit.interval.ms": 100}, **ONE)
    queue.send_batch(None, bodies(count))
    forgotten = 0
    for _ in range(count):
        message = queue.receive(None, 30_000)
        if message.get_message_as_string() in ("7", "20000"):
            forgotten += 1  # nobody completes it
        else:
            queue.complete(message)
    assert forgotten == 2
    if ends == "lost":
        # The process dies; what the session's thread has committed counts.
        session = queue._connection._subscriptions[0]._session
        eventually(lambda: not _uncommitted(queue))
        session._handler.revoked = session._handler.lost
    queue.close(None)
    assert committed() == {1: 7}

    again = make_queue(autocommit=False, **ONE)
    again.send_batch(None, bodies(1, count))
    found = [again.receive(None, 30_000).get_message_as_string() for _ in range(3)]
    assert found == ["7", "20000", str(count)]


def test_finished_offsets_beyond_the_end_of_the_log_are_forgotten(
    make_queue: MakeQueue, make_consumer: MakeConsumer, kafka: Any, topic: str, group: str
) -> None:
    """As after an unclean election: the broker has the commit, and the log is shorter."""
    sender = make_queue(group_id="sender", **ONE)
    sender.send_batch(None, bodies(5))
    metadata = encode_ranges(2, [(3, 1000)], 100)[0]
    place = kafka.TopicPartition(topic, 1, 2, metadata=metadata)
    make_consumer({"group.id": group}).commit(offsets=[place], asynchronous=False)
    reader = make_queue(**ONE)
    assert received(reader, 3) == ["2", "3", "4"]
    sender.send_batch(None, bodies(5, 5))
    assert received(reader, 5) == ["5", "6", "7", "8", "9"]


def _uncommitted(queue: Any) -> bool:
    partitions = queue._session_receiver.local.partitions()
    return any(
        partition.committed
        != (
            partition.first_unfinished,
            encode_ranges(partition.first_unfinished, partition.ranges(), 4000)[0],
        )
        for partition in partitions
        if partition.first_unfinished is not None
    )


def test_message_that_nobody_completes_is_logged_once(
    make_queue: MakeQueue,
    make_references: MakeReferences,
    logger: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_receiver, "_STUCK_S", 0.5)

    queue = make_queue(autocommit=False, references=make_references(counters=Counters()), **ONE)
    queue.send_batch(None, bodies(3))
    messages = [queue.receive(None, 30_000) for _ in range(3)]
    for message in messages[1:]:
        queue.complete(message)

    def lines() -> list[str]:
        return [text for _, text, _ in logger.lines if "has been unfinished for" in text]

    eventually(lambda: lines())
    time.sleep(1.5)  # another look would be a second later
    (line,) = lines()
    assert "partition 1, offset 0" in line


def test_abandoned_message_takes_seconds_and_starves_nobody(make_queue: MakeQueue) -> None:
    queue = make_queue(options__max_attempts=5, **ONE)
    queue.send_batch(None, bodies(101))
    began, attempts, others = time.monotonic(), 0, 0
    while attempts < 5:
        message = queue.receive(None, 30_000)
        if message.get_message_as_string() == "0":
            attempts += 1
            if attempts == 2:
                assert others == 100
            queue.abandon(message)
        else:
            others += 1
    assert 3 <= time.monotonic() - began < 3 + WAIT_S
    assert queue.receive(None, 300) is None


# -- errors, forks and names


def test_timeout_that_is_no_number_is_named(make_queue: MakeQueue) -> None:
    with pytest.raises(BadRequestException, match="wait_timeout: expected a number of ms"):
        make_queue().receive("x", "y")


def test_forked_child_is_told_so(make_queue: MakeQueue) -> None:
    queue = make_queue(autocommit=False, **ONE)
    queue.send_batch(None, bodies(2))
    message = queue.receive(None, 30_000)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told = [str(queue.is_open())]
        for call in (
            lambda: queue.receive(None, 0),
            lambda: queue.begin_listen(None, _Receiver()),
            lambda: queue.send(None, bodies(1)[0]),
            lambda: queue.complete(message),
            lambda: queue.abandon(message),
            lambda: queue.clear(None),
            lambda: queue.end_listen(None),
            lambda: queue.close(None),  # drops what belongs to the parent
        ):
            try:
                call()
                told.append("nothing")
            except InvalidStateException as error:
                told.append("forked" if "forked" in str(error) else str(error))
        os.write(writer, " ".join(told).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        assert answer.read() == b"False" + b" forked" * 7 + b" nothing"
    queue.complete(message)
    assert queue.receive(None, 30_000) is not None


class _Receiver:
    def receive_message(self, message: Any, queue: Any) -> None: ...


def test_documented_names_are_there(make_queue: MakeQueue, topic: str) -> None:
    calls: list[Any] = []

    class Old(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, msg: Any) -> None:
            calls.append(msg.value())
            super().on_message(topic, partition, msg=msg)

    queue = make_queue(Old, read_partitions=3, **ONE)
    connection = queue._connection
    assert queue._read_rartitions == 3
    queue._read_rartitions = 2
    assert queue._read_partitions == 2
    for documented, ours in (
        ("_connectTimeout", "_connect_timeout"),
        ("_connectionResolver", "_connection_resolver"),
        ("_maxRetries", "_max_retries"),
    ):
        assert getattr(connection, documented) is getattr(connection, ours)
        setattr(connection, documented, None)
        assert getattr(connection, ours) is None
    connection.publish(topic, [{"value": b"x", "partition": 1}])
    assert queue.receive(None, 30_000).get_message_as_string() == "x"
    assert calls == [b"x"]
    for part in (topic, "open", queue._group_id):
        assert part in repr(queue)
    assert "open" in repr(connection)


def test_listen_says_that_it_blocks(make_queue: MakeQueue, logger: Recorder) -> None:
    logger.set_level(LogLevel.Info)
    queue = make_queue()
    thread = threading.Thread(target=lambda: queue.listen(None, _Receiver()), daemon=True)
    thread.start()
    eventually(lambda: "listen() blocks its thread" in logger.all())
    queue.end_listen(None)
    finish(thread)
