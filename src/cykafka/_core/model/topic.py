"""Topics and partitions to create, and descriptions of topics and of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from functools import total_ordering

from cykafka._core.common.library import Uuid
from cykafka._core.common.naming import public
from cykafka._core.model import Node, Shown, TopicPartitionInfo
from cykafka._core.model.acl import AclOperation
from cykafka._core.model.check import expect, expect_int, members_of


@total_ordering
class _Plan:
    """A topic name and a number of partitions. Compares and hashes by both."""

    def __init__(self, topic: str) -> None:
        self._topic = expect(topic, str, "topic")

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._topic

    def _key(self) -> tuple[str, int]:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Plan) or type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Plan) or type(other) is not type(self):
            return NotImplemented
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@public("cykafka.admin")
class NewTopic(_Plan):
    """A topic to create. Equality, order and hash depend on its name and number of partitions.

    Parameters
    ----------
    topic : str
    num_partitions : int
        -1 uses the number in `replica_assignment` or, without one, the broker's default.
    replication_factor : int
        -1 uses the broker's default. With a `replica_assignment`, pass -1.
    replica_assignment : list of list of int, optional
        The broker ids for each partition, beginning with the preferred leader.
    config : dict of str to str, optional
        The topic's configuration.
    """

    def __init__(
        self,
        topic: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignment: list[list[int]] | None = None,
        config: dict[str, str] | None = None,
    ) -> None:
        super().__init__(topic)
        if config is not None and not isinstance(config, dict):
            raise TypeError(f"config: expected a dict of str, got {type(config).__name__}")
        self.num_partitions = expect_int(num_partitions, "num_partitions")
        self.replication_factor = expect_int(replication_factor, "replication_factor")
        self.replica_assignment = replica_assignment
        self.config = config

    def _key(self) -> tuple[str, int]:
        return (self.topic, self.num_partitions)

    def __repr__(self) -> str:
        count = "" if self.num_partitions == -1 else f",num_partitions={self.num_partitions}"
        return f"NewTopic(topic={self.topic}{count})"


@public("cykafka.admin")
class NewPartitions(_Plan):
    """Partitions to add. Equality, order and hash depend on the topic name and count.

    Parameters
    ----------
    topic : str
    new_total_count : int
        The number of partitions after the change.
    replica_assignment : list of list of int, optional
        The broker ids for each *new* partition, beginning with the preferred leader.
    """

    def __init__(
        self,
        topic: str,
        new_total_count: int,
        replica_assignment: list[list[int]] | None = None,
    ) -> None:
        super().__init__(topic)
        self.new_total_count = expect_int(new_total_count, "new_total_count")
        self.replica_assignment = replica_assignment

    def _key(self) -> tuple[str, int]:
        return (self.topic, self.new_total_count)

    def __repr__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"


@public("cykafka.admin")
class TopicDescription(Shown):
    """A topic's description.

    Attributes
    ----------
    name : str
    topic_id : Uuid
    is_internal : bool
    partitions : list of TopicPartitionInfo
    authorized_operations : list of AclOperation or None
        None if not requested.
    """

    def __init__(
        self,
        name: str,
        topic_id: Uuid,
        is_internal: bool,
        partitions: list[TopicPartitionInfo],
        authorized_operations: Iterable[AclOperation | str | int] | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = partitions
        self.authorized_operations = members_of(
            authorized_operations, AclOperation, "authorized_operations"
        )


@public("cykafka.admin")
class DescribeClusterResult(Shown):
    """A cluster: ``cluster_id``, ``controller`` (Node), ``nodes`` (list of Node) and
    ``authorized_operations`` (list of AclOperation; None if not requested)."""

    def __init__(
        self,
        controller: Node,
        nodes: list[Node],
        cluster_id: str | None = None,
        authorized_operations: Iterable[AclOperation | str | int] | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.controller = controller
        self.nodes = nodes
        self.authorized_operations = members_of(
            authorized_operations, AclOperation, "authorized_operations"
        )
