"""consume_batch() and batches(): what a MessageBatch says, and what counts as read."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.ours

WAIT_S = 10.0

RECORDS: list[dict[str, Any]] = [
    {"value": b"plain", "key": b"k"},
    {"value": None, "key": b"tombstone"},
    {"value": b"", "key": b""},
    {"value": b"no key"},
    {"value": b"one", "headers": [("a", b"1")]},
    {"value": b"twice", "headers": [("a", b"1"), ("b", b"2"), ("a", b"3")]},
    {"value": "Grüße", "key": "ключ", "headers": [("名", "値".encode())]},
    {"value": b"null header", "headers": [("a", None)]},
    {"value": b"empty header", "headers": [("a", b"")]},
    {"value": b"\0bytes\xff" * 100, "timestamp": 1_600_000_000_000},
]


def as_bytes(given: Any) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


VALUES = [as_bytes(record["value"]) for record in RECORDS]
KEYS = [as_bytes(record.get("key")) for record in RECORDS]
HEADERS = [record.get("headers") for record in RECORDS]


@pytest.fixture
def filled(make_producer: Callable[..., Any], topic: str) -> str:
    """The topic, with RECORDS in partition 0."""
    producer = make_producer()
    for record in RECORDS:
        producer.produce(topic, partition=0, **record)
    assert producer.flush(WAIT_S) == 0
    return topic


@pytest.fixture
def source(kafka: Any, consumer: Any, filled: str) -> Any:
    """A consumer about to read RECORDS."""
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])
    return consumer


@pytest.fixture(params=["lent", "detached"])
def batch(request: pytest.FixtureRequest, source: Any) -> Any:
    """RECORDS as one batch, in each of its two forms."""
    batch = source.consume_batch(len(RECORDS), WAIT_S)
    if request.param == "detached":
        batch.detach()
    assert len(batch) == len(RECORDS)
    return batch


# -- rows and columns


def test_rows_are_the_messages_that_consume_gives(
    kafka: Any, source: Any, batch: Any, filled: str
) -> None:
    source.seek(kafka.TopicPartition(filled, 0, 0))
    messages = source.consume(len(RECORDS), WAIT_S)

    assert list(batch) == messages
    assert [batch[i] for i in range(len(batch))] == messages
    assert [batch[i - len(batch)] for i in range(len(batch))] == messages
    assert [message.error() for message in batch] == [None] * len(messages)


def test_columns_of_bytes(batch: Any) -> None:
    assert batch.values() == VALUES
    assert batch.keys() == KEYS
    assert batch.headers() == HEADERS
    assert all(type(value) in (bytes, type(None)) for value in batch.values() + batch.keys())


def test_header_is_the_last_of_its_name(batch: Any) -> None:
    assert batch.header("a") == [None, None, None, None, b"1", b"3", None, None, b"", None]
    assert batch.header("名")[6] == "値".encode()
    assert batch.header("nobody's") == [None] * len(RECORDS)
    assert batch.header("") == [None] * len(RECORDS)


@pytest.mark.parametrize(
    ("name", "error"), [(b"a", TypeError), (None, TypeError), ("a\0", ValueError)]
)
def test_header_of_an_impossible_name_is_refused(batch: Any, name: Any, error: type) -> None:
    with pytest.raises(error, match="name"):
        batch.header(name)


def test_header_of_a_surrogate_names_the_argument(batch: Any) -> None:
    with pytest.raises(UnicodeEncodeError, match="in name"):
        batch.header("\ud800")


def test_columns_of_numbers(kafka: Any, batch: Any) -> None:
    cnt = len(RECORDS)
    assert batch.offsets.tolist() == list(range(cnt))
    assert batch.partitions.tolist() == [0] * cnt
    assert batch.leader_epochs.tolist() == [message.leader_epoch() for message in batch]
    assert batch.timestamps.tolist() == [message.timestamp()[1] for message in batch]
    assert batch.timestamps[9] == 1_600_000_000_000
    assert batch.timestamp_types.tolist() == [kafka.TIMESTAMP_CREATE_TIME] * cnt
    for name, form in [("offsets", "q"), ("timestamps", "q"), ("partitions", "i"),
                       ("timestamp_types", "i"), ("leader_epochs", "i")]:  # fmt: skip
        column = getattr(batch, name)
        assert (column.format, column.shape, column.readonly) == (form, (cnt,), True)
        assert column.contiguous


def test_columns_of_numbers_are_made_once_and_outlive_the_batch(batch: Any) -> None:
    offsets = batch.offsets
    assert batch.offsets.obj is offsets.obj
    batch.offsets.release()  # one's own
    assert batch.offsets.tolist() == offsets.tolist()
    batch.release()
    assert offsets.tolist() == list(range(len(RECORDS)))


def test_topics_are_one_str(batch: Any, filled: str) -> None:
    assert batch.topics == [filled] * len(RECORDS)
    assert len({id(name) for name in [*batch.topics, *(m.topic() for m in batch)]}) == 1


def test_views_are_of_the_same_bytes_and_read_only(batch: Any) -> None:
    values, keys = batch.values(copy=False), batch.keys(copy=False)
    assert [None if view is None else bytes(view) for view in values] == VALUES
    assert [None if view is None else bytes(view) for view in keys] == KEYS
    assert {type(view) for view in values} == {memoryview, type(None)}
    assert (values[0].readonly, values[0].format) == (True, "B")
    with pytest.raises(BufferError):
        memoryview(values[0].obj)


@pytest.mark.parametrize(
    "part",
    [
        slice(None), slice(2, 5), slice(None, None, 3), slice(None, None, -1), slice(8, 1, -2),
        slice(5, 5), slice(-3, None), slice(100, 200), slice(0, 10, 2**62), slice(9, 0, -(2**62)),
        slice(None, None, 10**30),
    ],
    ids=str,
)  # fmt: skip
def test_slice_is_a_batch_of_these_rows(batch: Any, part: slice) -> None:
    rows = batch[part]

    assert type(rows) is type(batch)
    assert len(rows) == len(VALUES[part])
    assert bool(rows) == bool(VALUES[part])
    assert rows.values() == VALUES[part]
    assert rows.keys() == KEYS[part]
    assert rows.headers() == HEADERS[part]
    assert rows.header("a") == batch.header("a")[part]
    assert rows.offsets.tolist() == list(range(len(VALUES)))[part]
    assert rows.topics == batch.topics[part]
    assert list(rows) == list(batch)[part]
    assert rows[::-1].values() == VALUES[part][::-1]
    assert rows[::2][1:].values() == VALUES[part][::2][1:]


@pytest.mark.parametrize("index", [10, -11, 2**62, 2**70, -(2**70)])
def test_index_out_of_range(batch: Any, index: int) -> None:
    with pytest.raises(IndexError, match="out of range"):
        batch[index]


@pytest.mark.parametrize("index", ["0", None, 1.0, b"", (1,)])
def test_index_of_another_type_is_refused(batch: Any, index: Any) -> None:
    with pytest.raises(TypeError, match="integers or slices"):
        batch[index]


def test_row_owns_its_data(batch: Any) -> None:
    rows = list(batch)
    batch.release()
    assert [row.value() for row in rows] == VALUES
    assert [row.headers() for row in rows] == HEADERS


def test_batch_is_not_pickled_and_not_made_by_hand(kafka: Any, batch: Any) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(batch)
    with pytest.raises(TypeError, match="consume_batch"):
        kafka.MessageBatch()
    unmade = kafka.MessageBatch.__new__(kafka.MessageBatch)
    for use in (len, bool, list, repr, kafka.MessageBatch.values, lambda b: b[0], lambda b: b[:],
                kafka.MessageBatch.release, kafka.MessageBatch.detach, lambda b: b.errors,
                lambda b: b.offsets, lambda b: b.topics, lambda b: b.headers()):  # fmt: skip
        with contextlib.suppress(ValueError):
            use(unmade)


def test_representation_counts(batch: Any) -> None:
    assert repr(batch) == f"<cykafka.MessageBatch of {len(RECORDS)} record(s)>"
    batch.release()
    assert "released" in repr(batch)


# -- errors


def test_events_and_errors_are_no_rows(
    kafka: Any, make_consumer: Callable[..., Any], filled: str
) -> None:
    consumer = make_consumer({"enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(filled, number, 0) for number in range(2)])

    batch = consumer.consume_batch(len(RECORDS) + 2, WAIT_S)

    assert len(batch) == len(RECORDS)
    assert batch.values() == VALUES
    assert [(m.error().code(), m.topic()) for m in batch.errors] == [
        (kafka.KafkaError._PARTITION_EOF, filled)
    ] * 2
    assert {m.partition() for m in batch.errors} == {0, 1}
    assert batch[:].errors == []
    assert "2 error(s)" in repr(batch)


def test_batch_of_errors_alone_is_true(
    kafka: Any, make_consumer: Callable[..., Any], topic: str
) -> None:
    consumer = make_consumer({"enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])

    batch = consumer.consume_batch(1, WAIT_S)

    assert (len(batch), bool(batch), len(batch.errors)) == (0, True, 1)
    assert batch.values() == batch.topics == batch.headers() == list(batch) == []
    assert batch.offsets.tolist() == []


def test_batch_of_nothing_is_false(kafka: Any, consumer: Any, topic: str) -> None:
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    batch = consumer.consume_batch(timeout=0)
    assert not batch
    assert (len(batch), batch.errors) == (0, [])
    assert consumer.commit(batch, asynchronous=False) == []
    assert consumer.commit(batch) is None


def test_iteration_raises_errors_after_the_records_before_them(
    kafka: Any, make_consumer: Callable[..., Any], cluster: Any, filled: str
) -> None:
    consumer = make_consumer({"enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])
    batches = consumer.batches(1000, 0.2)

    read = 0
    while read < len(RECORDS):
        batch = next(batches)
        assert batch.errors == []  # the end of the partition is passed over
        assert len(batch) > 0
        read += len(batch)
    # An offset that is not there: an error of that partition, for auto.offset.reset=error.
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
def test_error_among_records_takes_none_of_them_along(
    kafka: Any,
    make_consumer: Callable[..., Any],
    filled: str,
    fill: Callable[..., None],
    most: int,
) -> None:
    """Partition 1 is asked for an offset it does not have; those around it are read."""
    fill(filled, 7, partition=2)

    def assigned() -> Any:
        consumer = make_consumer({"auto.offset.reset": "error"})
        consumer.assign([
            kafka.TopicPartition(filled, number, 99 if number == 1 else 0) for number in range(3)
        ])  # fmt: skip
        return consumer

    cnt = len(RECORDS) + 7
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
    assert sorted(seen) == [(0, n) for n in range(len(RECORDS))] + [(2, n) for n in range(7)]


def test_iteration_ends_when_the_body_closes(source: Any) -> None:
    seen = []
    for batch in source.batches(3, 1.0):
        seen.extend(batch.values())
        if len(seen) == len(RECORDS):
            source.close()
    assert seen == VALUES
    with pytest.raises(RuntimeError, match="is closed"):
        source.batches()


# -- what counts as read


def committed(consumer: Any, partition: Any) -> int:
    (found,) = consumer.committed([partition], timeout=WAIT_S)
    offset: int = found.offset
    return offset


def test_what_was_handed_over_counts_as_read(kafka: Any, source: Any, filled: str) -> None:
    batch = source.consume_batch(4, WAIT_S)
    (done,) = source.commit(asynchronous=False)
    assert (done.offset, len(batch)) == (4, 4)
    assert source.consume_batch(100, 0.1).offsets[0] == 4


def test_commit_of_a_batch_commits_behind_the_last_record_of_each_partition(
    kafka: Any, consumer: Any, topic: str, fill: Callable[..., None]
) -> None:
    for number in range(3):
        fill(topic, 5 + number, partition=number)
    consumer.assign([kafka.TopicPartition(topic, number, 0) for number in range(3)])
    batch = consumer.consume_batch(18, WAIT_S)

    done = consumer.commit(batch, asynchronous=False)

    assert {(p.partition, p.offset) for p in done} == {(0, 5), (1, 6), (2, 7)}
    assert all(p.error is None and p.leader_epoch is not None for p in done)
    # Any order of the rows, and only these.
    part = [row for row in range(18) if batch.partitions[row] == 1]
    rows = batch[part[0] : part[3]][::-1]
    (one,) = consumer.commit(message=rows, asynchronous=False)
    assert (one.partition, one.offset) == (1, 3)
    assert committed(consumer, kafka.TopicPartition(topic, 1)) == 3
    batch.release()
    with pytest.raises(ValueError, match="released"):
        consumer.commit(batch)


def test_batch_of_many_topics(
    kafka: Any, cluster: Any, make_producer: Callable[..., Any], consumer: Any,
    unique: Callable[[str], str],
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


def test_store_offsets_takes_a_batch(
    kafka: Any, make_consumer: Callable[..., Any], filled: str
) -> None:
    consumer = make_consumer({"enable.auto.offset.store": False})
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])
    batch = consumer.consume_batch(6, WAIT_S)
    with pytest.raises(kafka.KafkaException):  # nothing is stored
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
    kafka: Any, make_consumer: Callable[..., Any], filled: str
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
    rest = consumer.consume_batch(len(RECORDS) - 3, WAIT_S)
    assert first.values() + rest.values() == VALUES


def test_poll_consume_and_batches_share_what_is_left_over(
    kafka: Any, make_consumer: Callable[..., Any], filled: str
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

    with pytest.raises(RuntimeError, match="is closed"):
        getattr(consumer, call)(Closing(), 0)


def test_index_that_releases_the_batch(batch: Any) -> None:
    class Releasing:
        def __index__(self) -> int:
            batch.release()
            return 1

    with pytest.raises(ValueError, match="released"):
        batch[Releasing() :]
    with pytest.raises(ValueError, match="released"):
        batch[Releasing()]


def test_not_from_a_rebalance_callback(
    kafka: Any, make_consumer: Callable[..., Any], filled: str, wait_until: Callable[..., None]
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


def test_deserializing_consumer_has_none(cluster: Any, kafka: Any) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
    with kafka.DeserializingConsumer(config) as consumer:
        with pytest.raises(NotImplementedError):
            consumer.consume_batch()
        with pytest.raises(NotImplementedError):
            consumer.batches()


# -- the default that lets it run


def test_full_queue_backs_off_for_a_moment_unless_told_otherwise(
    make_consumer: Callable[..., Any],
) -> None:
    def back_off(config: dict[str, Any]) -> str:
        value: str = make_consumer(config).configuration()["fetch.queue.backoff.ms"]
        return value

    assert back_off({}) == "20"
    assert back_off({"fetch.queue.backoff.ms": None}) == "20"
    assert back_off({"fetch.queue.backoff.ms": 1000}) == "1000"
    assert back_off({"default.topic.config": {"fetch.queue.backoff.ms": "77"}}) == "77"
