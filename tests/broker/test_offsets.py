"""Offsets on a real broker: watermarks, lookup by time, positions, commits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, Read, Unique, WaitUntil
from machine import WAIT_S


@pytest.fixture
def partition(kafka: Any, topic: str, fill: Fill) -> Any:
    """A partition that holds ten messages."""
    fill(topic, 10)
    return kafka.TopicPartition(topic, 0, 0)


@pytest.fixture
def committed(kafka: Any) -> Callable[..., int]:
    """The offset a group has committed for a partition."""

    def committed(consumer: Any, partition: Any) -> int:
        (found,) = consumer.committed(
            [kafka.TopicPartition(partition.topic, partition.partition)], timeout=WAIT_S
        )
        assert found.error is None
        offset: int = found.offset
        return offset

    return committed


# -- watermarks


def test_watermarks_follow_the_log(
    consumer: Any, partition: Any, delete_records: Callable[..., None], fill: Fill
) -> None:
    assert consumer.get_watermark_offsets(partition, timeout=WAIT_S) == (0, 10)

    fill(partition.topic, 5)
    assert consumer.get_watermark_offsets(partition, timeout=WAIT_S) == (0, 15)

    delete_records(partition, 4)
    assert consumer.get_watermark_offsets(partition, timeout=WAIT_S) == (4, 15)


def test_cached_watermarks_are_those_of_the_last_fetch(
    consumer: Any, kafka: Any, partition: Any, wait_until: WaitUntil, producer: Any
) -> None:
    unknown = (kafka.OFFSET_INVALID, kafka.OFFSET_INVALID)
    assert consumer.get_watermark_offsets(partition, cached=True) == unknown
    consumer.assign([partition])
    consumer.consume(10, WAIT_S)
    assert consumer.get_watermark_offsets(partition, cached=True)[1] == 10

    producer.produce(partition.topic, b"one more", partition=0)
    producer.flush(WAIT_S)

    wait_until(
        lambda: consumer.get_watermark_offsets(partition, cached=True)[1] == 11,
        lambda: consumer.poll(0.05),
    )


def test_watermarks_of_a_missing_topic_are_an_error(
    consumer: Any, kafka: Any, unique: Unique
) -> None:
    with pytest.raises(kafka.KafkaException) as caught:
        consumer.get_watermark_offsets(kafka.TopicPartition(unique("missing"), 0), timeout=2)

    assert caught.value.args[0] in (
        kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
        kafka.KafkaError._UNKNOWN_TOPIC,
        kafka.KafkaError._UNKNOWN_PARTITION,
    )


# -- offsets by time


@pytest.fixture
def timed(kafka: Any, cluster: Any, unique: Unique, producer: Any) -> str:
    """A topic whose partition 0 has messages with the timestamps 1000, 2000 and 3000 ms."""
    name = unique("timed")
    cluster.create_topic(name, 2, config={"retention.ms": "-1"})
    for when in (1000, 2000, 3000):
        producer.produce(name, str(when), partition=0, timestamp=when)
    assert producer.flush(WAIT_S) == 0
    return name


@pytest.mark.parametrize(
    ("when", "offset"), [(0, 0), (1000, 0), (1001, 1), (2000, 1), (2999, 2), (3000, 2)]
)
def test_offset_for_a_time_is_the_first_message_at_or_after_it(
    consumer: Any, kafka: Any, timed: str, when: int, offset: int
) -> None:
    (found,) = consumer.offsets_for_times([kafka.TopicPartition(timed, 0, when)], timeout=WAIT_S)

    assert (found.topic, found.partition, found.offset) == (timed, 0, offset)
    assert found.error is None


def test_offset_for_a_time_after_all_messages_is_the_end(
    consumer: Any, kafka: Any, timed: str
) -> None:
    (found,) = consumer.offsets_for_times([kafka.TopicPartition(timed, 0, 3001)], timeout=WAIT_S)

    assert found.offset == kafka.OFFSET_END


def test_offsets_for_times_answers_for_each_partition(
    consumer: Any, kafka: Any, timed: str
) -> None:
    asked = [kafka.TopicPartition(timed, 0, 1500), kafka.TopicPartition(timed, 1, 1500)]

    found = consumer.offsets_for_times(asked, timeout=WAIT_S)

    assert [(p.partition, p.offset) for p in found] == [(0, 1), (1, kafka.OFFSET_END)]
    assert [p.offset for p in asked] == [1500, 1500]


def test_offset_for_a_time_uses_log_append_time_if_the_topic_does(
    consumer: Any, kafka: Any, cluster: Any, unique: Unique, producer: Any
) -> None:
    name = unique("log-append-time")
    cluster.create_topic(name, 1, config={"message.timestamp.type": "LogAppendTime"})
    appended: list[int] = []
    for _ in range(2):
        producer.produce(
            name, timestamp=1000, on_delivery=lambda _, m: appended.append(m.timestamp()[1])
        )
        producer.flush(WAIT_S)
        while time.time() * 1000 <= appended[-1] + 1:  # so the next one gets another time
            producer.poll(0.002)

    def offset(when: int) -> int:
        (found,) = consumer.offsets_for_times([kafka.TopicPartition(name, 0, when)], WAIT_S)
        return int(found.offset)

    assert appended[0] < appended[1]
    assert [offset(when) for when in (1000, appended[0], appended[0] + 1, appended[1])] == [
        0,
        0,
        1,
        1,
    ]
    assert offset(appended[1] + 1) == kafka.OFFSET_END


# -- positions


def test_seek_moves_back_and_forth(consumer: Any, kafka: Any, partition: Any) -> None:
    consumer.assign([partition])
    assert consumer.poll(WAIT_S).offset() == 0
    seen = []

    for offset in (7, 2, 9, 0):
        consumer.seek(kafka.TopicPartition(partition.topic, 0, offset))
        seen.append(consumer.poll(WAIT_S).offset())

    assert seen == [7, 2, 9, 0]


def test_seek_to_the_offset_for_a_time_reads_from_it(
    consumer: Any, kafka: Any, timed: str
) -> None:
    consumer.assign([kafka.TopicPartition(timed, 0, 0)])
    consumer.poll(WAIT_S)
    (found,) = consumer.offsets_for_times([kafka.TopicPartition(timed, 0, 1500)], WAIT_S)

    consumer.seek(found)

    assert consumer.poll(WAIT_S).value() == b"2000"


def test_seek_drops_prefetched_messages(consumer: Any, kafka: Any, partition: Any) -> None:
    consumer.assign([partition])
    assert len(consumer.consume(5, WAIT_S)) == 5

    consumer.seek(kafka.TopicPartition(partition.topic, 0, 1))

    assert [m.offset() for m in consumer.consume(9, WAIT_S)] == list(range(1, 10))


def test_offset_tail_starts_that_many_before_the_end(
    consumer: Any, kafka: Any, partition: Any
) -> None:
    tail = -2000 - 3  # librdkafka's RD_KAFKA_OFFSET_TAIL(3), which has no name in Python
    consumer.assign([kafka.TopicPartition(partition.topic, 0, tail)])

    assert [m.offset() for m in consumer.consume(3, WAIT_S)] == [7, 8, 9]


def test_pause_of_one_partition_leaves_the_others(
    consumer: Any, kafka: Any, topic: str, fill: Fill, wait_until: WaitUntil, read: Read
) -> None:
    partitions = [kafka.TopicPartition(topic, number, 0) for number in (0, 1)]
    consumer.assign(partitions)
    consumer.pause(partitions[:1])
    for number in (0, 1):
        fill(topic, 10, partition=number)

    assert {m.partition() for m in read(consumer, 10)} == {1}
    assert consumer.poll(0.2) is None

    consumer.resume(partitions[:1])
    assert [(m.partition(), m.offset()) for m in read(consumer, 10)] == [
        (0, offset) for offset in range(10)
    ]


def test_position_and_committed_offset_are_independent(
    consumer: Any, kafka: Any, partition: Any, committed: Callable[..., int]
) -> None:
    consumer.assign([partition])
    consumer.consume(6, WAIT_S)
    assert committed(consumer, partition) == kafka.OFFSET_INVALID

    consumer.commit(offsets=[kafka.TopicPartition(partition.topic, 0, 3)], asynchronous=False)

    assert consumer.position([partition])[0].offset == 6
    assert committed(consumer, partition) == 3


# -- commits


def test_commit_of_a_message_is_its_next_offset(
    consumer: Any, partition: Any, committed: Callable[..., int]
) -> None:
    consumer.assign([partition])
    message = consumer.consume(3, WAIT_S)[-1]

    (done,) = consumer.commit(message=message, asynchronous=False)

    assert (done.topic, done.partition, done.offset) == (partition.topic, 0, 3)
    assert committed(consumer, partition) == 3


def test_commit_of_several_partitions_keeps_each(
    consumer: Any, kafka: Any, topic: str, committed: Callable[..., int]
) -> None:
    offsets = [kafka.TopicPartition(topic, number, 10 + number) for number in range(4)]

    done = consumer.commit(offsets=offsets, asynchronous=False)

    assert [(p.partition, p.offset, p.error) for p in done] == [
        (number, 10 + number, None) for number in range(4)
    ]
    assert [committed(consumer, partition) for partition in offsets] == [10, 11, 12, 13]


@pytest.mark.parametrize("metadata", ["a note", "", "größe 語", "x" * 4000])
def test_commit_keeps_the_metadata(consumer: Any, kafka: Any, topic: str, metadata: str) -> None:
    consumer.commit(
        offsets=[kafka.TopicPartition(topic, 0, 5, metadata)],
        asynchronous=False,
    )

    (found,) = consumer.committed([kafka.TopicPartition(topic, 0)], timeout=WAIT_S)
    assert (found.offset, found.metadata or "") == (5, metadata)


def test_commit_with_too_much_metadata_is_an_error_of_the_partition(
    consumer: Any, kafka: Any, topic: str, committed: Callable[..., int]
) -> None:
    offset = kafka.TopicPartition(topic, 0, 5, "x" * 5000)  # the broker's default limit is 4096

    with pytest.raises(kafka.KafkaException) as caught:
        consumer.commit(offsets=[offset], asynchronous=False)

    assert caught.value.args[0] == kafka.KafkaError.OFFSET_METADATA_TOO_LARGE
    assert committed(consumer, offset) == kafka.OFFSET_INVALID


def test_commit_keeps_the_leader_epoch(consumer: Any, kafka: Any, partition: Any) -> None:
    consumer.assign([partition])
    message = consumer.poll(WAIT_S)

    consumer.commit(message=message, asynchronous=False)

    (found,) = consumer.committed([partition], timeout=WAIT_S)
    assert found.leader_epoch == message.leader_epoch() == 0


def test_asynchronous_commit_reports_the_stored_offsets(
    make_consumer: MakeConsumer,
    kafka: Any,
    topic: str,
    wait_until: WaitUntil,
    committed: Callable[..., int],
) -> None:
    reports: list[tuple[Any, Any]] = []
    consumer = make_consumer({"on_commit": lambda *report: reports.append(report)})

    consumer.commit(offsets=[kafka.TopicPartition(topic, 1, 6)])
    wait_until(lambda: reports, lambda: consumer.poll(0.1))

    ((error, (done,)),) = reports
    assert (error, done.partition, done.offset, done.error) == (None, 1, 6, None)
    assert committed(consumer, done) == 6


def test_commit_without_arguments_commits_the_stored_offsets(
    make_consumer: MakeConsumer, kafka: Any, partition: Any, committed: Callable[..., int]
) -> None:
    consumer = make_consumer({"enable.auto.offset.store": False})
    consumer.assign([partition])
    messages = consumer.consume(8, WAIT_S)
    consumer.store_offsets(message=messages[4])

    consumer.commit(asynchronous=False)

    assert committed(consumer, partition) == 5


def test_groups_commit_independently(
    make_consumer: MakeConsumer, kafka: Any, topic: str, committed: Callable[..., int]
) -> None:
    one, other = make_consumer(), make_consumer()
    offset = kafka.TopicPartition(topic, 0, 3)

    one.commit(offsets=[offset], asynchronous=False)

    assert committed(one, offset) == 3
    assert committed(other, offset) == kafka.OFFSET_INVALID


def test_assign_without_offset_starts_where_the_group_committed(
    make_consumer: MakeConsumer, kafka: Any, partition: Any, unique: Unique
) -> None:
    config = {"group.id": unique("group")}
    make_consumer(config).commit(
        offsets=[kafka.TopicPartition(partition.topic, 0, 6)], asynchronous=False
    )
    consumer = make_consumer(config)

    consumer.assign([kafka.TopicPartition(partition.topic, 0)])

    assert consumer.poll(WAIT_S).offset() == 6
