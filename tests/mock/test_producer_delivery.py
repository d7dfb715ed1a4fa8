"""Delivery reports: their contents, and exactly one outcome for each message."""

from __future__ import annotations

import logging
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import MakeProducer, WaitUntil
from machine import WAIT_S

MANY = 5000
NO_BROKER = "127.0.0.1:1"


class Reports(list[tuple[Any, Any]]):
    """A delivery callback that keeps its arguments."""

    def __call__(self, error: Any, message: Any) -> None:
        self.append((error, message))

    @property
    def values(self) -> list[bytes]:
        return [message.value() for _, message in self]

    @property
    def errors(self) -> list[Any]:
        return [error for error, _ in self]


def test_report_carries_the_message(producer: Any, topic: str) -> None:
    reports = Reports()
    producer.produce(
        topic,
        "value",
        "key",
        partition=1,
        timestamp=1234,
        on_delivery=reports,
        headers=[("h", "x")],
    )

    producer.flush(WAIT_S)

    ((error, message),) = reports
    assert error is None
    assert message.error() is None
    assert (message.topic(), message.partition(), message.offset()) == (topic, 1, 0)
    assert (message.value(), message.key(), len(message)) == (b"value", b"key", 5)
    assert message.timestamp()[1] == 1234
    assert message.latency() > 0


@pytest.mark.ours
def test_report_carries_the_headers(producer: Any, topic: str) -> None:
    reports = Reports()

    producer.produce(topic, b"x", on_delivery=reports, headers={"h": "x", "n": None})
    producer.flush(WAIT_S)

    assert reports[0][1].headers() == [("h", b"x"), ("n", None)]


def test_report_goes_to_callback_or_on_delivery(producer: Any, topic: str) -> None:
    old, new = Reports(), Reports()

    producer.produce(topic, b"1", callback=old)
    producer.produce(topic, b"2", on_delivery=new)
    producer.flush(WAIT_S)

    assert (old.values, new.values) == ([b"1"], [b"2"])


def test_report_goes_to_the_messages_callback_before_the_producers(
    make_producer: MakeProducer, topic: str
) -> None:
    everyones, own = Reports(), Reports()
    producer = make_producer({"on_delivery": everyones})

    producer.produce(topic, b"1")
    producer.produce(topic, b"2", on_delivery=own)
    producer.flush(WAIT_S)

    assert (everyones.values, own.values) == ([b"1"], [b"2"])


def test_reports_of_a_partition_come_in_order(producer: Any, topic: str) -> None:
    reports = Reports()
    for number in range(500):
        producer.produce(topic, str(number), partition=0, on_delivery=reports)

    producer.flush(WAIT_S)

    assert reports.values == [str(number).encode() for number in range(500)]
    assert [message.offset() for _, message in reports] == list(range(500))
    assert reports.errors == [None] * 500


