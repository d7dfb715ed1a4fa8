"""Batches from columns: every form of a column, and what becomes of each record."""

from __future__ import annotations

import array
import gc
import logging
import pickle
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import cykafka
from cykafka import Delivery, DeliveryError, KafkaError
from cykafka._handle import live_handles

pytestmark = pytest.mark.ours

WAIT_S = 10.0


@pytest.fixture
def records(
    make_consumer: Callable[..., Any], read: Callable[..., list[Any]]
) -> Callable[..., list[Any]]:
    """Read that many records of a topic, in the order of partitions and offsets."""

    def records(topic: str, count: int) -> list[Any]:
        consumer = make_consumer()
        consumer.subscribe([topic])
        messages = read(consumer, count)
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))

    return records


@pytest.fixture
def deliveries() -> Callable[[], int]:
    """Count the deliveries that are alive since the test began."""
    gc.collect()
    before = live_handles()["deliveries"]
    return lambda: live_handles()["deliveries"] - before


def values_of(messages: list[Any]) -> list[bytes | None]:
    return [message.value() for message in messages]


def flush_until_raised(producer: Any) -> None:
    """Flush again and again: what a callback raises ends a flush, which one is a race."""
    for _ in range(100):
        producer.flush(WAIT_S)


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


def test_records_without_a_timestamp_get_the_time(producer: Any, topic: str, records: Any) -> None:
    producer.publish(topic, ["v"] * 3, timestamps=[None, 5, 0], partitions=0).wait(WAIT_S)

    first, second, third = (message.timestamp()[1] for message in records(topic, 3))
    assert second == 5
    assert min(first, third) > 1_600_000_000_000


