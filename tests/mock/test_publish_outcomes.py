"""The outcomes of the records of a batch: errors, callbacks, and leaks."""

from __future__ import annotations

import gc
import logging
import pickle
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeProducer, Unique
from live import live_before
from machine import WAIT_S

import cykafka
from cykafka import Delivery, DeliveryError, KafkaError
from cykafka.testing import MockCluster, live_handles

pytestmark = pytest.mark.ours


@pytest.fixture
def deliveries() -> Callable[[], int]:
    """Count the live deliveries that this test made."""
    before = live_before()["deliveries"]
    return lambda: live_handles()["deliveries"] - before


def values_of(messages: list[Any]) -> list[bytes | None]:
    return [message.value() for message in messages]


def flush_until_raised(producer: Any) -> None:
    """Flush repeatedly, because it is a race which flush() raises the callback's exception."""
    for _ in range(100):
        producer.flush(WAIT_S)


def test_delivery_has_a_repr(producer: Any, topic: str) -> None:
    delivery = producer.publish(topic, ["a", "b"])

    delivery.wait(WAIT_S)
    assert repr(delivery) == f"<Delivery of 2 record(s) to {topic}, done, 0 failed>"
    assert len(delivery) == delivery.count == 2
    assert (delivery.failed, delivery.errors) == (0, {})


def test_records_in_flight_have_no_offset_yet(
    cluster: Any, make_producer: MakeProducer, topic: str
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


def test_refused_records_fail_alone(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"message.max.bytes": 2000})
    producer.list_topics(topic)  # now publish() refuses unknown partitions at once

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
def test_unknown_topic_fails_every_record(
    mock_cluster: MockCluster, make_producer: MakeProducer, headers: Any
) -> None:
    topic = "missing"
    mock_cluster.set_topic_error(topic, KafkaError.UNKNOWN_TOPIC_OR_PART)
    mock_cluster.set_rtt(500)  # the records are queued before the broker's answer arrives
    producer = make_producer(
        {
            "bootstrap.servers": mock_cluster.bootstrap_servers,
            "topic.metadata.propagation.max.ms": 0,
        }
    )

    # Records that wait for the answer get the broker's error; later ones librdkafka's own.
    for code in KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC:
        delivery = producer.publish(topic, ["a"] * 3, headers=headers)

        with pytest.raises(DeliveryError):
            delivery.wait(WAIT_S)
        assert [error.code() for error in delivery.errors.values()] == [code] * 3


def test_error_outlives_pickling() -> None:
    error = DeliveryError(
        KafkaError(KafkaError._TRANSPORT), {3: KafkaError(KafkaError._TRANSPORT)}
    )

    again = pickle.loads(pickle.dumps(error))

    assert (again.args, again.failures, again.delivery) == (error.args, error.failures, None)
    assert isinstance(error, cykafka.KafkaException)


def test_purged_records_fail(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"linger.ms": 60_000})
    delivery = producer.publish(topic, ["a"] * 1000, partitions=0)

    producer.purge()
    with pytest.raises(DeliveryError):
        delivery.wait(WAIT_S)

    assert delivery.failed == 1000
    assert {error.code() for error in delivery.errors.values()} == {KafkaError._PURGE_QUEUE}


