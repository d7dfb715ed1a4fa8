"""Batches from columns: every form of a column, and the resulting records."""

from __future__ import annotations

import array
from collections import deque
from typing import Any

import pytest
from fixture_types import Unique
from machine import WAIT_S

from cykafka import Delivery
from cykafka.internal import split

pytestmark = pytest.mark.ours


def values_of(messages: list[Any]) -> list[bytes | None]:
    return [message.value() for message in messages]


def rows(count: int, width: int) -> memoryview:
    return memoryview(bytes(range(count * width))).cast("B", (count, width))


VALUES = [
    pytest.param([b"a", "ü", None, b"", bytearray(b"x"), memoryview(b"y")],
                 [b"a", "ü".encode(), None, b"", b"x", b"y"], id="list"),
    pytest.param((b"a", b"b"), [b"a", b"b"], id="tuple"),
    pytest.param(deque(["a", "b"]), [b"a", b"b"], id="sequence"),
    pytest.param([memoryview(b""), bytearray()], [b"", b""], id="empty-buffers"),
    pytest.param([array.array("i", [1])], [array.array("i", [1]).tobytes()], id="array"),
    pytest.param(rows(3, 2), [b"\0\1", b"\2\3", b"\4\5"], id="rows"),
    pytest.param(rows(4, 2)[::2], [b"\0\1", b"\4\5"], id="every-other-row"),
    pytest.param([b"x" * 5000, "y" * 5000], [b"x" * 5000, b"y" * 5000], id="borrowed"),
    pytest.param(split(b"a,,b,c", b",")[0], [b"a", b"", b"b"], id="pieces"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "expected"), VALUES)
def test_every_form_of_values_arrives(
    producer: Any, topic: str, records: Any, values: Any, expected: list[bytes | None]
) -> None:
    delivery = producer.publish(topic, values, partitions=1)

    delivery.wait(WAIT_S)
    assert delivery.done
    assert list(delivery.offsets) == list(range(len(expected)))
    assert list(delivery.partitions) == [1] * len(expected)
    assert values_of(records(topic, len(expected))) == expected


@pytest.mark.parametrize("length", [1, 5000], ids=["copied", "borrowed"])
def test_pieces_of_a_text_arrive_after_it_is_gone(
    producer: Any, topic: str, records: Any, length: int
) -> None:
    lines = [b"%d:%d" % (number, number) + b"x" * length for number in range(100)]
    pieces, _ = split(b"".join(line + b"\n" for line in lines), b"\n")
    parts = pieces.partition(b":")
    assert parts is not None
    keys, values = parts

    delivery = producer.publish(topic, values, keys=keys, partitions=0)
    del pieces, parts, keys, values

    delivery.wait(WAIT_S)
    found = records(topic, len(lines))
    assert [message.key() + b":" + message.value() for message in found] == lines


def test_pieces_of_another_length_are_refused(producer: Any, topic: str) -> None:
    with pytest.raises(ValueError, match=r"keys has 1 item\(s\), but values has 2"):
        producer.publish(topic, [b"a", b"b"], keys=split(b"k,", b",")[0])


def test_numpy_columns_arrive(producer: Any, topic: str, records: Any) -> None:
    np = pytest.importorskip("numpy")
    values = np.array([b"ab", b"c\0d", b"e\0", b""], dtype="S4")
    keys = np.frombuffer(b"k0k1k\0k3", dtype=np.uint8).reshape(4, 2)
    timestamps = np.array([1, 2, 3, 4], dtype=np.int64)

    delivery = producer.publish(
        topic, values, keys=keys, timestamps=timestamps, partitions=np.zeros(4, dtype=np.int8)
    )

    delivery.wait(WAIT_S)
    messages = records(topic, 4)
    assert values_of(messages) == [b"ab", b"c\0d", b"e", b""]  # numpy's own rule
    assert [message.key() for message in messages] == [b"k0", b"k1", b"k\0", b"k3"]
    assert [message.timestamp()[1] for message in messages] == [1, 2, 3, 4]
    assert np.asarray(delivery.offsets).tolist() == [0, 1, 2, 3]
    assert np.asarray(delivery.partitions).dtype == np.int32


def test_numpy_columns_of_objects_and_text_arrive(producer: Any, topic: str, records: Any) -> None:
    np = pytest.importorskip("numpy")

    producer.publish(
        topic,
        np.array([b"a", None, "c"], dtype=object),
        keys=np.array(["ä", "b", "c"]),
        partitions=np.uint32([0, 0, 0]),
    ).wait(WAIT_S)

    messages = records(topic, 3)
    assert values_of(messages) == [b"a", None, b"c"]
    assert [message.key() for message in messages] == ["ä".encode(), b"b", b"c"]


def test_strided_and_big_columns_arrive(producer: Any, topic: str, records: Any) -> None:
    np = pytest.importorskip("numpy")
    values = np.array([b"a", b"x", b"b", b"x", b"c"], dtype="S1")[::-2]

    producer.publish(
        topic, values, partitions=np.array([0, 9, 0, 9, 0], dtype=np.int16)[::2]
    ).wait(WAIT_S)

    assert values_of(records(topic, 3)) == [b"c", b"b", b"a"]


