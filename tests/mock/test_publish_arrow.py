"""publish_arrow(), and Arrow arrays as columns of publish(): the data arrives."""

from __future__ import annotations

import datetime
import gc
from collections.abc import Callable, Iterator
from typing import Any

import polars
import pyarrow as pa
import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import WAIT_S
from repeated import examples

import cykafka

pytestmark = pytest.mark.ours

TIMESTAMP = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
TIMESTAMP_MS = 1_704_067_200_000
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ALL: dict[str, str] = {
    name: name for name in ("key", "value", "headers", "timestamp", "partition")
}


@pytest.fixture
def topic(cluster: Any, unique: Unique) -> str:
    name = unique("arrow")
    cluster.create_topic(name, 2)
    return name


@pytest.fixture
def arrived(topic: str, make_consumer: MakeConsumer) -> Callable[[int], list[Any]]:
    """Read that many records as (partition, offset, key, value, headers, ms), sorted."""
    consumer = make_consumer()
    consumer.assign([cykafka.TopicPartition(topic, number, 0) for number in range(2)])

    def arrived(count: int) -> list[Any]:
        batch = consumer.consume_batch(count, WAIT_S)
        assert len(batch) == count
        return sorted(
            (m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.timestamp()[1])
            for m in batch
        )

    return arrived


def table_of(count: int) -> pa.Table:
    return pa.table(
        {
            "partition": pa.array([n % 2 for n in range(count)], pa.uint8()),
            "key": pa.array([None if n % 3 == 0 else f"key-{n}" for n in range(count)]),
            "value": pa.array([None if n % 4 == 0 else b"v" * n for n in range(count)]),
            "headers": pa.array(
                [
                    [
                        None,
                        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
                        [],
                        [{"key": "b", "value": b"x" * n}],
                    ][n % 4]
                    for n in range(count)
                ],
                PAIRS,
            ),
            "timestamp": pa.array(
                [TIMESTAMP + datetime.timedelta(milliseconds=n) for n in range(count)],
                pa.timestamp("us", "UTC"),
            ),
        }
    )


def wanted_of(table: pa.Table) -> list[Any]:
    offsets = [0, 0]
    wanted = []
    for row in table.to_pylist():
        offset = offsets[row["partition"]]
        offsets[row["partition"]] += 1
        headers = row["headers"] and [(pair["key"], pair["value"]) for pair in row["headers"]]
        wanted.append(
            (
                row["partition"],
                offset,
                None if row["key"] is None else row["key"].encode(),
                row["value"],
                headers or None,
                round(row["timestamp"].timestamp() * 1000),
            )
        )
    return sorted(wanted)


@pytest.mark.parametrize(
    "form",
    [
        lambda table: table,
        lambda table: table.combine_chunks().to_batches()[0],
        lambda table: table.to_reader(7),
        lambda table: pa.concat_tables([table.slice(0, 5), table.slice(5, 0), table.slice(5)]),
        lambda table: polars.from_arrow(table),
    ],
    ids=["table", "record batch", "stream", "chunks", "polars"],
)
def test_the_rows_of_a_table_arrive(
    producer: Any, topic: str, arrived: Callable[[int], list[Any]], form: Callable[[Any], Any]
) -> None:
    table = table_of(40)

    delivery = producer.publish_arrow(topic, form(table), **ALL)
    delivery.wait(WAIT_S)
    assert delivery.failed == 0
    assert list(delivery.partitions) == [n % 2 for n in range(40)]
    assert arrived(40) == wanted_of(table)


