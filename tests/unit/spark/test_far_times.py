"""Times of records beyond those of Spark, in a header."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the group spark is not installed")

from cykafka.spark.source.far_times import FAR_TIME, add_time_header, restore_times  # noqa: E402

FAR = 10**16
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(times: list[int | None], lists: list[Any]) -> Any:
    headers = [each and [{"key": k, "value": v} for k, v in each] for each in lists]
    stamps = pa.array(times, pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict({"headers": pa.array(headers, HEADERS), "timestamp": stamps})


def found(rows: Any) -> list[Any]:
    lists = [
        each and [(header["key"], header["value"]) for header in each]
        for each in rows["headers"].to_pylist()
    ]
    return list(zip(lists, rows["timestamp"].to_pylist(), strict=True))


def test_far_time_comes_back() -> None:
    given = batch([1_000, None, None], [[("a", b"b")], [("a", b"b")], None])

    rows = restore_times(add_time_header(given, {1: FAR}))

    assert found(rows) == [([("a", b"b")], 1), ([("a", b"b")], FAR), (None, None)]


@pytest.mark.parametrize(
    "value", [None, b"", b"oh", b"1000", b"-1", b"1e3", b"9" * 19, b"9" * 5_000, "²".encode()]
)
def test_header_that_a_producer_sends_is_no_time(value: bytes | None) -> None:
    """Such a record would end the job at each start."""
    given = batch([None, None], [[(FAR_TIME, value)], None])

    rows = restore_times(add_time_header(given, {1: FAR}))

    assert found(rows) == [([(FAR_TIME, value)], None), ([], FAR)]
