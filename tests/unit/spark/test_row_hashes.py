"""The hash of the rows of a Spark task, which identifies a retried task."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repeated import examples

pa = pytest.importorskip("pyarrow", reason="the group spark is not installed")

import xxhash  # noqa: E402

from cykafka.spark.sink import transactions  # noqa: E402
from cykafka.spark.sink.transactions import MODULUS, hash_rows  # noqa: E402

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
NAMES = ("key", "value", "topic", "partition", "timestamp", "headers")

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


def batch(items: list[dict[str, Any]]) -> Any:
    kinds = {
        "value": pa.binary(),
        "key": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "headers": pa.list_(PAIR),
        "timestamp": pa.timestamp("us"),
    }
    columns = {}
    for name, kind in kinds.items():
        values = [item[name] for item in items]
        if name == "headers":
            values = [[{"key": key, "value": value} for key, value in row] for row in values]
        columns[name] = pa.array(values, kind)
    return pa.record_batch(columns)


def as_sent(row: dict[str, Any]) -> Any:
    """A record: a row without headers is like a row with an empty list."""
    return tuple(tuple(row[name] or ()) if name == "headers" else row[name] for name in NAMES)


@given(rows, st.randoms(use_true_random=False), st.integers(0, 20))
def test_order_and_batches_do_not_matter(
    items: list[dict[str, Any]], dice: random.Random, cut: int
) -> None:
    total = hash_rows(batch(items), *NAMES)
    shuffled = list(items)
    dice.shuffle(shuffled)
    parts = [hash_rows(batch(part), *NAMES) for part in (shuffled[:cut], shuffled[cut:])]

    assert total == sum(parts) % MODULUS


@given(rows, rows)
def test_different_rows_have_different_hashes(
    ours: list[dict[str, Any]], theirs: list[dict[str, Any]]
) -> None:
    one, other = (sorted(map(repr, map(as_sent, items))) for items in (ours, theirs))
    found = [hash_rows(batch(items), *NAMES) for items in (ours, theirs)]
    assert (one == other) == (found[0] == found[1])


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
def test_similar_values_have_different_hashes(one: list[Any], other: list[Any]) -> None:
    found = {values(each) for each in (one, other)}
    assert len(found) == 2


def values(items: list[str | None]) -> int:
    return hash_rows(pa.record_batch({"value": pa.array(items, pa.string())}), "value")


@pytest.mark.soak
def test_consecutive_numbers_have_different_hashes() -> None:
    # Sums of nearly linear hashes would be equal.
    count = examples(50_000)
    found = {values([str(number), str(number + 1)]) for number in range(0, 2 * count, 2)}
    assert len(found) == count


def test_hash_of_a_row_is_defined() -> None:
    """Marks outlive the process and the machine, so the hash must never change."""
    row = {"value": b"v", "key": None, "topic": "orders", "partition": 1, "timestamp": 5}
    headers = [("a", b"\0\xff"), ("b", None)]
    text = b"-::1:v:6:orders:1:5:1:a:2:\0\xff:1:b:-:"

    found = hash_rows(batch([{**row, "headers": headers}]), *NAMES)

    assert found == xxhash.xxh3_64_intdigest(text)
    assert found == 11613394890637284653
    only_value = hash_rows(batch([{**row, "headers": headers}]), None, "value")
    assert only_value == xxhash.xxh3_64_intdigest(b"-:1:v")


def test_rows_of_a_part_of_an_array_are_hashed() -> None:
    items = [
        {"value": b"%d" % at, "key": None, "topic": "a", "partition": at, "timestamp": at,
         "headers": [("h", b"x")] * (at % 3)}
        for at in range(2_500)
    ]  # fmt: skip
    one_by_one = sum(hash_rows(batch([item]), *NAMES) for item in items[100:])
    assert hash_rows(batch(items).slice(100), *NAMES) == one_by_one % MODULUS


def test_large_rows_are_hashed_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    made = transactions._texts

    def texts(part: pa.RecordBatch, names: tuple[str | None, ...]) -> Any:
        sizes.append(part.num_rows)
        return made(part, names)

    monkeypatch.setattr(transactions, "_texts", texts)
    large = pa.record_batch({"value": pa.array([bytes(1 << 20)] * 20, pa.binary())})
    hash_rows(large, "value")

    assert sum(sizes) == 20
    assert max(sizes) * (1 << 20) <= transactions._BYTES_AT_ONCE
