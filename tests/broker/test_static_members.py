"""Static membership (KIP-345): a named member keeps its partitions while it is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, Unique, WaitUntil
from machine import WAIT_S

PARTITIONS = 4

PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat.interval.ms": 200},
    "consumer": {"group.protocol": "consumer"},
}


class Member:
    """A static member that records its rebalance callbacks."""

    def __init__(self, consumer: Any, topic: str) -> None:
        self.consumer = consumer
        self.assigned: list[int] = []
        self.revoked: list[int] = []
        consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self.assigned += [partition.partition for partition in partitions]

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self.revoked += [partition.partition for partition in partitions]

    @property
    def owned(self) -> set[int]:
        return {partition.partition for partition in self.consumer.assignment()}


@pytest.fixture(params=PROTOCOLS)
def join(
    request: pytest.FixtureRequest, cluster: Any, make_consumer: MakeConsumer, unique: Unique
) -> Callable[[str], Member]:
    """Join a group as the static member with this name."""
    topic, group = unique("topic"), unique("group")
    cluster.create_topic(topic, PARTITIONS)

    def join(name: str) -> Member:
        config = {
            "group.id": group,
            "group.instance.id": name,
            "partition.assignment.strategy": "cooperative-sticky",
            **PROTOCOLS[request.param],
        }
        if request.param == "consumer":
            del config["partition.assignment.strategy"]  # the broker assigns
        return Member(make_consumer(config), topic)

    return join


@pytest.fixture
def settle(wait_until: WaitUntil) -> Callable[..., None]:
    """Poll the members until they share all partitions evenly."""

    def settle(*members: Member) -> None:
        share = PARTITIONS // len(members)

        def poll() -> None:
            for member in members:
                message = member.consumer.poll(0.05)
                assert message is None or message.error() is None, message

        wait_until(lambda: all(len(member.owned) == share for member in members), poll, WAIT_S)

    return settle


def test_returning_static_member_keeps_its_partitions_without_a_rebalance(
    join: Callable[[str], Member], settle: Callable[..., None]
) -> None:
    one, two = join("one"), join("two")
    settle(one, two)
    had = two.owned
    before = len(one.assigned), len(one.revoked)

    two.consumer.close()
    two = join("two")
    settle(one, two)

    assert two.owned == had
    assert (len(one.assigned), len(one.revoked)) == before


def test_second_member_with_the_same_instance_id_fences_one_of_them(
    kafka: Any, join: Callable[[str], Member], settle: Callable[..., None], wait_until: WaitUntil
) -> None:
    first = join("one")
    settle(first)
    second = join("one")
    fenced: list[Any] = []

    def poll() -> None:
        for member in (first, second):
            message = member.consumer.poll(0.05)
            if message is not None and message.error() is not None:
                fenced.append(message.error())

    # A classic group fences the older member. A KIP-848 group refuses the newer one.
    wait_until(lambda: fenced, poll, WAIT_S)

    assert fenced[0].code() == kafka.KafkaError._FATAL
    assert fenced[0].fatal()
    assert "instance" in fenced[0].str().lower()


@pytest.mark.ours
def test_fenced_member_closes_without_an_error_or_a_rebalance(
    kafka: Any,
    join: Callable[[str], Member],
    settle: Callable[..., None],
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
) -> None:
    members = [join("one")]
    settle(*members)
    members.append(join("one"))
    fenced: list[Member] = []

    def poll() -> None:
        for member in members:
            message = member.consumer.poll(0.05)
            if message is not None and message.error() is not None:
                fenced.append(member)

    wait_until(lambda: fenced, poll, WAIT_S)
    (other,) = [member for member in members if member is not fenced[0]]

    fenced[0].consumer.close()

    assert "closed without leaving the group" in "\n".join(caplog.messages)
    settle(other)
