"""Filters that the source applies to a batch, instead of Spark.

Spark passes filters that compare one column with values; it applies all others itself. Conditions
on topics, partitions and offsets reduce the offsets that are read. Conditions on keys and
timestamps hold for single rows: the tasks drop the other rows before Spark gets them. Spark need
not apply the accepted filters again, because they hold exactly. The exception is scattered offsets
that are read in one piece.
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

from cykafka.spark.offsets import PartitionRange

__all__ = ["ALL", "Condition", "RowCondition", "condition_of", "matching", "narrow", "since_ms"]

_MIN, _MAX = -(2**63), 2**63
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)

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


@dataclass(frozen=True)
class RowCondition:
    """The condition of one filter on the rows themselves.

    Attributes
    ----------
    column : {"key", "timestamp"}
    keys : frozenset of bytes, optional
    bounds : tuple of (int, int), optional
        The first timestamp and one after the last, us since the epoch.
    is_null : bool, optional
        Without keys and bounds: whether the column shall be null.
    exact : bool
        Always true; see `Condition`.
    """

    column: str
    keys: frozenset[bytes] | None = None
    bounds: tuple[int, int] | None = None
    is_null: bool = False
    exact: bool = True

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows meet the condition; without nulls."""
        column = batch.column(self.column)
        if self.keys is not None:
            return pc.is_in(column, pa.array(self.keys, column.type))
        if self.bounds is None:
            return pc.is_null(column) if self.is_null else pc.is_valid(column)
        low, high = (max(min(at, _MAX - 1), _MIN) for at in self.bounds)
        times = column.cast(pa.int64())
        within = pc.and_(pc.greater_equal(times, low), pc.less(times, high))
        return pc.fill_null(within, False)


def matching(conditions: Iterable[RowCondition], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch that meet all conditions."""
    for each in conditions:
        batch = batch.filter(each.mask(batch))
    return batch


def since_ms(conditions: Iterable[RowCondition]) -> int | None:
    """The lower bound of the timestamps, ms since the epoch; None: there is none."""
    low = max((each.bounds[0] for each in conditions if each.bounds), default=_MIN)
    return low // 1000 if low >= 0 else None


def condition_of(each: Filter) -> Condition | RowCondition | None:
    """The condition of a filter; None if the source cannot apply it."""
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1:
        return None
    if path[0] == "key":
        return _of_key(each)
    if path[0] == "timestamp":
        return _of_timestamp(each)
    if path[0] not in _TYPES:
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
    bounds = _bounds(each, int(values[0]))
    return None if bounds is None else Condition(column, bounds=(bounds,))


def _bounds(each: Filter, number: int) -> tuple[int, int] | None:
    """The interval of a comparison with a number."""
    return {
        GreaterThan: (number + 1, _MAX),
        GreaterThanOrEqual: (number, _MAX),
        LessThan: (_MIN, number),
        LessThanOrEqual: (_MIN, number + 1),
    }.get(type(each))


def _of_key(each: Filter) -> RowCondition | None:
    if isinstance(each, IsNull | IsNotNull):
        return RowCondition("key", is_null=isinstance(each, IsNull))
    if not isinstance(each, EqualTo | EqualNullSafe | In):
        return None
    values = tuple(each.value) if isinstance(each, In) else (each.value,)
    if not all(isinstance(value, bytes | bytearray) for value in values):
        return None
    return RowCondition("key", frozenset(map(bytes, values)))


def _of_timestamp(each: Filter) -> RowCondition | None:
    if isinstance(each, IsNull | IsNotNull):
        return RowCondition("timestamp", is_null=isinstance(each, IsNull))
    value = getattr(each, "value", None)
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    us = (value - _EPOCH) // datetime.timedelta(microseconds=1)
    is_equal = isinstance(each, EqualTo | EqualNullSafe)
    bounds = (us, us + 1) if is_equal else _bounds(each, us)
    return None if bounds is None else RowCondition("timestamp", bounds=bounds)
