"""publish() refuses wrong arguments before it sends a record, and names the column."""

from __future__ import annotations

import array
import contextlib
import gc
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer
from live import live_before

from cykafka.error import ClosedError
from cykafka.testing import live_handles

pytestmark = pytest.mark.ours


class Index:
    def __index__(self) -> int:
        return 1


REFUSED: list[Any] = [
    ({"values": "abc"}, TypeError, "values: expected one item per record, got str"),
    ({"values": b"abc"}, TypeError, "values: expected one item per record, got bytes"),
    ({"values": bytearray(b"abc")}, TypeError, "put it into a list"),
    ({"values": memoryview(b"abc")}, TypeError, "put it into a list"),
    ({"values": {"a": 1}}, TypeError, "values: expected a sequence of bytes, .*got dict$"),
    ({"values": {"a"}}, TypeError, "values: expected a sequence of bytes, .*got set"),
    ({"values": iter(["a"])}, TypeError, "values: expected a sequence .*: convert it to a list$"),
    ({"values": {"a": 1}.values()}, TypeError, "got dict_values: convert it to a list$"),
    ({"values": 1}, TypeError, "values: expected a sequence .*got int"),
    ({"values": None}, TypeError, "values: expected a sequence, got None, and no keys either"),
    ({"values": ["a", 1]}, TypeError, r"values\[1\]: expected bytes, str, .*got int"),
    ({"values": ["a", "\ud800"]}, UnicodeEncodeError, r"values\[1\]"),
    ({"values": [memoryview(b"abcd")[::2]]}, TypeError, r"values\[0\]: expected a contiguous"),
    ({"values": array.array("i", [1])}, TypeError, "values: expected a buffer .*'i'"),
    ({"values": memoryview(b"abcd").cast("B", (1, 2, 2))}, TypeError, r"3 dimension\(s\)"),
    ({"keys": ["a", 1, "c"]}, TypeError, r"keys\[1\]: expected bytes"),
    ({"keys": "abc"}, TypeError, "keys: expected one item per record"),
    ({"keys": ["a"]}, ValueError, r"keys has 1 item\(s\), but values has 3"),
    ({"headers": "abc"}, TypeError, "headers: expected one item per record"),
    ({"headers": [{}]}, ValueError, r"headers has 1 item\(s\), but values has 3"),
    ({"headers": [{}, 1, None]}, TypeError, r"headers\[1\]: expected a dict, a list .*got int"),
    ({"headers": [None, None, [("a",)]]}, TypeError, r"headers\[2\]: expected \(name, value\)"),
    ({"headers": [None, None, [(1, "a")]]}, TypeError, "headers: expected a str as name, got int"),
    ({"headers": [None, None, [("a", 1)]]}, TypeError, r"^headers\[2\]: expected bytes"),
    ({"headers": [None, None, [("a\0", "1")]]}, ValueError, "NUL"),
    ({"headers": [None, None, [("a", "\udc80")]]}, UnicodeEncodeError, r"headers\[2\]"),
    ({"headers": {"a": ["1"]}}, ValueError, r"headers\['a'\] has 1 item\(s\), but values has 3"),
    ({"headers": {"a\0": "1"}}, ValueError, "NUL"),
    ({"headers": {1: "1"}}, TypeError, "headers: expected a str as name, got int"),
    ({"headers": {"a": 1}}, TypeError, r"headers\['a'\]: expected a sequence .*got int"),
    ({"timestamps": [1, 2]}, ValueError, r"timestamps has 2 item\(s\), but values has 3"),
    ({"timestamps": -1}, ValueError, "timestamps: expected 0 to"),
    ({"timestamps": [0, -1, 0]}, ValueError, r"timestamps\[1\]: expected 0 to"),
    ({"timestamps": array.array("q", [0, 0, -5])}, ValueError, r"timestamps\[2\]: expected .*-5"),
    ({"timestamps": [0, 2**63, 0]}, ValueError, r"timestamps\[1\]: .*out of range"),
    ({"timestamps": "now"}, TypeError, "timestamps: expected an int, or a sequence"),
    ({"timestamps": 1.5}, TypeError, "timestamps: expected an int, got float"),
    ({"timestamps": [0, 1.5, 0]}, TypeError, r"timestamps\[1\]: expected an int, got float"),
    ({"timestamps": array.array("d", [0, 0, 0])}, TypeError, "timestamps: expected a buffer"),
    ({"partitions": -2}, ValueError, "partitions: expected -1 to"),
    ({"partitions": 2**31}, ValueError, "partitions: expected -1 to"),
    ({"partitions": array.array("q", [0, 2**31, 0])}, ValueError, r"partitions\[1\]: expected"),
    ({"partitions": {0: 1}}, TypeError, "partitions: expected an int, got dict"),
    ({"topic": None}, TypeError, "topic: expected a sequence of str, got NoneType"),
    ({"topic": b"t"}, TypeError, "topic: .*got bytes"),
    ({"topic": ["t"]}, ValueError, r"topic has 1 item\(s\), but values has 3"),
    ({"topic": ["t", 1, "t"]}, TypeError, r"topic\[1\]: expected a str, got int"),
    ({"timeout": "1"}, TypeError, "timeout: expected a number of seconds"),
    ({"timeout": float("nan")}, ValueError, "timeout: nan"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "words"), REFUSED)
