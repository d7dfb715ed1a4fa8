"""The sink writes the same records as Spark's own Kafka connector, which reads them back."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

JVM, OURS = "kafka", "cykafka"
SCHEMA = "key binary, value binary, headers array<struct<key string, value binary>>, partition int"

Make = Callable[..., Any]


def same_records(
    twins: Make, write: Make, stored: Make, frame: Any, partitions: int = 4, **options: Any
) -> list[tuple[Any, ...]]:
    """Write with both connectors, check that the records are the same, and return them."""
    topics = twins(partitions)
    for connector, topic in topics.items():
        write(connector, frame, **{"topic": topic, **options})
    theirs, ours = stored(topics[JVM]), stored(topics[OURS])
    assert ours == theirs
    return theirs


@pytest.fixture
def odd_rows() -> list[tuple[Any, ...]]:
    """Rows with every kind of key, value and headers."""
    keys = (None, b"", b"\x00\xff", b"key", "\u043a\u043b\u044e\u0447".encode())
    values = (None, b"", bytes(range(256)), b"value", b"x" * 50_000)
    headers: tuple[Any, ...] = (
        None,
        [],
        [("a", b"1")],
        [("a", None), ("b", b"")],
        [("a", b"1"), ("a", b"2"), ("b", None), ("a", b"1")],
        [("\u0438\u043c\u044f", bytes(range(256))), ("", b"x")],
    )
    return [
        (keys[number % 5], values[number // 5 % 5], headers[number % 6], number % 4)
        for number in range(150)
    ]


def test_every_kind_of_key_value_and_headers(
    spark: Any, twins: Make, write: Make, stored: Make, odd_rows: list[Any]
) -> None:
    frame = spark.createDataFrame(odd_rows, SCHEMA)

    assert len(same_records(twins, write, stored, frame)) == 150


# Properties of producers that do not change the records.
PRODUCERS: tuple[dict[str, Any], ...] = (
    {"compression.type": "gzip", "acks": "1", "linger.ms": 20, "batch.size": 1000},
    {"compression.type": "snappy", "acks": "0", "enable.idempotence": "false", "retries": 0},
    {"compression.type": "lz4", "max.in.flight.requests.per.connection": 1, "client.id": "mine"},
    {"compression.type": "zstd", "buffer.memory": 1_000_000, "request.timeout.ms": 20_000},
)


def test_codecs_and_other_properties_of_producers(
    spark: Any, twins: Make, write: Make, stored: Make, odd_rows: list[Any]
) -> None:
    names = twins(4)
    for connector, topic in names.items():
        for number, properties in enumerate(PRODUCERS):
            frame = spark.createDataFrame(odd_rows[number::4], SCHEMA)
            options = {f"kafka.{name}": value for name, value in properties.items()}
            write(connector, frame, topic=topic, **options)

    rows = stored(names[OURS])
    assert rows == stored(names[JVM])
    assert len(rows) == 150


def test_large_values(spark: Any, twins: Make, write: Make, stored: Make) -> None:
    names = twins(1, {"max.message.bytes": 8_000_000})
    frame = spark.sql("select string(id) as key, repeat(id, 5000000) as value from range(1, 4)")
    for connector, topic in names.items():
        write(connector, frame, topic=topic, kafka__max__request__size=8_000_000)

    rows = stored(names[OURS])
    assert rows == stored(names[JVM])
    assert [len(row[3]) for row in rows] == [5_000_000] * 3


def test_partition_of_a_key(spark: Any, twins: Make, write: Make, stored: Make) -> None:
    dice = random.Random(20)
    keys = [b"", *(dice.randbytes(number % 70) for number in range(1, 700))]
    frame = spark.createDataFrame([(key, b"v") for key in keys], "key binary, value binary")

    rows = same_records(twins, write, stored, frame, 7)

    assert {row[0] for row in rows} == set(range(7))


def test_partition_of_a_row_overrides_the_key(
    spark: Any, twins: Make, write: Make, stored: Make
) -> None:
    rows = [(f"{n}", "v", None if n % 3 else n % 4) for n in range(60)]
    frame = spark.createDataFrame(rows, "key string, value string, partition int")

    same_records(twins, write, stored, frame)


def test_strings_are_utf_8(spark: Any, twins: Make, write: Make, stored: Make) -> None:
    rows = [
        ("\u043a\u043b\u044e\u0447", "\u0437\u043d\u0430\u043a \U0001f600"),
        ("", ""),
        ("a", None),
    ]
    frame = spark.createDataFrame(rows, "key string, value string")

    assert len(same_records(twins, write, stored, frame)) == 3


def test_value_alone(spark: Any, twins: Make, write: Make, stored: Make) -> None:
    frame = spark.createDataFrame([(b"a",), (b"b",)], "value binary")

    assert len(same_records(twins, write, stored, frame, 1)) == 2


def test_other_columns_are_ignored(
    spark: Any, twins: Make, write: Make, stored: Make, read: Make, topics: Any
) -> None:
    frame = read(JVM, subscribe=topics.shrunk).drop("partition").selectExpr("*", "1.5 as amount")

    rows = same_records(twins, write, stored, frame)
    assert len(rows) == 30
    assert {row[-1] for row in rows} == {0}


def test_no_rows(spark: Any, twins: Make, write: Make, stored: Make) -> None:
    assert same_records(twins, write, stored, spark.createDataFrame([], "value binary")) == []


def test_topic_of_each_row(spark: Any, twins: Make, write: Make, stored: Make) -> None:
    first, second = twins(3), twins(3)
    for connector in (JVM, OURS):
        rows = [((first, second)[n % 2][connector], f"{n}", f"v{n}") for n in range(50)]
        write(connector, spark.createDataFrame(rows, "topic string, key string, value string"))

    for topics in (first, second):
        rows = stored(topics[OURS])
        assert rows == stored(topics[JVM])
        assert len(rows) == 25


def test_option_topic_overrides_the_column(
    spark: Any, twins: Make, write: Make, stored: Make
) -> None:
    frame = spark.createDataFrame(
        [("nowhere", "k", "v")], "topic string, key string, value string"
    )

    assert len(same_records(twins, write, stored, frame)) == 1


@pytest.mark.parametrize(
    ("mode", "make", "count"),
    [
        ("append", lambda frame: frame.select("key", "value", "headers"), 60),
        # Each micro-batch writes the counts of all keys so far: 9, 14 and 16.
        (
            "complete",
            lambda frame: (
                frame.groupBy("key").count().selectExpr("key", "string(count) as value")
                .orderBy("key").coalesce(1)
            ),
            39,
        ),
    ],
    ids=["append", "complete"],
)  # fmt: skip
def test_stream(
    spark: Any, cluster: Any, topics: Any, twins: Make, stored: Make, tmp_path: Path,
    mode: str, make: Make, count: int,
) -> None:  # fmt: skip
    """Each connector streams its source into its sink."""
    names = twins(1)
    for connector, name in names.items():
        source = (
            spark.readStream.format(connector)
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("assign", f'{{"{topics.mixed}": [0]}}')
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", 25)
            .load()
        )
        query = (
            make(source)
            .writeStream.format(connector)
            .outputMode(mode)
            .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            .option("topic", name)
            .option("checkpointLocation", str(tmp_path / connector))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    written = stored(names[JVM])
    assert stored(names[OURS]) == written
    assert len(written) == count


# The rows as SQL, the options, and the word that cykafka's error must have.
REFUSED: dict[str, tuple[str, dict[str, str], str]] = {
    "no value": ("select 'k' as key", {}, "value"),
    "value of a number": ("select 1 as value", {}, "value"),
    "key of a number": ("select 1 as key, 'v' as value", {}, "key"),
    "partition of a long": ("select 'v' as value, 1L as partition", {}, "partition"),
    "topic of a number": ("select 'v' as value, 1 as topic", {"topic": ""}, "topic"),
    "headers of strings": ("select 'v' as value, array('a') as headers", {}, "headers"),
    "headers of a map": ("select 'v' as value, map('a', 'b') as headers", {}, "headers"),
    "no topic": ("select 'v' as value", {"topic": ""}, "topic"),
    "topic of a row missing": (
        "select 'v' as value, cast(null as string) as topic",
        {"topic": ""},
        "topic",
    ),
    "no such partition": (
        "select 'v' as value, 77 as partition",
        {"kafka.max.block.ms": "500"},
        "77",
    ),
    "negative partition": ("select 'v' as value, -3 as partition", {}, "-3"),
    "no such topic": (
        "select 'v' as value",
        {
            "topic": "no-such-topic",
            "kafka.max.block.ms": "1000",
            "kafka.topic.metadata.propagation.max.ms": "1000",
        },
        "no-such-topic",
    ),
    "record too large": (
        "select repeat('x', 2000000) as value",
        {},
        "",
    ),
    "serializer": ("select 'v' as value", {"kafka.key.serializer": "a.B"}, "key.serializer"),
    "value serializer": (
        "select 'v' as value",
        {"kafka.value.serializer": "a.B"},
        "value.serializer",
    ),
    "acks": ("select 'v' as value", {"kafka.acks": "some"}, "acks"),
    "compression": ("select 'v' as value", {"kafka.compression.type": "rar"}, "compression"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(spark: Any, twins: Make, write: Make, name: str) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    query, options, names = REFUSED[name]
    said = {}
    for connector, topic in twins(4).items():
        given = {"topic": topic, **options}
        if not given["topic"]:
            del given["topic"]
        with pytest.raises((PySparkException, Py4JJavaError)) as raised:
            write(connector, spark.sql(query), **given)
        said[connector] = str(raised.value)

    assert names in said[OURS]


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_other_save_modes_are_refused(spark: Any, twins: Make, cluster: Any, mode: str) -> None:
    from pyspark.errors import PySparkException

    for connector, topic in twins(1).items():
        writer = spark.sql("select 'v' as value").write.format(connector).mode(mode)
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        with pytest.raises(PySparkException):
            writer.option("topic", topic).save()
