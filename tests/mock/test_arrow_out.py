"""Batches as Arrow data that other libraries read."""

from __future__ import annotations

import datetime
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import nanoarrow
import polars
import pyarrow as pa
import pytest
from fixture_types import MakeConsumer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import WAIT_S
from repeated import examples

import cykafka
from cykafka._core.arrow.export import ArrowColumns, ArrowExport, set_max_bytes
from cykafka._core.arrow.read import ArrowData

pytestmark = pytest.mark.ours

COUNT = 300
TIMESTAMP_MS = 1_600_000_000_123

SPARK = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.field("headers", pa.list_(pa.field("element", PAIR)))
ALL = [*SPARK.names, "headers"]

some_records = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def headers_of(number: int) -> list[tuple[Any, bytes | None]] | None:
    return [
        None,
        [("a", b"1"), ("a", None), ("b", b"")],
        [],
        [("naïve", b"\xff" * number)],
        [(b"\xff\xe2\x82x\xf0\x90", b"names are not checked by anybody")],
    ][number % 5]


def key_of(number: int) -> bytes | None:
    return [None, b"", b"k" * (number % 40)][number % 3]


def value_of(number: int) -> bytes | None:
    return [b"v" * number, None, b"", b"\0\xff"][number % 4]


@pytest.fixture(scope="module")
def filled(cluster: Any) -> str:
    """A topic of two partitions with records of every kind."""
    topic = "arrow-out"
    cluster.create_topic(topic, 2)
    with cykafka.Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(COUNT):
            producer.produce(
                topic,
                value_of(number),
                key_of(number),
                number % 2,
                timestamp=TIMESTAMP_MS + number,
                headers=headers_of(number),
            )
        assert producer.flush(WAIT_S) == 0
    return topic


@pytest.fixture
def new_batch(filled: str, make_consumer: MakeConsumer) -> Callable[[], Any]:
    def new_batch(consumer: Any = None) -> Any:
        consumer = consumer or make_consumer()
        consumer.assign([cykafka.TopicPartition(filled, number, 0) for number in range(2)])
        batch = consumer.consume_batch(COUNT, WAIT_S)
        assert len(batch) == COUNT
        return batch

    return new_batch


@pytest.fixture
def batch(new_batch: Callable[[], Any]) -> Any:
    return new_batch()


def moment(ms: int) -> datetime.datetime:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(milliseconds=ms)


def rows_of(batch: Any, *, headers: bool = False) -> list[dict[str, Any]]:
    """The expected rows, from the messages of the batch."""
    rows = []
    for message in batch:
        kind, ms = message.timestamp()
        row = {
            "key": message.key(),
            "value": message.value(),
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": moment(ms),
            "timestampType": kind - 1,
        }
        if headers:
            pairs = message.headers()
            row["headers"] = pairs and [{"key": key, "value": value} for key, value in pairs]
        rows.append(row)
    return rows


def test_arrow_rows_are_the_sent_records(batch: Any) -> None:
    table = pa.table(batch.select(ALL))

    by_time = table.sort_by("timestamp").to_pylist()
    for number, row in enumerate(by_time):
        pairs = headers_of(number)
        assert row["key"] == key_of(number)
        assert row["value"] == value_of(number)
        assert row["partition"] == number % 2
        assert row["offset"] == number // 2
        assert row["timestamp"] == moment(TIMESTAMP_MS + number)
        assert row["headers"] == (
            [
                {
                    "key": key if isinstance(key, str) else key.decode("utf-8", "replace"),
                    "value": value,
                }
                for key, value in pairs
            ]
            if pairs
            else None
        )
    assert table.column("key").null_count == sum(key_of(n) is None for n in range(COUNT))
    assert table.column("value").null_count == sum(value_of(n) is None for n in range(COUNT))
    assert table.column("offset").null_count == 0


def test_the_types_are_those_of_sparks_source(batch: Any) -> None:
    with_headers = SPARK.append(HEADERS)

    for schema in (pa.schema(batch), pa.table(batch).schema, pa.record_batch(batch).schema):
        assert schema.equals(SPARK, check_metadata=True)
        assert all(field.nullable for field in schema)
    for schema in (pa.schema(batch.select(ALL)), pa.table(batch.select(ALL)).schema):
        assert schema.equals(with_headers, check_metadata=True)
        assert schema.field("headers").type.value_field.name == "element"
    assert len(pa.table(batch).column("key").chunks) == 1


def read_by_duckdb(data: Any) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        return connection.from_arrow(data).to_arrow_table().to_pylist()


READERS: dict[str, Callable[[Any], list[dict[str, Any]]]] = {
    "pyarrow.table": lambda data: pa.table(data).to_pylist(),
    "pyarrow.record_batch": lambda data: pa.record_batch(data).to_pylist(),
    "pyarrow.reader": lambda data: pa.RecordBatchReader.from_stream(data).read_all().to_pylist(),
    "nanoarrow": lambda data: list(nanoarrow.Array(data).to_pylist()),
    "polars": lambda data: polars.DataFrame(data).to_dicts(),
    "duckdb": read_by_duckdb,
}


