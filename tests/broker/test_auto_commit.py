"""Auto commit covers exactly the messages that the application got, so none is lost."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, Read, RunScript, Unique, WaitUntil
from machine import WAIT_S

# Reads `take` messages of a topic as a member of a group. It exits without leaving the group as
# soon as these messages are committed.
CRASH = """
import os, sys, time
servers, group, topic, way, take = sys.argv[1:]
take = int(take)
committed = {}

def note(error, partitions):
    for partition in partitions:
        if partition.error is None and partition.offset >= 0:
            committed[partition.partition] = partition.offset

consumer = kafka.Consumer({
    "bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": 50, "on_commit": note, "fetch.wait.max.ms": 20,
    "session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
consumer.subscribe([topic])
handed = []
while len(handed) < take:
    if way == "consume":
        messages = consumer.consume(min(10, take - len(handed)), 0.5)
    else:
        message = consumer.poll(0.5)
        messages = [message] if message else []
    for message in messages:
        assert message.error() is None, message.error()
        handed.append(message.value().decode())
# It reads no more: the partitions are paused, and reports of commits still arrive.
consumer.pause(consumer.assignment())
deadline = time.monotonic() + 10
while sum(committed.values()) < take:
    assert time.monotonic() < deadline, committed
    assert consumer.poll(0.05) is None
print(*handed, sep="\\n", flush=True)
print("committed", sum(committed.values()), flush=True)
os._exit(9)
"""


@pytest.mark.parametrize("way", ["poll", "consume"])
def test_next_member_reads_the_messages_a_crashed_member_did_not_get(
    run_script: RunScript,
    make_consumer: MakeConsumer,
    cluster: Any,
    topic: str,
    fill: Fill,
    read: Read,
    unique: Unique,
    kafka: Any,
    way: str,
) -> None:
    for partition in range(4):
        fill(topic, 50, partition=partition)
    group = unique("group")

    crashed = run_script(CRASH, cluster.bootstrap_servers, group, topic, way, "70")

    assert crashed.returncode == 9, crashed.stderr
    *handed, last = crashed.stdout.splitlines()
    assert last == "committed 70"
    assert len(handed) == 70
    # Only the group's offsets count. A new member would first wait for the dead one's session.
    consumer = make_consumer({"group.id": group})
    consumer.assign([kafka.TopicPartition(topic, partition) for partition in range(4)])
    rest = [message.value().decode() for message in read(consumer, 130)]
    assert sorted(handed + rest) == sorted([str(number) for number in range(50)] * 4)
    assert consumer.poll(0.2) is None


def test_close_commits_the_returned_messages(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read, unique: Unique
) -> None:
    fill(topic, 50)
    config = {"group.id": unique("group"), "enable.auto.commit": True}
    first = make_consumer(config)
    first.subscribe([topic])
    assert [m.offset() for m in read(first, 20)] == list(range(20))
    first.close()

    second = make_consumer(config)
    second.subscribe([topic])

    assert [m.offset() for m in read(second, 30)] == list(range(20, 50))


def test_unsubscribe_commits_the_returned_messages(
    make_consumer: MakeConsumer,
    kafka: Any,
    topic: str,
    fill: Fill,
    read: Read,
    wait_until: WaitUntil,
) -> None:
    fill(topic, 50)
    consumer = make_consumer({"enable.auto.commit": True, "auto.commit.interval.ms": 3_600_000})
    consumer.subscribe([topic])
    read(consumer, 20)

    consumer.unsubscribe()

    asked = [kafka.TopicPartition(topic, 0)]
    wait_until(
        lambda: consumer.committed(asked, timeout=WAIT_S)[0].offset == 20,
        lambda: consumer.poll(0.05),
    )


def test_only_manually_stored_offsets_are_committed(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read, unique: Unique
) -> None:
    fill(topic, 50)
    config = {
        "group.id": unique("group"),
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
    }
    first = make_consumer(config)
    first.subscribe([topic])
    messages = read(first, 20)
    first.store_offsets(message=messages[6])
    first.close()

    second = make_consumer(config)
    second.subscribe([topic])

    assert read(second, 1)[0].offset() == 7


def test_without_auto_commit_nothing_is_committed(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read, unique: Unique
) -> None:
    fill(topic, 10)
    config = {"group.id": unique("group")}
    first = make_consumer(config)
    first.subscribe([topic])
    read(first, 10)
    first.close()

    second = make_consumer(config)
    second.subscribe([topic])

    assert read(second, 1)[0].offset() == 0
