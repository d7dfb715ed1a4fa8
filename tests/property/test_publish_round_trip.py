"""Records of publish() come out of consume() unchanged, whatever forms the columns have."""

from __future__ import annotations

import array
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import WAIT_S
from repeated import examples

import cykafka
from cykafka.testing import MockCluster

TOPIC = "batches"

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
# Short and long values, because long ones may be borrowed.
raw = st.one_of(st.binary(max_size=60), st.binary(max_size=8).map(lambda item: item * 40))
data = st.one_of(st.none(), raw, text, text.map(lambda item: item * 30))
items = st.one_of(data, raw.map(bytearray), raw.map(memoryview))
pairs = st.lists(st.tuples(names, items), max_size=4)


def as_bytes(given: Any) -> bytes | None:
    if given is None:
        return None
    return given.encode() if isinstance(given, str) else bytes(given)


@st.composite
def byte_columns(draw: Any, count: int) -> tuple[Any, list[bytes | None]]:
    """A column of byte strings, and the values that should arrive."""
    form = draw(st.sampled_from(["list", "tuple", "sequence", "alike", "rows"]))
    if form == "rows" and count:
        width = draw(st.integers(1, 90))
        content = draw(st.binary(min_size=count * width, max_size=count * width))
        return (
            memoryview(content).cast("B", (count, width)),
            [content[i * width : (i + 1) * width] for i in range(count)],
        )
    one = {"alike": st.binary(min_size=70, max_size=100)}.get(form, items)
    column = draw(st.lists(one, min_size=count, max_size=count))
    make = {"tuple": tuple, "sequence": deque}.get(form, list)
    return make(column), [as_bytes(item) for item in column]


@st.composite
def header_columns(draw: Any, count: int) -> tuple[Any, list[list[tuple[str, Any]] | None]]:
    form = draw(st.sampled_from(["none", "lists", "dicts", "named"]))
    if form == "none":
        return None, [None] * count
    if form == "named":
        columns: dict[str, Any] = {}
        expected: list[list[tuple[str, Any]]] = [[] for _ in range(count)]
        for name in draw(st.lists(names, max_size=3, unique=True)):
            if draw(st.booleans()):
                column = draw(st.one_of(raw, text))
                arriving = [as_bytes(column)] * count
            else:
                column, arriving = draw(byte_columns(count))
            columns[name] = column
            for row, value in zip(expected, arriving, strict=True):
                row.append((name, value))
        return columns, [row or None for row in expected]
    entries = draw(st.lists(st.one_of(st.none(), pairs), min_size=count, max_size=count))
    if form == "dicts":
        entries = [None if entry is None else dict(entry) for entry in entries]
    listed = [entry.items() if isinstance(entry, dict) else entry or () for entry in entries]
    return entries, [[(n, as_bytes(v)) for n, v in entry] or None for entry in listed]


@st.composite
def timestamp_columns(draw: Any, count: int) -> tuple[Any, list[int | None]]:
    form = draw(st.sampled_from(["none", "one", "list", "buffer"]))
    stamps = st.integers(1, 2**40)
    if form == "none":
        return None, [None] * count
    if form == "one":
        stamp = draw(stamps)
        return stamp, [stamp] * count
    if form == "buffer":
        column = draw(st.lists(stamps, min_size=count, max_size=count))
        return array.array("q", column), column
    holes = draw(st.lists(st.one_of(st.none(), stamps), min_size=count, max_size=count))
    return holes, holes


@st.composite
def batches(draw: Any) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    count = draw(st.integers(1, 20))
    values, values_out = draw(byte_columns(count))
    keys, keys_out = draw(st.one_of(st.just((None, [None] * count)), byte_columns(count)))
    headers, headers_out = draw(header_columns(count))
    timestamps, timestamps_out = draw(timestamp_columns(count))
    given = {"values": values, "keys": keys, "headers": headers, "timestamps": timestamps}
    expected = zip(values_out, keys_out, headers_out, timestamps_out, strict=True)
    return given, list(expected)


class Wire:
    """A producer with little room and a consumer of one partition."""

    def __init__(self, cluster: MockCluster) -> None:
        cluster.create_topic(TOPIC, 1)
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        self.producer = cykafka.Producer(
            {**servers, "linger.ms": 0, "queue.buffering.max.messages": 15}
        )
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
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batch=batches())
def test_batches_round_trip_identical_and_in_order(wire: Wire, batch: Any) -> None:
    columns, expected = batch

    delivery = wire.producer.publish(TOPIC, **columns, partitions=0)
    delivery.wait(WAIT_S)

    messages: list[Any] = []
    while len(messages) < len(expected):
        got = wire.consumer.consume(len(expected) - len(messages), timeout=WAIT_S)
        assert got, "records are missing"
        messages += got
    assert [message.offset() for message in messages] == list(delivery.offsets)
    for message, (value, key, headers, timestamp) in zip(messages, expected, strict=True):
        assert message.error() is None
        assert (message.value(), message.key(), message.headers()) == (value, key, headers)
        if timestamp is not None:
            assert message.timestamp()[1] == timestamp
