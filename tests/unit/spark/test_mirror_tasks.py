"""The records that a mirror's tasks send."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cykafka.spark.jobs.mirror.send_records import TRACE, with_trace

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))


def traced(*lists: Any, first: int = 0) -> list[list[tuple[str, bytes | None]]]:
    """The headers of rows that had these ones."""
    batch = pa.RecordBatch.from_pydict(
        {
            "headers": pa.array(
                [each and [{"key": k, "value": v} for k, v in each] for each in lists], HEADERS
            ),
            "topic": ["t"] * len(lists),
            "partition": pa.array([3] * len(lists), pa.int32()),
            "offset": pa.array(range(len(lists)), pa.int64()),
            "timestamp": pa.array(
                [1_700_000_000_123_000 + 1_000 * n for n in range(len(lists))],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    ).slice(first)
    out = with_trace(batch)
    assert out.schema.field("headers").type == HEADERS
    assert out.drop_columns(["headers"]).equals(batch.drop_columns(["headers"]))
    return [[(each["key"], each["value"]) for each in row] for row in out["headers"].to_pylist()]


def trace(offset: int) -> list[tuple[str, bytes]]:
    values = (b"t", b"3", b"%d" % offset, b"%d" % (1_700_000_000_123 + offset))
    return list(zip(TRACE, values, strict=True))


@pytest.mark.parametrize("first", [0, 1])
def test_origin_follows_a_records_own_headers(first: int) -> None:
    given = [
        [("a", b"1"), ("a", b"2"), ("b", None)],
        None,
        [],
        [("source_topic", b"before"), ("c", b""), ("source_offset", None)],
        [("d", b"4")],
    ]

    expected = [
        [("a", b"1"), ("a", b"2"), ("b", None), *trace(0)],
        trace(1),
        trace(2),
        [("c", b""), *trace(3)],
        [("d", b"4"), *trace(4)],
    ]
    assert traced(*given, first=first) == expected[first:]


def test_records_without_any_headers_get_the_origin() -> None:
    assert traced(*[None] * 500) == [trace(n) for n in range(500)]