def test_wrong_transaction_state_fails_every_record(
    make_producer: MakeProducer, unique: Unique, topic: str, records: Any
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


def test_borrowed_values_are_released_when_delivered(producer: Any, topic: str) -> None:
    class Large(str):  # a subclass supports weak references
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


def test_refused_values_are_released_at_once(producer: Any, topic: str) -> None:
    class Large(str):
        pass

    freed = []

    def make() -> list[str]:
        value = Large("x" * 2_000_000)
        weakref.finalize(value, freed.append, True)
        return [value]

    with pytest.raises(DeliveryError):
        producer.publish(topic, make()).wait(WAIT_S)

    assert freed == [True]


def test_dropped_deliveries_leak_nothing(
    producer: Any, topic: str, deliveries: Callable[[], int]
) -> None:
    for size in (1, 1000):
        for _ in range(50):
            producer.publish(topic, [b"x" * size] * 10)
    producer.flush(WAIT_S)

    assert deliveries() == 0
    assert len(producer) == 0


def test_failures_of_unread_deliveries_are_counted(
    make_producer: MakeProducer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make_producer({"linger.ms": 60_000, "message.max.bytes": 2000})
    producer.publish(topic, ["a"] * 3)  # dropped before they fail
    producer.publish(topic, [b"x" * 5000] * 4)  # dropped after they failed
    asked = producer.publish(topic, [b"x" * 5000] * 5)
    assert asked.failed == 5
    del asked

    producer.purge()
    with caplog.at_level(logging.WARNING, "cykafka"):
        producer.close()

    assert [record.args[1] for record in caplog.records if "check them;" in record.msg] == [7]


def test_failures_of_a_collected_delivery_are_counted(
    make_producer: MakeProducer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make_producer({"message.max.bytes": 2000})
    cycle: list[Any] = [producer.publish([topic] * 2, [b"x" * 5000] * 2)]
    cycle.append(cycle)
    del cycle
    gc.collect()

    with caplog.at_level(logging.WARNING, "cykafka"):
        producer.close()

    assert [record.args[1:3] for record in caplog.records] == [(2, topic)]


def test_callback_gets_the_delivery_once(producer: Any, topic: str) -> None:
    calls: list[tuple[Delivery, bool]] = []
    delivery = producer.publish(topic, [b"x" * 1000] * 3)

    delivery.add_done_callback(lambda done: calls.append((done, done.done)))
    producer.flush(WAIT_S)
    delivery.add_done_callback(lambda done: calls.append((done, done.done)))

    assert calls == [(delivery, True), (delivery, True)]


def test_callback_of_a_dropped_delivery_is_called(
    producer: Any, topic: str, deliveries: Callable[[], int]
) -> None:
    calls: list[Any] = []
    producer.publish(topic, ["a"] * 3, partitions=0).add_done_callback(
        lambda delivery: calls.append((list(delivery.offsets), repr(delivery)))
    )

    producer.flush(WAIT_S)

    assert calls == [([0, 1, 2], f"<Delivery of 3 record(s) to {topic}, done, 0 failed>")]
    assert deliveries() == 0


def test_callback_added_after_a_close_is_called(
    make_producer: MakeProducer, cluster: Any, topic: str, deliveries: Callable[[], int]
) -> None:
    """The values are borrowed. Their release is an event that no call serves after close()."""
    producer = make_producer({"queue.buffering.max.messages": 10})
    calls: list[Delivery] = []

    cluster.set_rtt(500)  # the report comes while publish() waits for room
    try:
        producer.produce(topic, "a", on_delivery=lambda *_: producer.close())
        with pytest.raises(RuntimeError, match="closed") as raised:
            producer.publish(topic, [b"x" * 1000] * 100)
    finally:
        cluster.set_rtt(0)
    delivery = raised.value.delivery  # type: ignore[attr-defined]
    delivery.add_done_callback(calls.append)

    assert calls == [delivery]


def test_callback_that_raises_loses_no_other(
    producer: Any, topic: str, deliveries: Callable[[], int]
) -> None:
    calls = []

    def fail(_: Delivery) -> None:
        calls.append("fail")
        raise ArithmeticError("mine")

    delivery = producer.publish(topic, ["a"])
    delivery.add_done_callback(fail)
    delivery.add_done_callback(lambda _: calls.append("second"))
    delivery.add_done_callback(fail)
    other = producer.publish(topic, ["b"])
    other.add_done_callback(lambda _: calls.append("other"))

    with pytest.raises(ArithmeticError, match="mine"):
        producer.flush(WAIT_S)
    with pytest.raises(ArithmeticError, match="mine"):
        flush_until_raised(producer)
    producer.flush(WAIT_S)

    assert sorted(calls) == ["fail", "fail", "other", "second"]
    assert calls.index("second") < len(calls)
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


def test_callback_may_close_the_producer(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer()
    delivery = producer.publish(topic, ["a"])
    delivery.add_done_callback(lambda _: producer.close())

    delivery.wait(WAIT_S)
    producer.close()

    assert delivery.done
    assert delivery.failed == 0
    with pytest.raises(RuntimeError, match="closed"):
        producer.publish(topic, ["b"])


def test_outcomes_are_readable_after_close(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"linger.ms": 60_000})
    delivery = producer.publish(topic, ["a", "b"], partitions=0)

    producer.close()

    assert delivery.done
    delivery.wait()
    assert list(delivery.offsets) == [0, 1]


def test_cycle_through_a_callback_is_collected(
    make_producer: MakeProducer, topic: str, deliveries: Callable[[], int]
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


def test_publish_of_a_serializing_producer_does_not_serialize(
    cluster: Any, topic: str, records: Any
) -> None:
    with cykafka.SerializingProducer(
        {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
    ) as producer:
        producer.publish(topic, ["a"]).wait(WAIT_S)

    assert values_of(records(topic, 1)) == [b"a"]


def test_publish_serves_reports_of_earlier_batches(producer: Any, topic: str) -> None:
    """A program that only publishes accumulates no reports."""
    calls: list[Any] = []
    first = producer.publish(topic, ["a"] * 10)
    first.add_done_callback(calls.append)

    deadline = time.monotonic() + WAIT_S
    while not calls and time.monotonic() < deadline:
        producer.publish(topic, ["b"] * 10)

    assert calls == [first]
