"""Joins, windows, state and restarts: queries have the results of Spark's own Kafka connector."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from machine import WAIT_S

T0 = 1_700_000_000_000
JVM, OURS = "kafka", "cykafka"

Make = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def one_shuffle_partition(spark: Any) -> Iterator[None]:
    """Each shuffle partition of a stateful query has a state store, which costs time."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, 1)
    yield
    spark.conf.set(name, before)


class Batch(NamedTuple):
    """What a micro-batch read and made."""

    rows: list[Any]
    ends: list[Any]
    latest: list[Any]
    read: list[int]
    watermark: str | None
    late: list[int]
    state: list[int]


@dataclass(frozen=True)
class Query:
    """A stream whose micro-batches `foreachBatch` collects; `run` continues it."""

    spark: Any
    servers: str
    checkpoint: Path
    make: Callable[[Callable[..., Any]], Any]
    mode: str

    def run(self, connector: str) -> list[Batch]:
        """Process the available records, and return the micro-batches."""
        rows: dict[int, list[Any]] = {}

        def source(**options: Any) -> Any:
            stream = self.spark.readStream.format(connector).options(**options)
            stream = stream.option("kafka.bootstrap.servers", self.servers)
            return stream.option("startingOffsets", "earliest").load()

        def collect(frame: Any, number: int) -> None:
            rows[number] = sorted(frame.collect(), key=str)

        query = (
            self.make(source)
            .writeStream.foreachBatch(collect)
            .outputMode(self.mode)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120), "the stream does not end"
        progress = {report["batchId"]: report for report in query.recentProgress}
        return [_batch(rows[number], progress[number]) for number in sorted(rows)]

    def forget_last_commit(self) -> None:
        """Restore the state of a kill during the last micro-batch."""
        last = max(self.checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))
        last.with_name(f".{last.name}.crc").unlink()
        last.unlink()


def _batch(rows: list[Any], progress: Any) -> Batch:
    sources, operators = progress["sources"], progress["stateOperators"]
    return Batch(
        rows,
        [_plain(source["endOffset"]) for source in sources],
        [_plain(source["latestOffset"]) for source in sources],
        [source["numInputRows"] for source in sources],
        progress["eventTime"].get("watermark"),
        [operator["numRowsDroppedByWatermark"] for operator in operators],
        [operator["numRowsTotal"] for operator in operators],
    )


def _plain(offset: Any) -> Any:
    """The offsets without the start that cykafka adds to the first micro-batch."""
    found = json.loads(offset) if isinstance(offset, str) else offset
    return found and {topic: item for topic, item in found.items() if " " not in topic}


class Streams(NamedTuple):
    """The topics of the queries: orders, their payments, and the names of the customers."""

    orders: str
    payments: str
    names: str


@pytest.fixture
def streams(cluster: Any, unique: Make) -> Streams:
    names = Streams(unique("orders"), unique("payments"), unique("names"))
    for name in names:
        cluster.create_topic(name, 2, config={"retention.ms": -1})
    return names


@pytest.fixture
def sell(streams: Streams, make_producer: Make) -> Callable[[int, int], None]:
    """Add an order per second from `first` to `last`, of three customers.

    Two of three orders are paid four seconds later. Each call repeats its last order a second
    later, and adds an order that is a minute older than the first.
    """
    producer = make_producer()

    def put(topic: str, second: int, at: int, key: str) -> None:
        time = T0 + 1000 * at
        producer.produce(topic, f"{second}", key, second % 2, timestamp=time)

    def sell(first: int, last: int) -> None:
        for second in range(first, last):
            put(streams.orders, second, second, f"customer-{second % 3}")
            if second % 3:
                put(streams.payments, second, second + 4, f"customer-{second % 3}")
        put(streams.orders, last - 1, last, f"customer-{(last - 1) % 3}")
        put(streams.orders, -first - 1, first - 60, "late")
        assert producer.flush(WAIT_S) == 0

    for number in range(3):
        put(streams.names, number, number, f"customer-{number}")
    assert producer.flush(WAIT_S) == 0
    return sell


def windows(source: Make, batch: Make, streams: Streams) -> Any:
    from pyspark.sql.functions import window

    orders = source(subscribe=streams.orders, maxOffsetsPerTrigger=20)
    orders = orders.withWatermark("timestamp", "5 seconds")
    orders = orders.dropDuplicatesWithinWatermark(["key", "value"])
    return orders.groupBy("key", window("timestamp", "10 seconds", "5 seconds")).count()


def distinct(source: Make, batch: Make, streams: Streams) -> Any:
    orders = source(subscribe=streams.orders, maxOffsetsPerTrigger=20)
    return orders.dropDuplicates(["key", "value"]).drop("timestamp")


