"""Share groups on real brokers: every record is accepted although members are killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S
from repeated import SOAK, kills

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

RECORDS = 1_000_000 if SOAK else 20_000
MEMBERS = 10 if SOAK else 4
KILLS = kills(6, 90)
# A member writes the records, then accepts them, then writes those again that it has accepted. It
# may be killed in between.
MEMBER = """
import sys
from cykafka import KafkaException, Producer, ShareConsumer
servers, group, topic, written = sys.argv[1:]
config = {"bootstrap.servers": servers, "log_level": 0}
producer = Producer({**config, "enable.idempotence": True, "linger.ms": 0})
consumer = ShareConsumer({**config, "group.id": group, "share.acknowledgement.mode": "explicit"})
consumer.subscribe([topic])
print("ready", flush=True)
while True:
    try:
        batch = consumer.consume_batch(1)
        if not batch.values():
            continue
        values, keys = batch.values(), [f"{count}" for count in batch.delivery_counts]
        producer.publish(written, values, keys=keys, partitions=0).wait()
        consumer.acknowledge(batch)
        results = consumer.commit_sync()
    except KafkaException as error:
        if error.args[0].fatal():
            raise
        continue
    if set(results.values()) == {None}:
        producer.publish(written, values, keys=keys, partitions=1).wait()
"""

# A member prints each record, waits for a line, accepts the record, and prints the result.
STOPPED = """
import sys
from cykafka import ShareConsumer
servers, group, topic = sys.argv[1:]
config = {"bootstrap.servers": servers, "group.id": group, "log_level": 0}
consumer = ShareConsumer({**config, "share.acknowledgement.mode": "explicit"})
consumer.subscribe([topic])
for message in consumer:
    print(message.value().decode(), message.delivery_count(), flush=True)
    sys.stdin.readline()
    consumer.acknowledge(message)
    (error,) = consumer.commit_sync().values()
    print(error.args[0].name() if error else "accepted", flush=True)
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
    configure(cluster, group, share_record_lock_duration_ms="5000")
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


def test_member_that_was_stopped_has_lost_its_records_and_joins_again(
    cluster: KafkaCluster,
    topic: str,
    group: str,
    make_share: Callable[..., ShareConsumer],
    tmp_path: Path,
) -> None:
    configure(
        cluster,
        group,
        share_session_timeout_ms="1000",
        share_heartbeat_interval_ms="200",
        share_record_lock_duration_ms="5000",
    )
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED)
    command = [sys.executable, str(script), cluster.bootstrap_servers, group, topic]
    with (
        Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as stopped,
    ):
        assert stopped.stdin is not None
        assert stopped.stdout is not None
        try:
            producer.publish(topic, [b"first"], partitions=0).wait()
            assert stopped.stdout.readline() == "first 1\n"
            stopped.send_signal(signal.SIGSTOP)

            other = make_share()
            other.subscribe([topic])
            (message,) = other.poll(WAIT_S)
            assert (message.value(), message.delivery_count()) == (b"first", 2)
            stopped.stdin.write("\n\n")
            stopped.stdin.flush()
            stopped.send_signal(signal.SIGCONT)
            assert stopped.stdout.readline() in ("INVALID_RECORD_STATE\n", "UNKNOWN_MEMBER_ID\n")
            assert other.commit_sync() == {TopicPartition(topic, 0): None}
            other.close(WAIT_S)
            producer.publish(topic, [b"second"], partitions=0).wait()
            assert stopped.stdout.readline() == "second 1\n"
            assert stopped.stdout.readline() == "accepted\n"
        finally:
            stopped.kill()


@pytest.mark.soak
@pytest.mark.timeout(400 + 8 * KILLS)
def test_every_record_is_accepted_although_members_and_brokers_are_killed(
    three: KafkaCluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group, written = unique("topic"), unique("share"), unique("written")
    three.create_topic(topic, 1, replication_factor=3)
    three.create_topic(written, 2, replication_factor=3)
    lock = "15000"  # the shortest
    configure(three, group, share_auto_offset_reset="earliest", share_record_lock_duration_ms=lock)
    script = tmp_path / "member.py"
    script.write_text(MEMBER)
    command = [sys.executable, str(script), three.bootstrap_servers, group, topic, written]
    members: list[subprocess.Popen[str]] = []

    def start() -> None:
        members.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert members[-1].stdout is not None
        assert members[-1].stdout.readline() == "ready\n"

    def kill(member: subprocess.Popen[str]) -> None:
        with member:  # waits, and closes the pipe
            assert member.poll() is None, "a member has ended"
            member.kill()

    rng = random.Random(7)
    config = {"bootstrap.servers": three.bootstrap_servers, "enable.idempotence": True}
    try:
        for _ in range(MEMBERS):
            start()
        with Producer(config) as producer:
            for number in range(KILLS):
                values = [b"%d" % value for value in range(number, RECORDS, KILLS)]
                producer.publish(topic, values, partitions=0).wait(4 * WAIT_S)
                kill(members.pop(rng.randrange(len(members))))
                start()
                if number % 3 == 2:
                    node = rng.choice(three.nodes)
                    node.kill()
                    node.start()
                time.sleep(2 if SOAK else 0)
        processed, accepted = read_until_complete(three, written)
    finally:
        for member in members:
            member.kill()
            with member:
                pass
    again = [counts for counts in processed.values() if len(counts) > 1]
    # Brokers do not store the count of an acquired record: a new leader begins at its old count.
    unmarked = sum(len(set(counts)) < len(counts) for counts in again)
    print(
        f"{len(processed)} records processed, {len(again)} of them more than once, {unmarked} "
        f"without a higher count; {len(accepted)} known to be accepted"
    )
    assert len(processed) == RECORDS
    # Nobody accepts a record that is accepted already.
    assert [value for value, counts in accepted.items() if len(counts) > 1] == []


Counts = dict[bytes, list[int]]


def read_until_complete(cluster: KafkaCluster, topic: str) -> tuple[Counts, Counts]:
    """Wait until partition 0 has all values. Return the delivery counts of each value that the
    members have processed, and of each that they know to be accepted."""
    found: tuple[Counts, Counts] = ({}, {})
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "written"}
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
        deadline = time.monotonic() + (10 if SOAK else 4) * WAIT_S
        while len(found[0]) < RECORDS and time.monotonic() < deadline:
            batch = consumer.consume_batch(10_000, 1)
            for partition, value, key in zip(
                batch.partitions, batch.values(), batch.keys(), strict=True
            ):
                found[partition].setdefault(value, []).append(int(key))
    return found