@pytest.mark.parametrize("reader", READERS)
def test_every_arrow_reader_gets_the_values_of_the_messages(batch: Any, reader: str) -> None:
    read = READERS[reader]

    assert read(batch) == rows_of(batch)
    assert read(batch.select(ALL)) == rows_of(batch, headers=True)
    assert read(batch[7:200:9].select(ALL)) == rows_of(batch[7:200:9], headers=True)


@pytest.mark.parametrize("detached", [False, True])
def test_slices_with_any_step(batch: Any, detached: bool) -> None:
    if detached:
        batch.detach()
    rows = rows_of(batch, headers=True)
    bounds = st.none() | st.integers(-COUNT - 5, COUNT + 5)
    steps = st.none() | st.integers(-5, 5).filter(bool)

    @some_records
    @given(st.builds(slice, bounds, bounds, steps), st.builds(slice, bounds, bounds, steps))
    def check(first: slice, second: slice) -> None:
        part = batch[first][second]
        assert pa.record_batch(part.select(ALL)).to_pylist() == rows[first][second]

    check()


def test_any_columns_in_any_order(batch: Any) -> None:
    table = pa.table(batch.select(ALL))
    table.validate(full=True)

    @some_records
    @given(st.lists(st.sampled_from(ALL), unique=True))
    def check(names: list[str]) -> None:
        for selected in (batch.select(*names), batch.select(names), batch.select(iter(names))):
            assert selected.columns == tuple(names)
            assert pa.schema(selected).names == names
        part = pa.record_batch(batch.select(names))
        part.validate(full=True)
        assert part.num_rows == COUNT
        assert pa.Table.from_batches([part]).equals(table.select(names))

    check()


def test_selecting_unknown_columns_is_refused(batch: Any) -> None:
    with pytest.raises(
        ValueError, match="unknown column 'timestamp_type'; choose from key, value"
    ):
        batch.select("key", "timestamp_type")
    with pytest.raises(ValueError, match="'key' appears twice"):
        batch.select("key", "value", "key")
    with pytest.raises(TypeError, match="columns: expected str, got int"):
        batch.select("key", 1)
    with pytest.raises(TypeError):
        batch.select(1)
    assert repr(batch.select("key", "value")) == "<cykafka.ArrowColumns key, value>"


def test_empty_batch_makes_an_empty_array(batch: Any) -> None:
    for selected in (batch[:0], batch[:0].select(ALL)):
        assert pa.record_batch(selected).num_rows == 0
        table = pa.table(selected)
        assert table.num_rows == 0
        assert table.schema == pa.schema(selected)
        assert polars.DataFrame(selected).is_empty()


