"""Batches: columns, rows and projections, on a real broker."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

Load = Callable[..., DataFrame]
SEVEN = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
SCHEMA = (
    "key BINARY,value BINARY,topic STRING,partition INT,offset BIGINT,timestamp TIMESTAMP,"
    "timestampType INT"
)


def ddl(frame: DataFrame) -> str:
    return ",".join(
        f"{field.name} {field.dataType.simpleString().upper()}{'' if field.nullable else '!'}"
        for field in frame.schema.fields
    )


def test_columns_are_those_of_the_jvm_connector(batch: Load, topic: str) -> None:
    assert ddl(batch(subscribe=topic)) == SCHEMA
    assert ddl(batch(subscribe=topic, includeHeaders="true")) == (
        SCHEMA + ",headers ARRAY<STRUCT<KEY:STRING,VALUE:BINARY>>"
    )


def test_rows_match_the_produced_records(batch: Load, topic: str, producer: Any) -> None:
    at_ms = int(time.time()) * 1000 + 123  # recent, because the broker deletes old records
    producer.produce(
        topic,
        b"value",
        key=b"key",
        partition=1,
        timestamp=at_ms,
        headers=[("a", b"1"), ("b", None), ("a", b"2")],
    )
    producer.produce(topic, None, key=b"tombstone", partition=2)
    producer.produce(topic, b"", partition=3)
    producer.flush()

    rows = {row.partition: row for row in batch(subscribe=topic, includeHeaders="true").collect()}

    assert set(rows) == {1, 2, 3}
    row = rows[1]
    assert (bytes(row.key), bytes(row.value), row.topic, row.offset) == (
        b"key",
        b"value",
        topic,
        0,
    )
    assert round(row.timestamp.timestamp() * 1000) == at_ms
    assert row.timestampType == 0
    assert [(header.key, header.value) for header in row.headers] == [
        ("a", b"1"),
        ("b", None),
        ("a", b"2"),
    ]
    assert rows[2].value is None
    assert rows[2].headers == []
    assert rows[3].key is None
    assert bytes(rows[3].value) == b""


def test_timestamps_of_the_broker_have_type_1(
    batch: Load, cluster: Any, unique: Any, producer: Any
) -> None:
    name = unique("appended")
    cluster.create_topic(name, 1, config={"message.timestamp.type": "LogAppendTime"})
    producer.produce(name, b"x")
    producer.flush()

    assert [row.timestampType for row in batch(subscribe=name).collect()] == [1]


def test_every_record_is_read_once_with_any_number_of_tasks(
    batch: Load, topic: str, fill: Any, found: Any
) -> None:
    for partition, count in ((0, 1000), (1, 10), (3, 333)):
        fill(topic, count, partition)
    everything = [(0, offset) for offset in range(1000)]
    everything += [(1, offset) for offset in range(10)]
    everything += [(3, offset) for offset in range(333)]

    for options in ({}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "100"}):
        assert found(batch(subscribe=topic, **options)) == everything


def test_options_set_the_number_of_tasks(batch: Load, topic: str, fill: Any) -> None:
    for partition in range(4):
        fill(topic, 250, partition)

    assert batch(subscribe=topic).rdd.getNumPartitions() == 1  # small ranges share a task
    assert batch(subscribe=topic, minPartitions="4").rdd.getNumPartitions() == 4
    assert batch(subscribe=topic, minPartitions="8").rdd.getNumPartitions() == 8
    assert batch(subscribe=topic, maxRecordsPerPartition="100").rdd.getNumPartitions() == 12


def test_empty_topic_has_no_rows(batch: Load, topic: str) -> None:
    assert batch(subscribe=topic).count() == 0


def test_schema_is_a_projection(batch: Load, topic: str, producer: Any) -> None:
    producer.produce(topic, b"value", key=b"key", partition=0, headers=[("h", b"1")])
    producer.flush()

    frame = batch("offset bigint not null, value binary", subscribe=topic)
    assert ddl(frame) == "offset BIGINT!,value BINARY"
    assert [tuple(row) for row in frame.collect()] == [(0, bytearray(b"value"))]

    frame = batch("headers array<struct<key string, value binary>>, topic string", subscribe=topic)
    assert [(row.headers[0].key, row.topic) for row in frame.collect()] == [("h", topic)]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("offsets bigint", "unknown column 'offsets'; did you mean \"offset\"?"),
        ("offset int", "column offset is bigint, not int: read it as bigint, then cast it"),
        (
            "value binary not null",
            "column value is NOT NULL, but it is null in row 1 of a batch of 2",
        ),
        (
            "headers array<struct<key string not null, value binary>>",
            "column headers has a NOT NULL inside",
        ),
    ],
)
def test_unsuitable_schema_is_refused(
    batch: Load, topic: str, producer: Any, schema: str, expected: str
) -> None:
    producer.produce(topic, b"value", partition=0)
    producer.produce(topic, None, partition=0)
    producer.flush()

    with pytest.raises(PySparkException, match="schema: ") as caught:
        batch(schema, subscribe=topic).collect()

    assert expected in str(caught.value)


def test_reading_only_the_first_rows_ends_the_task(batch: Load, topic: str, fill: Any) -> None:
    fill(topic, 1000, 0)

    assert len(batch(subscribe=topic).take(3)) == 3
    assert batch(subscribe=topic).count() == 1000


def test_large_records_are_split_into_several_batches(
    batch: Load, topic: str, producer: Any
) -> None:
    for number in range(30):
        producer.produce(topic, bytes([number]) * 900_000, partition=0)
    producer.flush()

    frame = batch("value binary", subscribe=topic).selectExpr("length(value) as size")
    assert [row.size for row in frame.collect()] == [900_000] * 30


def test_source_can_be_used_for_sql_views(spark: Any, cluster: Any, topic: str, fill: Any) -> None:
    fill(topic, 5, 2)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW records USING cykafka OPTIONS ("
        f"'kafka.bootstrap.servers' '{cluster.bootstrap_servers}', 'subscribe' '{topic}')"
    )

    (row,) = spark.sql("SELECT count(*) AS n, min(partition) AS p FROM records").collect()

    assert (row.n, row.p) == (5, 2)


@pytest.fixture
def pushdown(spark: Any) -> Iterator[None]:
    """Make Spark push filters down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.fixture
