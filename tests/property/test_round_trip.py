"""Records of produce() come out of consume() byte for byte and in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import WAIT_S
from repeated import examples

import cykafka
from cykafka.testing import MockCluster

TOPIC = "records"

# Surrogates have no UTF-8 form; a NUL ends a header's name.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
data = st.one_of(st.none(), st.binary(max_size=200), text)
raw = st.binary(max_size=200)
buffers = st.one_of(
    raw.map(bytearray), raw.map(memoryview), raw.map(lambda item: memoryview(bytearray(item)))
)
values = st.one_of(data, buffers)
headers = st.one_of(st.none(), st.lists(st.tuples(names, data), max_size=5))
timestamps = st.integers(1, 2**40)
records = st.lists(st.tuples(values, values, headers, timestamps), min_size=1, max_size=20)


def as_bytes(given: Any) -> bytes | None:
    if given is None:
        return None
    return given.encode() if isinstance(given, str) else bytes(given)


class Wire:
    """A producer and a consumer of one partition."""

    def __init__(self, cluster: MockCluster) -> None:
        cluster.create_topic(TOPIC, 1)
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        self.producer = cykafka.Producer({**servers, "linger.ms": 0})
        # An idle fetch would delay every example by half a second.
        self.consumer = cykafka.Consumer({**servers, "group.id": "wire", "fetch.wait.max.ms": 10})
        self.consumer.assign([cykafka.TopicPartition(TOPIC, 0, cykafka.OFFSET_BEGINNING)])

    def close(self) -> None:
        self.producer.close()
        self.consumer.close()


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with MockCluster() as cluster:
        wire = Wire(cluster)
        yield wire
        wire.close()


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(records=records)
def test_records_round_trip_identical_and_in_order(wire: Wire, records: list[Any]) -> None:
    reports: list[Any] = []
    for value, key, pairs, timestamp in records:
        wire.producer.produce(
            TOPIC, value, key, 0, timestamp=timestamp, headers=pairs,
            on_delivery=lambda error, message: reports.append((error, message)),
        )  # fmt: skip
    assert wire.producer.flush(WAIT_S) == 0
    messages = wire.consumer.consume(len(records), WAIT_S)

    wanted = [
        (
            as_bytes(value),
            as_bytes(key),
            [(name, as_bytes(item)) for name, item in pairs] if pairs else None,
            timestamp,
        )
        for value, key, pairs, timestamp in records
    ]
    assert [
        (message.value(), message.key(), message.headers(), message.timestamp()[1])
        for message in messages
    ] == wanted
    # Each report belongs to the record at its offset.
    assert [error for error, _ in reports] == [None] * len(records)
    assert [
        (message.value(), message.key(), message.headers() or None, message.offset())
        for _, message in reports
    ] == [(*want[:3], message.offset()) for want, message in zip(wanted, messages, strict=True)]


@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(values=st.lists(values, min_size=1, max_size=30), most=st.integers(1, 7))
def test_batches_of_any_size_lose_nothing(wire: Wire, values: list[Any], most: int) -> None:
    for value in values:
        wire.producer.produce(TOPIC, value, partition=0)
    assert wire.producer.flush(WAIT_S) == 0
    read: list[bytes | None] = []
    while len(read) < len(values):
        messages = wire.consumer.consume(min(most, len(values) - len(read)), WAIT_S)
        assert messages
        read += [message.value() for message in messages]
    assert read == [as_bytes(value) for value in values]


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(records=records, detached=st.booleans(), rows=st.slices(20))
def test_columns_of_a_batch_match_the_sent_records(
    wire: Wire, records: list[Any], detached: bool, rows: slice
) -> None:
    for value, key, pairs, timestamp in records:
        wire.producer.produce(TOPIC, value, key, 0, timestamp=timestamp, headers=pairs)
    assert wire.producer.flush(WAIT_S) == 0
    batch = wire.consumer.consume_batch(len(records), WAIT_S)
    if detached:
        batch.detach()

    assert len(batch) == len(records)
    wanted = [
        (
            as_bytes(value),
            as_bytes(key),
            [(name, as_bytes(item)) for name, item in pairs] if pairs else None,
            timestamp,
        )
        for value, key, pairs, timestamp in records
    ][rows]
    part = batch[rows]
    columns = (part.values(), part.keys(), part.headers(), part.timestamps)
    assert list(zip(*columns, strict=True)) == wanted
    assert [
        (message.value(), message.key(), message.headers(), message.timestamp()[1])
        for message in part
    ] == wanted
    views = zip(part.values(copy=False), part.keys(copy=False), strict=True)
    assert [tuple(None if v is None else bytes(v) for v in pair) for pair in views] == [
        want[:2] for want in wanted
    ]
    for name in {name for _, _, pairs, _ in wanted for name, _ in pairs or ()}:
        last = [dict(pairs or ()).get(name) for _, _, pairs, _ in wanted]
        assert part.header(name) == last
