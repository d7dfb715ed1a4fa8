"""`close(timeout=)`: the length of its wait, and the outcome of the remaining records."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read, RunScript, Unique, WaitUntil
from live import live_before
from machine import WAIT_S

from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

NO_BROKER = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_producer_closed_in_time_has_delivered_all(
    make_producer: MakeProducer, topic: str
) -> None:
    reports: list[Any] = []
    producer = make_producer({"linger.ms": 1000})
    for _ in range(10):
        producer.produce(topic, b"x", on_delivery=lambda error, _: reports.append(error))

    assert producer.close(timeout=WAIT_S) is True
    assert reports == [None] * 10
    assert producer.close(timeout=0) is True


def test_close_out_of_time_reports_undelivered_records(
    make_producer: MakeProducer, kafka: Any, caplog: pytest.LogCaptureFixture
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
    assert producer.close() is False  # the result of the first close()


def test_close_out_of_time_reports_records_in_flight(
    kafka: Any, mock_cluster: MockCluster, make_producer: MakeProducer
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
    make_producer: MakeProducer, topic: str, unique: Unique
) -> None:
    producer = make_producer({"transactional.id": unique("transaction")})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    started = time.monotonic()

    assert producer.close(timeout=0) in (True, False)
    assert time.monotonic() - started < 2


def test_callback_that_raises_does_not_stop_later_reports(make_producer: MakeProducer) -> None:
    reports = []
    producer = make_producer(NO_BROKER)

    def callback(error: Any, message: Any) -> None:
        reports.append(error)
        raise LookupError(str(len(reports)))

    for _ in range(3):
        producer.produce("t", b"x", on_delivery=callback)

    with pytest.raises(LookupError, match="3"):
        producer.close(timeout=0.1)
    assert len(reports) == 3


@pytest.mark.parametrize("call", ["flush", "close"])
def test_call_waits_for_delivery_callbacks_in_another_thread(
    make_producer: MakeProducer, topic: str, call: str
) -> None:
    inside = threading.Event()
    over = []

    def callback(*_: Any) -> None:
        inside.set()
        time.sleep(0.5)  # the other thread waits meanwhile
        over.append(True)

    producer = make_producer({"linger.ms": 0})
    producer.produce(topic, b"x", on_delivery=callback)
    polls = threading.Thread(target=producer.poll, args=(WAIT_S,))
    polls.start()
    assert inside.wait(WAIT_S)

    getattr(producer, call)()

    assert over == [True]
    polls.join(WAIT_S)


def test_interrupted_close_keeps_the_earlier_exception_of_a_callback(
    make_producer: MakeProducer,
) -> None:
    raised: list[BaseException] = [LookupError("of a callback"), KeyboardInterrupt()]

    def called_back(*_: Any) -> None:
        raise raised.pop(0)

    producer = make_producer(NO_BROKER)
    for _ in range(2):
        producer.produce("t", b"x", on_delivery=called_back)
    producer.purge()

    with pytest.raises(KeyboardInterrupt) as caught:
        producer.close()

    assert isinstance(caught.value.__context__, LookupError)
    assert "open" in repr(producer)


@pytest.mark.parametrize("records", [1, 5])
def test_reports_queued_behind_a_callback_of_another_thread_are_not_lost(
    make_producer: MakeProducer, topic: str, caplog: pytest.LogCaptureFixture, records: int
) -> None:
    reports: list[Any] = []
    inside, leave = threading.Event(), threading.Event()

    def callback(error: Any, _: Any) -> None:
        reports.append(error)
        inside.set()
        leave.wait(WAIT_S)

    producer = make_producer({"linger.ms": 50})
    for _ in range(records):
        producer.produce(topic, b"x", on_delivery=callback)
    polls = threading.Thread(target=producer.poll, args=(WAIT_S,))
    polls.start()
    assert inside.wait(WAIT_S)
    threading.Timer(1, leave.set).start()

    assert producer.close(timeout=0.3) is True

    polls.join(WAIT_S)
    assert reports == [None] * records
    assert not caplog.messages


@pytest.mark.parametrize("timeout", [None, WAIT_S])
def test_close_serves_a_delivery_that_a_callback_in_another_thread_awaits(
    make_producer: MakeProducer, mock_cluster: MockCluster, timeout: float | None
) -> None:
    inside, waits = threading.Event(), threading.Event()
    waited = []

    def callback(error: Any, _: Any) -> None:
        inside.set()
        waits.wait(WAIT_S)
        delivery.wait(WAIT_S)
        waited.append(delivery.done)

    config = {"bootstrap.servers": mock_cluster.bootstrap_servers, "linger.ms": 0}
    producer = make_producer(config)
    producer.produce("t", b"x", on_delivery=callback)
    polls = threading.Thread(target=producer.poll, args=(WAIT_S,))
    polls.start()
    assert inside.wait(WAIT_S)
    mock_cluster.set_rtt(500)
    delivery = producer.publish("t", [b"a", b"b"])
    threading.Timer(0.2, waits.set).start()
    started = time.monotonic()

    assert producer.close(timeout=timeout) is True

    polls.join(WAIT_S)
    assert waited == [True]
    assert time.monotonic() - started < WAIT_S / 2


def test_events_that_wait_for_callbacks_do_not_count_as_lost_records(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer({"statistics.interval.ms": 1, "stats_cb": lambda _: None})
    producer.produce(topic, b"x")
    assert producer.flush(WAIT_S) == 0
    while len(producer) < 3:
        time.sleep(0.01)  # statistics events queue up until a call serves them

    assert producer.close(timeout=0) is True


def test_record_produced_by_a_callback_of_close_fails(
    make_producer: MakeProducer, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make_producer(NO_BROKER)
    producer.produce("t", b"x", on_delivery=lambda *_: producer.produce("t", b"again"))

    assert producer.close(timeout=0.1) is False

    (warning,) = caplog.messages
    assert "1 record(s) were not delivered" in warning


def test_interpreter_exit_during_close_warns(run_script: RunScript) -> None:
    done = run_script(
        """
        import threading, time
        producer = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        producer.produce("t", b"x")
        threading.Thread(target=producer.close, daemon=True).start()
        while "closing" not in repr(producer):
            time.sleep(0.01)
        """
    )

    assert done.returncode == 0
    assert "Producer rdkafka#producer-1: close() in another thread had not returned" in done.stderr


def test_client_that_a_warning_makes_at_exit_is_closed(run_script: RunScript) -> None:
    done = run_script(
        """
        import logging, os, sys, warnings
        config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}

        class ToKafka(logging.Handler):
            producer = None
            def emit(self, record):
                if self.producer is None:
                    self.producer = kafka.Producer(config)
                    print("created at exit")

        class Last:  # freed after the functions of atexit
            def __del__(self):
                os.write(1, b"threads: %d" % len(os.listdir("/proc/self/task")))

        warnings.simplefilter("always")
        logging.captureWarnings(True)
        logging.getLogger("py.warnings").addHandler(ToKafka())
        producer = kafka.Producer(config)
        sys.modules["last"] = Last()
        """
    )

    assert (done.returncode, done.stdout) == (0, "created at exit\nthreads: 1")


def test_interrupt_after_the_timeout_does_not_open_the_producer_again(
    make_producer: MakeProducer, kafka: Any
) -> None:
    reports: list[Any] = []
    producer = make_producer(NO_BROKER)

    def callback(error: Any, message: Any) -> None:
        reports.append(error)
        if len(reports) == 1:
            raise KeyboardInterrupt

    for _ in range(3):
        producer.produce("t", b"x", on_delivery=callback)

    with pytest.raises(KeyboardInterrupt):
        producer.close(timeout=0.1)
    assert "closed" in repr(producer)
    assert reports == [kafka.KafkaError._PURGE_QUEUE] * 3
    assert producer.close(timeout=0.1) is False  # the first close() failed records at its timeout


def test_close_returns_true_if_the_consumer_leaves_in_time(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read
) -> None:
    fill(topic, 3)
    consumer = make_consumer()
    consumer.subscribe([topic])
    read(consumer, 3)

    assert consumer.close(timeout=WAIT_S) is True
    assert consumer.close(timeout=0) is True
    assert consumer.close() is None


def test_close_returns_false_if_the_consumer_runs_out_of_time(
    kafka: Any,
    mock_cluster: MockCluster,
    make_consumer: MakeConsumer,
    caplog: pytest.LogCaptureFixture,
    wait_until: WaitUntil,
) -> None:
    """Without a timeout, the commit would wait for the dead brokers until the session ends."""
    from cykafka.testing import live_handles

    before = live_before()["handles"]
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
    assert "closed without waiting for the group:" in caplog.text
    with pytest.raises(RuntimeError, match=r"^Consumer closed"):
        consumer.poll(0)
    # A thread completes the leave.
    mock_cluster.broker_up()
    wait_until(lambda: live_handles()["handles"] == before, timeout=30)


def test_call_that_outlasts_the_timeout_of_close_leaves_the_consumer_open(
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
    make_consumer: MakeConsumer, topic: str
) -> None:
    closed = []
    consumer = make_consumer()
    consumer.subscribe([topic], on_assign=lambda c, _: closed.append(c.close(timeout=WAIT_S)))

    with pytest.raises(RuntimeError, match=r"^Consumer closed"):
        _poll_on(consumer)
    assert closed == [None]


def test_close_waits_up_to_its_timeout_for_another_thread_that_closes(
    kafka: Any, make_producer: MakeProducer
) -> None:
    producer = make_producer({**NO_BROKER, "message.timeout.ms": 60_000})
    producer.produce("t", b"x")
    thread = threading.Thread(target=lambda: producer.close(timeout=2))
    thread.start()
    while not _is_closing(producer):
        time.sleep(0.01)  # no event signals this
    with pytest.raises(kafka.KafkaException, match="another thread is still closing it"):
        producer.close(timeout=0.1)
    assert producer.close(timeout=WAIT_S) is False  # the result of the first close()
    thread.join(WAIT_S)


def _poll_on(consumer: Any) -> None:
    while True:
        consumer.poll(WAIT_S)


def _is_closing(producer: Any) -> bool:
    return "closing" in repr(producer)


@pytest.mark.parametrize("timeout", ["1", float("nan")], ids=repr)
def test_close_refuses_a_wrong_timeout(
    make_producer: MakeProducer, make_consumer: MakeConsumer, timeout: Any
) -> None:
    for client in (make_producer(), make_consumer()):
        with pytest.raises((TypeError, ValueError), match=r"^timeout"):
            client.close(timeout=timeout)
        client.close()


def test_serializing_clients_pass_the_close_timeout_on(kafka: Any) -> None:
    producer = kafka.SerializingProducer(NO_BROKER)
    producer.produce("t", value=b"x")
    assert producer.close(timeout=0.1) is False

    consumer = kafka.DeserializingConsumer({**NO_BROKER, "group.id": "g"})
    assert consumer.close(timeout=WAIT_S) is True