def test_arrow_arrays_are_columns_of_publish(
    producer: Any, topic: str, arrived: Callable[[int], list[Any]]
) -> None:
    table = table_of(40)
    chunked = pa.concat_tables([table.slice(0, 3), table.slice(3)])

    delivery = producer.publish(
        topic,
        chunked["value"],
        keys=table["key"].combine_chunks(),
        headers=chunked["headers"],
        timestamps=chunked["timestamp"],
        partitions=chunked["partition"],
    )
    delivery.wait(WAIT_S)
    assert arrived(40) == wanted_of(table)
    # Together with columns of Python objects, and as values of one header.
    delivery = producer.publish(
        topic,
        ["x", "y"],
        keys=pa.array(["k", None]),
        partitions=[0, 0],
        headers={"h": pa.array([b"1", None]), "all": "same"},
    )
    delivery.wait(WAIT_S)
    assert [row[2:5] for row in arrived(2)] == [
        (b"k", b"x", [("h", b"1"), ("all", b"same")]),
        (None, b"y", [("h", None), ("all", b"same")]),
    ]


def test_consumed_batch_is_published_to_another_topic(
    producer: Any,
    topic: str,
    arrived: Callable[[int], list[Any]],
    make_consumer: MakeConsumer,
    cluster: Any,
    unique: Unique,
) -> None:
    source = unique("source")
    cluster.create_topic(source, 2)
    table = table_of(40)
    producer.publish_arrow(source, table, **ALL).wait(WAIT_S)
    consumer = make_consumer()
    consumer.assign([cykafka.TopicPartition(source, number, 0) for number in range(2)])
    batch = consumer.consume_batch(40, WAIT_S)

    producer.publish_arrow(topic, batch.select(*ALL), **ALL).wait(WAIT_S)
    assert arrived(40) == wanted_of(table)


