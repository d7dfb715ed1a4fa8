"""The positions of groups, and where the errors of each request go."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from cykafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from cykafka.admin import ListOffsetsResultInfo
from cykafka.cli.cluster.administration import Cluster, Outcomes
from cykafka.cli.cluster.lag import find_positions

ENDS = {("orders", 0): 100, ("orders", 2): KafkaError.TOPIC_AUTHORIZATION_FAILED}
REFUSED = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))


def done(result: object) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def failed(topic: str, partition: int) -> Any:
    """A partition whose committed offset the broker does not name."""
    error = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
    return SimpleNamespace(topic=topic, partition=partition, offset=-1, error=error)


class Admin:
    """Answers for partitions of the topics orders and gone; no answer for the group secret."""

    def __init__(self) -> None:
        self.asked: list[TopicPartition] = []

    def list_consumer_group_offsets(
        self, request: list[ConsumerGroupTopicPartitions], **_: object
    ) -> dict[str, Future[Any]]:
        (group,) = (item.group_id for item in request)
        if group == "secret":
            return {group: done(REFUSED)}
        offsets = [TopicPartition("orders", number, 40) for number in (0, 1, 2, 3)]
        offsets += [TopicPartition("gone", 0, 7), failed("orders", 4)]
        return {group: done(SimpleNamespace(topic_partitions=offsets))}

    def list_offsets(
        self, wanted: dict[TopicPartition, object], **_: object
    ) -> dict[TopicPartition, Future[Any]]:
        self.asked += wanted
        found = {item: ENDS.get((item.topic, item.partition), 50) for item in wanted}
        return {
            item: done(
                KafkaException(KafkaError(end))
                if end == KafkaError.TOPIC_AUTHORIZATION_FAILED
                else ListOffsetsResultInfo(end, -1, 0)
            )
            for item, end in found.items()
        }


@pytest.fixture
def cluster() -> Cluster:
    def partition(leader: int = 0, in_sync: int = 2) -> object:
        return SimpleNamespace(leader=leader, replicas=[0, 1], isrs=[0, 1][:in_sync])

    orders = dict(enumerate([partition(), partition(-1), partition(), partition(in_sync=1)]))
    orders[4] = partition()
    cluster = object.__new__(Cluster)  # without brokers
    cluster.admin, cluster.timeout = Admin(), 10.0  # type: ignore[assignment]
    cluster.metadata = SimpleNamespace(  # type: ignore[assignment]
        topics={"orders": SimpleNamespace(partitions=orders)}
    )
    return cluster


def test_each_position_has_its_error(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = Outcomes(shown=False)

    found = find_positions(cluster, ["billing", "secret"], {}, outcomes, wait=False)

    refused, unstable = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), failed("", 0).error
    assert [
        (item.topic, item.partition, item.committed, item.end, item.error) for item in found
    ] == [
        ("gone", 0, 7, None, "deleted"),
        ("orders", 0, 40, 100, None),
        ("orders", 1, 40, None, "no leader"),
        ("orders", 2, 40, None, f"no end: {refused.str()}"),
        ("orders", 3, 40, 50, "1 of 2 in sync"),
        ("orders", 4, None, 50, f"no offset: {unstable.str()}"),
    ]
    assert [item.lag for item in found] == [None, 60, None, None, 10, None]
    assert outcomes.error("secret") == f"no offsets: {REFUSED.args[0].str()}"
    assert outcomes.error("billing") is None
    assert outcomes.failures == 3
    assert capsys.readouterr().err == ""


def test_without_waiting_no_partition_without_a_leader_is_asked_for(cluster: Cluster) -> None:
    for wait in (False, True):
        cluster.admin = Admin()  # type: ignore[assignment]
        find_positions(cluster, ["billing"], {}, Outcomes(shown=False), wait=wait)
        assert (TopicPartition("orders", 1) in cluster.admin.asked) == wait  # type: ignore[attr-defined]
        assert TopicPartition("gone", 0) not in cluster.admin.asked  # type: ignore[attr-defined]


def test_failures_are_printed_for_commands(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = Outcomes()

    find_positions(cluster, ["billing"], {}, outcomes, has_topic=lambda topic: topic == "gone")
    find_positions(cluster, ["secret"], {}, outcomes)

    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "cannot list the offset of group billing in orders[4]",
        "cannot list the offsets of group secret",
    ]
