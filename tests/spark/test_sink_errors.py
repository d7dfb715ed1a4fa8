"""Errors of records that cannot be written, and producers that stay open between tasks."""

from __future__ import annotations

import functools
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the group spark is not installed")
pytest.importorskip("pyspark", reason="the group spark is not installed")

import pyarrow as pa
from pyspark.sql import types as t

from cykafka.spark.clients import producers
from cykafka.spark.sink.writers import batch_writer
from cykafka.spark.sink.writing import KafkaWriteError, Written


@pytest.fixture(autouse=True)
def pool() -> Iterator[producers.ProducerPool]:
    """The producers of this process; close them after the test."""
    yield producers._pool
    producers._pool.close()


@pytest.fixture
def task(cluster: Any) -> Callable[..., Written]:
    """Run one task of the sink in this process, on Arrow batches."""
    servers = cluster.bootstrap_servers

    def task(*batches: Any, **options: str) -> Written:
        kinds = {
            "string": t.StringType(),
            "binary": t.BinaryType(),
            "int32": t.IntegerType(),
            "timestamp[us, tz=UTC]": t.TimestampType(),
            "int64": t.LongType(),
        }
        pair = [t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]
        place = [("topic", "string"), ("partition", "integer"), ("offset", "long")]
        others = {
            "headers": t.ArrayType(t.StructType(pair)),
            "source": functools.reduce(lambda kind, item: kind.add(*item), place, t.StructType()),
        }
        columns = [
            t.StructField(field.name, others.get(field.name) or kinds[str(field.type)])
            for field in batches[0].schema
        ]
        given = {
            "kafka.bootstrap.servers": servers,
            "kafka.linger.ms": "1",
            **{key.replace("__", "."): value for key, value in options.items()},
        }
        writer = batch_writer(given, t.StructType(columns), False)
        written = writer.write(iter(batches))
        assert isinstance(written, Written)
        return written

    return task


def batch(values: list[Any], **columns: Any) -> Any:
    arrays = {"value": pa.array(values, pa.binary())}
    for name, (items, kind) in columns.items():
        arrays[name] = pa.array(items, kind)
    return pa.record_batch(arrays)


def refusal(task: Callable[..., Any], *batches: Any, **options: str) -> str:
    with pytest.raises(KafkaWriteError) as info:
        task(*batches, **options)
    return str(info.value)


# -- errors


def test_error_of_an_oversized_record_names_its_place(task: Any, topic: str) -> None:
    large = b"x" * 3_000_000
    text = refusal(
        task,
        batch([b"a"] * 10, partition=([0] * 10, pa.int32())),
        batch([b"b", large, large, b"c"], partition=([0, 2, 2, 1], pa.int32())),
        topic=topic,
    )

    assert "2 of the last " in text
    assert f'topic "{topic}" partition 2: ' in text
    assert "MSG_SIZE_TOO_LARGE" in text
    assert "kafka.message.max.bytes" in text
    assert "2 record(s), the first in row 11 of the task" in text


def test_record_above_the_limit_of_the_topic_is_an_error(
    task: Any, cluster: Any, unique: Callable[[str], str]
) -> None:
    name = unique("small")
    cluster.create_topic(name, 1, config={"max.message.bytes": "1000"})

    text = refusal(task, batch([b"x" * 2000]), topic=name)

    assert f'topic "{name}" partition 0: ' in text
    assert "MSG_SIZE_TOO_LARGE" in text


def test_missing_partition_is_an_error(task: Any, topic: str) -> None:
    text = refusal(task, batch([b"a", b"b"], partition=([1, 9], pa.int32())), topic=topic)

    assert f'topic "{topic}" partition 9: ' in text
    assert "the topic has no such partition" in text
    assert "1 record(s), the first in row 1 of the task" in text


def test_invalid_partition_is_an_error(task: Any, topic: str) -> None:
    text = refusal(
        task,
        batch([b"a"] * 3, partition=([0, 1, 2], pa.int32())),
        batch([b"a"] * 4, partition=([0, None, -2, -1], pa.int32())),
        topic=topic,
    )

    assert "the partition of row 5 of the task is -2: expected 0 or more; null and -1" in text


