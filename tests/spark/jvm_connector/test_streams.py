"""Streams have the micro-batches of Spark's own Kafka connector, and share checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S

T0 = 1_700_000_000_000
JVM, OURS = "kafka", "cykafka"

Make = Callable[..., Any]


def without_start(end: dict[str, Any]) -> dict[str, Any]:
    """The plain offsets. cykafka adds the start to the end of the first micro-batch."""
    return {
        topic: parts
        for topic, parts in end.items()
        if all(isinstance(offset, int) for offset in parts.values()) and " " not in topic
    }


def same_batches(stream: Make, **options: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Run both connectors; check that rows and ends of micro-batches match, and return them."""
    theirs, ours = stream("theirs", **options), stream("ours", **options)
    theirs.run(JVM)
    ours.run(OURS)
    ends = theirs.ends()
    assert [without_start(end) for end in ours.ends()] == ends
    rows = theirs.rows()
    assert ours.rows() == rows
    return rows, ends


def test_micro_batches_by_rate(stream: Make, topics: Any) -> None:
    rows, ends = same_batches(
        stream,
        subscribe=f"{topics.mixed},{topics.shrunk},{topics.empty}",
        startingOffsets="earliest",
        includeHeaders="true",
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


@pytest.mark.parametrize("connectors", [(JVM, OURS, JVM), (OURS, JVM, OURS)], ids="-".join)
def test_connectors_continue_from_each_others_checkpoints(
    stream: Make, topic: str, grow: Make, connectors: tuple[str, ...]
) -> None:
    moved = stream("moved", subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    for number, connector in enumerate(connectors, 1):
        grow(100)
        moved.run(connector)

        assert values(moved.rows()) == list(range(100 * number))
    assert len(moved.ends()) >= 9


@pytest.mark.parametrize("connectors", [(JVM, OURS, JVM), (OURS, JVM, OURS)], ids="-".join)
def test_connectors_finish_each_others_half_done_micro_batch(
    stream: Make, topic: str, grow: Make, connectors: tuple[str, ...]
) -> None:
    moved = stream("moved", subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    for number, connector in enumerate(connectors, 1):
        grow(100)
        moved.run(connector)
        assert values(moved.rows()) == list(range(100 * number))
        # A kill before the end of the last micro-batch: the next connector writes the same.
        if connector != connectors[-1]:
            moved.forget_last_commit()


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


def test_offsets_in_the_checkpoint_equal_those_of_the_jvm_connector(
    stream: Make, topic: str, grow: Make
) -> None:
    ours = stream("ours", subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=60)
    grow(100)
    ours.run(OURS)

    last = ours.ends()[-1]
    assert list(last) == [topic]
    assert sum(last[topic].values()) == 100
    assert json.loads(json.dumps(last)) == last
