"""A log after retention or compaction is read with the right offsets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S

HOUR_MS = 3_600_000


@pytest.fixture
def producer(make_producer: MakeProducer, tidy: Any) -> Any:
    return make_producer({"bootstrap.servers": tidy.bootstrap_servers})


@pytest.fixture
def consumer(make_consumer: MakeConsumer, tidy: Any) -> Any:
    return make_consumer(
        {"bootstrap.servers": tidy.bootstrap_servers, "enable.partition.eof": True}
    )


@pytest.fixture
def make_partition(tidy: Any, kafka: Any, unique: Unique) -> Callable[..., Any]:
    """Make a topic of one partition with settings; return the partition with offset 0."""

    def make_partition(**config: object) -> Any:
        name = unique("log")
        settings = {key.replace("_", "."): value for key, value in config.items()}
        tidy.create_topic(name, 1, config=settings)
        return kafka.TopicPartition(name, 0, 0)

    return make_partition


def read_all(consumer: Any, kafka: Any, partition: Any) -> list[Any]:
    """Everything from the partition's offset to its end, and the end itself."""
    consumer.assign([partition])
    messages = []
    deadline = time.monotonic() + WAIT_S
    while not messages or messages[-1].error() != kafka.KafkaError._PARTITION_EOF:
        assert time.monotonic() < deadline
        messages += consumer.consume(100, 0.2)
    assert [message.error() for message in messages[:-1]] == [None] * (len(messages) - 1)
    return messages


def test_retention_by_size_moves_the_first_offset(
    producer: Any,
    consumer: Any,
    kafka: Any,
    make_partition: Callable[..., Any],
    wait_until: WaitUntil,
) -> None:
    partition = make_partition(segment_bytes=1 << 20, retention_bytes=1 << 20)
    for _ in range(6):
        producer.produce(partition.topic, bytes(500_000), partition=0)
        assert producer.flush(WAIT_S) == 0

    wait_until(
        lambda: consumer.get_watermark_offsets(partition, timeout=WAIT_S)[0] > 0,
        lambda: consumer.poll(0.05),
        WAIT_S,
    )

    *messages, end = read_all(consumer, kafka, partition)
    first, last = consumer.get_watermark_offsets(partition, timeout=WAIT_S)
    assert [message.offset() for message in messages] == list(range(first, last))
    assert end.offset() == last == 6


def test_retention_by_time_empties_the_log(
    producer: Any,
    consumer: Any,
    kafka: Any,
    make_partition: Callable[..., Any],
    wait_until: WaitUntil,
) -> None:
    partition = make_partition(retention_ms=HOUR_MS)
    two_hours_ago = int(time.time() * 1000) - 2 * HOUR_MS
    for value in ("1", "2"):
        producer.produce(partition.topic, value, partition=0, timestamp=two_hours_ago)
    assert producer.flush(WAIT_S) == 0

    wait_until(
        lambda: consumer.get_watermark_offsets(partition, timeout=WAIT_S) == (2, 2),
        lambda: consumer.poll(0.05),
        WAIT_S,
    )

    (end,) = read_all(consumer, kafka, partition)
    assert end.offset() == 2


def test_records_of_any_time_stay_by_default(
    producer: Any, consumer: Any, make_partition: Callable[..., Any], wait_until: WaitUntil
) -> None:
    kept, emptied = make_partition(), make_partition(retention_ms=HOUR_MS)
    for partition in (kept, emptied):
        producer.produce(partition.topic, "1", partition=0, timestamp=1_000_000)
    assert producer.flush(WAIT_S) == 0

    # Each check looks at all logs, and the second one begins after the first one has ended.
    for end in (1, 2):
        wait_until(
            lambda end=end: consumer.get_watermark_offsets(emptied, timeout=WAIT_S) == (end, end),
            lambda: consumer.poll(0.05),
            WAIT_S,
        )
        producer.produce(emptied.topic, "2", partition=0, timestamp=1_000_000)
        assert producer.flush(WAIT_S) == 0

    assert consumer.get_watermark_offsets(kept, timeout=WAIT_S) == (0, 1)