@pytest.fixture
def waiting(make_producer: MakeProducer) -> Iterator[Callable[..., Any]]:
    """Make a producer with many unserved reports, and no other events.

    Its broker accepts the connection and never responds. Errors of connections would also count
    in what flush() returns, as in librdkafka.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def make(on_delivery: Callable[..., None]) -> Any:
            port = server.getsockname()[1]
            producer = make_producer({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
            for number in range(MANY):
                producer.produce("any", str(number), on_delivery=on_delivery)
            producer.purge()
            return producer

        yield make


@pytest.mark.ours
@pytest.mark.parametrize("call", ["poll", "flush", "close"])
def test_call_with_zero_timeout_serves_all_waiting_reports(
    waiting: Callable[..., Any], call: str
) -> None:
    reports = Reports()
    producer = waiting(reports)

    outcome = getattr(producer, call)(timeout=0)

    assert reports.values == [str(number).encode() for number in range(MANY)]
    assert outcome > 0 if call == "poll" else outcome == {"flush": 0, "close": True}[call]


@pytest.mark.ours
@pytest.mark.parametrize("call", ["poll", "flush"])
def test_callback_that_closes_is_followed_by_the_other_reports(
    waiting: Callable[..., Any], call: str
) -> None:
    seen: list[bytes] = []

    def close(error: Any, message: Any) -> None:
        seen.append(message.value())
        producer.close()

    producer = waiting(close)
    getattr(producer, call)(timeout=0)

    assert seen == [str(number).encode() for number in range(MANY)]


def test_report_only_error_is_silent_about_success(
    make_producer: MakeProducer, topic: str
) -> None:
    everyones, own = Reports(), Reports()
    producer = make_producer({"on_delivery": everyones, "delivery.report.only.error": True})

    producer.produce(topic, b"1")
    producer.produce(topic, b"2", on_delivery=own)

    assert producer.flush(WAIT_S) == 0
    assert (everyones, own) == ([], [])


def test_report_only_error_reports_failures(make_producer: MakeProducer, kafka: Any) -> None:
    everyones, own = Reports(), Reports()
    producer = make_producer(
        {
            "bootstrap.servers": NO_BROKER,
            "on_delivery": everyones,
            "delivery.report.only.error": True,
        }
    )
    producer.produce("any", b"1")
    producer.produce("any", b"2", on_delivery=own)

    producer.purge()
    producer.flush(WAIT_S)

    assert everyones.errors == own.errors == [kafka.KafkaError._PURGE_QUEUE]
    assert (everyones.values, own.values) == ([b"1"], [b"2"])


def test_report_of_a_timed_out_message_has_the_timeout_error(
    make_producer: MakeProducer, kafka: Any
) -> None:
    reports = Reports()
    producer = make_producer({"bootstrap.servers": NO_BROKER, "message.timeout.ms": 100})
    producer.produce("any", b"1", on_delivery=reports)

    assert producer.flush(WAIT_S) == 0

    ((error, message),) = reports
    assert error == kafka.KafkaError._MSG_TIMED_OUT
    assert error.str() == "Local: Message timed out"
    assert message.error() == kafka.KafkaError._MSG_TIMED_OUT
    assert message.value() == b"1"


def test_topic_config_given_as_default_applies(make_producer: MakeProducer, kafka: Any) -> None:
    reports = Reports()
    producer = make_producer(
        {
            "bootstrap.servers": NO_BROKER,
            "default.topic.config": {"message.timeout.ms": 100, "request.required.acks": "all"},
        }
    )
    producer.produce("any", b"1", on_delivery=reports)

    assert producer.flush(WAIT_S) == 0
    assert reports.errors == [kafka.KafkaError._MSG_TIMED_OUT]


def test_topic_config_wins_over_the_plain_property(
    make_producer: MakeProducer, kafka: Any
) -> None:
    reports = Reports()
    producer = make_producer(
        {
            "bootstrap.servers": NO_BROKER,
            "message.timeout.ms": 600_000,
            "default.topic.config": {"message.timeout.ms": 100},
        }
    )
    producer.produce("any", b"1", on_delivery=reports)

    assert producer.flush(WAIT_S) == 0
    assert reports.errors == [kafka.KafkaError._MSG_TIMED_OUT]


def test_produce_to_a_full_queue_is_a_buffer_error(
    make_producer: MakeProducer, topic: str
) -> None:
    reports = Reports()
    producer = make_producer({"linger.ms": 60_000, "queue.buffering.max.messages": 2})
    producer.produce(topic, b"1", on_delivery=reports)
    producer.produce(topic, b"2", on_delivery=reports)

    with pytest.raises(BufferError, match="Queue full"):
        producer.produce(topic, b"3", on_delivery=reports)

    assert producer.flush(WAIT_S) == 0
    assert sorted(reports.values) == [b"1", b"2"]


@pytest.mark.ours
def test_produce_with_timeout_waits_for_room(make_producer: MakeProducer, topic: str) -> None:
    reports = Reports()
    producer = make_producer({"queue.buffering.max.messages": 10, "on_delivery": reports})

    for number in range(200):
        producer.produce(topic, str(number), partition=0, timeout=WAIT_S)
    assert producer.flush(WAIT_S) == 0

    assert reports.values == [str(number).encode() for number in range(200)]


@pytest.mark.ours
def test_produce_with_timeout_raises_in_time(make_producer: MakeProducer) -> None:
    reports = Reports()
    producer = make_producer({"bootstrap.servers": NO_BROKER, "queue.buffering.max.messages": 1})
    producer.produce("any", b"1", on_delivery=reports)
    start = time.monotonic()

    with pytest.raises(BufferError, match="Queue full"):
        producer.produce("any", b"2", timeout=0.3, on_delivery=reports)

    assert 0.25 <= time.monotonic() - start < 3
    producer.purge()
    producer.flush(WAIT_S)
    assert reports.values == [b"1"]


@pytest.mark.ours
def test_produce_with_timeout_lets_other_threads_run(make_producer: MakeProducer) -> None:
    producer = make_producer({"bootstrap.servers": NO_BROKER, "queue.buffering.max.messages": 1})
    producer.produce("any", b"1")
    purge = threading.Timer(0.1, producer.purge)
    purge.start()

    # Only the purge in the other thread frees room.
    producer.produce("any", b"2", timeout=WAIT_S)

    purge.join(WAIT_S)
    assert not purge.is_alive()


@pytest.mark.ours
def test_exceptions_of_callbacks_are_raised_one_per_call(producer: Any, topic: str) -> None:
    seen: list[bytes] = []

    def complain(error: Any, message: Any) -> None:
        seen.append(message.value())
        raise ValueError(message.value())

    for number in range(3):
        producer.produce(topic, str(number), partition=0, on_delivery=complain)

    for number in range(3):
        with pytest.raises(ValueError, match=str(number)):
            producer.flush(WAIT_S)
        assert seen == [b"0", b"1", b"2"][: number + 1]
    assert producer.flush(WAIT_S) == 0


def test_callback_that_raises_reaches_the_caller_of_poll(
    producer: Any, topic: str, wait_until: WaitUntil
) -> None:
    def complain(error: Any, message: Any) -> None:
        raise LookupError("from the callback")

    producer.produce(topic, b"x", on_delivery=complain)

    with pytest.raises(LookupError, match="from the callback"):
        wait_until(lambda: False, lambda: producer.poll(0.5))


def test_callback_may_produce(producer: Any, topic: str) -> None:
    reports = Reports()

    producer.produce(
        topic, b"1", on_delivery=lambda *_: producer.produce(topic, b"2", on_delivery=reports)
    )

    assert producer.flush(WAIT_S) == 0
    assert reports.values == [b"2"]


def test_callback_is_released_after_its_report(producer: Any, topic: str) -> None:
    class Callback:
        def __call__(self, error: Any, message: Any) -> None:
            pass

    callback = Callback()
    gone = weakref.ref(callback)
    producer.produce(topic, b"x", on_delivery=callback)
    del callback
    assert gone() is not None

    producer.flush(WAIT_S)

    assert gone() is None


@pytest.mark.ours
def test_failure_without_a_callback_is_logged_with_its_topic(
    make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make_producer({"bootstrap.servers": NO_BROKER, "log_level": 0})
    for topic in ("first", "second"):
        producer.produce(topic, b"x")
        producer.purge()
        producer.poll(0)
    with caplog.at_level(logging.WARNING, logger="cykafka"):
        producer.close()

    (record,) = caplog.records
    assert "2 record(s)" in record.getMessage()
    assert "the first one to first: Local: Purged in queue" in record.getMessage()