def totals(source: Make, batch: Make, streams: Streams) -> Any:
    orders = source(subscribe=f"{streams.orders},{streams.payments}", maxOffsetsPerTrigger=40)
    names = batch(subscribe=streams.names).selectExpr("key", "string(value) as name")
    joined = orders.join(names, "key", "left")
    return joined.groupBy("topic", "name").agg({"*": "count", "offset": "sum", "timestamp": "max"})


def unpaid(source: Make, batch: Make, streams: Streams) -> Any:
    from pyspark.sql.functions import expr

    def of(topic: str, name: str) -> Any:
        stream = source(subscribe=topic, maxOffsetsPerTrigger=20)
        stream = stream.selectExpr(f"value as {name}", f"timestamp as {name}_at")
        return stream.withWatermark(f"{name}_at", "5 seconds")

    soon = "ordered = paid and paid_at between ordered_at and ordered_at + interval 10 seconds"
    orders, payments = of(streams.orders, "ordered"), of(streams.payments, "paid")
    return orders.join(payments, expr(soon), "leftOuter")


# How to make a query, its output mode, and how many rows it makes and drops because they are late.
QUERIES: dict[str, tuple[Callable[..., Any], str, int, int]] = {
    "windows with a watermark of deduplicated records": (windows, "append", 20, 1),
    "dropDuplicates": (distinct, "append", 38, 0),
    "totals of two topics joined with a batch": (totals, "update", 12, 0),
    "outer join of two streams": (unpaid, "append", 34, 1),
}


@pytest.mark.parametrize(("make", "mode", "made", "late"), QUERIES.values(), ids=QUERIES.keys())
def test_stateful_stream_over_a_restart(
    spark: Any, cluster: Any, read: Make, streams: Streams, sell: Make, tmp_path: Path,
    stop_queries: None, make: Make, mode: str, made: int, late: int,
) -> None:  # fmt: skip
    """The restart follows a kill during the last micro-batch, which is repeated."""

    def query(name: str, by: str) -> Query:
        return Query(
            spark,
            cluster.bootstrap_servers,
            tmp_path / name,
            lambda source: make(source, lambda **options: read(by, **options), streams),
            mode,
        )

    theirs, ours, moved = query("theirs", JVM), query("ours", OURS), query("moved", OURS)
    sell(0, 20)
    before = theirs.run(JVM)
    assert ours.run(OURS) == before

    theirs.forget_last_commit()
    ours.forget_last_commit()
    shutil.copytree(theirs.checkpoint, moved.checkpoint)
    sell(20, 36)
    after = theirs.run(JVM)
    assert ours.run(OURS) == after
    assert moved.run(OURS) == after
    assert after[0].rows == before[-1].rows
    assert sum(len(batch.rows) for batch in before[:-1] + after) == made
    assert sum(sum(batch.late) for batch in before[:-1] + after) == late


def test_batches(read: Make, spark: Any, streams: Streams, sell: Make) -> None:
    """Joins, a join of a table with itself, aggregates and window functions."""
    sell(0, 20)
    found = []
    for connector in (JVM, OURS):
        for name in streams._fields:
            read(connector, subscribe=getattr(streams, name)).createOrReplaceTempView(name)
        rows = spark.sql("""
            select string(n.value) as name, string(o.value) as ordered, o.timestamp, p.offset,
                   lag(o.offset) over (partition by n.value order by o.partition, o.offset),
                   count(*) over (partition by o.partition) as size
            from orders o left join payments p on o.value = p.value left join names n
              on o.key = n.key left anti join (select min(offset) as offset from orders) e
              on e.offset = o.offset
            union all
            select string(key), topic, max(timestamp), sum(offset), min(partition), count(*)
            from (select * from orders union all select * from payments) group by 1, 2
        """).collect()
        found.append(sorted(rows, key=str))

    assert found[1] == found[0]
    assert len(found[0]) == 26


def test_foreach_batch(
    spark: Any, cluster: Any, write: Make, stored: Make, twins: Make, streams: Streams, sell: Make,
    tmp_path: Path, stop_queries: None,
) -> None:  # fmt: skip
    """Each connector reads the micro-batches, each twice, and writes what it reads to a topic."""
    sell(0, 20)
    names = twins(2)
    seen: dict[str, list[Any]] = {JVM: [], OURS: []}
    for by in seen:

        def work(frame: Any, number: int, by: str = by) -> None:
            seen[by].append((number, frame.count(), frame.agg({"offset": "sum"}).first()))
            write(by, frame.select("key", "value", "partition"), topic=names[by])

        stream = spark.readStream.format(by).option("subscribe", streams.orders)
        stream = stream.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 16)
        writer = stream.load().writeStream.foreachBatch(work).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / by)).start()
        assert query.awaitTermination(120), "the stream does not end"

    assert seen[OURS] == seen[JVM]
    assert [count for _, count, _ in seen[OURS]] == [15, 7]
    written = stored(names[OURS])
    assert written == stored(names[JVM])
    assert len(written) == 22
