"""Filters of a batch on topics, partitions and offsets: they reduce the offsets that are read.

Spark passes filters that compare one column with values; it applies all others itself. It need not
apply the accepted filters again, because they hold exactly. The exception is scattered offsets
that are read in one piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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

__all__ = ["ALL", "Condition", "condition_of", "narrow"]

_MIN, _MAX = -(2**63), 2**63

_TYPES: Mapping[str, type] = {"topic": str, "partition": int, "offset": int}


# Offsets at most this far apart are read in one piece: a further task would cost more than the
# records between them.
NEAR = 10_000
# If there were more pieces than this, one piece covers all of them.
PIECES = 64


@dataclass(frozen=True)
class Condition:
    """The condition of one filter: a column has one of some values, or is within bounds.

    Attributes
    ----------
    column : {"topic", "partition", "offset"}
    values : frozenset, optional
        Topics or partitions. Without values the bounds apply.
    bounds : tuple of (int, int)
        The first number and one after the last, of each interval; in order and disjoint.
    exact : bool
        Whether the filter is true for all records within. If not, Spark must filter again.
    """

    column: str
    values: frozenset[str | int] | None = None
    bounds: tuple[tuple[int, int], ...] = ((_MIN, _MAX),)
    exact: bool = True

    def of(self, whole: PartitionRange) -> Iterator[PartitionRange]:
        """The parts of a range that meet the condition."""
        if self.column == "offset":
            for low, high in self.bounds:
                part = replace(whole, start=max(whole.start, low), end=min(whole.end, high))
                if part.size:
                    yield part
        elif self.values is not None:
            if (whole.topic if self.column == "topic" else whole.partition) in self.values:
                yield whole
        elif any(low <= whole.partition < high for low, high in self.bounds):
            yield whole


ALL = Condition("offset")


def narrow(conditions: Iterable[Condition], whole: PartitionRange) -> list[PartitionRange]:
    """The parts of a range that meet all conditions."""
    parts = [whole]
    for condition in conditions:
        parts = [part for each in parts for part in condition.of(each)]
    return parts


def _among(offsets: Iterable[int]) -> Condition:
    """A condition with intervals that contain these offsets."""
    pieces: list[list[int]] = []
    exact = True
    for at in sorted(set(offsets)):
        if pieces and at - pieces[-1][1] <= NEAR:
            exact = exact and at == pieces[-1][1]
            pieces[-1][1] = at + 1
        else:
            pieces.append([at, at + 1])
    if len(pieces) > PIECES:
        pieces = [[pieces[0][0], pieces[-1][1]]]
        exact = False
    return Condition("offset", bounds=tuple((low, high) for low, high in pieces), exact=exact)


def condition_of(each: Filter) -> Condition | None:
    """The condition of a filter; None if the source cannot apply it."""
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1 or path[0] not in _TYPES:
        return None
    column = path[0]
    if isinstance(each, IsNotNull):
        return ALL  # every record has a topic, a partition and an offset
    value: Any = getattr(each, "value", None)
    values: tuple[Any, ...] = tuple(value) if isinstance(each, In) else (value,)
    if not all(isinstance(at, _TYPES[column]) and not isinstance(at, bool) for at in values):
        return None
    if isinstance(each, EqualTo | EqualNullSafe | In):
        return _among(values) if column == "offset" else Condition(column, frozenset(values))
    if column == "topic":
        return None
    number = int(values[0])
    bounds = {
        GreaterThan: (number + 1, _MAX),
        GreaterThanOrEqual: (number, _MAX),
        LessThan: (_MIN, number),
        LessThanOrEqual: (_MIN, number + 1),
    }.get(type(each))
    return None if bounds is None else Condition(column, bounds=(bounds,))
