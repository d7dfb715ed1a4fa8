"""Transactions on a real broker: visibility to readers, fencing, and offsets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read, Unique, WaitUntil
from machine import WAIT_S


@pytest.fixture
def make_ready(make_transactional: MakeProducer) -> Callable[..., Any]:
    """Make producers that can begin a transaction."""

    def make(**config: Any) -> Any:
        producer = make_transactional(**config)
        producer.init_transactions(WAIT_S)
        return producer

    return make


def write(producer: Any, topic: str, *values: bytes, commit: bool, partition: int = 0) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    # The records leave the queue before the end, because an abort purges queued ones.
    assert producer.flush(WAIT_S) == 0
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


@pytest.fixture
def read_to_end(kafka: Any, make_consumer: MakeConsumer) -> Callable[..., list[bytes]]:
    """Return all values of partition 0 that a consumer with this isolation level gets."""

    def read_to_end(topic: str, isolation_level: str) -> list[bytes]:
        consumer = make_consumer(
            {"isolation.level": isolation_level, "enable.partition.eof": True}
        )
        consumer.assign([kafka.TopicPartition(topic, 0, 0)])
        values = []
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, "the reader did not reach the end of the partition in time"
            if message.error() is None:
                values.append(message.value())
                continue
            assert message.error().code() == kafka.KafkaError._PARTITION_EOF
            return values

    return read_to_end


def test_read_committed_skips_aborted_records(
    make_ready: Any, topic: str, read_to_end: Callable[..., list[bytes]]
) -> None:
    producer = make_ready()
    write(producer, topic, b"aborted-1", commit=False)
    write(producer, topic, b"1", b"2", commit=True)
    write(producer, topic, b"aborted-2", b"aborted-3", commit=False)
    write(producer, topic, b"3", commit=True)
    write(producer, topic, b"aborted-4", commit=False)

    assert read_to_end(topic, "read_committed") == [b"1", b"2", b"3"]
    assert read_to_end(topic, "read_uncommitted") == [
        b"aborted-1", b"1", b"2", b"aborted-2", b"aborted-3", b"3", b"aborted-4"
    ]  # fmt: skip


@pytest.mark.ours
def test_abort_right_after_a_commit_succeeds(
    make_ready: Callable[..., Any], read_to_end: Callable[..., list[bytes]], topic: str
) -> None:
    # The coordinator is still completing the last transaction. Without our patch librdkafka raises
    # a fatal error within a dozen rounds.
    producer = make_ready()
    committed = [b"%d" % number for number in range(50)]

    for value in committed:
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.commit_transaction(WAIT_S)
        producer.begin_transaction()
        producer.produce(topic, b"aborted", partition=0)
        producer.abort_transaction(WAIT_S)

    assert read_to_end(topic, "read_committed") == committed


def test_interleaved_transactions_are_distinguished(
    make_ready: Any, topic: str, read_to_end: Callable[..., list[bytes]]
) -> None:
    one, other = make_ready(), make_ready()
    one.begin_transaction()
    other.begin_transaction()
    for number in range(5):
        for producer, name in ((one, "kept"), (other, "dropped")):
            producer.produce(topic, f"{name}-{number}", partition=0)
            assert producer.flush(WAIT_S) == 0
    other.abort_transaction(WAIT_S)
    one.commit_transaction(WAIT_S)

    assert read_to_end(topic, "read_committed") == [b"kept-%d" % number for number in range(5)]


def test_open_transaction_hides_the_records_after_it(
    kafka: Any, make_ready: Any, make_consumer: MakeConsumer, producer: Any, topic: str, read: Read
) -> None:
    transactional = make_ready()
    transactional.begin_transaction()
    transactional.produce(topic, b"open", partition=0)
    assert transactional.flush(WAIT_S) == 0
    producer.produce(topic, b"plain", partition=0)
    assert producer.flush(WAIT_S) == 0
    partition = kafka.TopicPartition(topic, 0, 0)
    committed, uncommitted = (
        make_consumer({"isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    )
    committed.assign([partition])
    uncommitted.assign([partition])

    assert [m.value() for m in read(uncommitted, 2)] == [b"open", b"plain"]
    assert uncommitted.get_watermark_offsets(partition, WAIT_S) == (0, 2)
    # The last stable offset.
    assert committed.get_watermark_offsets(partition, WAIT_S) == (0, 0)
    assert committed.consume(1, timeout=0.3) == []

    transactional.commit_transaction(WAIT_S)
    assert [m.value() for m in read(committed, 2)] == [b"open", b"plain"]
    assert committed.get_watermark_offsets(partition, WAIT_S) == (0, 3)


@pytest.mark.ours
@pytest.mark.parametrize(
    "method", ["poll", "consume", pytest.param("consume_batch", marks=pytest.mark.ours)]
)
@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_commit_covers_the_marker_after_the_last_record(
    kafka: Any,
    make_ready: Any,
    make_consumer: MakeConsumer,
    topic: str,
    unique: Unique,
    wait_until: WaitUntil,
    method: str,
    commit: bool,
) -> None:
    producer = make_ready()
    write(producer, topic, b"1", b"2", commit=True)
    write(producer, topic, b"3", commit=commit)
    partition = kafka.TopicPartition(topic, 0)
    group = unique("group")
    consumer = make_consumer(
        {"group.id": group, "isolation.level": "read_committed", "enable.auto.commit": True}
    )
    consumer.assign([partition])
    seen: list[bytes] = []

    def serve() -> None:
        messages = [consumer.poll(0.2)] if method == "poll" else getattr(consumer, method)(10, 0.2)
        seen.extend(message.value() for message in messages if message)

    # The log has three records and two markers. The reader's lag is zero only after all of them.
    wait_until(lambda: consumer.position([partition])[0].offset == 5, serve)
    consumer.close()

    assert seen == ([b"1", b"2", b"3"] if commit else [b"1", b"2"])
    later = make_consumer({"group.id": group})
    assert later.committed([partition], WAIT_S)[0].offset == 5


@pytest.mark.ours
def test_position_after_a_marker_is_stored_while_reading(
    kafka: Any, make_ready: Any, make_consumer: MakeConsumer, topic: str,
    wait_until: WaitUntil,
) -> None:  # fmt: skip
    write(make_ready(), topic, b"1", commit=True)
    partition = kafka.TopicPartition(topic, 0)
    consumer = make_consumer({"isolation.level": "read_committed"})
    consumer.assign([partition])

    def committed() -> int:
        with contextlib.suppress(kafka.KafkaException):  # nothing new is stored
            consumer.commit(asynchronous=False)
        return int(consumer.committed([partition], WAIT_S)[0].offset)

    wait_until(lambda: consumer.poll(0.05) is not None, lambda: None)
    wait_until(lambda: committed() == 2, lambda: consumer.poll(0.05))


def test_newer_producer_fences_the_older(
    kafka: Any, make_ready: Any, topic: str, unique: Unique,
    read_to_end: Callable[..., list[bytes]],
) -> None:  # fmt: skip
    name = unique("fenced")
    old = make_ready(**{"transactional.id": name})
    old.begin_transaction()
    old.produce(topic, b"old", partition=0)
    assert old.flush(WAIT_S) == 0
    new = make_ready(**{"transactional.id": name})

    with pytest.raises(kafka.KafkaException) as caught:
        old.commit_transaction(WAIT_S)

    error = caught.value.args[0]
    assert error.code() == kafka.KafkaError._FENCED
    assert error.fatal()
    assert not error.retriable()
    with pytest.raises(kafka.KafkaException):
        old.produce(topic, b"late")
    write(new, topic, b"new", commit=True)
    assert read_to_end(topic, "read_committed") == [b"new"]


def test_transaction_left_open_too_long_is_aborted_by_the_broker(
    kafka: Any,
    make_ready: Any,
    consumer: Any,
    topic: str,
    wait_until: WaitUntil,
    read_to_end: Callable[..., list[bytes]],
) -> None:
    producer = make_ready(**{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0)
    assert producer.flush(WAIT_S) == 0

    partition = kafka.TopicPartition(topic, 0)
    # The consumer reads committed records, so its watermark is the last stable offset. By default
    # the broker looks for late transactions every 10 s.
    wait_until(
        lambda: consumer.get_watermark_offsets(partition, WAIT_S) == (0, 2),
        lambda: consumer.poll(0.1),
        WAIT_S,
    )
    with pytest.raises(kafka.KafkaException) as caught:
        producer.commit_transaction(WAIT_S)

    assert caught.value.args[0].fatal() or caught.value.args[0].txn_requires_abort()
    assert read_to_end(topic, "read_committed") == []


def test_offsets_are_committed_with_the_transaction_only(
    kafka: Any, make_ready: Any, make_consumer: MakeConsumer, fill: Fill,
    topic: str, unique: Unique, read: Read,
) -> None:  # fmt: skip
    fill(topic, 10)
    partition = kafka.TopicPartition(topic, 0)
    consumer = make_consumer()
    consumer.subscribe([topic])
    producer = make_ready()
    output = unique("output")
    read(consumer, 4)

    producer.begin_transaction()
    producer.produce(output, b"first")
    producer.send_offsets_to_transaction(
        [kafka.TopicPartition(topic, 0, 4)], consumer.consumer_group_metadata(), WAIT_S
    )
    producer.abort_transaction(WAIT_S)
    assert consumer.committed([partition], WAIT_S)[0].offset == kafka.OFFSET_INVALID

    producer.begin_transaction()
    producer.produce(output, b"second")
    producer.send_offsets_to_transaction(
        [kafka.TopicPartition(topic, 0, 4)], consumer.consumer_group_metadata(), WAIT_S
    )
    producer.commit_transaction(WAIT_S)
    assert consumer.committed([partition], WAIT_S)[0].offset == 4


@pytest.mark.ours
def test_a_group_without_members_keeps_offsets_and_their_metadata(
    kafka: Any, make_ready: Any, make_consumer: MakeConsumer, topic: str,
    unique: Unique,
) -> None:  # fmt: skip
    group = unique("notes")
    reader = make_consumer({"group.id": group})
    producer = make_ready()

    def committed() -> tuple[int, str | None]:
        (found,) = reader.committed([kafka.TopicPartition(topic, 0)], WAIT_S)
        return found.offset, found.metadata

    for number, commit in enumerate((False, True, True)):
        producer.begin_transaction()
        note = kafka.TopicPartition(topic, 0, number, metadata=f"note {number}")
        # The last offset of a transaction counts.
        producer.send_offsets_to_transaction([kafka.TopicPartition(topic, 0, 99)], group, WAIT_S)
        producer.send_offsets_to_transaction([note], group, WAIT_S)
        if commit:
            producer.commit_transaction(WAIT_S)
            assert committed() == (number, f"note {number}")
        else:
            producer.abort_transaction(WAIT_S)
            assert committed()[0] == kafka.OFFSET_INVALID


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_replaced_member_are_refused(
    kafka: Any, make_ready: Any, make_consumer: MakeConsumer, fill: Fill,
    topic: str, unique: Unique, read: Read, protocol: str,
) -> None:  # fmt: skip
    fill(topic, 10)
    group = {"group.id": unique("group"), "group.protocol": protocol}
    gone = make_consumer(group)
    gone.subscribe([topic])
    read(gone, 4)
    metadata = gone.consumer_group_metadata()
    gone.close()
    heir = make_consumer(group)
    heir.subscribe([topic])
    read(heir, 10)
    producer = make_ready()
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)

    with pytest.raises(kafka.KafkaException) as caught:
        producer.send_offsets_to_transaction([kafka.TopicPartition(topic, 0, 4)], metadata, WAIT_S)

    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(WAIT_S)
    assert heir.committed([kafka.TopicPartition(topic, 0)], WAIT_S)[0].offset < 0
