"""AdminClient's methods for topics."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from cykafka._core.admin.client import Admin
from cykafka._core.admin.topics import CreatePartitions, CreateTopics, DeleteTopics, DescribeTopics
from cykafka._core.model import TopicCollection
from cykafka._core.model.check import expect_list, expect_names
from cykafka._core.model.topic import NewPartitions, NewTopic, TopicDescription


class TopicRequests(Admin):
    """The requests for topics."""

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


def _names(plans: Sequence[NewTopic | NewPartitions], argument: str) -> list[str]:
    """Return the topics' names. Raise if a name is empty."""
    names = [plan.topic for plan in plans]
    if "" in names:
        raise ValueError(f"{argument}: a topic has an empty name")
    return names
