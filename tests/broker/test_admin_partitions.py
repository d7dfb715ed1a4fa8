"""AdminClient and partitions: look up offsets, delete records, elect leaders."""

from __future__ import annotations

import contextlib
import struct
from types import ModuleType
from typing import Any

import pytest
from fixture_types import CodeOf, MakeProducer, Unique, WaitUntil
from machine import WAIT_S
from relay import ELECT_LEADERS, ReplacingRelay, serving

FIRST_MS = 1_700_000_000_000


@pytest.fixture
def timed(make_producer: MakeProducer, topic: str) -> str:
    """A topic with ten records in partition 0, a second apart; the ninth has the latest time."""
    producer = make_producer()
    seconds = [0, 1, 2, 3, 4, 5, 6, 7, 9, 8]
    for second in seconds:
        producer.produce(topic, str(second), partition=0, timestamp=FIRST_MS + second * 1000)
        producer.flush(WAIT_S)
    return topic


@pytest.mark.parametrize(
    ("spec", "offset", "timestamp"),
    [
        (lambda spec: spec.earliest(), 0, -1),
        (lambda spec: spec.latest(), 10, -1),
        (lambda spec: spec.max_timestamp(), 8, FIRST_MS + 9000),
        (lambda spec: spec.for_timestamp(FIRST_MS + 3500), 4, FIRST_MS + 4000),
        (lambda spec: spec.for_timestamp(FIRST_MS + 99_000), -1, -1),
    ],
    ids=["earliest", "latest", "max_timestamp", "for_timestamp", "no such time"],
)
def test_offset_is_looked_up(
    kafka: ModuleType,
    api: ModuleType,
    admin: Any,
    timed: str,
    spec: Any,
    offset: int,
    timestamp: int,
) -> None:
    partition = kafka.TopicPartition(timed, 0)

    futures = admin.list_offsets({partition: spec(api.OffsetSpec)}, request_timeout=WAIT_S)

    info = futures[partition].result(WAIT_S)
    assert (info.offset, info.timestamp) == (offset, timestamp)
    assert info.leader_epoch == (None if offset < 0 else 0)


def test_offsets_of_partitions_fail_one_by_one(
    kafka: ModuleType, api: ModuleType, admin: Any, timed: str, code_of: CodeOf
) -> None:
    there, other = kafka.TopicPartition(timed, 0), kafka.TopicPartition(timed, 99)
    latest = api.OffsetSpec.latest()

    futures = admin.list_offsets({there: latest, other: latest})

    assert futures[there].result(WAIT_S).offset == 10
    assert code_of(futures[other]) == kafka.KafkaError._UNKNOWN_PARTITION


def test_offsets_of_a_missing_topic_fail(
    kafka: ModuleType, api: ModuleType, admin: Any, unique: Unique, code_of: CodeOf
) -> None:
    partition = kafka.TopicPartition(unique("missing"), 0)

    futures = admin.list_offsets({partition: api.OffsetSpec.latest()})

    assert code_of(futures[partition]) in (
        kafka.KafkaError._NOENT,
        kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    )


def test_committed_offset_ends_before_an_open_transaction(
    kafka: ModuleType,
    api: ModuleType,
    admin: Any,
    timed: str,
    make_producer: MakeProducer,
    unique: Unique,
) -> None:
    producer = make_producer({"transactional.id": unique("transaction")})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(timed, "open", partition=0)
    producer.flush(WAIT_S)
    partition = kafka.TopicPartition(timed, 0)
    latest = {partition: api.OffsetSpec.latest()}

    def look_up(level: Any) -> int:
        futures = admin.list_offsets(latest, isolation_level=level)
        return int(futures[partition].result(WAIT_S).offset)

    assert look_up(kafka.IsolationLevel.READ_COMMITTED) == 10
    assert look_up(kafka.IsolationLevel.READ_UNCOMMITTED) == 11
    producer.abort_transaction(WAIT_S)


def test_list_offsets_of_no_partitions_is_empty(admin: Any) -> None:
    assert admin.list_offsets({}) == {}


def test_records_before_an_offset_are_deleted(
    kafka: ModuleType, api: ModuleType, admin: Any, timed: str
) -> None:
    partition = kafka.TopicPartition(timed, 0, 4)

    futures = admin.delete_records([partition], request_timeout=20, operation_timeout=10)

    assert isinstance(futures[partition].result(WAIT_S), api.DeletedRecords)
    assert futures[partition].result().low_watermark == 4
    earliest = admin.list_offsets({partition: api.OffsetSpec.earliest()})
    assert earliest[partition].result(WAIT_S).offset == 4


def test_all_records_are_deleted(kafka: ModuleType, admin: Any, timed: str) -> None:
    partition = kafka.TopicPartition(timed, 0, kafka.OFFSET_END)

    assert admin.delete_records([partition])[partition].result(WAIT_S).low_watermark == 10


