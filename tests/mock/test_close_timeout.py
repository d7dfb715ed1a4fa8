"""`close(timeout=)`: how long it waits, and the outcome of the rest."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S

from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

NO_BROKER = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_producer_closed_in_time_has_delivered_all(
    make_producer: Callable[..., Any], topic: str
) -> None:
    reports: list[Any] = []
    producer = make_producer({"linger.ms": 1000})
    for _ in range(10):
        producer.produce(topic, b"x", on_delivery=lambda error, _: reports.append(error))

    assert producer.close(timeout=WAIT_S) is True
    assert reports == [None] * 10
    assert producer.close(timeout=0) is True


def test_producer_out_of_time_reports_what_was_not_delivered(
    make_producer: Callable[..., Any], kafka: Any, caplog: pytest.LogCaptureFixture
) -> None:
    reports: list[Any] = []
    producer = make_producer(NO_BROKER)
    for _ in range(10):
        producer.produce("t", b"x", on_delivery=lambda error, _: reports.append(error))
    delivery = producer.publish("t", [b"a", b"b"])
    producer.produce("t", b"without a callback")
    started = time.monotonic()

    assert producer.close(timeout=0.3) is False

    assert 0.25 < time.monotonic() - started < 1.5
    assert reports == [kafka.KafkaError._PURGE_QUEUE] * 10
    assert delivery.done
    assert delivery.failed == 2
    assert "not delivered" in caplog.text
    with pytest.raises(RuntimeError, match=r"^Producer has been closed"):
        producer.poll(0)
    assert producer.close() is True


def test_producer_out_of_time_reports_what_is_in_flight(
    kafka: Any, mock_cluster: MockCluster, make_producer: Callable[..., Any]
) -> None:
    reports: list[Any] = []
    producer = make_producer({"bootstrap.servers": mock_cluster.bootstrap_servers})
    producer.produce("t", b"first")
    assert producer.flush(WAIT_S) == 0
    mock_cluster.push_request_errors("Produce", [0], broker=1, rtt_ms=5000)
    producer.produce("t", b"x", on_delivery=lambda error, _: reports.append(error))
    producer.poll(0.2)

    assert producer.close(timeout=0.2) is False
    assert reports == [kafka.KafkaError._PURGE_INFLIGHT]


def test_producer_without_time_aborts_and_closes(
    make_producer: Callable[..., Any], topic: str, unique: Callable[[str], str]
) -> None:
    producer = make_producer({"transactional.id": unique("transaction")})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    started = time.monotonic()

    assert producer.close(timeout=0) in (True, False)
    assert time.monotonic() - started < 2


def test_callback_that_raises_leaves_no_report_untold(
    make_producer: Callable[..., Any],
) -> None:
    reports = []
    producer = make_producer(NO_BROKER)

    def told(error: Any, message: Any) -> None:
        reports.append(error)
        raise LookupError(str(len(reports)))

    for _ in range(3):
        producer.produce("t", b"x", on_delivery=told)

    with pytest.raises(LookupError, match="3"):
        producer.close(timeout=0.1)
    assert len(reports) == 3
    assert producer.close(timeout=0.1) is True


def test_consumer_that_leaves_in_time_says_so(
    make_consumer: Callable[..., Any],
    topic: str,
    fill: Callable[..., None],
    read: Callable[..., list[Any]],
) -> None:
    fill(topic, 3)
    consumer = make_consumer()
    consumer.subscribe([topic])
    read(consumer, 3)

    assert consumer.close(timeout=WAIT_S) is True
    assert consumer.close(timeout=0) is True
    assert consumer.close() is None


def test_consumer_out_of_time_is_closed_and_says_so(
    kafka: Any,
    mock_cluster: MockCluster,
    make_consumer: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    wait_until: Callable[..., None],
) -> None:
    """Without a timeout its commit would wait for the dead brokers until the session times out."""
    from cykafka._handle import live_handles

    before = live_handles()["handles"]
    mock_cluster.create_topic("t", 1)
    with kafka.Producer({"bootstrap.servers": mock_cluster.bootstrap_servers}) as producer:
        producer.produce("t", b"x", partition=0)
    config = {"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0}
    consumer = make_consumer({**config, "enable.auto.commit": True})
    consumer.subscribe(["t"])
    assert consumer.poll(WAIT_S).value() == b"x"
    mock_cluster.broker_down()
    consumer.commit(asynchronous=True)
    started = time.monotonic()

    with caplog.at_level(logging.WARNING, "cykafka"):
        assert consumer.close(timeout=0.3) is False

    assert time.monotonic() - started < 2
    assert "closed without waiting for the group any longer" in caplog.text
    with pytest.raises(RuntimeError, match=r"^Consumer closed"):
        consumer.poll(0)
    # A thread completes the leave.
    mock_cluster.broker_up()
    wait_until(lambda: live_handles()["handles"] == before, timeout=30)


def test_call_that_does_not_end_in_time_leaves_the_consumer_open(
    kafka: Any, in_poll: tuple[Any, threading.Event]
) -> None:
    consumer, leave = in_poll

    with pytest.raises(kafka.KafkaException, match="a call in another thread") as caught:
        consumer.close(timeout=0.1)
    leave.set()

    assert caught.value.args[0] == kafka.KafkaError._TIMED_OUT
    assert consumer.assignment() is not None
    assert consumer.close(timeout=WAIT_S) is True


def test_close_with_a_timeout_in_a_rebalance_callback_waits_for_its_end(
    make_consumer: Callable[..., Any], topic: str
) -> None:
    closed = []
    consumer = make_consumer()
    consumer.subscribe([topic], on_assign=lambda c, _: closed.append(c.close(timeout=WAIT_S)))

    with pytest.raises(RuntimeError, match=r"^Consumer closed"):
        _poll_on(consumer)
    assert closed == [None]


def test_another_thread_that_closes_is_waited_for_as_long_as_told(
    kafka: Any, make_producer: Callable[..., Any]
) -> None:
    producer = make_producer({**NO_BROKER, "message.timeout.ms": 60_000})
    producer.produce("t", b"x")
    thread = threading.Thread(target=lambda: producer.close(timeout=2))
    thread.start()
    while not _is_closing(producer):
        time.sleep(0.01)  # there is no event for it
    with pytest.raises(kafka.KafkaException, match="another thread is still closing it"):
        producer.close(timeout=0.1)
    assert producer.close(timeout=WAIT_S) is True
    thread.join(WAIT_S)


def _poll_on(consumer: Any) -> None:
    while True:
        consumer.poll(WAIT_S)


def _is_closing(producer: Any) -> bool:
    return "closing" in repr(producer)


@pytest.mark.parametrize("timeout", ["1", float("nan")], ids=repr)
def test_close_refuses_a_wrong_timeout(
    make_producer: Callable[..., Any], make_consumer: Callable[..., Any], timeout: Any
) -> None:
    for client in (make_producer(), make_consumer()):
        with pytest.raises((TypeError, ValueError), match=r"^timeout"):
            client.close(timeout=timeout)
        client.close()


def test_clients_of_objects_pass_the_timeout_on(kafka: Any) -> None:
    producer = kafka.SerializingProducer(NO_BROKER)
    producer.produce("t", value=b"x")
    assert producer.close(timeout=0.1) is False

    consumer = kafka.DeserializingConsumer({**NO_BROKER, "group.id": "g"})
    assert consumer.close(timeout=WAIT_S) is True
