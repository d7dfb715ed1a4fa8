"""AdminClient's methods for topics and their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from cykafka._core.admin.client import Admin
from cykafka._core.admin.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteRecords,
    DeleteTopics,
    DescribeTopics,
    ElectLeaders,
    ListOffsets,
)
from cykafka._core.common.errors import KafkaError
from cykafka._core.common.partition import TopicPartition
from cykafka._core.model import ElectionType, IsolationLevel, TopicCollection
from cykafka._core.model.check import check_partition, expect_list, expect_names
from cykafka._core.model.offset import DeletedRecords, ListOffsetsResultInfo, OffsetSpec
from cykafka._core.model.topic import NewPartitions, NewTopic, TopicDescription


class TopicRequests(Admin):
    """The requests for topics, and for partitions' offsets, records and leaders."""

    def create_topics(
        self,
        new_topics: list[NewTopic],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Create topics.

        Parameters
        ----------
        new_topics : list of NewTopic
        operation_timeout, request_timeout : float, optional
            Seconds.
        validate_only : bool

        Returns
        -------
        dict of str to Future of None
            The keys are topic names.
        """
        wanted = expect_list(new_topics, NewTopic, "new_topics")
        return self._send(
            CreateTopics(wanted),
            _names(wanted, "new_topics"),
            operation_timeout=operation_timeout,
            request_timeout=request_timeout,
            validate_only=validate_only,
        )

    def delete_topics(
        self,
        topics: list[str],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> dict[str, Future[None]]:
        """Delete topics.

        Parameters
        ----------
        topics : list of str
        operation_timeout, request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of str to Future of None
            The keys are topic names.
        """
        names = expect_names(topics, "topics")
        return self._send(
            DeleteTopics(names),
            names,
            operation_timeout=operation_timeout,
            request_timeout=request_timeout,
        )

    def create_partitions(
        self,
        new_partitions: list[NewPartitions],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Add partitions to topics.

        Parameters
        ----------
        new_partitions : list of NewPartitions
        operation_timeout, request_timeout : float, optional
            Seconds.
        validate_only : bool

        Returns
        -------
        dict of str to Future of None
            The keys are topic names.
        """
        wanted = expect_list(new_partitions, NewPartitions, "new_partitions")
        return self._send(
            CreatePartitions(wanted),
            _names(wanted, "new_partitions"),
            operation_timeout=operation_timeout,
            request_timeout=request_timeout,
            validate_only=validate_only,
        )

    def describe_topics(
        self,
        topics: TopicCollection,
        *,
        request_timeout: float | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, Future[TopicDescription]]:
        """Describe topics: their id, partitions, leaders and replicas.

        Parameters
        ----------
        topics : TopicCollection
        request_timeout : float, optional
            Seconds.
        include_authorized_operations : bool
            Also return the operations that this client may use on the topics (KIP-430).

        Returns
        -------
        dict of str to Future of TopicDescription
            The keys are topic names.
        """
        if not isinstance(topics, TopicCollection):
            raise TypeError(f"topics: expected a TopicCollection, got {type(topics).__name__}")
        names = expect_names(topics.topic_names, "topics", empty=True)
        return self._send(
            DescribeTopics(names),
            names,
            request_timeout=request_timeout,
            include_authorized_operations=include_authorized_operations,
        )

    def list_offsets(
        self,
        topic_partition_offsets: dict[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel | None = None,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Look up each partition's first, last or newest offset, or the offset of a timestamp.

        Parameters
        ----------
        topic_partition_offsets : dict of TopicPartition to OffsetSpec
        isolation_level : IsolationLevel, optional
            ``READ_COMMITTED`` stops at the first open transaction.
        request_timeout : float, optional
            Seconds; a value below 1 means 1.

        Returns
        -------
        dict of TopicPartition to Future of ListOffsetsResultInfo
        """
        if not isinstance(topic_partition_offsets, dict):
            raise TypeError(
                "topic_partition_offsets: expected a dict of TopicPartition to OffsetSpec, "
                f"got {type(topic_partition_offsets).__name__}"
            )
        wanted = []
        for partition, spec in topic_partition_offsets.items():
            if not isinstance(partition, TopicPartition):
                raise TypeError(
                    "topic_partition_offsets: expected a TopicPartition, "
                    f"got {type(partition).__name__}"
                )
            check_partition(partition, "topic_partition_offsets")
            if not isinstance(spec, OffsetSpec):
                raise TypeError(
                    f"topic_partition_offsets: expected an OffsetSpec for {partition}, "
                    f"got {type(spec).__name__}"
                )
            wanted.append(TopicPartition(partition.topic, partition.partition, spec._value))
        if isolation_level is not None and not isinstance(isolation_level, IsolationLevel):
            raise TypeError(
                "isolation_level: expected an IsolationLevel, got "
                f"{type(isolation_level).__name__}"
            )
        return self._send(
            ListOffsets(wanted),
            wanted,
            isolation_level=None if isolation_level is None else isolation_level.value,
            request_timeout=request_timeout,
        )

    def delete_records(
        self,
        topic_partition_offsets: list[TopicPartition],
        *,
        request_timeout: float | None = None,
        operation_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records before an offset.

        Parameters
        ----------
        topic_partition_offsets : list of TopicPartition
            Each with the offset of the first record to keep; ``OFFSET_END`` deletes all records.
        request_timeout, operation_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of TopicPartition to Future of DeletedRecords
        """
        partitions = _checked_partitions(topic_partition_offsets, "Request", "request list")
        return self._send(
            DeleteRecords(partitions),
            partitions,
            request_timeout=request_timeout,
            operation_timeout=operation_timeout,
        )

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: list[TopicPartition] | None = None,
        *,
        request_timeout: float | None = None,
        operation_timeout: float | None = None,
    ) -> Future[dict[TopicPartition, KafkaError | None]]:
        """Elect leaders (KIP-460).

        Parameters
        ----------
        election_type : ElectionType
            ``PREFERRED``: the first of a partition's replicas. ``UNCLEAN``: a replica that is not
            in sync, if no replica in sync is alive.
        partitions : list of TopicPartition, optional
            By default, all of the cluster's partitions.
        request_timeout, operation_timeout : float, optional
            Seconds.

        Returns
        -------
        Future of dict of TopicPartition to KafkaError or None
            ``ELECTION_NOT_NEEDED`` if the partition already has the right leader. Without
            `partitions`, the dict contains only partitions that needed an election.
        """
        if not isinstance(election_type, ElectionType):
            raise TypeError(
                "Expected 'election_type' to be of type 'ElectionType', "
                f"got '{type(election_type).__name__}'"
            )
        wanted = None
        if partitions is not None:
            wanted = _checked_partitions(partitions, "'partitions'", "'partitions' list")
        return self._send(
            ElectLeaders(election_type.value, wanted),
            None,
            request_timeout=request_timeout,
            operation_timeout=operation_timeout,
        )


def _names(plans: Sequence[NewTopic | NewPartitions], argument: str) -> list[str]:
    """Return the topics' names. Raise if a name is empty."""
    names = [plan.topic for plan in plans]
    if "" in names:
        raise ValueError(f"{argument}: a topic has an empty name")
    return names


def _checked_partitions(partitions: object, argument: str, items: str) -> list[TopicPartition]:
    # Both messages are confluent_kafka's.
    if not isinstance(partitions, (list, tuple)):
        raise TypeError(f"Expected {argument} to be a list, got '{type(partitions).__name__}'")
    for partition in partitions:
        if not isinstance(partition, TopicPartition):
            raise TypeError(
                f"Element of the {items} must be of type 'TopicPartition' "
                f"got '{type(partition).__name__}'"
            )
        check_partition(partition, items)
    return list(partitions)
