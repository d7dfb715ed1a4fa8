"""Filters that decide which offsets are read."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from cykafka.spark.source.offsets import PartitionRange
from cykafka.spark.source.pushdown import (
    Condition,
    RowCondition,
    condition_of,
    filter_rows,
    narrow,
    since_ms,
)

WHOLE = [PartitionRange("a", 0, 0, 100), PartitionRange("a", 1, 0, 100)]
OTHER = PartitionRange("b", 1, 50, 60)

OFFSET, PARTITION, TOPIC = ("offset",), ("partition",), ("topic",)
KEY, TIMESTAMP = ("key",), ("timestamp",)
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


def parts(each: Any) -> list[str]:
    condition = condition_of(each)
    assert isinstance(condition, Condition)
    return [
        f"{part.topic}{part.partition} {part.start} {part.end}"
        for whole in (*WHOLE, OTHER)
        for part in condition.of(whole)
    ]


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (EqualTo(PARTITION, 0), ["a0 0 100"]),
        (EqualNullSafe(PARTITION, 0), ["a0 0 100"]),
        (In(PARTITION, (0, 7)), ["a0 0 100"]),
        (GreaterThan(PARTITION, 0), ["a1 0 100", "b1 50 60"]),
        (LessThanOrEqual(PARTITION, 0), ["a0 0 100"]),
        (EqualTo(TOPIC, "b"), ["b1 50 60"]),
        (In(TOPIC, ("b", "c")), ["b1 50 60"]),
        (EqualTo(OFFSET, 55), ["a0 55 56", "a1 55 56", "b1 55 56"]),
        (In(OFFSET, (4, 3, 3, 5)), ["a0 3 6", "a1 3 6"]),
        (In(OFFSET, (99, 99 + 10_001, 3)), ["a0 3 100", "a1 3 100", "b1 50 60"]),
        (GreaterThan(OFFSET, 97), ["a0 98 100", "a1 98 100"]),
        (GreaterThanOrEqual(OFFSET, 97), ["a0 97 100", "a1 97 100"]),
        (LessThan(OFFSET, 51), ["a0 0 51", "a1 0 51", "b1 50 51"]),
        (LessThanOrEqual(OFFSET, 51), ["a0 0 52", "a1 0 52", "b1 50 52"]),
        (LessThan(OFFSET, -5), []),
        (IsNotNull(TOPIC), ["a0 0 100", "a1 0 100", "b1 50 60"]),
    ],
)
def test_filters_keep_only_matching_offsets(each: Any, expected: list[str]) -> None:
    assert parts(each) == expected


def pieces(offsets: Any) -> tuple[list[tuple[int, int]], bool]:
    condition = condition_of(In(OFFSET, tuple(offsets)))
    assert isinstance(condition, Condition)
    return list(condition.bounds), condition.exact


def test_single_offsets_become_separate_ranges() -> None:
    assert pieces(range(50, 1050)) == ([(50, 1050)], True)
    assert pieces([7, 8, 100_000, 5]) == ([(5, 9), (100_000, 100_001)], False)
    assert pieces([7, 8, 100_000]) == ([(7, 9), (100_000, 100_001)], True)
    assert pieces([0, 10_000, 20_002]) == ([(0, 10_001), (20_002, 20_003)], False)
    # Each offset would be a task, and these are too many.
    assert pieces(range(0, 64_000_000, 1_000_000))[1]
    assert pieces(range(0, 65_000_000, 1_000_000)) == ([(0, 64_000_001)], False)


def test_filters_are_combined_with_and() -> None:
    given = (GreaterThan(OFFSET, 3), In(OFFSET, (2, 3, 4, 5)), LessThan(PARTITION, 1))
    conditions = [condition_of(each) for each in given]
    whole = PartitionRange("a", 0, 0, 100)
    assert narrow([each for each in conditions if isinstance(each, Condition)], whole) == [
        PartitionRange("a", 0, 4, 6)
    ]


LATER = NOON + datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ([EqualTo(KEY, b"a")], [0, 3]),
        ([EqualNullSafe(KEY, bytearray(b"a"))], [0, 3]),
        ([In(KEY, (b"a", b""))], [0, 2, 3]),
        ([IsNull(KEY)], [1]),
        ([IsNotNull(KEY)], [0, 2, 3]),
        ([EqualTo(TIMESTAMP, NOON)], [0]),
        ([GreaterThan(TIMESTAMP, NOON)], [1, 3]),
        ([GreaterThanOrEqual(TIMESTAMP, NOON)], [0, 1, 3]),
        ([LessThan(TIMESTAMP, LATER)], [0]),
        ([LessThanOrEqual(TIMESTAMP, LATER)], [0, 1, 3]),
        ([IsNull(TIMESTAMP)], [2]),
        ([EqualTo(KEY, b"a"), GreaterThan(TIMESTAMP, NOON)], [3]),
        ([EqualTo(KEY, b"b")], []),
    ],
)
def test_rows_that_match_all_filters_are_kept(given: list[Any], rows: list[int]) -> None:
    conditions = [condition_of(each) for each in given]
    kept = [each for each in conditions if isinstance(each, RowCondition)]
    assert len(kept) == len(given)
    batch = pa.record_batch(
        {
            "key": pa.array([b"a", None, b"", b"a"], pa.binary()),
            "timestamp": pa.array([NOON, LATER, None, LATER], pa.timestamp("us", "UTC")),
            "row": pa.array(range(4)),
        }
    )
    assert filter_rows(kept, batch).column("row").to_pylist() == rows


@pytest.mark.parametrize(
    ("given", "since"),
    [
        ([], None),
        ([LessThan(TIMESTAMP, NOON)], None),
        ([EqualTo(KEY, b"a")], None),
        ([GreaterThanOrEqual(TIMESTAMP, NOON)], 1_767_355_200_000),
        ([GreaterThan(TIMESTAMP, LATER), GreaterThan(TIMESTAMP, NOON)], 1_767_355_200_001),
        ([EqualTo(TIMESTAMP, NOON)], 1_767_355_200_000),
        ([GreaterThan(TIMESTAMP, NOON.replace(year=1960))], None),
    ],
)
def test_lower_bound_of_timestamps(given: list[Any], since: int | None) -> None:
    conditions = [condition_of(each) for each in given]
    assert since_ms([each for each in conditions if isinstance(each, RowCondition)]) == since


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("headers", "key"), "x"),
        EqualTo(KEY, "x"),
        In(KEY, (b"x", None)),
        GreaterThan(KEY, b"x"),
        Not(EqualTo(KEY, b"x")),
        EqualTo(TIMESTAMP, NOON.replace(tzinfo=None)),
        In(TIMESTAMP, (NOON,)),
        EqualTo(("value",), b"x"),
        EqualTo(OFFSET, 5.5),
        EqualTo(OFFSET, None),
        EqualNullSafe(PARTITION, None),
        In(PARTITION, (1, None)),
        GreaterThan(TOPIC, "a"),
        GreaterThan(OFFSET, True),
        IsNull(OFFSET),
        Not(EqualTo(OFFSET, 5)),
    ],
)
def test_other_filters_are_left_to_spark(each: Any) -> None:
    assert condition_of(each) is None