def test_deleting_records_fails_partition_by_partition(
    kafka: ModuleType, admin: Any, timed: str, unique: Unique, code_of: CodeOf
) -> None:
    there = kafka.TopicPartition(timed, 0, 2)
    beyond = kafka.TopicPartition(timed, 1, 999)
    missing = kafka.TopicPartition(unique("missing"), 0, 1)

    futures = admin.delete_records([there, beyond, missing])

    assert futures[there].result(WAIT_S).low_watermark == 2
    assert code_of(futures[beyond]) == kafka.KafkaError.OFFSET_OUT_OF_RANGE
    assert code_of(futures[missing]) in (
        kafka.KafkaError._UNKNOWN_TOPIC,
        kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    )


def test_delete_records_of_no_partitions_is_empty(admin: Any) -> None:
    assert admin.delete_records([]) == {}


def test_deleting_records_twice_in_a_request_fails(
    kafka: ModuleType, admin: Any, timed: str, code_of: CodeOf
) -> None:
    partition = kafka.TopicPartition(timed, 0, 2)

    futures = admin.delete_records([partition, partition])

    assert code_of(futures[partition]) == kafka.KafkaError._INVALID_ARG


def test_election_of_the_current_preferred_leader_is_not_needed(
    kafka: ModuleType, admin: Any, topic: str, unique: Unique, result_of: Any
) -> None:
    there, missing = kafka.TopicPartition(topic, 0), kafka.TopicPartition(unique("missing"), 0)

    result = result_of(
        admin.elect_leaders(
            kafka.ElectionType.PREFERRED,
            [there, missing],
            request_timeout=WAIT_S,
            operation_timeout=10,
        )
    )

    assert result[there] == kafka.KafkaError.ELECTION_NOT_NEEDED
    assert result[missing] == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_leaders_of_the_whole_cluster_are_elected(
    kafka: ModuleType, admin: Any, topic: str, result_of: Any
) -> None:
    # Partitions that need no election are omitted.
    result = result_of(admin.elect_leaders(kafka.ElectionType.PREFERRED))

    assert kafka.TopicPartition(topic, 0) not in result


def test_election_for_no_partitions_is_empty(
    kafka: ModuleType, admin: Any, result_of: Any
) -> None:
    assert result_of(admin.elect_leaders(kafka.ElectionType.PREFERRED, partitions=[])) == {}


@pytest.mark.ours
def test_election_without_a_result_for_one_partition_has_the_others(
    kafka: ModuleType, api: ModuleType, cluster: Any, topic: str, result_of: Any
) -> None:
    # Version 2: no tags, throttle time and error; one topic with one result: partition 1, no error
    name = topic.encode()
    body = bytes(7) + b"\2" + bytes([len(name) + 1]) + name
    body += b"\2" + struct.pack(">ih", 1, 0) + bytes(4)
    partitions = [kafka.TopicPartition(topic, number) for number in (0, 1)]
    with (
        serving(ReplacingRelay(cluster.bootstrap_servers, ELECT_LEADERS, body)) as relay,
        api.AdminClient({"bootstrap.servers": relay.bootstrap_servers}) as admin,
    ):
        result = result_of(admin.elect_leaders(kafka.ElectionType.PREFERRED, partitions))
    assert result == {partitions[1]: None}


def test_preferred_leader_is_elected_again_after_it_was_down(
    kafka: ModuleType, api: ModuleType, three: Any, unique: Unique, wait_until: WaitUntil
) -> None:
    name = unique("topic")
    partition = kafka.TopicPartition(name, 0)
    with api.AdminClient({"bootstrap.servers": three.bootstrap_servers}) as admin:
        first, second, _ = (node.id for node in admin.describe_cluster().result(WAIT_S).nodes)
        new = api.NewTopic(name, num_partitions=1, replica_assignment=[[first, second]])
        admin.create_topics([new])[name].result(WAIT_S)

        def info() -> Any:
            # This asks any broker, and so finds a new controller if the known one is down.
            with contextlib.suppress(kafka.KafkaException):
                return admin.list_topics(name, timeout=5).topics[name].partitions.get(0)
            return None

        def leads(node: int) -> bool:
            return getattr(info(), "leader", None) == node

        def in_sync() -> bool:
            return len(getattr(info(), "isrs", ())) == 2

        wait_until(lambda: leads(first), lambda: None, timeout=60)
        preferred = next(node for node in three.nodes if node.id == first)
        preferred.stop()
        wait_until(lambda: leads(second), lambda: None, timeout=60)
        preferred.start()
        wait_until(in_sync, lambda: None, timeout=60)

        elected: list[Any] = []

        def elect() -> None:
            future = admin.elect_leaders(kafka.ElectionType.PREFERRED, [partition])
            outcome = future.result(WAIT_S)[partition]
            # The controller may already have elected it.
            if outcome is None or outcome == kafka.KafkaError.ELECTION_NOT_NEEDED:
                elected.append(outcome)

        wait_until(lambda: elected, elect, timeout=60)
        wait_until(lambda: leads(first), lambda: None, timeout=60)
