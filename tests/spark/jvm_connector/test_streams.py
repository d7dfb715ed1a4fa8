"""Streams have the micro-batches of Spark's own Kafka connector, and share checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S
from new_partitions import add_partitions

T0 = 1_700_000_000_000
JVM, OURS = "kafka", "cykafka"

Make = Callable[..., Any]


def same_batches(stream: Make, **options: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Run both connectors; check that rows and ends of micro-batches match, and return them."""
    theirs, ours = stream("theirs", **options), stream("ours", **options)
    theirs.run(JVM)
    ours.run(OURS)
    return same_results(theirs, ours)


def same_results(theirs: Any, ours: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    ends, found = theirs.ends(), ours.ends()
    # cykafka adds the start to the end of the first micro-batch; its name has a space.
    for end in found[:1]:
        assert [end.pop(name) for name in list(end) if " " in name]
    assert found == ends
    rows = theirs.rows()
    assert ours.rows() == rows
    return rows, ends


def test_micro_batches_by_rate(stream: Make, topics: Any) -> None:
    rows, ends = same_batches(
        stream,
        subscribe=f"{topics.mixed},{topics.shrunk},{topics.empty}",
        startingOffsets="earliest",
        includeHeaders="true",
        nullHeaders="true",
        maxOffsetsPerTrigger=40,
    )

    assert len(rows) == 151
    assert len(ends) >= 4


STARTS: dict[str, tuple[Callable[[Any], dict[str, Any]], int]] = {
    "offsets of each partition": (
        lambda topics: {
            "subscribe": topics.mixed,
            "startingOffsets": {topics.mixed: {"0": 50, "1": -2, "2": -1, "3": 0}},
            "maxOffsetsPerTrigger": 33,
            "minPartitions": 5,
        },
        70,
    ),
    "a time": (
        lambda topics: {
            "subscribePattern": f"{topics.prefix}-mix.d",
            "startingTimestamp": T0 + 50_000,
            "startingOffsetsByTimestampStrategy": "latest",
            "maxOffsetsPerTrigger": 7,
        },
        20,
    ),
    "the time of each partition": (
        lambda topics: {
            "assign": {topics.mixed: [0, 1]},
            "startingOffsetsByTimestamp": {topics.mixed: {"0": T0 + 50_000, "1": T0 + 58_000}},
        },
        12,
    ),
}


@pytest.mark.parametrize(("options", "count"), STARTS.values(), ids=STARTS.keys())
def test_micro_batches_from(
    stream: Make, topics: Any, options: Callable[[Any], dict[str, Any]], count: int
) -> None:
    rows, _ = same_batches(stream, **options(topics))

    assert len(rows) == count


def test_micro_batches_of_transactions(stream: Make, topics: Any) -> None:
    rows, _ = same_batches(
        stream,
        subscribe=f"{topics.committed},{topics.pending},{topics.compacted}",
        startingOffsets="earliest",
        kafka__isolation__level="read_committed",
        maxOffsetsPerTrigger=30,
    )

    assert len([row for row in rows if row.topic == topics.committed]) == 15
    assert len([row for row in rows if row.topic == topics.pending]) == 5


def test_many_partitions(spark: Any, stream: Make, twins: Make, write: Make) -> None:
    """Each connector reads the topic that the other one has written.

    Only 20 of the 50 partitions have records: the JVM connector takes 0.3 s for each of them.
    """
    frame = spark.range(70).selectExpr("string(id) as value", "int(least(id, 19)) as partition")
    rows, ends = [], []
    for by, topic in twins(50).items():
        write(by, frame, topic=topic)
        query = stream(by, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
        query.run(OURS if by == JVM else JVM)
        rows.append([(row.partition, row.offset, row.value) for row in query.rows()])
        ends.append([end[topic] for end in query.ends()])

    assert rows[0] == rows[1]
    assert ends[0] == ends[1]
    assert len(rows[0]) == 70
    assert [(len(end), sum(end.values())) for end in ends[0]] == [(50, 40), (50, 70)]


def test_latest_is_the_default(stream: Make, topics: Any) -> None:
    rows, ends = same_batches(stream, subscribe=topics.mixed)

    assert rows == []
    assert [sum(end[topics.mixed].values()) for end in ends] in ([], [121])


@pytest.fixture
def grow(make_producer: Make, topic: str) -> Callable[[int], None]:
    """Add that many records to `topic`."""
    producer = make_producer()
    written = 0

    def grow(count: int) -> None:
        nonlocal written
        for number in range(written, written + count):
            producer.produce(topic, str(number), key=str(number))
        written += count
        assert producer.flush(WAIT_S) == 0

    return grow


def values(rows: list[Any]) -> list[int]:
    return sorted(int(row.value) for row in rows)


def test_connectors_continue_from_each_others_checkpoints(
    stream: Make, topic: str, grow: Make
) -> None:
    """Also if the other one was killed in its last micro-batch, which must be written again."""
    moved = stream("moved", subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    steps = ((OURS, "killed"), (JVM, "ended"), (OURS, "ended"), (JVM, "killed"), (OURS, "ended"))
    for number, (connector, end) in enumerate(steps, 1):
        grow(80)
        moved.run(connector)

        assert values(moved.rows()) == list(range(80 * number))
        if end == "killed":
            moved.forget_last_commit()
    assert len(moved.ends()) >= 10


def test_half_done_first_micro_batch_of_the_jvm_connector_is_finished(
    stream: Make, topic: str, grow: Make
) -> None:
    moved = stream("moved", subscribe=topic, startingOffsets="earliest")
    grow(100)
    moved.run(JVM)
    moved.forget_last_commit()
    moved.run(OURS)

    assert values(moved.rows()) == list(range(100))


def test_half_done_first_micro_batch_is_refused_by_the_jvm_connector(
    stream: Make, topic: str, grow: Make
) -> None:
    from pyspark.errors import StreamingQueryException

    moved = stream("moved", subscribe=topic, startingOffsets="earliest")
    grow(100)
    moved.run(OURS)
    moved.forget_last_commit()

    # The JVM connector would plan a new start, which may differ from ours.
    with pytest.raises(StreamingQueryException):
        moved.run(JVM)
    moved.run(OURS)
    assert values(moved.rows()) == list(range(100))


# -- topics that change


@pytest.fixture
def both(stream: Make) -> Callable[..., tuple[Any, Any]]:
    """Make the same stream with each connector."""
    return lambda **options: (stream("theirs", **options), stream("ours", **options))


def test_new_topics_and_partitions(
    both: Make, cluster: Any, unique: Make, fill: Make, admin: Any
) -> None:
    """They are read from their beginning, although the stream starts at the latest offsets."""
    prefix = unique("later")
    cluster.create_topic(f"{prefix}-a", 1)
    fill(f"{prefix}-a", 3)
    theirs, ours = both(subscribePattern=f"{prefix}-.*", maxOffsetsPerTrigger=5)
    theirs.run(JVM)
    ours.run(OURS)
    add_partitions(admin, f"{prefix}-a", 2)
    cluster.create_topic(f"{prefix}-b", 1)
    for number, name in enumerate((f"{prefix}-a", f"{prefix}-a", f"{prefix}-b")):
        fill(name, 4, number % 2)
    theirs.run(JVM)
    ours.run(OURS)

    assert len(same_results(theirs, ours)[0]) == 12


@pytest.mark.parametrize(("damage", "left"), [("truncated", 1), ("recreated", 2), ("deleted", 0)])
def test_lost_records_stop_the_stream_unless_failondataloss_is_false(
    both: Make, cluster: Any, unique: Make, fill: Make, delete_before: Make, delete_topic: Make,
    damage: str, left: int,
) -> None:  # fmt: skip
    from pyspark.errors import StreamingQueryException

    prefix = unique("lost")
    lost, whole = f"{prefix}-a", f"{prefix}-b"
    for name in (lost, whole):
        cluster.create_topic(name, 1)
        fill(name, 5)
    theirs, ours = both(
        subscribePattern=f"{prefix}-.*",
        startingOffsets="earliest",
        fetchOffset__numRetries=1,
        fetchOffset__retryIntervalMs=1,
    )
    theirs.run(JVM)
    ours.run(OURS)
    fill(whole, 3)
    if damage == "truncated":
        fill(lost, 5)
        delete_before(lost, 0, 9)
    else:
        delete_topic(lost)
    if damage == "recreated":
        cluster.create_topic(lost, 1)
        fill(lost, 3)
    for connector, query in ((JVM, theirs), (OURS, ours)):
        with pytest.raises(StreamingQueryException):
            query.run(connector)
        query.run(connector, failOnDataLoss="false")
    if damage == "recreated":  # the offsets before the new end are lost
        fill(lost, left)
        theirs.run(JVM)
        ours.run(OURS)

    rows, _ = same_results(theirs, ours)
    assert len(rows) == 10 + 3 + left


# -- triggers


def test_min_offsets_wait_for_records_or_the_delay(
    both: Make, topic: str, grow: Make, wait_until: Make
) -> None:
    theirs, ours = both(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=10)
    grow(1)
    running = [theirs.start(JVM, maxTriggerDelay="1h"), ours.start(OURS, maxTriggerDelay="1h")]

    def process() -> list[int]:
        for query in running:
            query.processAllAvailable()
        return [sum(query.ends()[-1][topic].values()) for query in (theirs, ours)]

    assert process() == [1, 1]  # the first micro-batch does not wait
    grow(9)
    assert process() == [1, 1]
    grow(1)
    assert process() == [11, 11]
    for query in running:
        query.stop()
    running = [theirs.start(JVM, maxTriggerDelay="1s"), ours.start(OURS, maxTriggerDelay="1s")]
    grow(1)
    process()
    grow(1)
    wait_until(lambda: process() == [13, 13])
