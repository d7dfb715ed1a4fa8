"""AdminClient and groups: list, describe and delete; read and write their offsets."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from fixture_types import CodeOf, Fill, MakeConsumer, Unique
from machine import WAIT_S


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    """The classic group protocol, and that of KIP-848."""
    return str(request.param)


@pytest.fixture
def group(unique: Unique) -> str:
    return str(unique("group"))


@pytest.fixture
def join(
    make_consumer: MakeConsumer, read: Any, fill: Fill, topic: str, group: str
) -> Callable[..., Any]:
    """Make a member of the group that has read the topic."""

    def join(protocol: str, **config: Any) -> Any:
        fill(topic, 5)
        consumer = make_consumer({"group.id": group, "group.protocol": protocol, **config})
        consumer.subscribe([topic])
        read(consumer, 5)
        return consumer

    return join


@pytest.fixture
def committed(
    kafka: ModuleType, admin: Any, topic: str, group: str
) -> Callable[[], dict[int, int]]:
    """The group's offsets, by partition of the topic."""

    def offsets() -> dict[int, int]:
        request = kafka.ConsumerGroupTopicPartitions(group)
        result = admin.list_consumer_group_offsets([request])[group].result(WAIT_S)
        return {partition.partition: partition.offset for partition in result.topic_partitions}

    return offsets


@pytest.fixture
def with_offsets(kafka: ModuleType, admin: Any, topic: str, group: str) -> str:
    """The group without members, with the offsets 7 and 8 for partitions 0 and 1."""
    offsets = [kafka.TopicPartition(topic, 0, 7), kafka.TopicPartition(topic, 1, 8)]
    request = kafka.ConsumerGroupTopicPartitions(group, offsets)
    admin.alter_consumer_group_offsets([request])[group].result(WAIT_S)
    return group


def test_groups_are_listed(
    kafka: ModuleType, admin: Any, join: Any, group: str, protocol: str
) -> None:
    join(protocol)

    result = admin.list_consumer_groups(request_timeout=WAIT_S).result(WAIT_S)

    assert result.errors == []
    (listing,) = (item for item in result.valid if item.group_id == group)
    assert listing.is_simple_consumer_group is False
    assert listing.state == kafka.ConsumerGroupState.STABLE
    assert listing.type == kafka.ConsumerGroupType[protocol.upper()]


def test_groups_are_listed_by_state_and_type(
    kafka: ModuleType, admin: Any, join: Any, group: str
) -> None:
    join("consumer")
    state, kind = kafka.ConsumerGroupState, kafka.ConsumerGroupType

    def listed(**chosen: Any) -> set[str]:
        result = admin.list_consumer_groups(**chosen).result(WAIT_S)
        return {item.group_id for item in result.valid} & {group}

    assert listed(states={state.STABLE, state.EMPTY}) == {group}
    assert listed(states={state.EMPTY}) == set()
    assert listed(types={kind.CONSUMER}) == {group}
    assert listed(types={kind.CLASSIC}) == set()
    assert listed(states={state.STABLE}, types={kind.CONSUMER}) == {group}
    assert listed(states=set(), types=None) == {group}


def test_group_is_described(
    kafka: ModuleType,
    api: ModuleType,
    admin: Any,
    join: Any,
    topic: str,
    group: str,
    protocol: str,
) -> None:
    join(protocol, **{"group.instance.id": "static", "client.id": "me"})

    futures = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=WAIT_S
    )

    description = futures[group].result(WAIT_S)
    assert isinstance(description, api.ConsumerGroupDescription)
    assert (description.group_id, description.is_simple_consumer_group) == (group, False)
    assert description.state == kafka.ConsumerGroupState.STABLE
    assert description.type == kafka.ConsumerGroupType[protocol.upper()]
    assert description.partition_assignor == ("range" if protocol == "classic" else "uniform")
    assert isinstance(description.coordinator, kafka.Node)
    assert api.AclOperation.DELETE in description.authorized_operations
    (member,) = description.members
    assert (member.client_id, member.group_instance_id) == ("me", "static")
    assert member.member_id
    assert member.host.startswith("/")
    everything = [kafka.TopicPartition(topic, number) for number in range(4)]
    assert sorted(member.assignment.topic_partitions) == everything
    if protocol == "consumer":
        assert sorted(member.target_assignment.topic_partitions) == everything
    else:
        assert member.target_assignment is None


