"""Consumer group lag: committed offsets and partition ends."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cykafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from cykafka.admin import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    MemberDescription,
    OffsetSpec,
)
from cykafka.cli.cluster.administration import Cluster, Outcomes
from cykafka.cli.terminal.failures import Failed, reason
from cykafka.cli.terminal.texts import name_of

__all__ = [
    "Position",
    "describe_groups",
    "find_positions",
    "list_groups",
    "list_other_groups",
    "read_committed",
    "refuse_other_group",
    "sum_positions",
]


@dataclass(frozen=True, kw_only=True)
class Position:
    """A group's position in a partition."""

    group: str
    topic: str
    partition: int
    committed: int | None = None
    """the committed offset; None if there is none"""
    end: int | None = None
    """the offset after the last record; None if unknown"""
    member_id: str | None = None
    """the member that reads the partition"""
    client_id: str | None = None
    """that member's client id"""
    error: str | None = None

    @property
    def lag(self) -> int | None:
        """The records after the committed offset; None if that offset or the end is unknown."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)


def list_groups(
    cluster: Cluster,
    outcomes: Outcomes,
    states: set[ConsumerGroupState] | None = None,
    types: set[ConsumerGroupType] | None = None,
) -> dict[str, ConsumerGroupListing]:
    """Return the cluster's groups, sorted by name; None selects all states or types."""
    answer = cluster.admin.list_consumer_groups(
        states=states, types=types, request_timeout=cluster.timeout
    ).result()
    for error in answer.errors or ():
        outcomes.fail("list the groups of a broker", reason(error))
    found = {listing.group_id: listing for listing in answer.valid or ()}
    return dict(sorted(found.items()))