@pytest.mark.parametrize("partitions", [[0, 1, 2, 3] * 3, array.array("i", [0, 1, 2, 3] * 3)])
def test_partitions_of_each_record_are_kept(
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


def test_partitioner_chooses_where_no_partition_is_named(producer: Any, topic: str) -> None:
    keys = [str(number) for number in range(100)]
    producer.publish(topic, keys, keys=keys).wait(WAIT_S)  # now the partitions are known

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


def test_each_record_may_have_its_topic(
    producer: Any, cluster: Any, unique: Callable[[str], str], records: Any
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


def test_batch_with_headers_here_and_there_keeps_its_order(
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


def test_empty_batch_is_done(producer: Any, topic: str) -> None:
    told: list[Delivery] = []

    delivery = producer.publish(topic, [])

    assert delivery.done
    assert len(delivery) == delivery.count == 0
    assert delivery
    assert list(delivery.offsets) == list(delivery.partitions) == []
    delivery.wait(0)
    delivery.add_done_callback(told.append)
    assert told == [delivery]


def test_delivery_describes_itself(producer: Any, topic: str) -> None:
    delivery = producer.publish(topic, ["a", "b"])

    delivery.wait(WAIT_S)
    assert repr(delivery) == f"<Delivery of 2 record(s) to {topic}, done, 0 failed>"
    assert len(delivery) == delivery.count == 2
    assert (delivery.failed, delivery.errors) == (0, {})


def test_records_in_flight_have_no_offset_yet(
    cluster: Any, make_producer: Any, topic: str
) -> None:
    producer = make_producer({"linger.ms": 60_000})
    delivery = producer.publish(topic, ["a", "b"], partitions=0)

    assert not delivery.done
    assert list(delivery.offsets) == [-1001, -1001]
    assert list(delivery.partitions) == [-1, -1]
    with pytest.raises(TimeoutError):
        delivery.wait(0.01)
    producer.flush(WAIT_S)
    assert delivery.done
    assert list(delivery.offsets) == [0, 1]


def test_outcomes_are_read_only_and_outlive_the_delivery(
    producer: Any, topic: str, deliveries: Callable[[], int]
) -> None:
    delivery = producer.publish(topic, ["a", "b"], partitions=0)
    delivery.wait(WAIT_S)
    offsets, partitions = delivery.offsets, delivery.partitions
    del delivery

    assert (offsets.format, partitions.format) == ("q", "i")
    assert (offsets.tolist(), partitions.tolist()) == ([0, 1], [0, 0])
    with pytest.raises(TypeError):
        offsets[0] = 1
    assert deliveries() == 1
    del offsets, partitions
    assert deliveries() == 0


def test_records_that_are_refused_fail_alone(make_producer: Any, topic: str) -> None:
    producer = make_producer({"message.max.bytes": 2000})
    producer.list_topics(topic)  # partitions are known: an unknown one is refused at once

    delivery = producer.publish(
        topic, ["a", b"x" * 5000, "c", "d"], partitions=[0, 0, 17, 0], headers=None
    )

    with pytest.raises(DeliveryError) as raised:
        delivery.wait(WAIT_S)
    error = raised.value
    assert error.delivery is delivery
    assert error.failures == delivery.errors
    assert {index: failure.code() for index, failure in error.failures.items()} == {
        1: KafkaError.MSG_SIZE_TOO_LARGE,
        2: KafkaError._UNKNOWN_PARTITION,
    }
    assert error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert "2 of 4 record(s) failed, the first at index 1" in str(error)
    assert delivery.failed == 2
    assert list(delivery.offsets) == [0, -1001, -1001, 1]


@pytest.mark.parametrize("headers", [None, {"h": "x"}])
def test_unknown_topic_is_every_records_error(
    cluster: Any, make_producer: Any, unique: Callable[[str], str], headers: Any
) -> None:
    topic = unique("missing")
    cluster.set_topic_error(topic, KafkaError.UNKNOWN_TOPIC_OR_PART)
    producer = make_producer({"topic.metadata.propagation.max.ms": 0})

    delivery = producer.publish(topic, ["a"] * 3, headers=headers)

    with pytest.raises(DeliveryError):
        delivery.wait(WAIT_S)
    assert [error.code() for error in delivery.errors.values()] == [
        KafkaError.UNKNOWN_TOPIC_OR_PART
    ] * 3


def test_error_outlives_pickling() -> None:
    error = DeliveryError(
        KafkaError(KafkaError._TRANSPORT), {3: KafkaError(KafkaError._TRANSPORT)}
    )

    again = pickle.loads(pickle.dumps(error))

    assert (again.args, again.failures, again.delivery) == (error.args, error.failures, None)
    assert isinstance(error, cykafka.KafkaException)


def test_purged_records_fail(make_producer: Any, topic: str) -> None:
    producer = make_producer({"linger.ms": 60_000})
    delivery = producer.publish(topic, ["a"] * 1000, partitions=0)

    producer.purge()
    with pytest.raises(DeliveryError):
        delivery.wait(WAIT_S)

    assert delivery.failed == 1000
    assert {error.code() for error in delivery.errors.values()} == {KafkaError._PURGE_QUEUE}


def test_transaction_state_is_every_records_error(
    make_producer: Any, unique: Callable[[str], str], topic: str, records: Any
) -> None:
    producer = make_producer({"transactional.id": unique("tx")})
    producer.init_transactions(WAIT_S)

    refused = producer.publish(topic, ["outside"] * 3)
    refused_with_headers = producer.publish(topic, ["outside"] * 3, headers={"h": "x"})
    producer.begin_transaction()
    inside = producer.publish(topic, ["inside"] * 3, partitions=0)
    producer.commit_transaction(WAIT_S)

    for delivery in (refused, refused_with_headers):
        assert delivery.done
        assert [error.code() for error in delivery.errors.values()] == [KafkaError._STATE] * 3
    assert inside.done
    assert inside.failed == 0
    assert values_of(records(topic, 3)) == [b"inside"] * 3


def test_borrowed_values_are_let_go_when_delivered(producer: Any, topic: str) -> None:
    class Large(str):  # a subclass can be referred to weakly
        pass

    freed = []

    def make() -> list[str]:
        value = Large("x" * 20_000)
        weakref.finalize(value, freed.append, True)
        return [value]

    delivery = producer.publish(topic, make())
    assert freed == []
    delivery.wait(WAIT_S)

    assert freed == [True]


def test_dropped_deliveries_leave_nothing(
    producer: Any, topic: str, deliveries: Callable[[], int]
) -> None:
    for size in (1, 1000):
        for _ in range(50):
            producer.publish(topic, [b"x" * size] * 10)
    producer.flush(WAIT_S)

    assert deliveries() == 0
    assert len(producer) == 0


def test_failures_nobody_asked_for_are_counted(
    make_producer: Any, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make_producer({"linger.ms": 60_000, "message.max.bytes": 2000})
    producer.publish(topic, ["a"] * 3)  # dropped, and then failing
    producer.publish(topic, [b"x" * 5000] * 4)  # failed, and then dropped
    asked = producer.publish(topic, [b"x" * 5000] * 5)
    assert asked.failed == 5
    del asked

    producer.purge()
    with caplog.at_level(logging.WARNING, "cykafka"):
        producer.close()

    assert [record.args[1] for record in caplog.records if "nobody has asked" in record.msg] == [7]


def test_callback_gets_the_delivery_once(producer: Any, topic: str) -> None:
    told: list[tuple[Delivery, bool]] = []
    delivery = producer.publish(topic, [b"x" * 1000] * 3)

    delivery.add_done_callback(lambda done: told.append((done, done.done)))
    producer.flush(WAIT_S)
    delivery.add_done_callback(lambda done: told.append((done, done.done)))

    assert told == [(delivery, True), (delivery, True)]


def test_callback_of_a_dropped_delivery_is_called(
    producer: Any, topic: str, deliveries: Callable[[], int]
) -> None:
    told: list[Any] = []
    producer.publish(topic, ["a"] * 3, partitions=0).add_done_callback(
        lambda delivery: told.append((list(delivery.offsets), repr(delivery)))
    )

    producer.flush(WAIT_S)

    assert told == [([0, 1, 2], f"<Delivery of 3 record(s) to {topic}, done, 0 failed>")]
    assert deliveries() == 0


def test_callback_that_raises_loses_no_other(
    producer: Any, topic: str, deliveries: Callable[[], int]
) -> None:
    told = []

    def fail(_: Delivery) -> None:
        told.append("fail")
        raise ArithmeticError("mine")

    delivery = producer.publish(topic, ["a"])
    delivery.add_done_callback(fail)
    delivery.add_done_callback(lambda _: told.append("second"))
    delivery.add_done_callback(fail)
    other = producer.publish(topic, ["b"])
    other.add_done_callback(lambda _: told.append("other"))

    with pytest.raises(ArithmeticError, match="mine"):
        producer.flush(WAIT_S)
    with pytest.raises(ArithmeticError, match="mine"):
        flush_until_raised(producer)
    producer.flush(WAIT_S)

    assert sorted(told) == ["fail", "fail", "other", "second"]
    assert told.index("second") < len(told)
    del delivery, other
    gc.collect()
    assert deliveries() == 0


def test_callback_may_publish_and_wait(producer: Any, topic: str) -> None:
    second: list[Delivery] = []

    def again(_: Delivery) -> None:
        second.append(producer.publish(topic, ["b"], partitions=0))
        second[0].wait(WAIT_S)

    first = producer.publish(topic, ["a"], partitions=0)
    first.add_done_callback(again)
    first.wait(WAIT_S)
    producer.poll(0)

    assert list(second[0].offsets) == [1]


def test_callback_may_close_the_producer(make_producer: Any, topic: str) -> None:
    producer = make_producer()
    delivery = producer.publish(topic, ["a"])
    delivery.add_done_callback(lambda _: producer.close())

    delivery.wait(WAIT_S)
    producer.close()

    assert delivery.done
    assert delivery.failed == 0
    with pytest.raises(RuntimeError, match="closed"):
        producer.publish(topic, ["b"])


def test_outcomes_are_readable_after_close(make_producer: Any, topic: str) -> None:
    producer = make_producer({"linger.ms": 60_000})
    delivery = producer.publish(topic, ["a", "b"], partitions=0)

    producer.close()

    assert delivery.done
    delivery.wait()
    assert list(delivery.offsets) == [0, 1]


def test_cycle_through_a_callback_is_collected(
    make_producer: Any, topic: str, deliveries: Callable[[], int]
) -> None:
    producer = make_producer()
    delivery = producer.publish(topic, [b"x" * 1000])
    delivery.add_done_callback(lambda _, me=delivery: repr(me))
    cycle: list[Any] = [producer.publish(topic, ["a"])]
    cycle.append(cycle)
    producer.flush(WAIT_S)
    del delivery, cycle

    gc.collect()

    assert deliveries() == 0


def test_deliveries_can_only_be_made_by_publishing() -> None:
    with pytest.raises(TypeError, match="publish"):
        Delivery()
    empty = Delivery.__new__(Delivery)
    for use in (
        lambda: empty.done, lambda: empty.count, lambda: len(empty), lambda: empty.failed,
        lambda: empty.errors, lambda: empty.offsets, lambda: empty.wait(0),
        lambda: empty.__await__(), lambda: empty.add_done_callback(print),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="publish"):
            use()
    assert repr(empty) == "<Delivery>"


def test_serializing_producer_publishes_as_it_is_given(
    cluster: Any, topic: str, records: Any
) -> None:
    with cykafka.SerializingProducer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
    ) as producer:
        producer.publish(topic, ["a"]).wait(WAIT_S)

    assert values_of(records(topic, 1)) == [b"a"]
