"""AdminClient and topics: create, extend, describe and delete."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from fixture_types import CodeOf, WaitUntil
from machine import WAIT_S

Unique = Callable[[str], str]


@pytest.fixture
def described(kafka: ModuleType, admin: Any, wait_until: WaitUntil) -> Any:
    """Describe a topic once the queried broker knows of as many partitions."""

    def describe(name: str, partitions: int) -> Any:
        found: list[Any] = []

        def ask() -> None:
            future = admin.describe_topics(kafka.TopicCollection([name]))[name]
            if future.exception(WAIT_S) is None and len(future.result().partitions) == partitions:
                found.append(future.result())

        wait_until(lambda: found, ask)
        return found[0]

    return describe


def test_topics_are_created_by_name(
    api: ModuleType, admin: Any, unique: Unique, described: Any
) -> None:
    first, second = unique("topic"), unique("topic")

    futures = admin.create_topics(
        [api.NewTopic(first, num_partitions=3, replication_factor=1), api.NewTopic(second, 1, 1)]
    )

    assert set(futures) == {first, second}
    assert all(isinstance(future, concurrent.futures.Future) for future in futures.values())
    assert [future.result(WAIT_S) for future in futures.values()] == [None, None]
    assert len(described(first, 3).partitions) == 3


def test_topic_gets_the_broker_s_defaults(
    api: ModuleType, admin: Any, unique: Unique, result_of: Any
) -> None:
    assert result_of(admin.create_topics([api.NewTopic(unique("topic"))])) is None


def test_topic_gets_its_configuration(
    api: ModuleType, admin: Any, unique: Unique, described: Any, result_of: Any
) -> None:
    name = unique("topic")

    result_of(
        admin.create_topics(
            [api.NewTopic(name, 1, 1, config={"cleanup.policy": "compact", "retention.ms": 77000})]
        )
    )

    described(name, 1)
    config = result_of(admin.describe_configs([api.ConfigResource("topic", name)]))
    assert (config["cleanup.policy"].value, config["retention.ms"].value) == ("compact", "77000")


def test_topic_s_replicas_are_placed_by_assignment(
    api: ModuleType, admin: Any, unique: Unique, described: Any, result_of: Any
) -> None:
    name = unique("topic")
    broker = result_of(admin.describe_cluster()).nodes[0].id

    result_of(
        admin.create_topics(
            [api.NewTopic(name, num_partitions=2, replica_assignment=[[broker], [broker]])]
        )
    )

    partitions = described(name, 2).partitions
    assert [[node.id for node in info.replicas] for info in partitions] == [[broker]] * 2


@pytest.mark.ours
def test_assignment_gives_the_number_of_partitions(
    api: ModuleType, admin: Any, unique: Unique, described: Any, result_of: Any
) -> None:
    name = unique("topic")
    broker = result_of(admin.describe_cluster()).nodes[0].id

    result_of(admin.create_topics([api.NewTopic(name, replica_assignment=[[broker]] * 3)]))

    assert len(described(name, 3).partitions) == 3


def test_topics_fail_one_by_one(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, unique: Unique, code_of: CodeOf
) -> None:
    fresh, bad = unique("topic"), unique("topic")

    futures = admin.create_topics(
        [
            api.NewTopic(topic, 1, 1),
            api.NewTopic(fresh, 1, 1),
            api.NewTopic(bad, 1, 1, config={"no.such.config": "x"}),
            api.NewTopic("not/a/name", 1, 1),
        ]
    )

    assert futures[fresh].result(WAIT_S) is None
    assert code_of(futures[topic]) == kafka.KafkaError.TOPIC_ALREADY_EXISTS
    assert topic in futures[topic].exception().args[0].str()
    assert code_of(futures[bad]) == kafka.KafkaError.INVALID_CONFIG
    assert code_of(futures["not/a/name"]) == kafka.KafkaError.TOPIC_EXCEPTION


def test_topics_named_twice_fail(
    kafka: ModuleType, api: ModuleType, admin: Any, unique: Unique, code_of: CodeOf
) -> None:
    name = unique("topic")

    futures = admin.create_topics([api.NewTopic(name, 1, 1), api.NewTopic(name, 2, 1)])

    assert code_of(futures[name]) == kafka.KafkaError.INVALID_REQUEST


@pytest.mark.ours
def test_topic_after_one_named_twice_has_its_outcome(
    kafka: ModuleType, api: ModuleType, admin: Any, unique: Unique, code_of: CodeOf
) -> None:
    """librdkafka's results have a hole: the brokers answer once for the first topic."""
    twice, once = unique("topic"), unique("topic")
    names = [twice, twice, once]

    made = admin.create_topics([api.NewTopic(name, 1, 1) for name in names])
    assert code_of(made[twice]) == kafka.KafkaError.INVALID_REQUEST
    assert made[once].result(WAIT_S) is None

    grown = admin.create_partitions([api.NewPartitions(name, 2) for name in names])
    assert grown[once].result(WAIT_S) is None
    assert isinstance(grown[twice].exception(WAIT_S), kafka.KafkaException)

    deleted = admin.delete_topics(names)
    assert deleted[once].result(WAIT_S) is None
    assert isinstance(deleted[twice].exception(WAIT_S), kafka.KafkaException)