def torn(batch: Load, topic: str, fill: Any, delete_before: Any) -> DataFrame:
    """100 offsets in each of four partitions; the first 50 of the first one cannot be read."""
    for partition in range(4):
        fill(topic, 100, partition)
    start = json.dumps({topic: dict.fromkeys("0123", 0)})
    delete_before(topic, 0, 50)
    return batch(subscribe=topic, pushdown="true", startingOffsets=start)


@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (
            "partition in (1, 2) and offset >= 10 and offset < 13",
            [(1, 10), (1, 11), (1, 12), (2, 10), (2, 11), (2, 12)],
        ),
        ("partition = 3 and cast(value as string) = '7'", [(3, 7)]),
        ("partition = 3 and offset in (1, 3, 97)", [(3, 1), (3, 3), (3, 97)]),
        ("partition < 2 and offset > 98", [(0, 99), (1, 99)]),
        ("partition = 9", []),
    ],
)
def test_pushdown_reads_only_records_that_match_the_filters(
    torn: DataFrame, found: Any, condition: str, expected: list[tuple[int, int]]
) -> None:
    picked = torn.where(condition)

    assert found(picked) == expected
    assert picked.rdd.getNumPartitions() <= 1


# Keys and timestamps (ms since START_MS) of two partitions; not in the order of their times.
START_MS = (int(time.time()) - 3600) * 1000  # brokers delete old records
KEYED = (
    [("b", 1000), ("a", 1200), (None, 2000), ("a", 2600), (None, 2400), ("a", 3000)],
    [("a", 2500), ("c", 900)],
)


@pytest.fixture
def keyed(producer: Any, topic: str) -> str:
    """A topic with the records of KEYED."""
    for partition, records in enumerate(KEYED):
        for key, time_ms in records:
            producer.produce(topic, b"v", key, partition=partition, timestamp=START_MS + time_ms)
    assert producer.flush(30) == 0
    return topic


@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("key = 'a'", [(0, 1), (0, 3), (0, 5), (1, 0)]),
        ("key = X'61' and timestamp >= time(2600)", [(0, 3), (0, 5)]),
        ("key in ('b', 'c')", [(0, 0), (1, 1)]),
        ("key is null and timestamp < time(2001)", [(0, 2)]),
        (
            "timestamp between time(2000) and time(2500)",
            [(0, 2), (0, 4), (1, 0)],
        ),
        ("timestamp > time(3000)", []),
    ],
)
def test_pushdown_drops_rows_with_other_keys_and_times(
    batch: Load,
    keyed: str,
    found: Any,
    condition: str,
    expected: list[tuple[int, int]],
) -> None:
    condition = re.sub(r"time\((\d+)\)", rf"timestamp_millis({START_MS} + \1)", condition)
    picked = batch(subscribe=keyed, pushdown="true").where(condition)

    filtered = batch(subscribe=keyed).where(condition)
    assert found(picked) == found(filtered) == expected
    plans = [frame._jdf.queryExecution().executedPlan().toString() for frame in (picked, filtered)]
    assert ["Filter " in plan for plan in plans] == [False, True]  # who filters: cykafka or Spark


@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize("condition", ["true", "offset >= 49", "value is not null"])
def test_missing_records_that_match_the_filters_are_a_loss(
    torn: DataFrame, condition: str
) -> None:
    with pytest.raises(PySparkException, match=r"\[0\]: offsets (0|49) to 49 are gone"):
        torn.where(condition).collect()
