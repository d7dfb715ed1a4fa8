"""Streams that the driver reads (readOn=driver), and small partitions that share a task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from cykafka import Producer

Load = Callable[..., Any]
WAIT_S = 120

pytestmark = pytest.mark.usefixtures("stop_queries")


@pytest.fixture
def on_driver(stream: Load) -> Load:
    """A stream that the driver reads, by default from the earliest offsets."""
    return partial(stream, readOn="driver", startingOffsets="earliest")


@pytest.fixture
def from_python(spark: Any) -> Callable[[], int]:
    """The bytes that Python workers have sent so far for sources: Spark has one count of them."""
    package = spark._jvm.org.apache.spark.sql.execution.datasources.v2.python
    return lambda: int(
        package.PythonCustomMetric.pythonMetrics().apply("pythonDataReceived").value()
    )


def send(producer: Any, topic: str, records: list[dict[str, Any]]) -> None:
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(WAIT_S) == 0


class Actions:
    """The body of a foreachBatch with several actions."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.empty: list[bool] = []
        self.counts: list[int] = []
        self.rows: list[Any] = []
        self.from_python = -1

    def __call__(self, batch: Any, _number: int) -> None:
        self.batches.append(batch)
        self.empty.append(batch.isEmpty())
        self.counts.append(batch.count())
        self.rows += batch.collect()


@pytest.fixture
def run(tmp_path: Path, from_python: Callable[[], int]) -> Callable[..., Actions]:
    """Run a stream of existing records through several actions."""

    def run(frame: Any, kept: Actions | None = None) -> Actions:
        actions = kept or Actions()
        before = from_python()
        writer = frame.writeStream.foreachBatch(actions).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(WAIT_S)
        actions.from_python = from_python() - before
        return actions

    return run


@pytest.mark.parametrize("with_headers", [False, True])
def test_actions_see_the_rows_of_a_batch_query(
    on_driver: Load, batch: Load, topic: str, make_producer: Any, run: Any, with_headers: bool
) -> None:
    records = [
        {"key": b"a", "value": b"x" * 300, "headers": [("h", b"1"), ("n", None)], "partition": 0},
        {"key": None, "value": None, "headers": [], "partition": 1},
        {"key": b"", "value": b"", "partition": 1},
        {"key": "ä".encode(), "value": b"\x00", "timestamp": 1, "partition": 2},
    ]
    send(make_producer(), topic, records)
    options = {"subscribe": topic, "includeHeaders": str(with_headers).lower()}

    actions = run(on_driver(**options))

    expected = (
        batch(startingOffsets="earliest", **options).orderBy("partition", "offset").collect()
    )
    assert sorted(actions.rows, key=lambda row: (row.partition, row.offset)) == expected
    assert (actions.empty, actions.counts) == ([False], [4])
    assert actions.from_python == 0


@pytest.mark.parametrize(
    "schema",
    [
        "value binary",
        "offset bigint not null, value binary",
        "timestamp timestamp, partition int",
        "headers array<struct<key string, value binary>>, topic string",
    ],
)
def test_columns_are_those_of_the_schema(
    on_driver: Load, topic: str, make_producer: Any, run: Any, schema: str
) -> None:
    send(make_producer(), topic, [{"value": "x", "headers": [("h", b"1")], "partition": 1}])
    frame = on_driver(schema, subscribe=topic, includeHeaders=str("headers" in schema).lower())

    actions = run(frame)

    (row,) = actions.rows
    assert list(row.asDict()) == frame.columns
    known = {"value": b"x", "offset": 0, "partition": 1, "topic": topic}
    assert all(row[name] == known[name] for name in row.asDict().keys() & known.keys())
    if "headers" in schema:
        assert [tuple(header) for header in row.headers] == [("h", b"1")]
    assert actions.from_python == 0


def test_null_in_a_column_that_is_not_null_stops_the_query(
    on_driver: Load, topic: str, make_producer: Any, run: Any
) -> None:
    send(make_producer(), topic, [{"value": None, "partition": 0}])
    with pytest.raises(PySparkException, match="column value is NOT NULL, but it is null"):
        run(on_driver("value binary not null", subscribe=topic))


