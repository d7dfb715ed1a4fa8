"""Filters of a batch that decide which offsets are read at all: partitions, offsets and topics.

What is taken over holds exactly, so Spark need not look at these rows again. Filters that are mere
conjunctions of columns with values arrive here; all else stays Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from cykafka.spark.offsets import PartitionRange

__all__ = ["Condition", "condition_of"]

_MIN, _MAX = -(2**63), 2**63

_TYPES: Mapping[str, type] = {"topic": str, "partition": int, "offset": int}


@dataclass(frozen=True)
class Condition:
    """What one filter says of one column: it is one of some values, or it lies within bounds."""

    column: str
    values: frozenset[str | int] | None = None
    low: int = _MIN
    high: int = _MAX  # the first one that is too high

    def of(self, whole: PartitionRange) -> Iterator[PartitionRange]:
        """The parts of a range that fulfil it."""
        if self.column != "offset":
            at = whole.topic if self.column == "topic" else whole.partition
            if at in self.values if self.values is not None else self.low <= int(at) < self.high:
                yield whole
            return
        bounds = [(self.low, self.high)]
        if self.values is not None:
            bounds = [(int(each), int(each) + 1) for each in sorted(self.values)]
        for low, high in bounds:
            part = PartitionRange(
                whole.topic, whole.partition, max(whole.start, low), min(whole.end, high)
            )
            if part.size:
                yield part


def condition_of(each: Filter) -> Condition | None:
    """The condition that a filter is, or None: it is none of ours."""
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1 or path[0] not in _TYPES:
        return None
    column = path[0]
    if isinstance(each, IsNotNull):
        return Condition("offset")  # as they all are
    value: Any = getattr(each, "value", None)
    values: tuple[Any, ...] = tuple(value) if isinstance(each, In) else (value,)
    if not all(isinstance(at, _TYPES[column]) and not isinstance(at, bool) for at in values):
        return None
    if isinstance(each, EqualTo | EqualNullSafe | In):
        return Condition(column, frozenset(values))
    if column == "topic":
        return None
    number = int(values[0])
    if isinstance(each, GreaterThan):
        return Condition(column, low=number + 1)
    if isinstance(each, GreaterThanOrEqual):
        return Condition(column, low=number)
    if isinstance(each, LessThan):
        return Condition(column, high=number)
    if isinstance(each, LessThanOrEqual):
        return Condition(column, high=number + 1)
    return None