def test_columns_may_be_omitted(
    producer: Any, topic: str, arrived: Callable[[int], list[Any]]
) -> None:
    array = pa.array(["a", None])
    data = pa.table({"k": array, "zero": pa.array([0, 0])})

    producer.publish_arrow(topic, array).wait(WAIT_S)
    assert sorted(row[3] or b"" for row in arrived(2)) == [b"", b"a"]
    delivery = producer.publish_arrow(topic, data, key="k", value=None, partition="zero")
    delivery.wait(WAIT_S)
    assert [row[2:4] for row in arrived(2)] == [(b"a", None), (None, None)]
    empty = producer.publish_arrow(topic, data.slice(0, 0), value="k")
    empty.wait(WAIT_S)
    assert empty.done


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "value: the data has no column 'value'; its columns are s, n, f"),
        ({"value": "s", "key": "x"}, ValueError, "key: the data has no column 'x'"),
        ({"value": "n"}, TypeError, "value: the column 'n' has the Arrow type int64; cast it to"),
        ({"value": "s", "headers": "s"}, TypeError, "headers: .* string; cast it to list<struct<"),
        (
            {"value": "s", "timestamp": "f"},
            TypeError,
            "timestamp: .* double; cast it to time",
        ),
        ({"value": "s", "partition": "f"}, TypeError, "partition: .* double; cast it to int64"),
        ({"value": "s", "partition": "n"}, ValueError, r"partition\[1\]: expected -1 to "),
        ({"value": "s", "timestamp": "n"}, ValueError, r"timestamp\[1\]: expected 0 to "),
        ({"value": 1}, TypeError, "value: expected a column name, got int"),
        ({"value": "s", "timeout": "x"}, TypeError, "timeout"),
    ],
)
def test_unsendable_data_is_refused_as_a_whole(
    producer: Any, topic: str, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    data = pa.table({"s": ["a", "b"], "n": [0, -2], "f": [0.5, 1.5]})

    with pytest.raises(error, match=message):
        producer.publish_arrow(topic, data, **arguments)
    with pytest.raises(error, match=message):
        producer.publish_arrow(topic, data.to_batches()[0], **arguments)
    assert len(producer) == 0


def test_a_column_may_name_the_topic_of_each_record(
    producer: Any, topic: str, arrived: Callable[[int], list[Any]], cluster: Any, unique: Unique
) -> None:
    other = unique("other")
    cluster.create_topic(other, 1)
    names = [topic, topic, other, topic]
    data = pa.table(
        {"topic": names, "value": ["a", "b", "c", "d"], "zero": pa.nulls(4, pa.int8())}
    )
    table = pa.concat_tables([data.slice(0, 1), data.slice(1)])

    delivery = producer.publish_arrow(None, table)
    delivery.wait(WAIT_S)
    assert sorted(row[3] for row in arrived(3)) == [b"a", b"b", b"d"]
    for bad, error, message in (
        (
            data.set_column(0, "topic", pa.array([topic, None, None, topic])),
            ValueError,
            "topic: row 1",
        ),
        (data.set_column(0, "topic", pa.array([1, 2, 3, 4])), TypeError, "topic: .* int64"),
        (data.set_column(0, "topic", pa.array([b"\xff"] * 4)), ValueError, "utf-8"),
        (data.drop_columns(["topic"]), ValueError, "topic: the data has no column 'topic'"),
        (pa.array(["a"]), TypeError, "topic: the data has no column 'topic'"),
    ):
        with pytest.raises(error, match=message):
            producer.publish_arrow(None, bad)
    with pytest.raises(TypeError, match="topic: expected a str, or None"):
        producer.publish_arrow([topic], data)


def test_columns_of_other_lengths_are_refused(producer: Any, topic: str) -> None:
    array = pa.array(["a", "b"])

    with pytest.raises(ValueError, match=r"keys has 2 item\(s\), but values has 3"):
        producer.publish(topic, ["a", "b", "c"], keys=array)
    with pytest.raises(ValueError, match=r"headers has 1 item\(s\), but values has 2"):
        producer.publish(topic, array, headers=pa.nulls(1))


def test_borrowed_data_lives_until_it_is_delivered(
    make_producer: MakeProducer, topic: str, arrived: Callable[[int], list[Any]]
) -> None:
    producer = make_producer({"linger.ms": 200})
    gc.collect()
    before = pa.total_allocated_bytes()
    values = pa.chunked_array([pa.array([bytes([n]) * 1000 for n in range(m)]) for m in (3, 40)])
    delivery = producer.publish(topic, values, partitions=pa.array([0] * 43))
    again = producer.publish_arrow(topic, pa.table({"value": values.cast(pa.binary_view())}))
    del values
    gc.collect()

    assert pa.total_allocated_bytes() > before
    delivery.wait(WAIT_S)
    again.wait(WAIT_S)
    rows = arrived(86)
    assert sum(row[3] == bytes([n]) * 1000 for row in rows for n in range(40)) == 86
    producer.flush(WAIT_S)
    gc.collect()
    assert pa.total_allocated_bytes() == before


def test_a_stream_that_closes_the_producer_sends_nothing(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer()
    schema = pa.schema([("value", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([["a"]], schema=schema)
        producer.close()
        yield pa.record_batch([["b"]], schema=schema)

    with pytest.raises(RuntimeError, match="closed"):
        producer.publish_arrow(topic, pa.RecordBatchReader.from_batches(schema, batches()))


payloads = st.none() | st.binary(max_size=100)


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    values=st.lists(payloads, min_size=1, max_size=30),
    kind=st.sampled_from([pa.binary(), pa.large_binary(), pa.binary_view()]),
    cut=st.integers(0, 30),
)
def test_random_values_arrive_in_order(
    wire: tuple[Any, Any], values: list[bytes | None], kind: pa.DataType, cut: int
) -> None:
    producer, consumer = wire
    array = pa.array([b"before", *values, b"behind"], kind).slice(1, len(values))
    chunks = pa.chunked_array([array.slice(0, cut), array.slice(cut)])

    delivery = producer.publish("arrow-in", chunks, partitions=0)
    delivery.wait(WAIT_S)
    assert consumer.consume_batch(len(values), WAIT_S).values() == values


@pytest.fixture(scope="module")
def wire(cluster: Any) -> Iterator[tuple[Any, Any]]:
    cluster.create_topic("arrow-in", 1)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = cykafka.Producer({**servers, "linger.ms": 0})
    consumer = cykafka.Consumer({**servers, "group.id": "arrow-in", "fetch.wait.max.ms": 10})
    consumer.assign([cykafka.TopicPartition("arrow-in", 0, cykafka.OFFSET_BEGINNING)])
    yield producer, consumer
    producer.close()
    consumer.close()