@pytest.mark.parametrize(
    ("schema", "options", "expected"),
    [
        ("value binary comment 'the text'", {}, "remove the comments of the columns, or the"),
        (None, {"minPartitions": "2"}, "remove minPartitions, or readOn=driver"),
        (None, {"maxRecordsPerPartition": "2"}, "remove maxRecordsPerPartition, or readOn=driver"),
        (None, {"maxRecordsPerSharedTask": "2"}, "remove maxRecordsPerSharedTask, or readOn="),
        (None, {"readOn": "both"}, "option readOn: expected driver or executors, got 'both'"),
        (None, {"endingOffsets": "latest"}, "option endingOffsets: a stream has no end"),
        (None, {"minOffsetsPerTrigger": "100001"}, "more than maxOffsetsPerTrigger, 100000"),
    ],
)
def test_what_the_driver_cannot_do_is_refused(
    on_driver: Load, topic: str, run: Any, schema: str | None, options: Any, expected: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        run(on_driver(schema, subscribe=topic, **options))
    assert expected in str(caught.value)


def test_batch_refuses_read_on(batch: Load, topic: str) -> None:
    with pytest.raises(PySparkException, match="option readOn is for streams only"):
        batch(subscribe=topic, readOn="driver").collect()


def test_micro_batch_has_at_most_100_000_records_by_default(
    on_driver: Load, topic: str, make_producer: Any, run: Any
) -> None:
    make_producer().publish(topic, [b"x"] * 100_003, partitions=0).wait(WAIT_S)

    actions = run(on_driver("offset bigint", subscribe=topic))

    assert actions.counts == [100_000, 3]
    assert sorted(row.offset for row in actions.rows) == list(range(100_003))
    assert [batch.rdd.getNumPartitions() for batch in actions.batches] == [1, 1]


@pytest.mark.parametrize(
    ("count", "options", "tasks"),
    [
        (750, {}, 1),
        (751, {}, 2),
        (3_000, {}, 4),
        (3_000, {"maxRecordsPerSharedTask": "12000"}, 1),
        (10, {"maxRecordsPerSharedTask": "1"}, 4),
        (10, {"minPartitions": "4"}, 4),
        (10, {"maxRecordsPerPartition": "39"}, 2),
    ],
)
def test_small_partitions_share_a_task_on_executors(
    stream: Load, topic: str, fill: Any, run: Any, count: int, options: Any, tasks: int
) -> None:
    for number in range(4):
        fill(topic, count, number)

    actions = run(stream(subscribe=topic, startingOffsets="earliest", **options))

    assert [batch.rdd.getNumPartitions() for batch in actions.batches] == [tasks]
    assert (actions.empty, actions.counts) == ([False], [4 * count])
    assert len({(row.partition, row.offset) for row in actions.rows}) == 4 * count
    assert actions.from_python > 0


def test_rows_can_be_read_after_their_micro_batch(
    on_driver: Load, topic: str, fill: Any, run: Any, from_python: Callable[[], int]
) -> None:
    """Their block is gone then, so a task reads them from Kafka."""
    fill(topic, 10, 0)

    actions = run(on_driver(subscribe=topic, maxOffsetsPerTrigger="4"))

    assert actions.counts == [4, 4, 2]
    assert actions.from_python == 0
    before = from_python()
    again = [row.offset for batch in actions.batches[:2] for row in batch.collect()]
    assert again == list(range(8))
    assert from_python() > before


def test_micro_batch_of_aborted_records_is_empty(
    on_driver: Load, topic: str, cluster: Any, unique: Any, fill: Any, run: Any
) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": unique("id")}
    with Producer(config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}

    actions = run(on_driver(**options))
    assert (actions.empty, actions.counts, actions.from_python) == ([True], [0], 0)

    fill(topic, 2, 0)
    run(on_driver(**options), actions)
    assert [row.offset for row in actions.rows] == [2, 3]
