"""Requests for partition offsets, and their results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import total_ordering
from typing import Any

from cykafka._core.common.naming import public
from cykafka._core.model import Shown
from cykafka._core.model.check import expect_int

MAX_TIMESTAMP, EARLIEST, LATEST = -3, -2, -1


@public("cykafka.admin")
@total_ordering
class OffsetSpec(ABC):
    """Which of a partition's offsets :meth:`AdminClient.list_offsets` looks up.

    Call :meth:`earliest`, :meth:`latest`, :meth:`max_timestamp` or :meth:`for_timestamp` to create
    one.
    """

    _made: dict[int, OffsetSpec] = {}  # noqa: RUF012 - shared on purpose

    def __new__(cls, index: int) -> OffsetSpec:
        expect_int(index, "index", MAX_TIMESTAMP, 2**63 - 1)
        return cls._made[index] if index < 0 else TimestampSpec(index)

    @property
    @abstractmethod
    def _value(self) -> int: ...

    @staticmethod
    def earliest() -> OffsetSpec:
        """The offset of the first record."""
        return OffsetSpec._made[EARLIEST]

    @staticmethod
    def latest() -> OffsetSpec:
        """The offset of the next record that a producer writes."""
        return OffsetSpec._made[LATEST]

    @staticmethod
    def max_timestamp() -> OffsetSpec:
        """The offset of the record with the greatest timestamp (KIP-734)."""
        return OffsetSpec._made[MAX_TIMESTAMP]

    @staticmethod
    def for_timestamp(timestamp: int) -> OffsetSpec:
        """The offset of the first record with this timestamp or a later one.

        Parameters
        ----------
        timestamp : int
            Milliseconds since the epoch. The fraction of a float is dropped.
        """
        return TimestampSpec(timestamp)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, OffsetSpec):
            return NotImplemented
        return self._value < other._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetSpec):
            return NotImplemented
        return self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (OffsetSpec, (self._value,))


class TimestampSpec(OffsetSpec):
    """See :meth:`OffsetSpec.for_timestamp`."""

    def __new__(cls, timestamp: int) -> TimestampSpec:
        return object.__new__(cls)

    def __init__(self, timestamp: int) -> None:
        if isinstance(timestamp, float):  # such as time.time() * 1000
            timestamp = int(timestamp)
        self.timestamp = expect_int(timestamp, "timestamp", 0, 2**63 - 1)

    @property
    def _value(self) -> int:
        return self.timestamp

    def __repr__(self) -> str:
        return f"OffsetSpec.for_timestamp({self.timestamp})"


class _Fixed(OffsetSpec):
    def __new__(cls) -> _Fixed:
        return object.__new__(cls)

    def __repr__(self) -> str:
        names = {MAX_TIMESTAMP: "max_timestamp", EARLIEST: "earliest", LATEST: "latest"}
        return f"OffsetSpec.{names[self._value]}()"


class MaxTimestampSpec(_Fixed):
    """See :meth:`OffsetSpec.max_timestamp`."""

    _value = MAX_TIMESTAMP


class EarliestSpec(_Fixed):
    """See :meth:`OffsetSpec.earliest`."""

    _value = EARLIEST


class LatestSpec(_Fixed):
    """See :meth:`OffsetSpec.latest`."""

    _value = LATEST


OffsetSpec._made.update(
    {MAX_TIMESTAMP: MaxTimestampSpec(), EARLIEST: EarliestSpec(), LATEST: LatestSpec()}
)


@public("cykafka.admin")
class ListOffsetsResultInfo(Shown):
    """The result of an offset lookup.

    Attributes
    ----------
    offset : int
        -1 if the partition has no such record.
    timestamp : int
        The record's timestamp, ms since the epoch. -1 for the earliest and latest offsets.
    leader_epoch : int or None
    """

    def __init__(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.leader_epoch = None if leader_epoch < 0 else leader_epoch


@public("cykafka.admin")
class DeletedRecords(Shown):
    """A partition after deleting records: ``low_watermark``, the offset of its first record."""

    def __init__(self, low_watermark: int) -> None:
        self.low_watermark = low_watermark
