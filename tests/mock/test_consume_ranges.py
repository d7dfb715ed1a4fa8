"""consume_ranges(): parts of partitions, read to their ends and no further."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, WaitUntil
from machine import WAIT_S

from cykafka.internal import Ranges, consume_ranges

pytestmark = pytest.mark.ours


@pytest.fixture
def reader(make_consumer: MakeConsumer, topic: str) -> Any:
    consumer = make_consumer({"enable.partition.eof": True, "auto.offset.reset": "error"})
    consumer.list_topics(topic, WAIT_S)
    return consumer


@pytest.fixture
def ranges(reader: Any, kafka: Any) -> Callable[..., Any]:
    """Make Ranges and assign their partitions."""

    def make(*each: tuple[str, int, int, int]) -> Any:
        made = Ranges(each)
        reader.assign(
            [kafka.TopicPartition(name, number, at) for name, number, at, end in each if at < end]
        )
        return made

    return make


def all_of(reader: Any, ranges: Any, **limits: Any) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(ranges):
        batch = consume_ranges(reader, ranges, timeout=WAIT_S, **limits)
        assert batch.errors == []
        assert len(batch)
        found += zip(batch.partitions, batch.offsets, strict=True)
    return sorted(found)


def test_only_records_of_the_ranges_are_returned(
    reader: Any, ranges: Any, topic: str, fill: Fill
) -> None:
    fill(topic, 50, 0)
    fill(topic, 50, 1)

    found = all_of(reader, ranges((topic, 0, 10, 13), (topic, 1, 48, 50), (topic, 2, 7, 7)))

    assert found == [(0, 10), (0, 11), (0, 12), (1, 48), (1, 49)]


def test_limits_of_messages_and_bytes_end_a_batch(
    reader: Any, ranges: Any, topic: str, make_producer: MakeProducer
) -> None:
    producer = make_producer()
    for _ in range(100):
        producer.produce(topic, b"x" * 1000, partition=0)
    producer.flush(WAIT_S)

    wanted = ranges((topic, 0, 0, 100))
    assert len(consume_ranges(reader, wanted, 7, timeout=WAIT_S)) == 7
    assert wanted.left()[0].next == 7
    some = consume_ranges(reader, wanted, max_bytes=5000, timeout=WAIT_S)
    assert 5 <= len(some) <= 7
    assert all_of(reader, wanted)[-1] == (0, 99)
    assert wanted.left() == []
    assert not len(consume_ranges(reader, wanted, timeout=WAIT_S))


def test_range_beyond_the_end_times_out_and_continues_later(
    reader: Any, ranges: Any, topic: str, fill: Fill
) -> None:
    fill(topic, 5, 3)
    wanted = ranges((topic, 3, 3, 7))

    assert list(consume_ranges(reader, wanted, timeout=0.3).offsets) == [3, 4]
    (left,) = wanted.left()
    assert left == (topic, 3, 5, 7, 5)
    assert (left.next, left.end, left.eof) == (5, 7, 5)

    fill(topic, 5, 3)
    assert list(consume_ranges(reader, wanted, timeout=WAIT_S).offsets) == [5, 6]


def test_offset_out_of_range_is_an_error_of_the_batch(
    reader: Any, ranges: Any, topic: str, fill: Fill, kafka: Any
) -> None:
    fill(topic, 5, 0)
    batch = consume_ranges(reader, ranges((topic, 0, 90, 99)), timeout=WAIT_S)

    (message,) = batch.errors
    assert message.error().code() == kafka.KafkaError._AUTO_OFFSET_RESET
    assert (message.topic(), message.partition()) == (topic, 0)


def test_skipped_offsets_count_as_read(reader: Any, ranges: Any, topic: str, fill: Fill) -> None:
    fill(topic, 10, 0)
    wanted = ranges((topic, 0, 2, 10))
    wanted.skip(topic, 0, 6)
    wanted.skip(topic, 0, 4)

    assert all_of(reader, wanted) == [(0, at) for at in range(6, 10)]
    with pytest.raises(ValueError, match="the ranges do not contain"):
        wanted.skip(topic, 1, 6)


def test_next_call_returns_the_records_that_an_exception_left(
    make_consumer: MakeConsumer, topic: str, fill: Fill, kafka: Any, wait_until: WaitUntil
) -> None:

    def angry(_: str) -> None:
        nonlocal raised
        if not raised:
            raised = True
            raise RuntimeError("no statistics, please")

    raised = False
    fill(topic, 10, 0)
    consumer = make_consumer(
        {"enable.partition.eof": True, "stats_cb": angry, "statistics.interval.ms": 5}
    )
    wanted = Ranges([(topic, 0, 0, 11)])
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    with pytest.raises(RuntimeError, match="no statistics"):
        consume_ranges(consumer, wanted, timeout=WAIT_S)

    found: list[int] = []
    wait_until(
        lambda: len(found) == 10,
        lambda: found.extend(consume_ranges(consumer, wanted, timeout=0.1).offsets),
    )
    assert found == list(range(10))


def test_ranges_refuse_a_second_caller(
    reader: Any, ranges: Any, topic: str, wait_until: WaitUntil
) -> None:
    wanted = ranges((topic, 0, 0, 5))
    began = threading.Event()
    errors: list[Exception] = []

    def wait() -> None:
        began.set()
        try:
            consume_ranges(reader, wanted, timeout=WAIT_S)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    began.wait(WAIT_S)

    def refused() -> bool:
        try:
            wanted.left()
        except RuntimeError:
            return True
        return False

    wait_until(refused, lambda: None)
    with pytest.raises(RuntimeError, match="another call is reading these ranges"):
        consume_ranges(reader, wanted, timeout=0)
    with pytest.raises(RuntimeError, match="is reading these ranges"):
        wanted.__init__([])
    reader.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert len(errors) == 1  # the consumer was closed
    assert len(wanted) == 1


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ([("t", 0, 0)], ValueError, "unpack"),
        ([("t", -1, 0, 1)], ValueError, "partition: expected"),
        ([("t", 0, -1, 1)], ValueError, "start: expected"),
        ([("t", 0, 0, -1)], ValueError, "end: expected"),
        ([(b"t", 0, 0, 1)], TypeError, "expected a str as topic"),
        ([("t", "0", 0, 1)], TypeError, "partition: expected an int"),
        ([("t", 0, 0, 1), ("t", 0, 5, 6)], ValueError, "t \\[0\\] is a duplicate"),
        (3, TypeError, "iterable"),
    ],
)
def test_invalid_ranges_are_refused(given: Any, error: type[Exception], text: str) -> None:

    with pytest.raises(error, match=text):
        Ranges(given)


def test_arguments_are_checked(reader: Any, ranges: Any, topic: str) -> None:

    wanted = ranges((topic, 0, 0, 1))
    with pytest.raises(TypeError, match="ranges: expected Ranges, got list"):
        consume_ranges(reader, [(topic, 0, 0, 1)])
    with pytest.raises(ValueError, match="max_messages"):
        consume_ranges(reader, wanted, 0)
    with pytest.raises(ValueError, match="max_bytes"):
        consume_ranges(reader, wanted, max_bytes=0)
    with pytest.raises(ValueError, match="__init__"):
        consume_ranges(reader, Ranges.__new__(Ranges))
    assert len(Ranges.__new__(Ranges)) == 0
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        consume_ranges(reader, wanted)
    assert len(wanted.left()) == 1