def test_arrow_data_outlives_batch_and_consumer(
    new_batch: Callable[..., Any], make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer()
    batch = new_batch(consumer)
    rows = rows_of(batch, headers=True)
    table = pa.table(batch.select(ALL))
    array, stream = batch.select(ALL).__arrow_c_array__(), batch.select(ALL).__arrow_c_stream__()
    unread = batch.select("headers", "value")
    frame = polars.DataFrame(batch[::2])
    batch.release()
    consumer.close()
    del batch, consumer
    gc.collect()

    assert table.to_pylist() == rows
    assert frame.height == COUNT // 2
    with pytest.raises(ValueError, match="released"):
        pa.table(unread)
    with pytest.raises(ValueError, match="released"):
        pa.record_batch(unread)
    assert pa.schema(unread).names == ["headers", "value"]
    batches = pa.RecordBatchReader._import_from_c_capsule(stream)
    assert batches.read_all().to_pylist() == rows
    assert pa.RecordBatch._import_from_c_capsule(*array).to_pylist() == rows


def test_batch_of_a_closed_consumer_is_still_readable(
    new_batch: Callable[..., Any], make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer()
    batch = new_batch(consumer)
    selected = batch.select(ALL)
    rows = rows_of(batch, headers=True)
    consumer.close()

    assert pa.table(selected).to_pylist() == rows
    assert pa.table(batch[::-1].select(ALL)).to_pylist() == rows[::-1]


def test_too_large_columns_are_split_into_several_arrays(batch: Any) -> None:
    rows = rows_of(batch, headers=True)
    largest = max(len(row["value"] or b"") for row in rows)
    try:
        set_max_bytes(2 * largest)
        with pytest.raises(OverflowError, match=r"only \d+ of 300 records fit .* slice the batch"):
            pa.record_batch(batch)
        table = pa.table(batch.select(ALL))
        assert table.column("value").num_chunks > 10
        for chunk in table.column("value").chunks:
            assert 0 < sum(len(value.as_py() or b"") for value in chunk) <= 2 * largest
        assert table.to_pylist() == rows
        # Columns that are not selected need not fit.
        assert pa.record_batch(batch.select("offset")).num_rows == COUNT
        set_max_bytes(largest - 1)
        with pytest.raises(OverflowError, match="a single record exceeds the"):
            pa.table(batch.select("value"))
    finally:
        set_max_bytes()
    assert pa.record_batch(batch).num_rows == COUNT


def test_arrow_data_reads_an_exported_batch(batch: Any) -> None:
    data = ArrowData(batch.select(ALL))

    assert data.cnt == 1
    assert data.length == COUNT
    assert data.read_column("key") == batch.keys()
    assert data.read_column("value") == batch.values()
    assert data.read_numbers("offset") == list(batch.offsets)
    assert data.read_numbers("timestamp", times=True) == list(batch.timestamps)
    assert data.read_headers("headers") == [
        [(name.encode(), value) for name, value in pairs or []] for pairs in batch.headers()
    ]
    assert ArrowData(batch).read_column("topic") == [name.encode() for name in batch.topics]


def test_a_requested_schema_may_be_given(batch: Any) -> None:
    schema = pa.schema(batch).__arrow_c_schema__()

    assert len(batch.__arrow_c_array__(schema)) == 2
    assert len(batch.select("key").__arrow_c_array__(requested_schema=schema)) == 2
    batch.__arrow_c_stream__(schema)
    batch.select("key").__arrow_c_stream__(requested_schema=None)
    for wrong in (1, batch.__arrow_c_array__()[1], pa.schema(batch)):
        with pytest.raises(TypeError, match="requested_schema: expected a capsule"):
            batch.__arrow_c_array__(wrong)
        with pytest.raises(TypeError, match="requested_schema: expected a capsule"):
            batch.__arrow_c_stream__(wrong)


@pytest.mark.parametrize("kind", [ArrowExport, ArrowColumns, cykafka.MessageBatch])
def test_uninitialized_object_exports_nothing(kind: Any) -> None:
    empty = kind.__new__(kind)

    for call in ("__arrow_c_array__", "__arrow_c_stream__"):
        with pytest.raises((TypeError, ValueError), match=r"no records|released"):
            getattr(empty, call)()
    empty.__arrow_c_schema__()


def test_many_threads_read_one_batch_while_its_consumer_closes(
    new_batch: Callable[..., Any], make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer()
    batch = new_batch(consumer)
    other = new_batch()
    rows = rows_of(other, headers=True)
    seen: list[Any] = []
    started = threading.Barrier(7)

    def read() -> None:
        started.wait(WAIT_S)
        for _ in range(20):
            seen.append(pa.table(batch.select(ALL)))

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    started.wait(WAIT_S)
    consumer.close()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(seen) == 120
    order = sorted(rows, key=lambda row: row["timestamp"])
    for table in seen[::17]:
        assert table.sort_by("timestamp").to_pylist() == order


def test_a_batch_released_by_another_thread_is_read_whole_or_not_at_all(
    new_batch: Callable[[], Any],
) -> None:
    for _ in range(10):
        batch = new_batch()
        outcomes: list[Any] = []

        def read(batch: Any = batch, outcomes: list[Any] = outcomes) -> None:
            try:
                while True:
                    outcomes.append(pa.record_batch(batch.select(ALL)).num_rows)
            except ValueError as error:
                outcomes.append(error)

        thread = threading.Thread(target=read)
        thread.start()
        while not outcomes:
            assert thread.is_alive()
        batch.release()
        thread.join(WAIT_S)
        assert set(outcomes[:-1]) == {COUNT}
        assert "released" in str(outcomes[-1])


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
payloads = st.none() | st.binary(max_size=300)
records = st.tuples(
    payloads,
    payloads,
    st.none() | st.lists(st.tuples(names, payloads), max_size=5),
    st.integers(1, 2**40),
)


@pytest.fixture(scope="module")
def wire(cluster: Any) -> Iterator[tuple[Any, Any]]:
    cluster.create_topic("arrow-wire", 1)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = cykafka.Producer({**servers, "linger.ms": 0})
    consumer = cykafka.Consumer({**servers, "group.id": "wire", "fetch.wait.max.ms": 10})
    consumer.assign([cykafka.TopicPartition("arrow-wire", 0, cykafka.OFFSET_BEGINNING)])
    yield producer, consumer
    producer.close()
    consumer.close()


@settings(some_records, max_examples=examples(40))
@given(st.lists(records, min_size=1, max_size=20))
def test_random_records_round_trip_as_arrow(wire: tuple[Any, Any], sent: list[Any]) -> None:
    producer, consumer = wire
    for value, key, pairs, ms in sent:
        producer.produce("arrow-wire", value, key, 0, timestamp=ms, headers=pairs)
    assert producer.flush(WAIT_S) == 0
    batch = consumer.consume_batch(len(sent), WAIT_S)

    table = pa.table(batch.select(ALL))
    table.validate(full=True)
    assert [
        (row["value"], row["key"], row["headers"], row["timestamp"]) for row in table.to_pylist()
    ] == [
        (value, key, [{"key": k, "value": v} for k, v in pairs] if pairs else None, moment(ms))
        for value, key, pairs, ms in sent
    ]
