"""The order in which a task sends its rows."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import cykafka
from cykafka import KafkaError, KafkaException
from cykafka.internal import key_partitions
from cykafka.spark.clients import producers
from cykafka.spark.clients.producers import PartitionCounts
from cykafka.spark.sink import writing
from cykafka.spark.sink.writing import Rows, sort_rows

KEYS = ["", "a", "b", "key", "größer", "x" * 1000]


def options(**given: Any) -> Any:
    defaults = {"key": "key", "partition": None, "topic": "t"}
    return SimpleNamespace(config={"partitioner": "murmur2_random"}, **{**defaults, **given})


def sort(batch: pa.RecordBatch, count: int = 3, **given: Any) -> Rows:
    counts: Any = SimpleNamespace(of=lambda topic: count)
    columns = batch.schema.names
    return sort_rows(batch, options(columns=columns, **given), counts)


def batch(keys: list[str | None], **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"key": keys, "n": list(range(len(keys))), **columns})


def partition_of(key: str) -> int:
    return cykafka.murmur2(key.encode(), 3)


# -- key_partitions


@pytest.mark.parametrize("type_", [pa.string(), pa.binary(), pa.large_binary(), pa.string_view()])
@pytest.mark.parametrize(
    ("partitioner", "function"),
    [
        ("murmur2", cykafka.murmur2),
        ("murmur2_random", cykafka.murmur2),
        ("consistent", cykafka.consistent),
        ("fnv1a", cykafka.fnv1a),
        ("fnv1a_random", cykafka.fnv1a),
    ],
)
def test_partitions_of_keys_are_those_of_the_partitioner(
    partitioner: str, function: Callable[[bytes, int], int], type_: pa.DataType
) -> None:
    keys = pa.array(["left out", *KEYS], pa.string()).cast(type_)[1:]
    found = memoryview(key_partitions(keys, partitioner, 7)).cast("i").tolist()
    assert found == [function(key.encode(), 7) for key in KEYS]


@pytest.mark.parametrize(
    ("partitioner", "expected"),
    [("murmur2_random", [-1, 1, 0]), ("consistent_random", [-1, -1, 1]), ("random", [-1, -1, -1])],
)
def test_keys_that_do_not_decide_have_no_partition(partitioner: str, expected: list[int]) -> None:
    keys = pa.array([None, "", "a"])
    found = memoryview(key_partitions(keys, partitioner, 2)).cast("i").tolist()
    assert found == expected


def test_no_partitions_are_refused() -> None:
    with pytest.raises(ValueError, match="partition_count: expected 1 or more, got 0"):
        key_partitions(pa.array(["a"]), "murmur2", 0)


def test_keys_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError, match="keys: the array has the Arrow type int64"):
        key_partitions(pa.array([1]), "murmur2", 2)


# -- sort_rows


def test_rows_are_sorted_by_the_partitions_of_their_keys() -> None:
    keys: list[str | None] = [f"key-{n % 10}" for n in range(100)]
    rows = sort(batch(keys))

    sorted_keys = rows.batch.column("key").to_pylist()
    partitions = [partition_of(key) for key in sorted_keys]
    assert partitions == sorted(partitions)
    assert set(partitions) == {0, 1, 2}
    numbers = rows.batch.column("n").to_pylist()
    for partition in range(3):
        mine = [n for n, place in zip(numbers, partitions, strict=True) if place == partition]
        assert mine == sorted(mine)
    assert sorted(numbers) == list(range(100))
    assert [rows.place(index) for index in range(100)] == numbers


def test_rows_are_sorted_by_their_column_of_partitions() -> None:
    given = batch(["a"] * 4, place=[2, 0, 2, 1])
    rows = sort(given, partition="place")
    assert rows.batch.column("n").to_pylist() == [1, 3, 0, 2]


def test_rows_are_sorted_by_their_keys_if_no_row_has_a_partition() -> None:
    keys: list[str | None] = [f"key-{n % 10}" for n in range(100)]
    given = batch(keys, place=pa.array([None] * 100, pa.int32()))
    assert sort(given, partition="place").batch == sort(given).batch


@pytest.mark.parametrize("places", [[2, None, 1], [2, -1, 1], [1, 1, 1]])
def test_rows_stay_unless_each_has_a_partition(places: list[int | None]) -> None:
    rows = sort(batch(["a", "b", "c"], place=places), partition="place")
    assert rows.batch.column("n").to_pylist() == [0, 1, 2]
    assert rows.place(2) == 2


def test_rows_stay_if_a_key_is_null() -> None:
    keys = [None, *(f"key-{n}" for n in range(20))]
    rows = sort(batch(keys))
    assert rows.batch.column("n").to_pylist() == list(range(21))


def test_rows_of_several_topics_stay() -> None:
    keys: list[str | None] = [f"key-{n}" for n in range(20)]
    one, other = batch(keys, topic=["t"] * 20), batch(keys, topic=["t"] * 19 + ["u"])
    rows = sort(one, topic=None)
    assert rows.batch.column("n").to_pylist() != list(range(20))
    rows = sort(other, topic=None)
    assert rows.batch.column("n").to_pylist() == list(range(20))


@pytest.mark.parametrize(
    "given", [{"count": 1}, {"count": 0}, {"key": None}], ids=["one", "unknown", "without keys"]
)
def test_rows_stay_if_there_is_nothing_to_sort(given: dict[str, Any]) -> None:
    rows = batch(["a", "b", "c", "d"])
    assert sort(rows, **given).batch is rows


# -- PartitionCounts


class FakeProducer:
    def __init__(self, *answers: int | KafkaException) -> None:
        self.answers = list(answers)

    def list_topics(self, topic: str, timeout: float) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaException):
            raise answer
        return SimpleNamespace(
            topics={topic: SimpleNamespace(partitions=dict.fromkeys(range(answer)))}
        )


def test_number_of_partitions_is_asked_every_five_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(producers.time, "monotonic", lambda: now)
    counts = PartitionCounts(FakeProducer(3, 4))  # type: ignore[arg-type]
    assert (counts.of("t"), counts.of("t")) == (3, 3)
    now += 301
    assert counts.of("t") == 4


def test_number_of_partitions_is_unknown_without_an_answer() -> None:
    silence = KafkaException(KafkaError(KafkaError._TRANSPORT))
    assert PartitionCounts(FakeProducer(silence)).of("t") == 0  # type: ignore[arg-type]


def test_failed_login_is_raised() -> None:
    refused = KafkaException(KafkaError(KafkaError._AUTHENTICATION))
    with pytest.raises(KafkaException):
        PartitionCounts(FakeProducer(refused)).of("t")  # type: ignore[arg-type]


def test_keys_are_not_hashed_for_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(writing, "key_partitions")
    given = batch(["a", "b", "c"])

    rows = sort(given, 1)

    assert rows.batch is given
