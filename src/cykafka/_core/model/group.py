"""Consumer groups and their members."""

from __future__ import annotations

from collections.abc import Iterable

from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.metadata import BrokerMetadata
from cykafka._core.common.naming import public
from cykafka._core.common.partition import TopicPartition
from cykafka._core.model import ConsumerGroupState, ConsumerGroupType, Node, Shown
from cykafka._core.model.acl import AclOperation
from cykafka._core.model.check import member_of, members_of


@public("cykafka.admin")
class ConsumerGroupListing(Shown):
    """A group in the result of ``list_consumer_groups()``.

    Attributes
    ----------
    group_id : str
    is_simple_consumer_group : bool
        Whether clients commit offsets to the group without subscribing as members.
    state : ConsumerGroupState
    type : ConsumerGroupType
    """

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        state: ConsumerGroupState | str | int | None = None,
        type: ConsumerGroupType | str | int | None = None,
    ) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        if state is not None:
            self.state = member_of(state, ConsumerGroupState, "state")
        if type is not None:
            self.type = member_of(type, ConsumerGroupType, "type")


@public("cykafka.admin")
class ListConsumerGroupsResult(Shown):
    """Groups, and the errors of brokers that could not list their groups.

    Attributes
    ----------
    valid : list of ConsumerGroupListing
    errors : list of KafkaError
    """

    def __init__(
        self,
        valid: list[ConsumerGroupListing] | None = None,
        errors: list[KafkaError] | list[KafkaException] | None = None,
    ) -> None:
        self.valid = valid
        self.errors = errors


@public("cykafka.admin")
class MemberAssignment(Shown):
    """A member's partitions: ``topic_partitions``."""

    def __init__(self, topic_partitions: list[TopicPartition] | None) -> None:
        self.topic_partitions = topic_partitions or []


@public("cykafka.admin")
class MemberDescription(Shown):
    """A group member.

    Attributes
    ----------
    member_id, client_id, host : str
    assignment : MemberAssignment
    group_instance_id : str or None
        The name of a static member (KIP-345).
    target_assignment : MemberAssignment or None
        The assignment that the coordinator wants the member to reach (KIP-848).
    """

    def __init__(
        self,
        member_id: str,
        client_id: str,
        host: str,
        assignment: MemberAssignment,
        group_instance_id: str | None = None,
        target_assignment: MemberAssignment | None = None,
    ) -> None:
        self.member_id = member_id
        self.client_id = client_id
        self.host = host
        self.assignment = assignment
        self.target_assignment = target_assignment
        self.group_instance_id = group_instance_id


@public("cykafka.admin")
class ConsumerGroupDescription(Shown):
    """A group and its members.

    Attributes
    ----------
    group_id : str
    is_simple_consumer_group : bool
    members : list of MemberDescription
    partition_assignor : str
    state : ConsumerGroupState
    coordinator : Node
    authorized_operations : list of AclOperation or None
        None if not requested.
    type : ConsumerGroupType
    """

    def __init__(
        self,
        group_id: str,
        is_simple_consumer_group: bool,
        members: list[MemberDescription],
        partition_assignor: str,
        state: ConsumerGroupState | str | int | None,
        coordinator: Node,
        authorized_operations: Iterable[AclOperation | str | int] | None = None,
        type: ConsumerGroupType | str | int = ConsumerGroupType.UNKNOWN,
    ) -> None:
        self.group_id = group_id
        self.is_simple_consumer_group = is_simple_consumer_group
        self.members = members
        self.partition_assignor = partition_assignor
        self.coordinator = coordinator
        self.authorized_operations = members_of(
            authorized_operations, AclOperation, "authorized_operations"
        )
        if state is not None:
            self.state = member_of(state, ConsumerGroupState, "state")
        if type is not None:
            self.type = member_of(type, ConsumerGroupType, "type")


@public("cykafka.admin")
class GroupMember(Shown):
    """A group member in the result of ``list_groups()``.

    Attributes
    ----------
    id, client_id, client_host : str
    metadata, assignment : bytes
        In the format of the group's protocol.
    """

    def __init__(self) -> None:
        self.id: str | None = None
        self.client_id: str | None = None
        self.client_host: str | None = None
        self.metadata: bytes | None = None
        self.assignment: bytes | None = None


@public("cykafka.admin")
class GroupMetadata:
    """A group in the result of ``list_groups()``.

    Attributes
    ----------
    id : str
    broker : BrokerMetadata
        The broker that listed the group.
    error : KafkaError or None
    state, protocol_type, protocol : str
    members : list of GroupMember
    """

    def __init__(self) -> None:
        self.broker: BrokerMetadata | None = None
        self.id: str | None = None
        self.error: KafkaError | None = None
        self.state: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members: list[GroupMember] = []

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"GroupMetadata({self.id}{error})"

    def __str__(self) -> str:
        return str(self.id)
