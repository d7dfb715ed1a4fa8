"""The start of reading if the group has no offset, or the log no longer has that offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, Read
from machine import WAIT_S


@pytest.fixture
def at_offset(make_consumer: MakeConsumer, kafka: Any) -> Callable[..., Any]:
    """A consumer assigned one partition from an offset, with a reset policy."""

    def at_offset(partition: Any, offset: int, policy: str) -> Any:
        consumer = make_consumer({"auto.offset.reset": policy, "enable.partition.eof": True})
        consumer.assign([kafka.TopicPartition(partition.topic, partition.partition, offset)])
        return consumer

    return at_offset


@pytest.fixture
def cut(kafka: Any, topic: str, fill: Fill, delete_records: Callable[..., None]) -> Any:
    """A partition with the offsets 0 to 9, the first six of which are deleted."""
    fill(topic, 10)
    partition = kafka.TopicPartition(topic, 0)
    delete_records(partition, 6)
    return partition


@pytest.mark.parametrize(("policy", "offset"), [("earliest", 6), ("smallest", 6)])
def test_missing_offset_resets_to_the_first_message(
    at_offset: Callable[..., Any], kafka: Any, cut: Any, policy: str, offset: int
) -> None:
    assert at_offset(cut, kafka.OFFSET_STORED, policy).poll(WAIT_S).offset() == offset


@pytest.mark.parametrize("policy", ["latest", "largest"])
def test_missing_offset_resets_to_the_end(
    at_offset: Callable[..., Any], kafka: Any, cut: Any, fill: Fill, policy: str
) -> None:
    consumer = at_offset(cut, kafka.OFFSET_STORED, policy)
    end = consumer.poll(WAIT_S)
    assert (end.error(), end.offset()) == (kafka.KafkaError._PARTITION_EOF, 10)

    fill(cut.topic, 1)

    assert consumer.poll(WAIT_S).offset() == 10


def test_missing_offset_is_an_error_if_the_reset_policy_is_error(
    at_offset: Callable[..., Any], kafka: Any, cut: Any
) -> None:
    message = at_offset(cut, kafka.OFFSET_STORED, "error").poll(WAIT_S)

    assert message.error() == kafka.KafkaError._AUTO_OFFSET_RESET
    assert (message.topic(), message.partition()) == (cut.topic, 0)


@pytest.mark.parametrize("offset", [0, 5])
def test_offset_deleted_from_the_log_resets_to_the_first_message(
    at_offset: Callable[..., Any], cut: Any, offset: int
) -> None:
    consumer = at_offset(cut, offset, "earliest")

    assert [m.offset() for m in consumer.consume(4, WAIT_S)] == [6, 7, 8, 9]


def test_offset_deleted_from_the_log_resets_to_the_end(
    at_offset: Callable[..., Any], kafka: Any, cut: Any
) -> None:
    end = at_offset(cut, 2, "latest").poll(WAIT_S)

    assert (end.error(), end.offset()) == (kafka.KafkaError._PARTITION_EOF, 10)


def test_offset_beyond_the_log_resets_to_the_first_message(
    at_offset: Callable[..., Any], cut: Any
) -> None:
    assert at_offset(cut, 5000, "earliest").poll(WAIT_S).offset() == 6


@pytest.mark.parametrize("offset", [2, 5000])
def test_offset_out_of_range_is_an_error_if_the_reset_policy_is_error(
    at_offset: Callable[..., Any], kafka: Any, cut: Any, offset: int
) -> None:
    message = at_offset(cut, offset, "error").poll(WAIT_S)

    assert message.error() == kafka.KafkaError._AUTO_OFFSET_RESET
    assert (message.partition(), message.offset()) == (0, offset)


def test_committed_offset_that_was_deleted_resets(
    make_consumer: MakeConsumer, kafka: Any, cut: Any, read: Read
) -> None:
    consumer = make_consumer()
    consumer.commit(offsets=[kafka.TopicPartition(cut.topic, 0, 3)], asynchronous=False)

    consumer.subscribe([cut.topic])

    assert [m.offset() for m in read(consumer, 4)] == [6, 7, 8, 9]


def test_records_deleted_under_a_reader_are_skipped(
    make_consumer: MakeConsumer,
    kafka: Any,
    topic: str,
    fill: Fill,
    delete_records: Callable[..., None],
    read: Read,
) -> None:
    fill(topic, 20)
    consumer = make_consumer({"queued.min.messages": 1})
    partition = kafka.TopicPartition(topic, 0, 0)
    consumer.assign([partition])
    assert consumer.poll(WAIT_S).offset() == 0
    consumer.pause([partition])
    delete_records(partition, 15)

    consumer.seek(kafka.TopicPartition(topic, 0, 1))
    consumer.resume([partition])

    assert [m.offset() for m in read(consumer, 5)] == list(range(15, 20))