HEADERS = [
    pytest.param([{"a": "1"}, None, [("b", b"2"), ("b", None)], (), {}],
                 [[("a", b"1")], None, [("b", b"2"), ("b", None)], None, None], id="for-each"),
    pytest.param({"a": "1", "b": [b"1", "2", None, b"", bytearray(b"5")], "c": None},
                 [[("a", b"1"), ("b", b), ("c", None)] for b in (b"1", b"2", None, b"", b"5")],
                 id="named"),
    pytest.param({}, [None] * 5, id="no-names"),
    pytest.param([None] * 5, [None] * 5, id="none"),
    pytest.param({"rows": memoryview(b"12345").cast("B", (5, 1)), "m": memoryview(b"all")},
                 [[("rows", b), ("m", b"all")] for b in (b"1", b"2", b"3", b"4", b"5")],
                 id="named-rows"),
    pytest.param([[[b"n", "ü"]]] * 5, [[("n", "ü".encode())]] * 5, id="lists-of-lists"),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "expected"), HEADERS)
def test_every_form_of_headers_arrives(
    producer: Any, topic: str, records: Any, headers: Any, expected: list[Any]
) -> None:
    producer.publish(topic, [b"v"] * 5, headers=headers, partitions=0).wait(WAIT_S)

    assert [message.headers() for message in records(topic, 5)] == expected


@pytest.mark.parametrize(
    ("timestamps", "expected"),
    [
        (1000, [1000] * 3),
        ([1, 2, 3], [1, 2, 3]),
        (array.array("q", [4, 5, 6]), [4, 5, 6]),
        (array.array("I", [4, 5, 6]), [4, 5, 6]),
        (deque([7, 8, 9]), [7, 8, 9]),
    ],
)
def test_every_form_of_timestamps_arrives(
    producer: Any, topic: str, records: Any, timestamps: Any, expected: list[int]
) -> None:
    producer.publish(topic, ["v"] * 3, timestamps=timestamps, partitions=0).wait(WAIT_S)

    assert [message.timestamp()[1] for message in records(topic, 3)] == expected


def test_records_without_a_timestamp_get_the_current_time(
    producer: Any, topic: str, records: Any
) -> None:
    producer.publish(topic, ["v"] * 3, timestamps=[None, 5, 0], partitions=0).wait(WAIT_S)

    first, second, third = (message.timestamp()[1] for message in records(topic, 3))
    assert second == 5
    assert min(first, third) > 1_600_000_000_000


@pytest.mark.parametrize("partitions", [[0, 1, 2, 3] * 3, array.array("i", [0, 1, 2, 3] * 3)])
def test_each_record_keeps_its_partition(
    producer: Any, topic: str, records: Any, partitions: Any
) -> None:
    values = [str(number) for number in range(12)]

    delivery = producer.publish(topic, values, partitions=partitions)

    delivery.wait(WAIT_S)
    assert list(delivery.partitions) == [0, 1, 2, 3] * 3
    assert list(delivery.offsets) == [0] * 4 + [1] * 4 + [2] * 4
    assert [int(message.value()) for message in records(topic, 12)] == [
        0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11
    ]  # fmt: skip


def test_partitioner_chooses_missing_partitions(producer: Any, topic: str) -> None:
    keys = [str(number) for number in range(100)]
    producer.publish(topic, keys, keys=keys).wait(WAIT_S)  # now the client knows the partitions

    first = producer.publish(topic, keys, keys=keys)
    second = producer.publish(topic, keys, keys=keys, partitions=[None, -1] * 50)

    first.wait(WAIT_S)
    second.wait(WAIT_S)
    assert set(first.partitions) == {0, 1, 2, 3}
    assert list(first.partitions) == list(second.partitions)


def test_keys_alone_are_tombstones(producer: Any, topic: str, records: Any) -> None:
    producer.publish(topic, None, keys=["a", "b"], partitions=0).wait(WAIT_S)

    messages = records(topic, 2)
    assert values_of(messages) == [None, None]
    assert [message.key() for message in messages] == [b"a", b"b"]


def test_each_record_may_have_its_own_topic(
    producer: Any, cluster: Any, unique: Unique, records: Any
) -> None:
    topics = [unique("mixed") for _ in range(3)]
    for topic in topics:
        cluster.create_topic(topic, 1)
    values = [str(number) for number in range(300)]

    delivery = producer.publish(topics * 100, values)

    delivery.wait(WAIT_S)
    for i, topic in enumerate(topics):
        assert values_of(records(topic, 100)) == [value.encode() for value in values[i::3]]


def test_large_batch_keeps_its_order(producer: Any, topic: str, records: Any) -> None:
    values = [str(number) for number in range(20_000)]

    delivery = producer.publish(topic, values, partitions=2)

    delivery.wait(WAIT_S)
    assert values_of(records(topic, 20_000)) == [value.encode() for value in values]
    assert list(delivery.offsets) == list(range(20_000))


def test_batch_with_occasional_headers_keeps_its_order(
    producer: Any, topic: str, records: Any
) -> None:
    count = 3000
    values = [str(number) for number in range(count)]
    headers = [{"h": "x"} if number % 7 == 0 else None for number in range(count)]
    timestamps = [1 if number % 5 == 0 else 0 for number in range(count)]

    producer.publish(topic, values, headers=headers, timestamps=timestamps, partitions=0).wait(
        WAIT_S
    )

    messages = records(topic, count)
    assert values_of(messages) == [value.encode() for value in values]
    assert [message.headers() is not None for message in messages] == [
        number % 7 == 0 for number in range(count)
    ]
    assert [message.timestamp()[1] == 1 for message in messages] == [
        number % 5 == 0 for number in range(count)
    ]


def test_empty_batch_is_done_at_once(producer: Any, topic: str) -> None:
    calls: list[Delivery] = []

    delivery = producer.publish(topic, [])

    assert delivery.done
    assert len(delivery) == delivery.count == 0
    assert delivery
    assert list(delivery.offsets) == list(delivery.partitions) == []
    delivery.wait(0)
    delivery.add_done_callback(calls.append)
    assert calls == [delivery]
