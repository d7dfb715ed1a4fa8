"""TopicPartition: a value that names a partition and carries an offset."""

from __future__ import annotations

from decimal import Decimal
from types import ModuleType

import pytest


def test_topic_partition_defaults(kafka: ModuleType) -> None:
    partition = kafka.TopicPartition("orders")

    assert partition.topic == "orders"
    assert partition.partition == -1
    assert partition.offset == kafka.OFFSET_INVALID
    assert partition.metadata is None
    assert partition.leader_epoch is None
    assert partition.error is None


def test_topic_partition_takes_positions_and_keywords(kafka: ModuleType) -> None:
    positional = kafka.TopicPartition("orders", 1, 5, "note", 3)
    named = kafka.TopicPartition(
        topic="orders", partition=1, offset=5, metadata="note", leader_epoch=3
    )

    for partition in (positional, named):
        assert (partition.topic, partition.partition, partition.offset) == ("orders", 1, 5)
        assert (partition.metadata, partition.leader_epoch) == ("note", 3)


def test_topic_partition_offset_and_partition_can_be_set(kafka: ModuleType) -> None:
    partition = kafka.TopicPartition("orders")

    partition.partition = 3
    partition.offset = 42

    assert (partition.partition, partition.offset) == (3, 42)


def test_topic_partition_numbers_are_integers(kafka: ModuleType) -> None:
    class Index:
        def __index__(self) -> int:
            return 7

    partition = kafka.TopicPartition("orders", Index(), Index())
    assert (partition.partition, partition.offset) == (7, 7)

    for wrong in (1.5, 1.0, "1", Decimal(1)):
        for make in (
            lambda wrong=wrong: kafka.TopicPartition("orders", wrong),
            lambda wrong=wrong: kafka.TopicPartition("orders", 1, wrong),
            lambda wrong=wrong: kafka.TopicPartition("orders", 1, 1, leader_epoch=wrong),
            lambda wrong=wrong: setattr(partition, "partition", wrong),
            lambda wrong=wrong: setattr(partition, "offset", wrong),
        ):
            with pytest.raises(TypeError):
                make()
    assert (partition.partition, partition.offset) == (7, 7)


@pytest.mark.parametrize("name", ["topic", "metadata", "leader_epoch", "error"])
def test_topic_partition_other_fields_cannot_be_set(kafka: ModuleType, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(kafka.TopicPartition("orders"), name, "x")


def test_topic_partition_identity_is_topic_and_partition(kafka: ModuleType) -> None:
    here = kafka.TopicPartition("orders", 1, 5)

    assert here == kafka.TopicPartition("orders", 1, 99)
    assert hash(here) == hash(kafka.TopicPartition("orders", 1, 99))
    assert here != kafka.TopicPartition("orders", 2, 5)
    assert here != kafka.TopicPartition("bills", 1, 5)
    assert len({here, kafka.TopicPartition("orders", 1), kafka.TopicPartition("bills", 1)}) == 2


def test_topic_partition_order_is_by_topic_then_partition(kafka: ModuleType) -> None:
    names = [("b", 0), ("a", 2), ("a", -1), ("a", 1)]

    ordered = sorted(kafka.TopicPartition(topic, number) for topic, number in names)

    assert [(p.topic, p.partition) for p in ordered] == sorted(names)
    assert kafka.TopicPartition("a", 1) <= kafka.TopicPartition("a", 1)
    assert kafka.TopicPartition("b", 0) > kafka.TopicPartition("a", 9)


@pytest.mark.parametrize("render", [str, repr])
def test_topic_partition_text_names_every_field(kafka: ModuleType, render: type[str]) -> None:
    assert (
        render(kafka.TopicPartition("orders", 1, 5, "note", 3))
        == "TopicPartition{topic=orders,partition=1,offset=5,leader_epoch=3,error=None}"
    )
    assert (
        render(kafka.TopicPartition("orders"))
        == "TopicPartition{topic=orders,partition=-1,offset=-1001,leader_epoch=None,error=None}"
    )


@pytest.mark.parametrize(
    "arguments", [(), (3,), ("orders", "one"), ("orders", 1, "end")], ids=repr
)
def test_topic_partition_rejects_wrong_types(
    kafka: ModuleType, arguments: tuple[object, ...]
) -> None:
    with pytest.raises(TypeError):
        kafka.TopicPartition(*arguments)


@pytest.mark.ours
def test_topic_partition_compared_with_another_type_is_unequal(kafka: ModuleType) -> None:
    assert kafka.TopicPartition("orders") != 3
    with pytest.raises(TypeError):
        kafka.TopicPartition("orders") < 3  # noqa: B015


def test_topic_missing_is_named(kafka: ModuleType) -> None:
    with pytest.raises(TypeError, match="topic"):
        kafka.TopicPartition()
