"""Small data classes of the public API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum
from functools import total_ordering
from typing import Self, overload

from cykafka._core.common.message import Message
from cykafka._core.common.naming import public
from cykafka._core.common.partition import TopicPartition


@public("cykafka")
class Messages:
    """A read-only sequence of messages.

    Parameters
    ----------
    messages : iterable of Message
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._records = list(messages)

    @classmethod
    def _from_list(cls, records: list[Message]) -> Self:
        """Create Messages that share this list, without copying it."""
        messages = cls.__new__(cls)
        messages._records = records
        return messages

    def records(self) -> list[Message]:
        """The messages, as a new list."""
        return list(self._records)

    def count(self) -> int:
        """The number of messages."""
        return len(self._records)

    def is_empty(self) -> bool:
        """Whether there are no messages."""
        return not self._records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> Message | Messages:
        if isinstance(index, slice):
            return self._from_list(self._records[index])
        return self._records[index]

    def __repr__(self) -> str:
        return f"Messages({self._records!r})"


class Shown:
    """Base class whose repr shows the attributes."""

    def __repr__(self) -> str:
        held = ", ".join(
            f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_")
        )
        return f"{type(self).__name__}({held})"


@public("cykafka")
class Node(Shown):
    """A broker: ``id``, ``id_string``, ``host``, ``port`` and ``rack`` (or None)."""

    def __init__(self, id: int, host: str, port: int, rack: str | None = None) -> None:
        self.id = id
        self.id_string = str(id)
        self.host = host
        self.port = port
        self.rack = rack

    def __str__(self) -> str:
        rack = f"(Rack - {self.rack})" if self.rack else ""
        return f"({self.id}) {self.host}:{self.port} {rack}"


@public("cykafka")
class TopicCollection(Shown):
    """Topics by name: ``topic_names``."""

    def __init__(self, topic_names: list[str]) -> None:
        self.topic_names = topic_names


@public("cykafka")
class TopicPartitionInfo(Shown):
    """A partition's ``id``, ``leader``, ``replicas`` and ``isr`` (nodes)."""

    def __init__(self, id: int, leader: Node, replicas: list[Node], isr: list[Node]) -> None:
        self.id = id
        self.leader = leader
        self.replicas = replicas
        self.isr = isr


@public("cykafka")
class ConsumerGroupTopicPartitions(Shown):
    """A group and some of its partitions: ``group_id`` and ``topic_partitions``."""

    def __init__(
        self, group_id: str, topic_partitions: list[TopicPartition] | None = None
    ) -> None:
        self.group_id = group_id
        self.topic_partitions = topic_partitions


@total_ordering
class _OrderedEnum(Enum):
    def __lt__(self, other: Self) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self.value < other.value)


@public("cykafka")
class ConsumerGroupState(_OrderedEnum):
    """A consumer group's state."""

    UNKNOWN = 0
    UNKOWN = UNKNOWN  # confluent_kafka's typo, which programs use
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5


@public("cykafka")
class ConsumerGroupType(_OrderedEnum):
    """A consumer group's protocol: KIP-848 (CONSUMER) or the older protocol (CLASSIC)."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2


@public("cykafka")
class ElectionType(_OrderedEnum):
    """How a partition's leader is elected (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


@public("cykafka")
class IsolationLevel(_OrderedEnum):
    """Whether readers get records from open and aborted transactions (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@public("cykafka")
class AcknowledgeType(IntEnum):
    """How a share group member acknowledges a record (KIP-932)."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
