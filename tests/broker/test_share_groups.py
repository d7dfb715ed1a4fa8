"""Share groups on real brokers: every record is accepted although members are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S

from cykafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition
from cykafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from cykafka.testing import KafkaCluster

pytestmark = pytest.mark.ours

RECORDS = 20_000
MEMBERS = 4
KILLS = 6
# A member writes the records, then accepts them. It may be killed in between.
MEMBER = """
import sys
from cykafka import Producer, ShareConsumer
servers, group, topic, written = sys.argv[1:]
config = {"bootstrap.servers": servers, "log_level": 3}
producer = Producer(config)
consumer = ShareConsumer({**config, "group.id": group, "share.acknowledgement.mode": "explicit"})
consumer.subscribe([topic])
print("ready", flush=True)
for batch in consumer.batches():
    keys = [f"{count}" for count in batch.delivery_counts]
    producer.publish(written, batch.values(), keys=keys).wait()
    consumer.acknowledge(batch)
    consumer.commit_sync()
"""


def configure(cluster: KafkaCluster, group: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)


@pytest.fixture
def topic(cluster: KafkaCluster, unique: Callable[[str], str]) -> str:
    """A topic with one partition: of more, each member would get its own."""
    name = unique("topic")
    cluster.create_topic(name, 1)
    return name


@pytest.fixture
def group(cluster: KafkaCluster, unique: Callable[[str], str]) -> str:
    """A group that begins at the first record."""
    name = unique("share")
    configure(cluster, name, share_auto_offset_reset="earliest")
    return name


@pytest.fixture
def make_share(cluster: KafkaCluster, group: str) -> Iterator[Callable[..., ShareConsumer]]:
    made: list[ShareConsumer] = []

    def make(**config: Any) -> ShareConsumer:
        made.append(
            ShareConsumer(
                {
                    "bootstrap.servers": cluster.bootstrap_servers,
                    "group.id": group,
                    "log_level": 3,
                    **{name.replace("_", "."): value for name, value in config.items()},
                }
            )
        )
        return made[-1]

    yield make
    for consumer in made:
        consumer.close(WAIT_S)


def test_members_share_a_partition_and_get_every_record(
    cluster: KafkaCluster, topic: str, make_share: Callable[..., ShareConsumer]
) -> None:
    members = [make_share(max_poll_records=10) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        # Separate batches: brokers prefer to deliver a batch to one member.
        for first in range(0, 200, 10):
            values = [b"%d" % number for number in range(first, first + 10)]
            producer.publish(topic, values, partitions=0).wait()
    seen: list[list[bytes]] = [[], []]
    deadline = time.monotonic() + WAIT_S
    while sum(map(len, seen)) < 200 and time.monotonic() < deadline:
        for member, values in zip(members, seen, strict=True):
            batch = member.consume_batch(0.5)
            assert set(batch.delivery_counts) <= {1}
            values += batch.values()
    for member in members:
        member.commit_sync()

    assert sorted(map(int, seen[0] + seen[1])) == list(range(200))
    assert all(seen), "one member got all records"


def test_outcomes_of_records(
    cluster: KafkaCluster, topic: str, make_share: Callable[..., ShareConsumer]
) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.publish(topic, [b"accept", b"release", b"reject"], partitions=0).wait()
    consumer = make_share(share_acknowledgement_mode="explicit")
    consumer.subscribe([topic])
    types = {
        b"accept": AcknowledgeType.ACCEPT,
        b"release": AcknowledgeType.RELEASE,
        b"reject": AcknowledgeType.REJECT,
    }
    batch = consumer.consume_batch(WAIT_S)
    assert batch.values() == list(types)
    for message in batch:
        consumer.acknowledge(message, types[message.value() or b""])
    assert consumer.commit_sync() == {TopicPartition(topic, 0): None}

    (message,) = consumer.poll(WAIT_S)
    assert (message.value(), message.delivery_count()) == (b"release", 2)
    consumer.acknowledge(message)
    assert len(consumer.poll(2)) == 0


def test_record_is_delivered_again_when_its_lock_expires(
    cluster: KafkaCluster, topic: str, group: str, make_share: Callable[..., ShareConsumer]
) -> None:
    configure(cluster, group, share_record_lock_duration_ms="15000")
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.publish(topic, [b"slow"], partitions=0).wait()
    first = make_share(share_acknowledgement_mode="explicit")
    first.subscribe([topic])
    (message,) = first.poll(WAIT_S)

    second = make_share(share_acknowledgement_mode="explicit")
    second.subscribe([topic])
    (again,) = second.poll(WAIT_S)
    assert (again.value(), again.delivery_count()) == (b"slow", 2)
    first.acknowledge(message)
    (exception,) = first.commit_sync().values()
    assert exception is not None
    assert exception.args[0].name() == "INVALID_RECORD_STATE"
    second.acknowledge(again)
    assert second.commit_sync() == {TopicPartition(topic, 0): None}


def test_every_record_is_processed_although_members_are_killed(
    cluster: KafkaCluster, topic: str, group: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    written = unique("written")
    cluster.create_topic(written, 1)
    script = tmp_path / "member.py"
    script.write_text(MEMBER)
    command = [sys.executable, str(script), cluster.bootstrap_servers, group, topic, written]
    members: list[subprocess.Popen[str]] = []

    def start() -> None:
        members.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert members[-1].stdout is not None
        assert members[-1].stdout.readline() == "ready\n"

    def kill(member: subprocess.Popen[str]) -> None:
        with member:  # waits, and closes the pipe
            member.kill()

    rng = random.Random(7)
    try:
        for _ in range(MEMBERS):
            start()
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for number in range(KILLS):
                values = [b"%d" % value for value in range(number, RECORDS, KILLS)]
                producer.publish(topic, values, partitions=0).wait(WAIT_S)
                kill(members.pop(rng.randrange(len(members))))
                start()
        counts = read_until_complete(cluster, written)
    finally:
        for member in members:
            kill(member)
    assert len(counts) == RECORDS
    # A record that was processed twice was delivered twice.
    assert all(max(of_one) > 1 for of_one in counts.values() if len(of_one) > 1)


def read_until_complete(cluster: KafkaCluster, topic: str) -> dict[bytes, list[int]]:
    """Wait until the topic has all values, and return each with its delivery counts."""
    counts: dict[bytes, list[int]] = {}
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "written"}
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 3 * WAIT_S  # locks of killed members last 30 s
        while len(counts) < RECORDS and time.monotonic() < deadline:
            batch = consumer.consume_batch(10_000, 1)
            for value, key in zip(batch.values(), batch.keys(), strict=True):
                counts.setdefault(value, []).append(int(key))
    return counts