def test_invalid_column_is_refused_and_nothing_is_sent(
    producer: Any, topic: str, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    before = live_before()["deliveries"]

    with pytest.raises(error, match=words):
        producer.publish(**{"topic": topic, "values": ["a", "b", "c"], **arguments})

    assert len(producer) == 0
    assert live_handles()["deliveries"] == before


def test_integers_may_be_objects_with_index(producer: Any, topic: str) -> None:
    delivery = producer.publish(topic, ["a", "b"], partitions=[Index(), True], timestamps=Index())

    delivery.wait(10)
    assert list(delivery.partitions) == [1, 1]


@pytest.mark.parametrize("dtype", ["float64", ">i8", "M8[ms]", "c16", "?"])
def test_arrays_of_other_types_are_refused_as_numbers(
    producer: Any, topic: str, dtype: str
) -> None:
    np = pytest.importorskip("numpy")

    with pytest.raises(TypeError, match="timestamps: "):
        producer.publish(topic, ["a"], timestamps=np.zeros(1, dtype=dtype))


@pytest.mark.parametrize("dtype", ["int64", "float64", "M8[ms]", "V3"])
def test_arrays_of_other_types_are_refused_as_byte_strings(
    producer: Any, topic: str, dtype: str
) -> None:
    np = pytest.importorskip("numpy")

    with pytest.raises(TypeError, match="values: "):
        producer.publish(topic, np.zeros(1, dtype=dtype))


def test_error_for_an_array_names_the_conversion(producer: Any, topic: str) -> None:
    np = pytest.importorskip("numpy")
    rows = np.arange(12, dtype=np.uint8).reshape(4, 3)
    moments = np.array(["2026-01-01"], dtype="M8[s]")

    with pytest.raises(TypeError, match="ascontiguousarray"):
        producer.publish(topic, np.asfortranarray(rows))
    with pytest.raises(TypeError, match=r"astype\('datetime64\[ms\]'\)"):
        producer.publish(topic, ["a"], timestamps=moments)
    producer.publish(topic, np.ascontiguousarray(np.asfortranarray(rows))).wait(10)
    producer.publish(topic, ["a"], timestamps=moments.astype("datetime64[ms]").view("int64")).wait(
        10
    )


def test_columns_are_read_before_the_producer_is_checked(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer()

    class Closing:
        def __index__(self) -> int:
            producer.close()
            return 0

    with pytest.raises(RuntimeError, match="closed"):
        producer.publish(topic, ["a"], partitions=[Closing()])

    class ClosingList(list[str]):
        def __iter__(self) -> Any:
            producer.close()
            return super().__iter__()

    producer = make_producer()
    with pytest.raises(RuntimeError, match="closed"):
        producer.publish(topic, ClosingList(["a"]))


@pytest.mark.parametrize("count", [1, 100])
def test_collection_that_closes_the_producer_is_safe(
    request: pytest.FixtureRequest, make_producer: MakeProducer, topic: str, count: int
) -> None:
    """A garbage collection may run in any allocation of the call."""

    class Closer:
        def __init__(self, producer: Any) -> None:
            self.producer, self.itself = producer, self

        def __del__(self) -> None:
            self.producer.close()

    thresholds = gc.get_threshold()
    gc.freeze()  # so that collections look at this test's objects only
    request.addfinalizer(gc.unfreeze)
    delivered = 0
    for allocations in range(1, 40):
        producer = make_producer()
        producer.publish(topic, ["a"]).wait(10)
        gc.collect()
        gc.disable()
        try:
            Closer(producer)
            gc.set_threshold(allocations, 1, 1)
            gc.enable()
            with contextlib.suppress(ClosedError):
                delivered += len(producer.publish(topic, ["a"] * count))
        finally:
            gc.enable()
            gc.set_threshold(*thresholds)
        gc.collect()

    assert 0 < delivered < 39 * count


def test_list_with_a_wrong_len_is_read_by_iteration(producer: Any, topic: str) -> None:
    class Lying(list[str]):
        def __len__(self) -> int:
            return 1_000_000

    assert len(producer.publish(topic, Lying(["a", "b"]))) == 2


def test_values_that_change_during_publish_are_copied_first(
    producer: Any, topic: str, make_consumer: MakeConsumer, read: Any
) -> None:
    value = bytearray(b"a" * 1000)
    values = [value]
    delivery = producer.publish(topic, values, partitions=0)
    value[:] = b"b" * 1000
    values.clear()
    delivery.wait(10)

    consumer = make_consumer()
    consumer.subscribe([topic])
    assert read(consumer, 1)[0].value() == b"a" * 1000
