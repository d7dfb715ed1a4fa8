"""`df.write.format("cykafka")` and `writeStream`: written records, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S

import cykafka

pytest.importorskip("pyarrow", reason="the group spark is not installed")


@pytest.fixture
def save(spark: Any, cluster: Any) -> Callable[..., None]:
    """Write rows or a DataFrame with the sink."""

    def save(rows: Any, schema: str = "", mode: str = "append", **options: str) -> None:
        frame = spark.createDataFrame(rows, schema) if schema else rows
        writer = frame.write.format("cykafka").mode(mode)
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        for key, value in options.items():
            writer = writer.option(key.replace("__", "."), value)
        writer.save()

    return save


@pytest.fixture
def records(
    make_consumer: Callable[..., Any], read: Callable[..., list[Any]]
) -> Callable[..., Any]:
    """All records of a topic, sorted by value; fail unless there are `count`."""

    def records(topic: str, count: int) -> list[Any]:
        consumer = make_consumer(
            {"isolation.level": "read_committed", "enable.partition.eof": True}
        )
        consumer.subscribe([topic])
        found: list[Any] = []
        ends = 0
        while ends < 4:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(found)} records, but no end of the topic"
            if message.error() is None:
                found.append(message)
            else:
                ends += 1
        assert len(found) == count
        return sorted(found, key=lambda message: message.value() or b"")

    return records


# -- columns


def test_rows_arrive_with_all_their_columns(
    save: Any, topic: str, records: Callable[..., Any]
) -> None:
    time = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
    save(
        [
            (b"k0", b"v0", topic, 3, [("a", b"1"), ("a", None)], time),
            (None, b"v1", topic, None, None, None),
            (b"", b"v2", topic, 1, [], time),
        ],
        "key binary, value binary, topic string, partition int, "
        "headers array<struct<key:string,value:binary>>, timestamp timestamp",
        includeTimestamp="true",
    )

    first, second, third = records(topic, 3)

    assert (first.key(), first.value(), first.partition()) == (b"k0", b"v0", 3)
    assert first.headers() == [("a", b"1"), ("a", None)]
    assert first.timestamp() == (1, 1714979289123)
    assert (second.key(), second.value(), second.headers()) == (None, b"v1", None)
    assert second.timestamp()[1] > 1714979289123
    assert (third.key(), third.partition(), third.headers()) == (b"", 1, None)


def test_strings_are_written_as_utf8(save: Any, topic: str, records: Any) -> None:
    save([("schlüssel", "wért")], "key string, value string", topic=topic)

    (record,) = records(topic, 1)

    assert (record.key(), record.value()) == ("schlüssel".encode(), "wért".encode())


def test_a_null_value_is_a_tombstone(save: Any, topic: str, records: Any) -> None:
    save([("k", None)], "key string, value string", topic=topic)

    (record,) = records(topic, 1)

    assert (record.key(), record.value()) == (b"k", None)


def test_option_topic_overrides_the_column(
    save: Any, topic: str, records: Any, unique: Any
) -> None:
    save([("x", unique("other")), ("y", None)], "value string, topic string", topic=topic)

    assert [record.value() for record in records(topic, 2)] == [b"x", b"y"]


def test_each_row_goes_to_its_topic(save: Any, cluster: Any, unique: Any, records: Any) -> None:
    topics = [unique("many") for _ in range(3)]
    for name in topics:
        cluster.create_topic(name, 4)
    save(
        [(f"{number:03}", topics[number % 3]) for number in range(300)],
        "value string, topic string",
    )

    for start, name in enumerate(topics):
        values = [record.value() for record in records(name, 100)]
        assert values == [b"%03d" % number for number in range(start, 300, 3)]


def test_keys_go_to_the_partitions_of_the_jvm_client(save: Any, topic: str, records: Any) -> None:
    expected = {b"key-%d" % number: place for number, place in enumerate(JAVAS_PLACES)}
    save([(key, key) for key in expected], "key binary, value binary", topic=topic)

    found = {record.key(): record.partition() for record in records(topic, len(expected))}

    assert found == expected


# murmur2 of key-0, key-1, ... as Kafka's Java client computes it, for four partitions.
JAVAS_PLACES = (1, 0, 2, 3, 1, 0, 0, 3, 3, 1, 2, 1)


@pytest.mark.parametrize("include", [None, "true", "false"])
def test_headers_are_written_unless_includeheaders_is_false(
    save: Any, topic: str, records: Any, include: str | None
) -> None:
    options = {} if include is None else {"includeHeaders": include}
    save(
        [("x", [("a", "1")])],
        "value string, headers array<struct<key:string,value:string>>",
        topic=topic,
        **options,
    )

    (record,) = records(topic, 1)

    assert record.headers() == (None if include == "false" else [("a", b"1")])


def test_rows_of_the_source_are_written_back(save: Any, topic: str, records: Any) -> None:
    # The broker sets offset, timestamp and timestampType.
    save(
        [(b"k", b"v", topic, 2, 17, datetime(2020, 1, 1, tzinfo=UTC), 0)],
        "key binary, value binary, topic string, partition int, offset bigint, "
        "timestamp timestamp, timestampType int",
    )

    (record,) = records(topic, 1)

    assert (record.key(), record.partition()) == (b"k", 2)
    assert record.timestamp()[1] > 1.6e12


@pytest.mark.parametrize("by", ["partition", "key"])
def test_many_rows_arrive_once_and_in_order(
    by: str, spark: Any, save: Any, topic: str, records: Any
) -> None:
    from pyspark.sql import functions as F

    # More rows than an Arrow batch, and values that are borrowed rather than copied.
    text = F.lpad(F.col("id").cast("string"), 100, "0")
    place = (F.col("id") % 4).cast("int" if by == "partition" else "string")
    save(spark.range(0, 50_000, 1, 2).select(text.alias("value"), place.alias(by)), topic=topic)

    found = records(topic, 50_000)

    assert [int(record.value()) for record in found] == list(range(50_000))
    places = list(range(4))
    if by == "key":
        places = [cykafka.murmur2(str(number).encode(), 4) for number in range(4)]
    for record in found:
        assert record.partition() == places[int(record.value()) % 4]
    for partition in set(places):
        mine = [record for record in found if record.partition() == partition]
        # Tasks are interleaved; each task keeps its order.
        for half in (range(25_000), range(25_000, 50_000)):
            offsets = [record.offset() for record in mine if int(record.value()) in half]
            assert offsets == sorted(offsets)


def test_an_empty_frame_writes_nothing(spark: Any, save: Any, topic: str, records: Any) -> None:
    save(spark.createDataFrame([], "value string"), topic=topic)

    assert records(topic, 0) == []


# -- refusals before anything is written


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("key string", "the column value is missing"),
        ("value int", "the column value is of type int; expected string or binary"),
        ("value string, header string", 'did you mean "headers"'),
    ],
)
def test_columns_are_checked_by_the_query(
    spark: Any, save: Any, topic: str, schema: str, words: str
) -> None:
    with pytest.raises(Exception, match=words):
        save(spark.createDataFrame([], schema), topic=topic)


def test_other_columns_are_ignored(save: Any, topic: str, records: Any) -> None:
    save([("x", 1.5)], "value string, amount double", topic=topic)
    assert [record.value() for record in records(topic, 1)] == [b"x"]


def test_topic_is_required(save: Any) -> None:
    with pytest.raises(Exception, match="no topic: set the option topic"):
        save([("x",)], "value string")


def test_overwriting_is_refused(save: Any, topic: str, records: Any) -> None:
    with pytest.raises(Exception, match='save mode "overwrite" is not supported'):
        save([("x",)], "value string", mode="overwrite", topic=topic)
    assert records(topic, 0) == []


# -- streams


@pytest.fixture
def stream(spark: Any, cluster: Any, tmp_path: Path) -> Callable[..., Any]:
    """Write a file stream, to its end or continuously."""

    def stream(frame: Any, mode: str = "append", **options: str) -> Any:
        writer = frame.writeStream.format("cykafka").outputMode(mode)
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        for key, value in options.items():
            writer = writer.option(key.replace("__", "."), value)
        return writer.trigger(availableNow=True).start()

    return stream


def lines(spark: Any, folder: Path) -> Any:
    return spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(folder))


def test_a_stream_is_written(
    spark: Any, stream: Any, topic: str, records: Any, tmp_path: Path, stop_queries: None
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"{number}-a\n{number}-b\n")

    query = stream(lines(spark, folder), topic=topic)
    assert query.awaitTermination(120)
    assert query.lastProgress["batchId"] == 2

    assert [record.value().decode() for record in records(topic, 6)] == [
        f"{number}-{letter}" for number in range(3) for letter in "ab"
    ]


def test_the_output_mode_complete_writes_the_whole_result_again(
    spark: Any, stream: Any, topic: str, records: Any, tmp_path: Path, stop_queries: None
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("x", "y"):
        (folder / f"{name}.txt").write_text(f"{name}\n")
    counts = lines(spark, folder).groupBy("value").count().select("value")

    query = stream(counts, mode="complete", topic=topic)
    assert query.awaitTermination(120)

    assert len({record.value() for record in records(topic, 3)}) == 2


def test_secrets_are_in_no_plan(
    spark: Any, save: Any, stream: Any, cluster: Any, topic: str, tmp_path: Path,
    stop_queries: None, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Neither `explain` nor the plans in Spark's pages and event log have secrets."""
    # The listener is plain text, so the login options are not used.
    secrets = {
        "kafka.sasl.password": "do-not-tell-1",
        "kafka.ssl.key.password": "do-not-tell-2",
        "kafka.ssl.key.pem": "do-not-tell-3",
        "kafka.sasl.oauthbearer.config": "principal=do-not-tell-4",
    }
    options = {"topic": topic, **secrets}
    reader = spark.read.format("cykafka").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    frame = reader.options(**secrets).load()
    frame.explain(True)
    save([("x",)], "value string", **options)
    assert frame.count() == 1
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("a\n")
    query = stream(lines(spark, tmp_path / "in"), **options)
    assert query.awaitTermination(120)
    query.explain(True)

    said = capsys.readouterr().out
    assert "RelationV2" in said
    assert "WriteToMicroBatchDataSource" in said
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [found.apply(i).physicalPlanDescription() for i in range(found.size())]
    assert any("AppendData" in plan for plan in plans)
    assert "do-not-tell" not in said + "".join(plans)
