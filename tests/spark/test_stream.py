"""Streams: the contents, limits and topics of their batches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from new_partitions import add_partitions
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame

Load = Callable[..., DataFrame]
WAIT_S = 120

pytestmark = pytest.mark.usefixtures("stop_queries")


class Sink:
    """Runs a stream into Parquet, and reads the written rows."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.out = folder / "out"
        self.checkpoint = folder / "checkpoint"

    def start(self, frame: DataFrame, **trigger: Any) -> Any:
        writer = frame.writeStream.format("parquet").option("path", str(self.out))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, frame: DataFrame) -> list[Any]:
        """Run with Trigger.AvailableNow; return the progress of each batch with rows."""
        query = self.start(frame, availableNow=True)
        assert query.awaitTermination(WAIT_S)
        return [progress for progress in query.recentProgress if progress.numInputRows]

    def rows(self) -> list[tuple[int, int]]:
        rows = self.spark.read.parquet(str(self.out)).select("partition", "offset").collect()
        return sorted((row.partition, row.offset) for row in rows)

    def logged(self, batch: int) -> dict[str, Any]:
        """The source's end offset of a batch in the checkpoint."""
        text = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
        return dict(json.loads(text))


@pytest.fixture
def stream(stream: Load, read_on: str) -> Load:
    return partial(stream, readOn=read_on)


@pytest.fixture
def sink(spark: Any, tmp_path: Path) -> Sink:
    return Sink(spark, tmp_path)


def sizes(progress: list[Any]) -> list[int]:
    return [report.numInputRows for report in progress]


def every(*counts: int) -> list[tuple[int, int]]:
    return [(partition, at) for partition, count in enumerate(counts) for at in range(count)]


def test_available_now_reads_existing_records_and_the_next_run_new_ones(
    stream: Load, topic: str, fill: Any, sink: Sink
) -> None:
    fill(topic, 10, 0)
    fill(topic, 5, 1)
    frame = stream(subscribe=topic, startingOffsets="earliest")

    assert sizes(sink.run(frame)) == [15]
    assert sink.rows() == every(10, 5)

    fill(topic, 3, 1)
    assert sizes(sink.run(frame)) == [3]
    assert sink.rows() == every(10, 8)
    assert sink.run(frame) == []

    # After the first batch the checkpoint has the JVM connector's format.
    assert sink.logged(1) == {topic: {"0": 10, "1": 8, "2": 0, "3": 0}}


def test_latest_starts_at_the_end_when_the_query_starts(
    stream: Load, topic: str, fill: Any, sink: Sink
) -> None:
    fill(topic, 10, 0)
    query = sink.start(stream(subscribe=topic))
    query.processAllAvailable()
    assert sum(progress.numInputRows for progress in query.recentProgress) == 0
    fill(topic, 2, 0)
    query.processAllAvailable()
    query.stop()

    assert sink.rows() == [(0, 10), (0, 11)]


def test_max_offsets_are_divided_in_proportion(
    stream: Load, topic: str, fill: Any, sink: Sink
) -> None:
    fill(topic, 90, 0)
    fill(topic, 9, 1)
    fill(topic, 1, 2)
    frame = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="50")

    progress = sink.run(frame)

    # 45 of the first, 4 of the second, and 1 (rounded up from 0.5) of the third.
    assert json.loads(progress[0].sources[0].endOffset)[topic] == {
        "0": 45,
        "1": 4,
        "2": 1,
        "3": 0,
    }
    assert sizes(progress)[0] == 50
    assert sum(sizes(progress)) == 100
    assert sink.rows() == every(90, 9, 1)


def test_min_offsets_wait_for_enough_records_or_the_delay(
    stream: Load, topic: str, fill: Any, sink: Sink
) -> None:
    fill(topic, 1, 0)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    query = sink.start(stream(maxTriggerDelay="1h", **options))
    query.processAllAvailable()
    assert sink.rows() == every(1)  # the first batch does not wait

    fill(topic, 9, 0)
    query.processAllAvailable()
    assert sink.rows() == every(1)
    fill(topic, 1, 0)
    query.processAllAvailable()
    assert sink.rows() == every(11)
    fill(topic, 1, 0)
    query.stop()

    # After the delay the query takes fewer records too, and also at the end of the stream.
    query = sink.start(stream(maxTriggerDelay="1s", **options))
    deadline = time.monotonic() + WAIT_S
    query.processAllAvailable()
    fill(topic, 1, 0)
    while sink.rows() != every(13):
        assert time.monotonic() < deadline
        query.processAllAvailable()
    query.stop()


def test_min_offsets_with_available_now_leave_no_records(
    stream: Load, topic: str, fill: Any, sink: Sink
) -> None:
    fill(topic, 25, 0)
    frame = stream(
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="10",
        maxOffsetsPerTrigger="10",
    )

    assert sizes(sink.run(frame)) == [10, 10, 5]


def test_available_now_ends_at_the_offsets_of_its_start(
    stream: Load, spark: Any, topic: str, fill: Any, tmp_path: Path
) -> None:
    fill(topic, 20, 0)
    seen: list[int] = []

    def add_more(frame: DataFrame, number: int) -> None:
        seen.extend(row.offset for row in frame.select("offset").collect())
        fill(topic, 5, 0)

    frame = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    writer = frame.writeStream.foreachBatch(add_more).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(WAIT_S)

    assert seen == list(range(20))


