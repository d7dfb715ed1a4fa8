"""Filters that decide which offsets are read."""

from __future__ import annotations

from typing import Any

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

from cykafka.spark.offsets import PartitionRange
from cykafka.spark.pushdown import condition_of

WHOLE = [PartitionRange("a", 0, 0, 100), PartitionRange("a", 1, 0, 100)]
OTHER = PartitionRange("b", 1, 50, 60)

OFFSET, PARTITION, TOPIC = ("offset",), ("partition",), ("topic",)


def parts(each: Any) -> list[str]:
    condition = condition_of(each)
    assert condition is not None
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
        (In(OFFSET, (99, 3)), ["a0 3 4", "a0 99 100", "a1 3 4", "a1 99 100"]),
        (GreaterThan(OFFSET, 97), ["a0 98 100", "a1 98 100"]),
        (GreaterThanOrEqual(OFFSET, 97), ["a0 97 100", "a1 97 100"]),
        (LessThan(OFFSET, 51), ["a0 0 51", "a1 0 51", "b1 50 51"]),
        (LessThanOrEqual(OFFSET, 51), ["a0 0 52", "a1 0 52", "b1 50 52"]),
        (LessThan(OFFSET, -5), []),
        (IsNotNull(TOPIC), ["a0 0 100", "a1 0 100", "b1 50 60"]),
    ],
)
def test_filters_leave_the_offsets_that_fulfil_them(each: Any, expected: list[str]) -> None:
    assert parts(each) == expected


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("key",), b"x"),
        EqualTo(("headers", "key"), "x"),
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
def test_other_filters_stay_sparks(each: Any) -> None:
    assert condition_of(each) is None