def list_other_groups(cluster: Cluster, outcomes: Outcomes, known: Iterable[str]) -> list[str]:
    """Return the names of share groups and streams groups, sorted. librdkafka's newer requests
    omit them, and no request of it tells one kind from the other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            listed = cluster.admin.list_groups(timeout=cluster.timeout)
        except KafkaException as error:
            outcomes.fail("list the share groups", reason(error))
            return []
    # The broker describes a group that is not classic as dead. This includes KIP-848 groups.
    names = {
        group.id or "" for group in listed if group.state == "Dead" and not group.protocol_type
    }
    return sorted(names.difference(known))


def refuse_other_group(
    cluster: Cluster, outcomes: Outcomes, group: str, known: Iterable[str]
) -> None:
    """Raise Failed if the group is a share group, or a streams group without offsets."""
    others = [] if group in known else list_other_groups(cluster, outcomes, known)
    if group in others and not outcomes.failures:
        raise Failed(
            f"group {group} is not a consumer group and has no committed offsets; "
            "kafka-share-groups.sh resets a share group"
        )


def describe_groups(
    cluster: Cluster, groups: Sequence[str], outcomes: Outcomes
) -> dict[str, ConsumerGroupDescription]:
    """Return group descriptions by name, without groups that fail."""
    if not groups:
        return {}
    futures = cluster.admin.describe_consumer_groups(list(groups), request_timeout=cluster.timeout)
    answers = {
        name: outcomes.wait_for(f"describe group {name}", future, ("no members", name))
        for name, future in futures.items()
    }
    return {name: answer for name, answer in answers.items() if answer is not None}


def read_committed(
    cluster: Cluster, groups: Sequence[str], outcomes: Outcomes
) -> dict[str, dict[TopicPartition, int]]:
    """Return the committed offsets of groups, without groups that fail."""
    return {
        name: {partition: offset for partition, offset in offsets.items() if offset is not None}
        for name, offsets in _committed(cluster, groups, outcomes).items()
    }


def _committed(
    cluster: Cluster, groups: Sequence[str], outcomes: Outcomes
) -> dict[str, dict[TopicPartition, int | None]]:
    """Like `read_committed`, with None for an offset that the broker does not return."""
    futures = {
        name: cluster.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=cluster.timeout
        )[name]
        for name in groups
    }
    found: dict[str, dict[TopicPartition, int | None]] = {}
    for name, future in futures.items():
        answer = outcomes.wait_for(
            f"list the offsets of group {name}", future, ("no offsets", name)
        )
        if answer is None:
            continue
        offsets = found[name] = {}
        for partition in answer.topic_partitions or ():
            key = TopicPartition(partition.topic, partition.partition)
            if partition.error is not None:
                offsets[key] = None
                action = f"list the offset of group {name} in {name_of(partition)}"
                outcomes.fail(action, partition.error.str(), ("no offset", (name, key)))
            elif partition.offset >= 0:
                offsets[key] = partition.offset
    return found


def _members(description: ConsumerGroupDescription) -> dict[TopicPartition, MemberDescription]:
    return {
        TopicPartition(partition.topic, partition.partition): member
        for member in description.members
        for partition in member.assignment.topic_partitions
    }


def find_positions(
    cluster: Cluster,
    groups: Sequence[str],
    descriptions: Mapping[str, ConsumerGroupDescription],
    outcomes: Outcomes,
    *,
    has_topic: Callable[[str], bool] = lambda topic: True,
    wait: bool = True,
) -> list[Position]:
    """Return groups' positions in the partitions that they have committed or are assigned.

    Parameters
    ----------
    cluster : Cluster
    groups : sequence of str
    descriptions : mapping
        The groups' descriptions. The members of a group without one are unknown.
    outcomes : Outcomes
        Collects the failures. The positions also contain their partitions' failures.
    has_topic : callable
        Returns whether to include a topic.
    wait : bool
        Wait for partitions that currently lack a leader.
    """
    offsets = _committed(cluster, groups, outcomes)
    members = {name: _members(description) for name, description in descriptions.items()}
    places = [
        (name, partition)
        for name in groups
        for partition in sorted({*offsets.get(name, ()), *members.get(name, ())})
        if has_topic(partition.topic)
    ]
    troubles = {partition: _trouble(cluster, partition) for _, partition in places}
    unanswered = ("deleted",) if wait else ("deleted", "no leader")
    asked = sorted(
        partition for partition, trouble in troubles.items() if trouble not in unanswered
    )
    ends = cluster.offsets(asked, OffsetSpec.latest(), outcomes, wait=wait)
    found = []
    for name, partition in places:
        member = members.get(name, {}).get(partition)
        found.append(
            Position(
                group=name,
                topic=partition.topic,
                partition=partition.partition,
                committed=offsets.get(name, {}).get(partition),
                end=ends[partition].offset if partition in ends else None,
                member_id=member.member_id if member else None,
                client_id=member.client_id if member else None,
                error=outcomes.error(partition)
                or troubles[partition]
                or outcomes.error((name, partition)),
            )
        )
    return found


def _trouble(cluster: Cluster, place: TopicPartition) -> str | None:
    """Return a partition's problem according to the metadata, or None."""
    topic = cluster.metadata.topics.get(place.topic)
    partition = topic and topic.partitions.get(place.partition)
    if not partition:
        return "deleted"
    if partition.leader < 0:
        return "no leader"
    replicas, in_sync = len(partition.replicas), len(partition.isrs)
    return f"{in_sync} of {replicas} in sync" if in_sync < replicas else None


def sum_positions(
    found: Iterable[Position],
) -> tuple[int | None, int | None, int | None, int | None]:
    """Return the sums of committed offsets, ends and lags, and the greatest lag.

    Partitions without a lag do not count. If all lack a lag, all values are None.
    """
    known = [
        (position.committed, position.end, position.lag)
        for position in found
        if position.committed is not None and position.end is not None and position.lag is not None
    ]
    if not known:
        return (None, None, None, None)
    offsets, ends, behind = zip(*known, strict=True)
    return (sum(offsets), sum(ends), sum(behind), max(behind))
