"""The partitioners of kafka-python 0.9.5."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cykafka.compat.kafka_python.partitioner import (
    HashedPartitioner,
    LegacyPartitioner,
    Murmur2Partitioner,
    RoundRobinPartitioner,
)
from cykafka.compat.kafka_python.partitioner.base import Partitioner
from cykafka.compat.kafka_python.partitioner.hashed import murmur2

pytestmark = pytest.mark.ours

# What Utils.murmur2 of the Java client returns, as a signed int.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA.items())
def test_murmur2_returns_the_java_clients_hash(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32
    assert murmur2(bytearray(key)) == expected % 2**32
    assert murmur2(key.decode()) == expected % 2**32


@pytest.mark.parametrize(("key", "expected"), JAVA.items())
def test_murmur2_partitioner_selects_the_java_clients_partition(key: bytes, expected: int) -> None:
    partitions = list(range(100, 1100))

    selected = Murmur2Partitioner(partitions).partition(key)

    assert selected == partitions[(expected & 0x7FFFFFFF) % 1000]


@pytest.mark.parametrize(
    ("key", "same"), [("é", "é".encode()), (21, b"21"), (None, b"None"), (bytearray(b"a"), b"a")]
)
def test_murmur2_partitioner_converts_other_keys(key: Any, same: bytes) -> None:
    partitioner = Murmur2Partitioner(range(1000))

    assert partitioner.partition(key) == partitioner.partition(same)
    assert murmur2(key) == murmur2(same)


@given(st.binary(max_size=99))
def test_murmur2_partitioner_agrees_with_murmur2(key: bytes) -> None:
    assert Murmur2Partitioner(range(1000)).partition(key) == (murmur2(key) & 0x7FFFFFFF) % 1000


def test_hashed_partitioner_is_the_legacy_partitioner() -> None:
    assert HashedPartitioner is LegacyPartitioner


@pytest.mark.parametrize("key", [5, -1, "key", b"key", None])
def test_legacy_partitioner_selects_by_hash(key: Any) -> None:
    partitions = [10, 11, 12]

    assert LegacyPartitioner(partitions).partition(key) == partitions[hash(key) % 3]


def test_legacy_partitioner_raises_for_a_key_without_hash() -> None:
    with pytest.raises(TypeError):
        LegacyPartitioner([0, 1]).partition([])


@pytest.mark.parametrize("kind", [Murmur2Partitioner, LegacyPartitioner])
def test_hashing_partitioners_prefer_the_given_partitions(kind: type[Partitioner]) -> None:
    partitioner = kind([0])

    assert partitioner.partition(b"key", [7]) == 7
    assert partitioner.partition(b"key") == 0
    assert partitioner.partition(b"key", []) == 0
    assert partitioner.partition(b"key", None) == 0


@pytest.mark.parametrize("kind", [Murmur2Partitioner, LegacyPartitioner])
def test_hashing_partitioners_raise_without_partitions(kind: type[Partitioner]) -> None:
    with pytest.raises(ZeroDivisionError, match="list of partitions is empty"):
        kind([]).partition(b"key")


def test_round_robin_selects_partitions_in_turn() -> None:
    partitioner = RoundRobinPartitioner([3, 1, 2])

    assert [partitioner.partition("same") for _ in range(7)] == [3, 1, 2, 3, 1, 2, 3]


def test_round_robin_starts_anew_for_other_partitions() -> None:
    partitioner = RoundRobinPartitioner([0, 1, 2])
    partitioner.partition("key")

    assert [partitioner.partition("key", [0, 1, 2]) for _ in range(2)] == [1, 2]
    assert [partitioner.partition("key", [5, 6]) for _ in range(3)] == [5, 6, 5]
    assert partitioner.partitions == [5, 6]
    assert partitioner.partition("key", []) == 6


def test_round_robin_raises_without_partitions() -> None:
    partitioner = RoundRobinPartitioner([])

    with pytest.raises(ValueError, match="list of partitions is empty"):
        partitioner.partition("key")
    assert partitioner.partition("key", [4]) == 4


def test_base_class_has_no_way_to_select() -> None:
    partitioner = Partitioner([0, 1])

    assert partitioner.partitions == [0, 1]
    with pytest.raises(NotImplementedError):
        partitioner.partition("key")