def test_invalid_timestamp_is_an_error(task: Any, topic: str) -> None:
    kind = pa.timestamp("us", tz="UTC")
    text = refusal(
        task,
        batch([b"a"] * 3, timestamp=([None, 1_000, -2_000_000], kind)),
        topic=topic,
        includeTimestamp="true",
    )

    assert "the timestamp of row 2 of the task is 1969-12-31 23:59:58" in text
    assert "expected a time after 1970-01-01; null means now" in text


def test_errors_name_the_offset_that_a_row_comes_from(task: Any, topic: str) -> None:
    places = {"topic": (["from"] * 3, pa.string()), "offset": ([70, 71, 72], pa.int64())}
    partition = ([0, 9, 9], pa.int32())
    copied = batch([b"a", b"b", b"c"], partition=partition, **places)
    place = [{"topic": "orders", "partition": 3, "offset": at} for at in (5, 6, 7)]
    source = pa.array(place, pa.struct([("topic", pa.string()), ("partition", pa.int32()),
                                        ("offset", pa.int64())]))  # fmt: skip
    moved = batch([b"a", b"b", b"c"], partition=partition).append_column("source", source)

    for rows, words in ((copied, "offset 71 of from [9]"), (moved, "offset 6 of orders [3]")):
        text = refusal(task, rows, topic=topic)
        assert f"2 record(s), the first in row 1 of the task, which is {words}" in text


def test_time_that_python_does_not_have_is_named(task: Any, topic: str) -> None:
    kind = pa.timestamp("us", tz="UTC")
    rows = batch([b"a"], timestamp=([-100_000_000_000_000_000], kind))

    text = refusal(task, rows, topic=topic, includeTimestamp="true")

    assert "the timestamp of row 0 of the task is -1199-" in text


def test_many_null_headers_are_a_warning(task: Any, topic: str) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    count = 6_000
    none = batch([b"a"] * count, headers=([None] * count, kind))
    empty = batch([b"a"] * count, headers=([[]] * count, kind))

    with pytest.warns(UserWarning, match=r"headers is null in many rows.* coalesce\(headers, arr"):
        task(none, topic=topic)
    with warnings.catch_warnings(action="error"):
        task(empty, topic=topic)
        task(none.slice(0, 100), topic=topic)
        task(none, topic=topic, includeHeaders="false")


def test_null_topic_is_an_error(task: Any, topic: str) -> None:
    text = refusal(
        task,
        batch([b"a", b"b"], topic=([topic, topic], pa.string())),
        batch([b"a", b"b", b"c"], topic=([topic, None, None], pa.string())),
    )

    assert "the topic of row 3 of the task is null: set the option topic" in text


def test_error_names_each_failed_partition_once(
    task: Any, topic: str, cluster: Any, unique: Callable[[str], str]
) -> None:
    other = unique("other")
    cluster.create_topic(other, 1)
    large = b"x" * 3_000_000
    text = refusal(
        task,
        batch(
            [large, large, b"a", b"b"],
            topic=([topic, other, other, topic], pa.string()),
            partition=([3, 0, 5, 0], pa.int32()),
        ),
    )

    assert "3 of the last 4 records could not be written to Kafka: " in text
    assert f'topic "{topic}" partition 3: ' in text
    assert f'topic "{other}" partition 0: ' in text
    assert f'topic "{other}" partition 5: ' in text


def test_error_names_only_some_of_many_failed_partitions(task: Any, topic: str) -> None:
    numbers = list(range(100, 120))
    text = refusal(task, batch([b"a"] * 20, partition=(numbers, pa.int32())), topic=topic)

    assert "20 of the last 20 records" in text
    assert text.count("the topic has no such partition") == 5
    assert "and 15 more places and errors" in text


def test_error_of_a_lost_broker_has_the_connection_error(task: Any) -> None:
    text = refusal(
        task,
        batch([b"a"] * 3),
        topic="any",
        kafka__bootstrap__servers="127.0.0.1:1",
        kafka__delivery__timeout__ms="1500",
        kafka__linger__ms="0",
    )

    assert "3 of the last 3 records" in text
    assert 'topic "any": ' in text
    assert "within kafka.delivery.timeout.ms" in text
    assert "the connections' last error: " in text
    assert "127.0.0.1:1" in text


