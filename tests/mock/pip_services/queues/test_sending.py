"""The records that a queue sends, and its errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer
from pip_services4_commons.errors import (
    ApplicationException,
    BadRequestException,
    InvalidStateException,
)
from pip_services4_messaging.queues import CallbackMessageReceiver
from pip_services_queues import Counters, MakeQueue, bodies, envelope, received
from pip_services_rig import MakeReferences

from cykafka import TopicPartition
from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = pytest.mark.ours


def test_sent_record_has_the_format_of_the_published_package(
    make_queue: MakeQueue, records: Callable[[str, int], list[Any]], topic: str
) -> None:
    sent = envelope("grüß", kind="order", trace="123")
    before = int(time.time() * 1000)
    make_queue().send("123", sent)

    (record,) = records(topic, 1)
    assert record.key() == sent.message_id.encode()
    assert record.value() == "grüß".encode()
    assert record.headers() == [("message_type", b"order"), ("trace_id", b"123")]
    assert before <= record.timestamp()[1] <= time.time() * 1000 + 1


def test_send_raises_when_the_partition_does_not_exist(
    make_queue: MakeQueue, counters: Counters, make_references: MakeReferences
) -> None:
    queue = make_queue(
        options__write_partition=99,
        options__request_timeout=3000,
        references=make_references(counters=counters),
    )
    begin = time.monotonic()

    with pytest.raises(ApplicationException):
        queue.send(None, envelope())
    assert time.monotonic() - begin < 10
    assert counters.value(f"queue.{queue.get_name()}.sent_messages") is None


def test_batch_arrives_complete_and_in_order(make_queue: MakeQueue) -> None:
    queue = make_queue(options__write_partition=1)
    queue.send_batch(None, bodies(500))
    queue.send_batch("123", [])

    assert received(queue, 500) == [str(n) for n in range(500)]


def test_an_object_is_sent_as_json_with_a_string_for_a_context(make_queue: MakeQueue) -> None:
    queue = make_queue(options__write_partition=1)
    queue.send_as_object("123", "test", {"a": 1})
    queue.send_as_object(None, "test", b"\x00\xff")

    first, second = queue.receive(None), queue.receive("123")
    assert first.get_message_as() == {"a": 1}
    assert (first.trace_id, first.message_type) == ("123", "test")
    assert second.message == b"\x00\xff"


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_every_value_of_acks_sends(make_queue: MakeQueue, acks: int) -> None:
    queue = make_queue(options__acks=acks)
    queue.send(None, envelope("x"))

    assert received(queue, 1) == ["x"]


def test_documented_argument_names_work(make_queue: MakeQueue) -> None:
    queue = make_queue(opened=False)
    queue.open(correlation_id="123")
    queue.send(correlation_id="123", message=envelope("1"))
    queue.send(context="123", envelop=envelope("2"))
    queue.send_batch(correlation_id="123", envelopes=[envelope("3")])
    queue.send_as_object(correlation_id="123", message_type="t", message={"a": 1})
    queue._subscribe(correlation_id="123")

    for _ in range(4):
        message = queue.receive(correlation_id="123", waitTimeout=30000)
        queue.complete("123", message)
        queue.complete(message)
        queue.complete(message=message)
        queue.complete(envelop=message)
    assert queue.receive(context=None, wait_timeout=50) is None
    assert queue.peek_batch(correlation_id=None, messageCount=3) == []
    assert queue.peek(correlation_id="123") is None
    queue.endListen("123")
    queue.clear(correlation_id="123")
    queue.close(correlation_id="123")


def test_a_batch_may_be_larger_than_the_producers_queue(
    make_queue: MakeQueue, make_consumer: MakeConsumer, topic: str
) -> None:
    queue = make_queue(options__write_partition=1)
    queue.send_batch(None, [envelope("x")] * 150_000)
    place = TopicPartition(topic, 1)
    assert make_consumer().get_watermark_offsets(place, 30)[1] == 150_000


def test_send_with_acks_0_does_not_wait(make_queue: MakeQueue, cluster: Any) -> None:
    queue = make_queue(options__acks=0, options__write_partition=1)
    queue.send(None, envelope("1"))  # the leader of the partition is known now
    cluster.set_rtt(3000)
    begin = time.monotonic()
    try:
        queue.send(None, envelope("2"))
        assert time.monotonic() - begin < 2.5
    finally:
        cluster.set_rtt(0)


def test_from_message_of_a_subclass_is_used(
    make_queue: MakeQueue, records: Callable[[str, int], list[Any]], topic: str
) -> None:
    class Shouting(KafkaMessageQueue):
        def _from_message(self, message: Any) -> Any:
            record = super()._from_message(message)
            assert record is not None
            return {**record, "value": b"!" + message.message}

    queue = make_queue(Shouting, options__write_partition=1)
    queue.send(None, bodies(1)[0])
    queue.send_batch(None, bodies(2, 1))

    found = records(topic, 3)
    assert [record.value() for record in found] == [b"!0", b"!1", b"!2"]
    assert [name for name, _ in found[0].headers()] == ["message_type", "trace_id"]


def test_invalid_argument_raises_bad_request(make_queue: MakeQueue) -> None:
    queue = make_queue()
    with pytest.raises(BadRequestException):
        queue.send(None, None)
    broken = envelope()
    broken.message = 5
    with pytest.raises(BadRequestException):
        queue.send(None, broken)
    with pytest.raises(BadRequestException):
        queue.complete(None)
    with pytest.raises(BadRequestException):
        queue.peek_batch(None)
    with pytest.raises(BadRequestException):
        queue.listen(None)
    for nothing in (None, envelope(), 5):
        with pytest.raises(
            BadRequestException, match=f"queue {queue.get_name()}.*sequence"
        ) as caught:
            queue.send_batch(None, nothing)
        assert caught.value.code == "INVALID_MESSAGE"


@pytest.mark.parametrize("given", [None, "a str"])
def test_subclass_that_makes_no_message_is_named_and_sends_nothing(
    make_queue: MakeQueue, given: Any
) -> None:
    class Silent(KafkaMessageQueue):
        def _from_message(self, message: Any) -> Any:
            return given if message.message == b"1" else super()._from_message(message)

    queue = make_queue(Silent)
    with pytest.raises(BadRequestException) as raised:
        queue.send_batch("123", bodies(2))
    expected = f"Queue {queue.get_name()}, message 1: Silent._from_message returned"
    assert expected in str(raised.value)
    assert (raised.value.code, raised.value.trace_id) == ("INVALID_MESSAGE", "123")
    assert queue.receive(None, 50) is None


RECEIVER = CallbackMessageReceiver(lambda envelope, queue: None)


@pytest.mark.parametrize(
    "call",
    [
        lambda queue, envelope: queue.send(None, envelope),
        lambda queue, envelope: queue.send_batch("123", [envelope]),
        lambda queue, envelope: queue.send_as_object("123", "test", 1),
        lambda queue, envelope: queue.receive(None, 0),
        lambda queue, envelope: queue.peek("123"),
        lambda queue, envelope: queue.peek_batch(None, 1),
        lambda queue, envelope: queue.complete(envelope),
        lambda queue, envelope: queue.abandon("123", envelope),
        lambda queue, envelope: queue.move_to_dead_letter(envelope),
        lambda queue, envelope: queue.listen("123", RECEIVER),
        lambda queue, envelope: queue.begin_listen("123", RECEIVER),
        lambda queue, envelope: queue.read_message_count(),
    ],
)
def test_closed_queue_raises(make_queue: MakeQueue, call: Callable[..., Any]) -> None:
    queue = make_queue(opened=False)
    with pytest.raises(InvalidStateException) as raised:
        call(queue, envelope())
    assert raised.value.code == "NOT_OPENED"
    assert queue.get_name() in str(raised.value)