def test_missing_group_is_described_as_dead(kafka: ModuleType, admin: Any, group: str) -> None:
    description = admin.describe_consumer_groups([group])[group].result(WAIT_S)

    assert description.state == kafka.ConsumerGroupState.DEAD
    assert description.members == []
    assert description.authorized_operations is None


def test_group_without_a_name_does_not_keep_the_others_from_their_outcome(
    kafka: ModuleType, admin: Any, group: str
) -> None:
    futures = admin.describe_consumer_groups(["", group])

    assert futures[group].result(WAIT_S).state == kafka.ConsumerGroupState.DEAD
    futures[""].exception(WAIT_S)


def test_groups_described_twice_in_a_request_fail(
    kafka: ModuleType, admin: Any, group: str, code_of: CodeOf
) -> None:
    futures = admin.describe_consumer_groups([group, group])

    assert code_of(futures[group]) == kafka.KafkaError._INVALID_ARG


def test_groups_are_deleted_one_by_one(
    kafka: ModuleType, admin: Any, join: Any, group: str, unique: Unique, code_of: CodeOf
) -> None:
    join("consumer")
    empty, missing = unique("group"), unique("missing")
    offsets = [kafka.TopicPartition(unique("topic"), 0, 1)]
    altered = admin.alter_consumer_group_offsets(
        [kafka.ConsumerGroupTopicPartitions(empty, offsets)]
    )
    # The topic does not exist, but the group is created.
    (partition,) = altered[empty].result(WAIT_S).topic_partitions
    assert partition.error == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART

    futures = admin.delete_consumer_groups([group, missing], request_timeout=WAIT_S)

    assert code_of(futures[group]) == kafka.KafkaError.NON_EMPTY_GROUP
    assert code_of(futures[missing]) == kafka.KafkaError.GROUP_ID_NOT_FOUND


def test_group_without_members_is_deleted(
    kafka: ModuleType, admin: Any, with_offsets: str, committed: Any
) -> None:
    assert admin.delete_consumer_groups([with_offsets])[with_offsets].result(WAIT_S) is None

    result = admin.list_consumer_groups().result(WAIT_S)
    assert with_offsets not in {item.group_id for item in result.valid}


def test_offsets_of_a_group_are_listed(
    kafka: ModuleType, admin: Any, topic: str, with_offsets: str, committed: Any
) -> None:
    assert committed() == {0: 7, 1: 8}

    chosen = [kafka.TopicPartition(topic, 1), kafka.TopicPartition(topic, 2)]
    futures = admin.list_consumer_group_offsets(
        [kafka.ConsumerGroupTopicPartitions(with_offsets, chosen)],
        require_stable=True,
        request_timeout=WAIT_S,
    )

    result = futures[with_offsets].result(WAIT_S)
    assert isinstance(result, kafka.ConsumerGroupTopicPartitions)
    assert result.group_id == with_offsets
    offsets = {
        partition.partition: (partition.offset, partition.error)
        for partition in result.topic_partitions
    }
    assert offsets == {1: (8, None), 2: (kafka.OFFSET_INVALID, None)}


def test_missing_group_has_no_offsets(committed: Any) -> None:
    assert committed() == {}