def test_an_error_reaches_the_query(spark: Any, cluster: Any, topic: str) -> None:
    frame = spark.createDataFrame([("x", 17)], "value string, partition int")
    writer = frame.write.format("cykafka").option("topic", topic).mode("append")
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers)

    with pytest.raises(Exception, match=f'topic "{topic}" partition 17'):
        writer.save()


# -- producers that stay open


def test_a_producer_stays_open_for_the_next_task(
    task: Any, topic: str, pool: producers.ProducerPool
) -> None:
    assert task(batch([b"a"] * 3), topic=topic).records == 3
    ((_, first),) = pool._open
    assert task(batch([b"b"] * 2), batch([]), batch([b"c"]), topic=topic).records == 3
    ((_, second),) = pool._open

    assert second is first


def test_only_a_few_records_are_in_flight(
    cluster: Any, topic: str, pool: producers.ProducerPool
) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic,
               "kafka.linger.ms": "100", "kafka.queue.buffering.max.messages": "1000"}  # fmt: skip
    writer = batch_writer(options, t.StructType([t.StructField("value", t.BinaryType())]), False)
    writer.write(iter([batch([b"a"])]))
    ((_, borrowed),) = pool._open
    seen = []

    def rows() -> Iterator[Any]:
        for _ in range(30):
            yield batch([b"x"] * 100)
            seen.append(len(borrowed.producer))

    written = writer.write(rows())
    assert isinstance(written, Written)
    assert written.records == 3_000
    # Besides the records of six batches, one or two reports may wait.
    assert 500 < max(seen) < 700


def test_another_configuration_has_another_producer(
    task: Any, topic: str, pool: producers.ProducerPool
) -> None:
    task(batch([b"a"]), topic=topic)
    task(batch([b"a"]), topic=topic, kafka__client__id="other")
    assert len(pool) == 2
    # Options that do not belong to the client make no difference.
    task(batch([b"a"], key=([b"k"], pa.binary())), topic=topic)
    assert len(pool) == 2


def test_a_producer_is_dropped_after_an_error(
    task: Any, topic: str, pool: producers.ProducerPool
) -> None:
    task(batch([b"a"]), topic=topic)
    refusal(task, batch([b"a"], partition=([9], pa.int32())), topic=topic)
    assert len(pool) == 0
    assert task(batch([b"a"]), topic=topic).records == 1


def test_a_producer_is_dropped_when_the_rows_fail(
    cluster: Any, task: Any, topic: str, pool: producers.ProducerPool
) -> None:
    task(batch([b"a"]), topic=topic)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic,
               "kafka.linger.ms": "1"}  # fmt: skip
    writer = batch_writer(options, t.StructType([t.StructField("value", t.BinaryType())]), False)

    def rows() -> Iterator[Any]:
        yield batch([b"b"])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.write(rows())
    assert len(pool) == 0


def test_number_of_open_producers_is_limited(
    task: Any, topic: str, pool: producers.ProducerPool
) -> None:
    for number in range(producers.MAX_OPEN + 2):
        task(batch([b"a"]), topic=topic, kafka__client__id=str(number))

    assert len(pool) == producers.MAX_OPEN
    kept = {dict(key)["client.id"] for key, _ in pool._open}
    assert kept == {str(number) for number in range(2, producers.MAX_OPEN + 2)}


def test_a_forked_child_leaves_the_parents_producers_alone(
    task: Any, topic: str, pool: producers.ProducerPool
) -> None:
    task(batch([b"a"]), topic=topic)
    child = os.fork()
    if child == 0:
        try:
            written = task(batch([b"b"]), topic=topic).records
            pool.close()
            os._exit(0 if written == 1 else 1)
        except BaseException:
            traceback.print_exc()
            os._exit(2)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert task(batch([b"c"]), topic=topic).records == 1
