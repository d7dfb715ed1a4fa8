"""Tasks of jobs that find out which records brokers refuse."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the group spark is not installed")

import pyarrow as pa
from pyspark.sql import types as t

from cykafka.spark.clients import producers
from cykafka.spark.sink.write_options import write_options
from cykafka.spark.sink.writing import Written, report_task

FUTURE_MS = 7_258_118_400_000  # the year 2200
COLUMNS = t.StructType(
    [
        t.StructField("value", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("timestamp", t.LongType()),
    ]
)


@pytest.fixture
def strict(cluster: Any, unique: Any) -> str:
    """A topic that refuses records of the future."""
    name = unique("strict")
    config = {"retention.ms": -1, "message.timestamp.after.max.ms": 3_600_000}
    cluster.create_topic(name, 2, config=config)
    return str(name)


@pytest.fixture
def report(cluster: Any, strict: str) -> Any:
    """Write rows by a task of a job in this process, like Spark's workers."""

    def report(times: list[int], size: int = 1_000) -> Written:
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": strict,
                 "includeTimestamp": "true"}  # fmt: skip
        options = write_options(given, COLUMNS, stream=False)
        batches = [
            rows(times[first : first + size], first) for first in range(0, len(times), size)
        ]
        return report_task(options, batches)

    yield report
    producers._pool.close()


def rows(times: list[int], first: int) -> Any:
    numbers = range(first, first + len(times))
    place = [{"topic": "source", "partition": 0, "offset": number} for number in numbers]
    kind = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    return pa.record_batch(
        {
            "value": pa.array([str(number) for number in numbers]),
            "partition": pa.array([number % 2 for number in numbers], pa.int32()),
            "timestamp": pa.array(times, pa.int64()),
            "source": pa.array(place, kind),
        }
    )


def test_all_records_of_a_task_may_be_refused(report: Callable[..., Written]) -> None:
    written = report([FUTURE_MS] * 3_000)

    assert (written.records, written.error) == (0, None)
    assert sorted(record.offset for record in written.refused) == list(range(3_000))
    assert len(pickle.dumps(written)) < 40 * 3_000