def test_offsets_are_altered_partition_by_partition(
    kafka: ModuleType, admin: Any, topic: str, group: str, unique: Unique, committed: Any
) -> None:
    missing = unique("missing")
    offsets = [
        kafka.TopicPartition(topic, 0, 3, metadata="why", leader_epoch=0),
        kafka.TopicPartition(missing, 0, 4),
    ]

    futures = admin.alter_consumer_group_offsets(
        [kafka.ConsumerGroupTopicPartitions(group, offsets)], request_timeout=WAIT_S
    )

    result = futures[group].result(WAIT_S)
    errors = {partition.topic: partition.error for partition in result.topic_partitions}
    assert errors == {topic: None, missing: kafka.KafkaError.UNKNOWN_TOPIC_OR_PART}
    assert committed() == {0: 3}


def test_offsets_of_a_group_with_members_are_not_altered(
    kafka: ModuleType, admin: Any, join: Any, topic: str, group: str
) -> None:
    join("consumer")
    request = kafka.ConsumerGroupTopicPartitions(group, [kafka.TopicPartition(topic, 0, 3)])

    future = admin.alter_consumer_group_offsets([request])[group]

    if future.exception(WAIT_S) is not None:
        assert future.exception().args[0] == kafka.KafkaError.UNKNOWN_MEMBER_ID
    else:
        (partition,) = future.result().topic_partitions
        assert partition.error == kafka.KafkaError.UNKNOWN_MEMBER_ID


@pytest.mark.ours
def test_offsets_are_deleted(
    kafka: ModuleType, admin: Any, topic: str, with_offsets: str, committed: Any
) -> None:
    request = kafka.ConsumerGroupTopicPartitions(with_offsets, [kafka.TopicPartition(topic, 0)])

    futures = admin.delete_consumer_group_offsets([request], request_timeout=WAIT_S)

    result = futures[with_offsets].result(WAIT_S)
    assert isinstance(result, kafka.ConsumerGroupTopicPartitions)
    assert [
        (partition.topic, partition.partition, partition.error)
        for partition in result.topic_partitions
    ] == [(topic, 0, None)]
    assert committed() == {1: 8}


@pytest.mark.ours
def test_deleting_offsets_fails_partition_by_partition(
    kafka: ModuleType, admin: Any, join: Any, topic: str, group: str, unique: Unique
) -> None:
    consumer = join("consumer")
    consumer.commit(asynchronous=False)
    missing = unique("missing")
    offsets = [kafka.TopicPartition(topic, 0), kafka.TopicPartition(missing, 0)]
    request = kafka.ConsumerGroupTopicPartitions(group, offsets)

    result = admin.delete_consumer_group_offsets([request])[group].result(WAIT_S)

    errors = {partition.topic: partition.error for partition in result.topic_partitions}
    assert errors == {
        topic: kafka.KafkaError.GROUP_SUBSCRIBED_TO_TOPIC,
        missing: kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    }


@pytest.mark.ours
def test_deleting_offsets_of_a_missing_group_fails(
    kafka: ModuleType, admin: Any, topic: str, group: str, code_of: CodeOf
) -> None:
    request = kafka.ConsumerGroupTopicPartitions(group, [kafka.TopicPartition(topic, 0)])

    futures = admin.delete_consumer_group_offsets([request])

    assert code_of(futures[group]) == kafka.KafkaError.GROUP_ID_NOT_FOUND


def test_groups_are_listed_in_one_call(api: ModuleType, admin: Any, join: Any, group: str) -> None:
    join("classic")

    with pytest.warns(DeprecationWarning, match="list_consumer_groups") as warnings:
        (found,) = admin.list_groups(group, timeout=WAIT_S)

    assert warnings[0].filename == __file__
    assert isinstance(found, api.GroupMetadata)
    assert (found.id, found.error, found.state) == (group, None, "Stable")
    assert (found.protocol_type, found.protocol) == ("consumer", "range")
    assert isinstance(found.broker, api.BrokerMetadata)
    assert found.broker.port > 0
    (member,) = found.members
    assert member.id
    assert member.client_host.startswith("/")
    assert isinstance(member.metadata, bytes)
    assert isinstance(member.assignment, bytes)
    with pytest.warns(DeprecationWarning, match="list_consumer_groups"):
        everything = admin.list_groups(timeout=WAIT_S)
    assert group in {item.id for item in everything}
