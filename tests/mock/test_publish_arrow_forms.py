"""publish_arrow(): the forms of Arrow data, and the errors for unsuitable data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nanoarrow
import polars
import pyarrow as pa
import pytest
from fixture_types import MakeConsumer
from machine import WAIT_S

from cykafka import DeliveryError, KafkaError

pytestmark = pytest.mark.ours

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def records(make_consumer: MakeConsumer) -> Callable[..., list[Any]]:
    """Read that many records of a topic, in the order of partitions and offsets."""

    def records(topic: str, count: int) -> list[Any]:
        consumer = make_consumer()
        consumer.subscribe([topic])
        batch = consumer.consume_batch(count, WAIT_S)
        return sorted(batch, key=lambda message: (message.partition(), message.offset()))

    return records


def table() -> pa.Table:
    return pa.table(
        {
            "key": pa.array(["k0", None, "k2"]),
            "value": pa.array([b"v0", b"", None], pa.binary()),
            "headers": pa.array(
                [[("a", b"1"), ("a", None)], None, []],
                HEADERS,
            ),
            "timestamp": pa.array([1_000, None, 3_000], pa.timestamp("ms", tz="UTC")),
            "partition": pa.array([2, 0, 1], pa.int32()),
        }
    )


def publish_all(producer: Any, topic: str, data: Any) -> Any:
    return producer.publish_arrow(
        topic,
        data,
        key="key",
        headers="headers",
        timestamp="timestamp",
        partition="partition",
    )


@pytest.mark.parametrize(
    "form",
    [
        lambda table: table,
        lambda table: table.to_reader(1),
        lambda table: table.combine_chunks().to_batches()[0],
        lambda table: pa.concat_tables([table.slice(0, 1), table.slice(1)]),
        nanoarrow.ArrayStream,
    ],
    ids=["table", "stream of chunks", "record batch", "chunked table", "nanoarrow"],
)
def test_rows_arrive_with_all_their_columns(
    producer: Any, topic: str, records: Callable[..., list[Any]], form: Callable[[Any], Any]
) -> None:
    delivery = publish_all(producer, topic, form(table()))
    delivery.wait(WAIT_S)

    assert list(delivery.partitions) == [2, 0, 1]
    second, third, first = records(topic, 3)
    assert (first.key(), first.value()) == (b"k0", b"v0")
    assert first.headers() == [("a", b"1"), ("a", None)]
    assert first.timestamp()[1] == 1_000
    assert (second.key(), second.value(), second.headers()) == (None, b"", None)
    assert second.timestamp()[1] > 10**12  # now
    assert (third.key(), third.value(), third.headers()) == (b"k2", None, None)
    assert third.timestamp()[1] == 3_000


def test_a_polars_frame_and_a_series(
    producer: Any, topic: str, records: Callable[..., list[Any]]
) -> None:
    frame = polars.DataFrame({"body": ["one", None], "part": [1, 1]})

    producer.publish_arrow(topic, frame, value="body", partition="part").wait(WAIT_S)
    producer.publish_arrow(topic, polars.Series(["three"])).wait(WAIT_S)

    assert sorted(str(message.value()) for message in records(topic, 3)) == [
        "None",
        "b'one'",
        "b'three'",
    ]


def test_rows_without_values_are_tombstones(
    producer: Any, topic: str, records: Callable[..., list[Any]]
) -> None:
    producer.publish_arrow(topic, table(), key="key", value=None).wait(WAIT_S)

    assert [message.value() for message in records(topic, 3)] == [None] * 3


def test_each_unsendable_row_fails(producer: Any, topic: str) -> None:
    rows = table().set_column(4, "partition", pa.array([2, 77, 1]))

    delivery = publish_all(producer, topic, rows)

    with pytest.raises(DeliveryError) as raised:
        delivery.wait(WAIT_S)
    assert {index: error.code() for index, error in raised.value.failures.items()} == {
        1: KafkaError._UNKNOWN_PARTITION
    }


def test_empty_data_is_done_at_once(producer: Any, topic: str) -> None:
    for data in (table().slice(0, 0), table().schema.empty_table(), table().to_reader(1)):
        rows = len(data) if isinstance(data, pa.Table) else 3
        delivery = publish_all(producer, topic, data)
        delivery.wait(WAIT_S)
        assert len(delivery) == rows


@pytest.mark.parametrize(
    ("data", "columns", "error", "words"),
    [
        ([b"x"], {}, TypeError, "data: expected .*Arrow"),
        (pa.table({"value": [1]}), {}, TypeError, "value: .*'value'.*int64; cast it to"),
        (pa.table({"v": ["a"]}), {}, ValueError, "value: .*no column 'value'.*v"),
        (pa.table({"value": ["a"]}), {"key": "k"}, ValueError, "key: .*no column 'k'"),
        (pa.table({"value": ["a"]}), {"value": None}, TypeError, "value: .*and no key either"),
        (pa.table({"value": ["a"]}), {"key": 3}, TypeError, "key: expected a column name"),
        (pa.array(["a"]), {"key": "k"}, TypeError, "key: the data has no column 'k'"),
        (
            pa.table({"value": ["a"], "t": [-5]}),
            {"timestamp": "t"},
            ValueError,
            r"timestamp\[0\]: expected 0 to",
        ),
        (
            pa.table({"value": ["a", "b"], "p": [0, 2**31]}),
            {"partition": "p"},
            ValueError,
            r"partition\[1\]: expected -1 to",
        ),
    ],
)
def test_unsuitable_column_is_named(
    producer: Any,
    topic: str,
    data: Any,
    columns: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        producer.publish_arrow(topic, data, **columns)
    assert len(producer) == 0
