"""Filters that the source applies to a batch, instead of Spark.

Spark passes filters that compare one column with values, and applies all others itself. Conditions
on topics, partitions and offsets reduce the ranges to read. Conditions on keys and timestamps
apply to single rows: the tasks drop the other rows before Spark gets them. Both are exact, so
Spark need not repeat accepted filters. The exception is scattered offsets that a task reads in one
piece.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from cykafka.spark.source.offsets import PartitionRange

__all__ = ["ALL", "Condition", "RowCondition", "condition_of", "filter_rows", "narrow", "since_ms"]

_MIN, _MAX = -(2**63), 2**63
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)

_TYPES: Mapping[str, type] = {"topic": str, "partition": int, "offset": int}


# A task reads offsets at most this far apart in one piece: another task would cost more than the
# records between them.
NEAR = 10_000
# If there were more pieces than this, one piece covers all offsets.
PIECES = 64


@dataclass(frozen=True)
class Condition:
    """One filter's condition: a column has one of some values, or is within bounds.

    Attributes
    ----------
    column : {"topic", "partition", "offset"}
    values : frozenset, optional
        Topics or partitions. Without values the bounds apply.
    bounds : tuple of (int, int)
        Per interval, the first number and one after the last. Sorted and disjoint.
    exact : bool
        Whether the filter is true for all records within. Otherwise Spark must filter again.
    """

    column: str
    values: frozenset[str | int] | None = None
    bounds: tuple[tuple[int, int], ...] = ((_MIN, _MAX),)
    exact: bool = True

    def of(self, whole: PartitionRange) -> Iterator[PartitionRange]:
        """Return the parts of a range that meet the condition."""
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
    """Return the parts of a range that meet all conditions."""
    parts = [whole]
    for condition in conditions:
        parts = [part for piece in parts for part in condition.of(piece)]
    return parts


def _among(offsets: Iterable[int]) -> Condition:
    """Return a condition whose intervals contain these offsets."""
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


@dataclass(frozen=True)
class RowCondition:
    """One filter's condition on the rows themselves.

    Attributes
    ----------
    column : {"key", "timestamp"}
    keys : frozenset of bytes, optional
    bounds : tuple of (int, int), optional
        The first timestamp and one after the last, us since the epoch.
    is_null : bool, optional
        Without keys and bounds: whether the column must be null.
    exact : bool
        Always true; see `Condition`.
    """

    column: str
    keys: frozenset[bytes] | None = None
    bounds: tuple[int, int] | None = None
    is_null: bool = False
    exact: bool = True

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return a mask, without nulls, of the rows that meet the condition."""
        column = batch.column(self.column)
        if self.keys is not None:
            return pc.is_in(column, pa.array(self.keys, column.type))
        if self.bounds is None:
            return pc.is_null(column) if self.is_null else pc.is_valid(column)
        low, high = (max(min(at, _MAX - 1), _MIN) for at in self.bounds)
        times = column.cast(pa.int64())
        within = pc.and_(pc.greater_equal(times, low), pc.less(times, high))
        return pc.fill_null(within, False)


def filter_rows(conditions: Iterable[RowCondition], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a batch that meet all conditions."""
    for condition in conditions:
        batch = batch.filter(condition.mask(batch))
    return batch


def since_ms(conditions: Iterable[RowCondition]) -> int | None:
    """Return the lower bound of the timestamps in ms since the epoch, or None without a bound."""
    low = max((condition.bounds[0] for condition in conditions if condition.bounds), default=_MIN)
    return low // 1000 if low >= 0 else None


def condition_of(comparison: Filter) -> Condition | RowCondition | None:
    """Return a filter's condition, or None if the source cannot apply the filter."""
    path: tuple[str, ...] = getattr(comparison, "attribute", ())
    if len(path) != 1:
        return None
    column = path[0]
    value: Any = getattr(comparison, "value", None)
    values: tuple[Any, ...] = tuple(value) if isinstance(comparison, In) else (value,)
    if column in ("key", "timestamp"):
        if isinstance(comparison, IsNull | IsNotNull):
            return RowCondition(column, is_null=isinstance(comparison, IsNull))
        return _of_key(comparison, values) if column == "key" else _of_time(comparison, value)
    if column not in _TYPES:
        return None
    if isinstance(comparison, IsNotNull):
        return ALL  # every record has a topic, a partition and an offset
    if not all(isinstance(at, _TYPES[column]) and not isinstance(at, bool) for at in values):
        return None
    if isinstance(comparison, EqualTo | EqualNullSafe | In):
        return _among(values) if column == "offset" else Condition(column, frozenset(values))
    if column == "topic":
        return None
    bounds = _bounds(comparison, int(values[0]))
    return None if bounds is None else Condition(column, bounds=(bounds,))


def _bounds(comparison: Filter, number: int) -> tuple[int, int] | None:
    """Return the interval for a comparison with a number."""
    return {
        GreaterThan: (number + 1, _MAX),
        GreaterThanOrEqual: (number, _MAX),
        LessThan: (_MIN, number),
        LessThanOrEqual: (_MIN, number + 1),
    }.get(type(comparison))


def _of_key(comparison: Filter, values: tuple[Any, ...]) -> RowCondition | None:
    if not isinstance(comparison, EqualTo | EqualNullSafe | In):
        return None
    if not all(isinstance(value, bytes | bytearray) for value in values):
        return None
    return RowCondition("key", frozenset(map(bytes, values)))


def _of_time(comparison: Filter, value: Any) -> RowCondition | None:
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    us = (value - _EPOCH) // datetime.timedelta(microseconds=1)
    is_equal = isinstance(comparison, EqualTo | EqualNullSafe)
    bounds = (us, us + 1) if is_equal else _bounds(comparison, us)
    return None if bounds is None else RowCondition("timestamp", bounds=bounds)