def test_reader_paused_during_retention_resumes_at_the_first_record(
    producer: Any,
    consumer: Any,
    kafka: Any,
    make_partition: Callable[..., Any],
    wait_until: WaitUntil,
) -> None:
    partition = make_partition(segment_bytes=1 << 20, retention_bytes=1 << 20)
    producer.produce(partition.topic, b"first", partition=0)
    producer.flush(WAIT_S)
    consumer.assign([partition])
    assert consumer.poll(WAIT_S).offset() == 0
    consumer.pause([partition])
    for _ in range(6):
        producer.produce(partition.topic, bytes(500_000), partition=0)
        assert producer.flush(WAIT_S) == 0
    wait_until(
        lambda: consumer.get_watermark_offsets(partition, timeout=WAIT_S)[0] > 1,
        lambda: consumer.poll(0.05),
        WAIT_S,
    )

    consumer.resume([partition])

    offsets: list[int] = []
    wait_until(
        lambda: offsets and offsets[-1] == 6,
        lambda: offsets.extend(
            message.offset() for message in consumer.consume(1, 0.2) if not message.error()
        ),
        WAIT_S,
    )
    assert offsets == list(range(offsets[0], 7))


@pytest.fixture
def compacted(
    producer: Any,
    consumer: Any,
    kafka: Any,
    make_partition: Callable[..., Any],
    wait_until: WaitUntil,
) -> Any:
    """A compacted partition: offsets 0 to 29 were keys a to c in turn, then c was deleted."""
    partition = make_partition(
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.001,
        delete_retention_ms=0,
        max_compaction_lag_ms=100,
    )

    def produce(value: str | None, key: str) -> None:
        producer.produce(partition.topic, value, key=key, partition=0)
        assert producer.flush(WAIT_S) == 0

    for number in range(30):
        producer.produce(partition.topic, str(number), key="abc"[number % 3], partition=0)
    produce(None, "c")

    def offsets_of(key: bytes) -> list[int]:
        *messages, _ = read_all(consumer, kafka, partition)
        return [message.offset() for message in messages if message.key() == key]

    # Only closed segments are compacted, and the next record closes a segment. The second
    # cleaning after a tombstone removes it.
    wait_until(
        lambda: (offsets_of(b"a"), offsets_of(b"b"), offsets_of(b"c")) == ([27], [28], []),
        lambda: produce("x", "filler"),
        WAIT_S,
    )
    consumer.unassign()
    return partition


def test_reader_skips_the_gaps_of_a_compacted_log(
    consumer: Any, kafka: Any, compacted: Any
) -> None:
    *messages, end = read_all(consumer, kafka, compacted)

    kept = {message.key(): (message.offset(), message.value()) for message in messages}
    assert kept[b"a"] == (27, b"27")
    assert kept[b"b"] == (28, b"28")
    assert b"c" not in kept
    offsets = [message.offset() for message in messages]
    assert offsets[:2] == [27, 28]
    assert offsets == sorted(set(offsets))
    first, last = consumer.get_watermark_offsets(compacted, timeout=WAIT_S)
    # Compaction moves neither end of the log, so the lag counts removed records.
    assert (first, last) == (0, end.offset())
    assert consumer.position([compacted])[0].offset == last


def test_seek_into_a_gap_of_a_compacted_log_reads_the_next_record(
    consumer: Any, kafka: Any, compacted: Any
) -> None:
    consumer.assign([compacted])
    assert consumer.poll(WAIT_S).offset() == 27

    consumer.seek(kafka.TopicPartition(compacted.topic, 0, 11))

    message = consumer.poll(WAIT_S)
    assert message.offset() == 27
    (done,) = consumer.commit(message=message, asynchronous=False)
    assert done.offset == 28