def test_validate_only_creates_no_topic(
    kafka: ModuleType, api: ModuleType, admin: Any, unique: Unique, result_of: Any, code_of: CodeOf
) -> None:
    name = unique("topic")

    assert result_of(admin.create_topics([api.NewTopic(name, 1, 1)], validate_only=True)) is None

    futures = admin.describe_topics(kafka.TopicCollection([name]))
    assert code_of(futures[name]) == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_topics_are_deleted(
    kafka: ModuleType, admin: Any, topic: str, unique: Unique, code_of: CodeOf
) -> None:
    missing = unique("missing")

    futures = admin.delete_topics([topic, missing], operation_timeout=10, request_timeout=20)

    assert set(futures) == {topic, missing}
    assert futures[topic].result(WAIT_S) is None
    assert code_of(futures[missing]) == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    again = admin.delete_topics([topic])
    assert code_of(again[topic]) == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_partitions_are_added(
    kafka: ModuleType,
    api: ModuleType,
    admin: Any,
    topic: str,
    unique: Unique,
    described: Any,
    code_of: CodeOf,
) -> None:
    missing = unique("missing")

    futures = admin.create_partitions(
        [api.NewPartitions(topic, 6), api.NewPartitions(missing, 6)], operation_timeout=10
    )

    assert futures[topic].result(WAIT_S) is None
    assert code_of(futures[missing]) == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert len(described(topic, 6).partitions) == 6
    fewer = admin.create_partitions([api.NewPartitions(topic, 2)])
    assert code_of(fewer[topic]) == kafka.KafkaError.INVALID_PARTITIONS


def test_added_partitions_are_placed_by_assignment(
    kafka: ModuleType,
    api: ModuleType,
    admin: Any,
    topic: str,
    described: Any,
    result_of: Any,
    code_of: CodeOf,
) -> None:
    broker = result_of(admin.describe_cluster()).nodes[0].id
    wrong = admin.create_partitions(
        [api.NewPartitions(topic, 6, replica_assignment=[[broker], [broker + 1000]])]
    )

    assert code_of(wrong[topic]) == kafka.KafkaError.INVALID_REPLICA_ASSIGNMENT
    result_of(
        admin.create_partitions(
            [api.NewPartitions(topic, 6, replica_assignment=[[broker], [broker]])]
        )
    )
    assert [node.id for node in described(topic, 6).partitions[5].replicas] == [broker]


def test_partitions_are_validated_only(
    api: ModuleType, admin: Any, topic: str, described: Any, result_of: Any
) -> None:
    result_of(admin.create_partitions([api.NewPartitions(topic, 6)], validate_only=True))

    assert len(described(topic, 4).partitions) == 4


def test_topic_is_described(kafka: ModuleType, admin: Any, topic: str, described: Any) -> None:
    description = described(topic, 4)

    assert (description.name, description.is_internal) == (topic, False)
    assert isinstance(description.topic_id, kafka.Uuid)
    assert description.topic_id.get_most_significant_bits() != 0
    assert description.authorized_operations is None
    info = description.partitions[2]
    assert info.id == 2
    assert isinstance(info.leader, kafka.Node)
    assert (info.leader.id, info.leader.port) != (-1, 0)
    assert [node.id for node in info.isr] == [node.id for node in info.replicas]


def test_topic_is_described_with_authorized_operations(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, unique: Unique, code_of: CodeOf
) -> None:
    missing = unique("missing")

    futures = admin.describe_topics(
        kafka.TopicCollection([topic, missing]), include_authorized_operations=True
    )

    operations = futures[topic].result(WAIT_S).authorized_operations
    assert api.AclOperation.WRITE in operations
    assert code_of(futures[missing]) == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_describe_of_no_topics_is_empty(kafka: ModuleType, admin: Any) -> None:
    assert admin.describe_topics(kafka.TopicCollection([])) == {}


def test_one_request_creates_many_topics(
    api: ModuleType, admin: Any, unique: Unique, code_of: CodeOf
) -> None:
    names = [unique("topic") for _ in range(200)]

    made = admin.create_topics([api.NewTopic(name, 1, 1) for name in names], validate_only=True)

    assert [made[name].result(WAIT_S) for name in names] == [None] * 200


def test_topics_are_listed(admin: Any, topic: str) -> None:
    metadata = admin.list_topics(topic, timeout=WAIT_S)

    assert list(metadata.topics) == [topic]
    assert len(metadata.topics[topic].partitions) == 4
    assert topic in admin.list_topics(timeout=WAIT_S).topics