def test_new_topics_and_partitions_are_read_from_their_beginning(
    stream: Load, cluster: Any, unique: Any, fill: Any, sink: Sink, admin: Any
) -> None:
    prefix = unique("later")
    cluster.create_topic(f"{prefix}-a", 1)
    fill(f"{prefix}-a", 3)
    query = sink.start(stream(subscribePattern=f"{prefix}-.*"))  # starts at the latest offsets
    query.processAllAvailable()

    add_partitions(admin, f"{prefix}-a", 2)
    fill(f"{prefix}-a", 2, 1)
    cluster.create_topic(f"{prefix}-b", 1)
    fill(f"{prefix}-b", 4)
    cluster.create_topic(f"{prefix}", 1)  # no match
    fill(prefix, 1)
    query.processAllAvailable()
    query.stop()

    assert sink.rows() == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


def test_progress_reports_the_latest_offsets(
    stream: Load, read_on: str, topic: str, fill: Any, sink: Sink
) -> None:
    fill(topic, 20, 2)
    frame = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")

    first = sink.run(frame)[0].sources[0]

    # Spark does not request them from a simple reader.
    latest = {topic: {"0": 0, "1": 0, "2": 20, "3": 0}} if read_on == "executors" else None
    assert json.loads(first.latestOffset or "null") == latest
    assert json.loads(first.startOffset or "null") is None or first.numInputRows == 5


def test_projection_of_a_stream(stream: Load, topic: str, fill: Any, sink: Sink) -> None:
    fill(topic, 3, 1)
    frame = stream("offset bigint, partition int", subscribe=topic, startingOffsets="earliest")
    sink.run(frame)

    assert sink.rows() == [(1, 0), (1, 1), (1, 2)]


def test_positions_are_mirrored_into_a_group(
    stream: Load, topic: str, fill: Any, sink: Sink, unique: Any, make_consumer: Any
) -> None:
    from cykafka import TopicPartition

    fill(topic, 10, 0)
    group = unique("mirror")
    frame = stream(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4", commitGroup=group
    )
    query = sink.start(frame)
    query.processAllAvailable()
    consumer = make_consumer({"group.id": group})
    deadline = time.monotonic() + WAIT_S
    while True:  # the query requests its latest offsets again, and mirrors its position
        (at,) = consumer.committed([TopicPartition(topic, 0)], 30)
        if at.offset == 10:
            break
        assert time.monotonic() < deadline, at
        time.sleep(0.1)
    assert [item.offset for item in consumer.committed([TopicPartition(topic, 3)], 30)] == [0]
    query.stop()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets: a stream has no end"),
        ({"endingTimestamp": "1"}, "option endingTimestamp: a stream has no end"),
        ({"pushdown": "true"}, "option pushdown"),
        (
            {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"},
            "minOffsetsPerTrigger: 3 is more than maxOffsetsPerTrigger, 2",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "expected a whole number, 1 or more"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: expected a time such as"),
    ],
)
def test_options_of_batch_queries_are_refused(
    stream: Load, topic: str, sink: Sink, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        sink.run(stream(subscribe=topic, **options))

    assert expected in str(caught.value)


def test_aged_out_records_stop_the_query_or_are_skipped(
    stream: Load, topic: str, fill: Any, sink: Sink, delete_before: Any
) -> None:
    fill(topic, 10, 0)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    sink.run(stream(**options))
    fill(topic, 10, 0)
    delete_before(topic, 0, 15)

    with pytest.raises(StreamingQueryException) as caught:
        sink.run(stream(**options))
    assert f"{topic} [0]: offsets 10 to 14 are gone: the partition begins at 15" in str(
        caught.value
    )
    assert "failOnDataLoss" in str(caught.value)

    assert sizes(sink.run(stream(failOnDataLoss="false", **options))) == [5]
    assert sink.rows() == every(10) + [(0, at) for at in range(15, 20)]


def test_deleted_and_recreated_topics(
    stream: Load,
    cluster: Any,
    unique: Any,
    fill: Any,
    sink: Sink,
    delete_topic: Any,
) -> None:
    prefix = unique("anew")
    for name in ("a", "b"):
        cluster.create_topic(f"{prefix}-{name}", 1)
        fill(f"{prefix}-{name}", 10)
    options = {"subscribePattern": f"{prefix}-.*", "startingOffsets": "earliest"}
    assert sizes(sink.run(stream(**options))) == [20]

    delete_topic(f"{prefix}-a")
    with pytest.raises(StreamingQueryException, match=rf"{prefix}-a \[0\] are gone"):
        sink.run(stream(**options))
    skipping = stream(failOnDataLoss="false", **options)
    fill(f"{prefix}-b", 1)
    assert sizes(sink.run(skipping)) == [1]

    # Recreated while the query does not know the topic: a new topic.
    cluster.create_topic(f"{prefix}-a", 1)
    fill(f"{prefix}-a", 3)
    assert sizes(sink.run(skipping)) == [3]

    # Recreated between two batches: it is shorter than the position.
    delete_topic(f"{prefix}-b")
    cluster.create_topic(f"{prefix}-b", 1)
    fill(f"{prefix}-b", 2)
    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        sink.run(stream(**options))
    assert sink.run(skipping) == []
    fill(f"{prefix}-b", 2)
    assert sizes(sink.run(skipping)) == [2]
