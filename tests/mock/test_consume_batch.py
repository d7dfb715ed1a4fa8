"""The contents of a MessageBatch. test_consume_batch_reading tests how it is filled."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import pytest
from fixture_types import MakeProducer
from machine import WAIT_S

pytestmark = pytest.mark.ours


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
def filled(make_producer: MakeProducer, topic: str) -> str:
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


def test_rows_are_the_messages_that_consume_returns(
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


def test_header_column_has_the_last_value_of_its_name(batch: Any) -> None:
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


def test_columns_of_numbers_are_built_once_and_outlive_the_batch(batch: Any) -> None:
    offsets = batch.offsets
    assert batch.offsets.obj is offsets.obj
    batch.offsets.release()  # this releases only this view
    assert batch.offsets.tolist() == offsets.tolist()
    batch.release()
    assert offsets.tolist() == list(range(len(RECORDS)))


def test_equal_topics_are_one_str_object(batch: Any, filled: str) -> None:
    assert batch.topics == [filled] * len(RECORDS)
    assert len({id(name) for name in [*batch.topics, *(m.topic() for m in batch)]}) == 1


def test_views_share_the_bytes_and_are_read_only(batch: Any) -> None:
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


def test_batch_cannot_be_pickled_or_constructed(kafka: Any, batch: Any) -> None:
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


def test_repr_counts_records_and_errors(batch: Any) -> None:
    assert repr(batch) == f"<cykafka.MessageBatch of {len(RECORDS)} record(s)>"
    batch.release()
    assert "released" in repr(batch)


def test_index_that_releases_the_batch(batch: Any) -> None:
    class Releasing:
        def __index__(self) -> int:
            batch.release()
            return 1

    with pytest.raises(ValueError, match="released"):
        batch[Releasing() :]
    with pytest.raises(ValueError, match="released"):
        batch[Releasing()]
