"""Small micro-batches of streams, which the driver reads: no task runs Python for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cykafka import Producer

Load = Callable[..., Any]
WAIT_S = 120

pytestmark = pytest.mark.usefixtures("stop_queries")


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
    stream: Load, batch: Load, topic: str, make_producer: Any, run: Any, with_headers: bool
) -> None:
    records = [
        {"key": b"a", "value": b"x" * 300, "headers": [("h", b"1"), ("n", None)], "partition": 0},
        {"key": None, "value": None, "headers": [], "partition": 1},
        {"key": b"", "value": b"", "partition": 1},
        {"key": "ä".encode(), "value": b"\x00", "timestamp": 1, "partition": 2},
    ]
    send(make_producer(), topic, records)
    options = {"subscribe": topic, "startingOffsets": "earliest",
               "includeHeaders": str(with_headers).lower()}  # fmt: skip

    actions = run(stream(**options))

    expected = batch(**options).orderBy("partition", "offset").collect()
    assert sorted(actions.rows, key=lambda row: (row.partition, row.offset)) == expected
    assert (actions.empty, actions.counts) == ([False], [4])
    assert (actions.from_python == 0) == (not with_headers)


@pytest.mark.parametrize(
    ("schema", "is_stored"),
    [
        ("value binary", True),
        ("offset bigint not null, value binary", True),
        ("timestamp timestamp, partition int", True),
        ("value binary comment 'the text'", False),
        ("headers array<struct<key string, value binary>>, topic string", False),
    ],
)
def test_columns_are_those_of_the_schema(
    stream: Load, topic: str, make_producer: Any, run: Any, schema: str, is_stored: bool
) -> None:
    send(make_producer(), topic, [{"value": "x", "headers": [("h", b"1")], "partition": 1}])
    has_headers = str("headers" in schema).lower()
    options = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": has_headers}

    actions = run(stream(schema, **options))

    (row,) = actions.rows
    assert row.asDict() == {name: row[name] for name in stream(schema, **options).columns}
    known = {"value": b"x", "offset": 0, "partition": 1, "topic": topic}
    assert all(row[name] == known[name] for name in row.asDict().keys() & known.keys())
    if "headers" in schema:
        assert [tuple(each) for each in row.headers] == [("h", b"1")]
    assert (actions.from_python == 0) == is_stored


def test_tasks_read_large_micro_batches(stream: Load, topic: str, fill: Any, run: Any) -> None:
    fill(topic, 60_001, 0)
    actions = run(stream(subscribe=topic, startingOffsets="earliest"))
    assert (actions.empty, actions.counts) == ([False], [60_001])
    assert actions.from_python > 0


@pytest.mark.parametrize(
    ("count", "options", "tasks", "on_driver"),
    [
        (15_000, {}, 1, True),
        (15_001, {}, 2, False),
        (3_000, {"maxRecordsOnDriver": "12000", "maxRecordsPerSharedTask": "3000"}, 1, True),
        (3_001, {"maxRecordsOnDriver": "12000", "maxRecordsPerSharedTask": "3000"}, 4, False),
        (1_250, {"maxRecordsOnDriver": "4999"}, 1, False),
        (10, {"maxRecordsOnDriver": "0", "maxRecordsPerSharedTask": "1"}, 4, False),
        (10, {"minPartitions": "4"}, 4, False),
        (10, {"maxRecordsPerPartition": "39"}, 2, False),
    ],
)
def test_small_partitions_share_a_task_and_the_driver_reads_a_single_task(
    stream: Load,
    topic: str,
    fill: Any,
    run: Any,
    count: int,
    options: Any,
    tasks: int,
    on_driver: bool,
) -> None:
    for number in range(4):
        fill(topic, count, number)

    actions = run(stream(subscribe=topic, startingOffsets="earliest", **options))

    assert [batch.rdd.getNumPartitions() for batch in actions.batches] == [tasks]
    assert (actions.empty, actions.counts) == ([False], [4 * count])
    assert len({(row.partition, row.offset) for row in actions.rows}) == 4 * count
    assert (actions.from_python == 0) == on_driver


def test_tasks_read_micro_batches_of_many_bytes(
    stream: Load, topic: str, make_producer: Any, run: Any
) -> None:
    send(make_producer(), topic, [{"value": bytes(900_000), "partition": 0}] * 30)
    actions = run(stream(subscribe=topic, startingOffsets="earliest"))
    assert (actions.counts, len(actions.rows)) == ([30], 30)
    assert actions.from_python > 0


def test_rows_can_be_read_after_their_micro_batch(
    stream: Load, topic: str, fill: Any, run: Any
) -> None:
    """Their block is gone then, so a task reads them from Kafka."""
    fill(topic, 10, 0)
    frame = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")

    actions = run(frame)

    assert actions.counts == [4, 4, 2]
    assert actions.from_python == 0
    again = actions.batches[0].select("offset").collect()
    assert [row.offset for row in again] == [0, 1, 2, 3]


def test_micro_batch_of_aborted_records_is_empty(
    stream: Load, topic: str, cluster: Any, unique: Any, fill: Any, run: Any
) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": unique("id")}
    with Producer(config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    options = {"subscribe": topic, "startingOffsets": "earliest",
               "kafka.isolation.level": "read_committed"}  # fmt: skip

    actions = run(stream(**options))
    assert (actions.empty, actions.counts, actions.from_python) == ([True], [0], 0)

    fill(topic, 2, 0)
    run(stream(**options), actions)
    assert [row.offset for row in actions.rows] == [2, 3]
