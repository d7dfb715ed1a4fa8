"""The lag of consumer groups: what they have committed, and where their partitions end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cykafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    TopicPartition,
)
from cykafka.admin import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    MemberDescription,
    OffsetSpec,
)
from cykafka.cli.administration import Cluster, Outcomes
from cykafka.cli.failures import reason

__all__ = [
    "Lag",
    "committed",
    "describe_groups",
    "lags",
    "list_groups",
    "members_by_partition",
    "sums",
]


@dataclass(frozen=True)
class Lag:
    """A group's position in a partition.

    Parameters
    ----------
    committed : int or None
        The committed offset; None if the group has none.
    end : int or None
        The offset after the last record; None if the broker did not answer.
    member : MemberDescription or None
        The member that has the partition.
    """

    group: str
    topic: str
    partition: int
    committed: int | None
    end: int | None
    member: MemberDescription | None = None

    @property
    def lag(self) -> int | None:
        """The records between the committed offset and the end."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)


def list_groups(
    cluster: Cluster,
    outcomes: Outcomes,
    states: set[ConsumerGroupState] | None = None,
    types: set[ConsumerGroupType] | None = None,
) -> dict[str, ConsumerGroupListing]:
    """The groups of the cluster, sorted by name; all states and types if these are None."""
    answer = cluster.admin.list_consumer_groups(
        states=states, types=types, request_timeout=cluster.timeout
    ).result()
    for error in answer.errors or ():
        outcomes.fail("list the groups of a broker", reason(error))
    return {each.group_id: each for each in sorted(answer.valid or (), key=_group_id)}


def _group_id(listing: ConsumerGroupListing) -> str:
    return listing.group_id


def describe_groups(
    cluster: Cluster, groups: Sequence[str], outcomes: Outcomes
) -> dict[str, ConsumerGroupDescription]:
    """The descriptions of groups by name; a group that fails is left out."""
    if not groups:
        return {}
    futures = cluster.admin.describe_consumer_groups(list(groups), request_timeout=cluster.timeout)
    answers = {
        name: outcomes.of(f"describe group {name}", future) for name, future in futures.items()
    }
    return {name: answer for name, answer in answers.items() if answer is not None}


def committed(
    cluster: Cluster, groups: Sequence[str], outcomes: Outcomes
) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of groups; a group that fails is left out."""
    futures = {
        name: cluster.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=cluster.timeout
        )[name]
        for name in groups
    }
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for name, future in futures.items():
        answer = outcomes.of(f"list the offsets of group {name}", future)
        if answer is None:
            continue
        offsets[name] = {}
        for each in answer.topic_partitions or ():
            if each.error is not None:
                where = f"{each.topic}[{each.partition}]"
                outcomes.fail(f"list the offset of group {name} in {where}", each.error.str())
            elif each.offset >= 0:
                offsets[name][TopicPartition(each.topic, each.partition)] = each.offset
    return offsets


def members_by_partition(
    description: ConsumerGroupDescription | None,
) -> dict[TopicPartition, MemberDescription]:
    """The member that has each partition."""
    if description is None:
        return {}
    return {
        TopicPartition(each.topic, each.partition): member
        for member in description.members
        for each in member.assignment.topic_partitions
    }


def lags(
    cluster: Cluster, descriptions: dict[str, ConsumerGroupDescription], outcomes: Outcomes
) -> list[Lag]:
    """The lag of groups in every partition that they have committed or are assigned."""
    offsets = committed(cluster, list(descriptions), outcomes)
    members = {name: members_by_partition(descriptions[name]) for name in offsets}
    places = [
        (name, each) for name in offsets for each in sorted({*offsets[name], *members[name]})
    ]
    known = cluster.counts()
    existing = {each for _, each in places if each.partition < known.get(each.topic, 0)}
    ends = cluster.offsets(sorted(existing), OffsetSpec.latest(), outcomes)
    return [
        Lag(
            name,
            each.topic,
            each.partition,
            offsets[name].get(each),
            ends[each].offset if each in ends else None,
            members[name].get(each),
        )
        for name, each in places
    ]


def sums(found: Iterable[Lag]) -> tuple[int | None, int | None, int | None, int | None]:
    """Committed offsets, ends, lag and greatest lag of the partitions that have a lag.

    All are None if no partition has one.
    """
    known = [
        (each.committed, each.end, each.lag)
        for each in found
        if each.committed is not None and each.end is not None and each.lag is not None
    ]
    if not known:
        return (None, None, None, None)
    offsets, ends, behind = zip(*known, strict=True)
    return (sum(offsets), sum(ends), sum(behind), max(behind))
