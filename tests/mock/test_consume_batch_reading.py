"""consume_batch() and batches(): returned records, errors, and positions."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S

pytestmark = pytest.mark.ours


VALUES = [str(number).encode() for number in range(10)]


@pytest.fixture
def filled(topic: str, fill: Fill) -> str:
    """The topic, with VALUES in partition 0."""
    fill(topic, len(VALUES))
    return topic


@pytest.fixture
def source(kafka: Any, consumer: Any, filled: str) -> Any:
    """A consumer about to read VALUES."""
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])
    return consumer


# -- errors


def test_events_and_errors_are_no_rows(
    kafka: Any, make_consumer: MakeConsumer, filled: str
) -> None:
    consumer = make_consumer({"enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(filled, number, 0) for number in range(2)])

    batch = consumer.consume_batch(len(VALUES) + 2, WAIT_S)

    assert len(batch) == len(VALUES)
    assert batch.values() == VALUES
    assert [(m.error().code(), m.topic()) for m in batch.errors] == [
        (kafka.KafkaError._PARTITION_EOF, filled)
    ] * 2
    assert {m.partition() for m in batch.errors} == {0, 1}
    assert batch[:].errors == []
    assert "2 error(s)" in repr(batch)


def test_batch_with_only_errors_is_truthy(
    kafka: Any, make_consumer: MakeConsumer, topic: str
) -> None:
    consumer = make_consumer({"enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])

    batch = consumer.consume_batch(1, WAIT_S)

    assert (len(batch), bool(batch), len(batch.errors)) == (0, True, 1)
    assert batch.values() == batch.topics == batch.headers() == list(batch) == []
    assert batch.offsets.tolist() == []


def test_empty_batch_is_falsy(kafka: Any, consumer: Any, topic: str) -> None:
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    batch = consumer.consume_batch(timeout=0)
    assert not batch
    assert (len(batch), batch.errors) == (0, [])
    assert consumer.commit(batch, asynchronous=False) == []
    assert consumer.commit(batch) is None


def test_iteration_raises_errors_after_the_records_before_them(
    kafka: Any, make_consumer: MakeConsumer, cluster: Any, filled: str
) -> None:
    consumer = make_consumer({"enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])
    batches = consumer.batches(1000, 0.2)

    read = 0
    while read < len(VALUES):
        batch = next(batches)
        assert batch.errors == []  # the end of the partition is skipped
        assert len(batch) > 0
        read += len(batch)
    # A missing offset is an error of its partition, because auto.offset.reset=error.
    strict = make_consumer({"auto.offset.reset": "error"})
    strict.assign([kafka.TopicPartition(filled, 0, 0)])
    batches = strict.batches(1000, 0.2)
    assert sum(len(next(batches)) for _ in range(1)) > 0
    strict.assign([kafka.TopicPartition(filled, 0, 10_000)])
    with pytest.raises(kafka.KafkaException) as caught:
        next(batches)
    assert caught.value.args[0] == kafka.KafkaError._AUTO_OFFSET_RESET
    strict.assign([kafka.TopicPartition(filled, 0, 0)])
    assert next(batches).offsets[0] == 0


@pytest.mark.parametrize("most", [1, 3, 100])
def test_error_among_records_drops_no_record(
    kafka: Any, make_consumer: MakeConsumer, filled: str, fill: Fill, most: int
) -> None:
    """Partition 1 starts at a missing offset; the partitions around it are read."""
    fill(filled, 7, partition=2)

    def assigned() -> Any:
        consumer = make_consumer({"auto.offset.reset": "error"})
        consumer.assign([
            kafka.TopicPartition(filled, number, 99 if number == 1 else 0) for number in range(3)
        ])  # fmt: skip
        return consumer

    cnt = len(VALUES) + 7
    batch = assigned().consume_batch(cnt + 1, WAIT_S)
    assert len(batch) == cnt
    (message,) = batch.errors
    assert message.error() == kafka.KafkaError._AUTO_OFFSET_RESET
    assert (message.topic(), message.partition()) == (filled, 1)

    consumer = assigned()
    batches = consumer.batches(most, 0.5)
    seen: list[tuple[int, int]] = []
    raised = []
    while len(seen) < cnt or not raised:
        try:
            rows = next(batches)
        except kafka.KafkaException as error:
            raised.append(error.args[0].code())
        else:
            assert 0 < len(rows) <= most
            seen += zip(rows.partitions, rows.offsets, strict=True)
    assert raised == [kafka.KafkaError._AUTO_OFFSET_RESET]
    assert sorted(seen) == [(0, n) for n in range(len(VALUES))] + [(2, n) for n in range(7)]


def test_iteration_ends_when_the_body_closes(source: Any) -> None:
    seen = []
    for batch in source.batches(3, 1.0):
        seen.extend(batch.values())
        if len(seen) == len(VALUES):
            source.close()
    assert seen == VALUES
    with pytest.raises(RuntimeError, match=r"^Consumer closed"):
        source.batches()


# -- positions


def committed(consumer: Any, partition: Any) -> int:
    (found,) = consumer.committed([partition], timeout=WAIT_S)
    offset: int = found.offset
    return offset


def test_returned_records_count_as_read(kafka: Any, source: Any, filled: str) -> None:
    batch = source.consume_batch(4, WAIT_S)
    (done,) = source.commit(asynchronous=False)
    assert (done.offset, len(batch)) == (4, 4)
    assert source.consume_batch(100, 0.1).offsets[0] == 4


def test_commit_of_a_batch_commits_the_next_offset_of_each_partition(
    kafka: Any, consumer: Any, topic: str, fill: Fill
) -> None:
    for number in range(3):
        fill(topic, 5 + number, partition=number)
    consumer.assign([kafka.TopicPartition(topic, number, 0) for number in range(3)])
    batch = consumer.consume_batch(18, WAIT_S)

    done = consumer.commit(batch, asynchronous=False)

    assert {(p.partition, p.offset) for p in done} == {(0, 5), (1, 6), (2, 7)}
    assert all(p.error is None and p.leader_epoch is not None for p in done)
    places = batch.positions()
    assert {(p.topic, p.partition, p.offset) for p in places} == {
        (topic, n, 5 + n) for n in range(3)
    }
    assert all(p.leader_epoch is not None and p.error is None for p in places)
    assert batch[:0].positions() == []
    # Rows in any order, and only these rows.
    expected = {batch.partitions[row]: batch.offsets[row] + 1 for row in range(9)}
    done = consumer.commit(message=batch[:9][::-1], asynchronous=False)
    assert {p.partition: p.offset for p in done} == expected
    for number, offset in expected.items():
        assert committed(consumer, kafka.TopicPartition(topic, number)) == offset
    batch.release()
    with pytest.raises(ValueError, match="released"):
        consumer.commit(batch)
    with pytest.raises(ValueError, match="released"):
        batch.positions()


def test_batch_of_many_topics(
    kafka: Any, cluster: Any, make_producer: MakeProducer, consumer: Any,
    unique: Unique,
) -> None:  # fmt: skip
    names = [unique("topic") for _ in range(3)]
    producer = make_producer()
    for name in names:
        cluster.create_topic(name, 2)
        for number in range(20):
            producer.produce(name, f"{name}/{number % 2}", partition=number % 2)
    assert producer.flush(WAIT_S) == 0
    consumer.assign([kafka.TopicPartition(name, number, 0) for name in names for number in (0, 1)])
    batch = consumer.consume_batch(60, WAIT_S)

    for rows in (batch, batch[::-1]):
        done = consumer.commit(rows, asynchronous=False)
        assert sorted((p.topic, p.partition, p.offset) for p in done) == sorted(
            (name, number, 10) for name in names for number in (0, 1)
        )
    batch.detach()
    assert sorted(batch.topics) == sorted(names * 20)
    columns = zip(batch.topics, batch.partitions, batch.values(), strict=True)
    assert all(f"{topic}/{number}".encode() == value for topic, number, value in columns)
    assert len(consumer.commit(batch, asynchronous=False)) == 6


def test_store_offsets_takes_a_batch(kafka: Any, make_consumer: MakeConsumer, filled: str) -> None:
    consumer = make_consumer({"enable.auto.offset.store": False})
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])
    batch = consumer.consume_batch(6, WAIT_S)
    with pytest.raises(kafka.KafkaException):  # no offset is stored
        consumer.commit(asynchronous=False)

    consumer.store_offsets(batch[:5])
    (done,) = consumer.commit(asynchronous=False)
    assert done.offset == 5
    consumer.store_offsets(batch[:0])
    consumer.store_offsets(message=batch)
    assert consumer.commit(asynchronous=False)[0].offset == 6
    consumer.unassign()
    with pytest.raises(kafka.KafkaException) as caught:
        consumer.store_offsets(batch)
    assert caught.value.args[0] == kafka.KafkaError._STATE


def test_raising_callback_leaves_the_batch_for_the_next_call(
    kafka: Any, make_consumer: MakeConsumer, filled: str
) -> None:
    raised = []

    def stats_cb(_: str) -> None:
        if not raised:
            raised.append(1)
            raise ZeroDivisionError("asked")

    consumer = make_consumer({"statistics.interval.ms": 100, "stats_cb": stats_cb})
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])

    with pytest.raises(ZeroDivisionError):
        consumer.consume_batch(1000, WAIT_S)
    assert consumer.position([kafka.TopicPartition(filled, 0)])[0].offset in (
        0, kafka.OFFSET_INVALID)  # fmt: skip
    first = consumer.consume_batch(3, WAIT_S)
    rest = consumer.consume_batch(len(VALUES) - 3, WAIT_S)
    assert first.values() + rest.values() == VALUES


def test_poll_consume_and_batches_share_leftover_messages(
    kafka: Any, make_consumer: MakeConsumer, filled: str
) -> None:
    test_raising_callback_leaves_the_batch_for_the_next_call(kafka, make_consumer, filled)
    consumer = make_consumer()
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])
    values = consumer.consume_batch(2, WAIT_S).values()
    values.append(consumer.poll(WAIT_S).value())
    values += [message.value() for message in consumer.consume(3, WAIT_S)]
    values += next(consumer.batches(4, WAIT_S)).values()
    assert values == VALUES


# -- arguments


@pytest.mark.parametrize("call", ["consume_batch", "batches"])
@pytest.mark.parametrize("count", [0, -1, 1_000_001, 2**70])
def test_count_out_of_range_is_refused(consumer: Any, call: str, count: int) -> None:
    with pytest.raises(ValueError, match="max_messages"):
        getattr(consumer, call)(count, 0)


@pytest.mark.parametrize("call", ["consume_batch", "batches"])
@pytest.mark.parametrize("arguments", [("10", 0), (None, 0), (1.5, 0), (1, "x"), (1, b"")])
def test_arguments_of_another_type_are_refused(
    consumer: Any, call: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(TypeError, match=r"max_messages|timeout"):
        getattr(consumer, call)(*arguments)


@pytest.mark.parametrize("call", ["consume_batch", "batches"])
def test_argument_that_closes_the_consumer(consumer: Any, call: str) -> None:
    class Closing:
        def __index__(self) -> int:
            consumer.close()
            return 10

    with pytest.raises(RuntimeError, match=r"^Consumer closed"):
        getattr(consumer, call)(Closing(), 0)


def test_rebalance_callback_may_not_consume_a_batch(
    kafka: Any, make_consumer: MakeConsumer, filled: str, wait_until: WaitUntil
) -> None:
    consumer = make_consumer({"group.protocol": "consumer"})
    caught: list[Any] = []

    def on_assign(member: Any, _: Any) -> None:
        for call in (member.consume_batch, lambda *a: next(member.batches(*a))):
            try:
                call(1, 0)
            except RuntimeError as error:
                caught.append(str(error))

    consumer.subscribe([filled], on_assign=on_assign)
    wait_until(lambda: caught, lambda: consumer.consume_batch(1, 0.2))
    assert ["consume_batch()" in caught[0], "batches()" in caught[1]] == [True, True]


def test_deserializing_consumer_has_no_batches(cluster: Any, kafka: Any) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
    with kafka.DeserializingConsumer(config) as consumer:
        with pytest.raises(NotImplementedError):
            consumer.consume_batch()
        with pytest.raises(NotImplementedError):
            consumer.batches()


# -- the default that keeps readers fast


def test_full_queue_has_a_short_default_backoff(make_consumer: MakeConsumer) -> None:
    def back_off(config: dict[str, Any]) -> str:
        value: str = make_consumer(config).configuration()["fetch.queue.backoff.ms"]
        return value

    assert back_off({}) == "20"
    assert back_off({"fetch.queue.backoff.ms": None}) == "20"
    assert back_off({"fetch.queue.backoff.ms": 1000}) == "1000"
    assert back_off({"default.topic.config": {"fetch.queue.backoff.ms": "77"}}) == "77"


def test_reader_that_empties_a_full_queue_does_not_stall(
    kafka: Any, make_producer: MakeProducer, make_consumer: MakeConsumer, topic: str
) -> None:
    """With librdkafka's default backoff, each full queue costs a second."""
    producer = make_producer({"linger.ms": 1000})
    for _ in range(20):  # 20 fetches
        for _ in range(200):
            producer.produce(topic, b"x" * 100, partition=0)
        assert producer.flush(WAIT_S) == 0
    consumer = make_consumer({"queued.min.messages": 100, "fetch.message.max.bytes": 1000})
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    assert consumer.consume_batch(200, WAIT_S)

    started = time.monotonic()
    batch = consumer.consume_batch(3800, 2 * WAIT_S)
    assert len(batch) == 3800
    assert time.monotonic() - started < 6
