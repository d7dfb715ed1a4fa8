"""The checksum of the rows of a Spark task, which identifies a retried task."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from repeated import examples

from cykafka.internal import checksum

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
NAMES = ("key", "topic", "partition", "headers", "timestamp")
ALL: dict[str, Any] = {name: name for name in NAMES}
SUM = 1 << 64

headers = st.lists(
    st.tuples(st.text("ab", max_size=2), st.none() | st.binary(max_size=9)), max_size=3
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "value": st.none() | st.binary(max_size=20),
            "key": st.none() | st.binary(max_size=20),
            "topic": st.sampled_from(["a", "b"]),
            "partition": st.none() | st.integers(0, 3),
            "headers": headers,
            "timestamp": st.none() | st.integers(0, 2**40),
        }
    ),
    max_size=20,
)


def table(items: list[dict[str, Any]]) -> Any:
    kinds = {
        "value": pa.binary(),
        "key": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "headers": pa.list_(PAIR),
        "timestamp": pa.timestamp("ms"),
    }
    columns = {}
    for name, kind in kinds.items():
        values = [item[name] for item in items]
        if name == "headers":
            values = [[{"key": key, "value": value} for key, value in row] for row in values]
        columns[name] = pa.array(values, kind)
    return pa.table(columns)


def same(row: dict[str, Any]) -> Any:
    """A record as brokers get it. The partitioner sets a missing partition, and the current time
    replaces a missing timestamp."""
    partition = -1 if row["partition"] is None else row["partition"]
    return (
        row["value"], row["key"], row["topic"], partition, tuple(row["headers"]),
        row["timestamp"] or 0,
    )  # fmt: skip


@given(rows, st.randoms(use_true_random=False), st.integers(0, 20))
def test_order_and_batches_do_not_matter(
    items: list[dict[str, Any]], dice: random.Random, cut: int
) -> None:
    total, size = checksum(table(items), **ALL)
    shuffled = list(items)
    dice.shuffle(shuffled)
    parts = [checksum(table(part), **ALL) for part in (shuffled[:cut], shuffled[cut:])]

    assert total == sum(part for part, _ in parts) % SUM
    assert size == sum(size for _, size in parts)
    assert size == sum(len(row["value"] or b"") + len(row["key"] or b"") for row in items)


@given(rows, rows)
def test_different_rows_have_different_checksums(
    ours: list[dict[str, Any]], theirs: list[dict[str, Any]]
) -> None:
    one, other = (sorted(map(repr, map(same, items))) for items in (ours, theirs))
    sums = [checksum(table(items), **ALL)[0] for items in (ours, theirs)]
    assert (one == other) == (sums[0] == sums[1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab", "c"], ["a", "bc"]),
        (["a", None], ["a", ""]),
        (["a", "a"], ["b", "b"]),
        (["12345678", "1234567"], ["12345678", "1234567\0"]),
        (["x" * 100 + "a"], ["x" * 100 + "b"]),
        (["a"], ["a", "a"]),
        ([""], []),
    ],
)
def test_similar_values_have_different_checksums(one: list[Any], other: list[Any]) -> None:
    sums = {checksum(pa.table({"value": pa.array(v, pa.string())}))[0] for v in (one, other)}
    assert len(sums) == 2


@pytest.mark.soak
def test_consecutive_numbers_have_different_checksums() -> None:
    # Sums of nearly linear hashes would be equal.
    found = set()
    count = examples(50_000)
    for number in range(0, 2 * count, 2):
        pair = pa.table({"value": [str(number), str(number + 1)]})
        found.add(checksum(pair)[0])
    assert len(found) == count


def test_unnamed_columns_are_ignored() -> None:
    whole = table(
        [{"value": b"v", "key": b"k", "topic": "t", "partition": 1, "headers": [], "timestamp": 5}]
    )
    assert checksum(whole) == checksum(whole.select(["value"]))
    sums = {checksum(whole, **{name: name})[0] for name in NAMES if name != "headers"}
    assert len(sums | {checksum(whole)[0]}) == 5
    assert checksum(whole, key="key")[1] == 2


def test_unreadable_data_is_an_error() -> None:
    with pytest.raises(TypeError, match="data: expected Arrow data"):
        checksum([1])
    with pytest.raises(ValueError, match="there is no column 'value'"):
        checksum(pa.table({"x": ["a"]}))
    with pytest.raises(TypeError, match="key: "):
        checksum(pa.table({"value": ["a"], "k": [1]}), key="k")
