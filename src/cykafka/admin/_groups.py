"""AdminClient's methods for consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum

from cykafka._core.admin.client import Admin
from cykafka._core.admin.groups import (
    AlterConsumerGroupOffsets,
    DeleteConsumerGroupOffsets,
    DeleteConsumerGroups,
    DescribeConsumerGroups,
    ListConsumerGroupOffsets,
    ListConsumerGroups,
)
from cykafka._core.common.partition import OFFSET_INVALID, TopicPartition
from cykafka._core.model import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
)
from cykafka._core.model.check import check_partition, expect_list, expect_names
from cykafka._core.model.group import ConsumerGroupDescription, ListConsumerGroupsResult


class GroupRequests(Admin):
    """The requests for consumer groups."""

    def list_consumer_groups(
        self,
        *,
        states: set[ConsumerGroupState] | None = None,
        types: set[ConsumerGroupType] | None = None,
        request_timeout: float | None = None,
    ) -> Future[ListConsumerGroupsResult]:
        """List the cluster's groups.

        Parameters
        ----------
        states : set of ConsumerGroupState, optional
            Only groups in one of these states (KIP-518).
        types : set of ConsumerGroupType, optional
            Only groups of these protocols (KIP-848).
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        Future of ListConsumerGroupsResult
        """
        return self._send(
            ListConsumerGroups(),
            None,
            states=_values(states, ConsumerGroupState, "states"),
            types=_values(types, ConsumerGroupType, "types"),
            request_timeout=request_timeout,
        )

    def describe_consumer_groups(
        self,
        group_ids: list[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Describe groups: their state, members and assignments.

        Parameters
        ----------
        group_ids : list of str
            Without duplicates.
        include_authorized_operations : bool
            Also return the operations that this client may use on the groups (KIP-430).
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of str to Future of ConsumerGroupDescription
            The keys are group names.
        """
        names = expect_names(group_ids, "group_ids", unnamed=True)
        return self._send(
            DescribeConsumerGroups(names),
            names,
            include_authorized_operations=include_authorized_operations,
            request_timeout=request_timeout,
        )

    def delete_consumer_groups(
        self, group_ids: list[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Delete groups, which must not have members.

        Parameters
        ----------
        group_ids : list of str
            Without duplicates.
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of str to Future of None
            The keys are group names.
        """
        names = expect_names(group_ids, "group_ids", unnamed=True)
        return self._send(DeleteConsumerGroups(names), names, request_timeout=request_timeout)

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """List a group's committed offsets.

        Parameters
        ----------
        list_consumer_group_offsets_request : list of ConsumerGroupTopicPartitions
            One group and its partitions. None means all partitions with a committed offset.
        require_stable : bool
            Fail with ``UNSTABLE_OFFSET_COMMIT`` while a transaction has offsets pending (KIP-447).
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of str to Future of ConsumerGroupTopicPartitions
            The keys are group names. A partition's own error is in its TopicPartition.
        """
        group, partitions = _one_group(
            list_consumer_group_offsets_request,
            "list_consumer_group_offsets_request",
            lambda partition: "an offset" if partition.offset != OFFSET_INVALID else None,
            all_allowed=True,
        )
        return self._send(
            ListConsumerGroupOffsets(group, partitions),
            [group],
            require_stable=require_stable,
            request_timeout=request_timeout,
        )

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Commit offsets for a group without members.

        Parameters
        ----------
        alter_consumer_group_offsets_request : list of ConsumerGroupTopicPartitions
            One group and its partitions with their offsets.
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of str to Future of ConsumerGroupTopicPartitions
            The keys are group names. A partition's own error is in its TopicPartition.
        """
        group, partitions = _one_group(
            alter_consumer_group_offsets_request,
            "alter_consumer_group_offsets_request",
            lambda partition: "a negative offset" if partition.offset < 0 else None,
        )
        return self._send(
            AlterConsumerGroupOffsets(group, partitions), [group], request_timeout=request_timeout
        )

    def delete_consumer_group_offsets(
        self,
        delete_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Delete a group's offsets for partitions that it is not subscribed to (KIP-496).

        Parameters
        ----------
        delete_consumer_group_offsets_request : list of ConsumerGroupTopicPartitions
            One group and its partitions.
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of str to Future of ConsumerGroupTopicPartitions
            The keys are group names. A partition's own error is in its TopicPartition.
        """
        group, partitions = _one_group(
            delete_consumer_group_offsets_request,
            "delete_consumer_group_offsets_request",
            lambda partition: None,
        )
        return self._send(
            DeleteConsumerGroupOffsets(group, partitions), [group], request_timeout=request_timeout
        )


def _values(chosen: object, enumeration: type[Enum], argument: str) -> list[int] | None:
    if chosen is None:
        return None
    if not isinstance(chosen, set):
        raise TypeError(
            f"{argument}: expected a set of {enumeration.__name__}, got {type(chosen).__name__}"
        )
    for member in chosen:
        if not isinstance(member, enumeration):
            raise TypeError(
                f"{argument}: expected a set of {enumeration.__name__}, "
                f"found a {type(member).__name__} in it"
            )
    return [member.value for member in chosen]


def _one_group(
    request: object,
    argument: str,
    objection: Callable[[TopicPartition], str | None],
    *,
    all_allowed: bool = False,
) -> tuple[str, list[TopicPartition] | None]:
    """Return the group's name and partitions. librdkafka accepts one group per request."""
    if not isinstance(request, list):
        raise TypeError(
            f"{argument}: expected a list of ConsumerGroupTopicPartitions, "
            f"got {type(request).__name__}"
        )
    if len(request) != 1:
        raise ValueError(f"{argument}: expected exactly one group, got {len(request)}")
    (wanted,) = expect_list(request, ConsumerGroupTopicPartitions, argument)
    if not isinstance(wanted.group_id, str):
        raise TypeError(f"group_id: expected a str, got {type(wanted.group_id).__name__}")
    if not wanted.group_id:
        raise ValueError("group_id: expected a str that is not empty")
    partitions = wanted.topic_partitions
    if partitions is None:
        if all_allowed:
            return wanted.group_id, None
        raise ValueError(f"topic_partitions: {argument} has none")
    if not isinstance(partitions, list):
        raise TypeError(
            f"topic_partitions: expected a list of TopicPartition, got {type(partitions).__name__}"
        )
    for partition in expect_list(partitions, TopicPartition, "topic_partitions"):
        check_partition(partition, "topic_partitions")
        problem = objection(partition)
        if problem:
            raise ValueError(f"topic_partitions: {partition} has {problem}")
    return wanted.group_id, list(partitions)
