"""Transactions with callbacks, Ctrl-C, close() and errors of other clients in between."""
# ruff: noqa: PT012 -- the end of the block raises, not a statement in it

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read
from machine import WAIT_S

from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

# Records time out soon, but connections are restored sooner.
IMPATIENT = {
    "message.timeout.ms": 1500,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
}
# transaction.timeout.ms is 60 s, so this limit detects a wait for it, even on a busy machine.
SOON_S = 30.0


@pytest.fixture
def broken(mock_cluster: MockCluster, make_transactional: MakeProducer) -> Any:
    """A producer whose cluster the test may break."""
    return make_transactional(
        **{"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0}
    )


def busy(kafka: Any, mock_cluster: MockCluster, count: int = 60) -> None:
    """Make the coordinator answer the next EndTxn requests with a retriable error."""
    mock_cluster.push_request_errors("EndTxn", [kafka.KafkaError.CONCURRENT_TRANSACTIONS] * count)


def commit_that_times_out(kafka: Any, mock_cluster: MockCluster, producer: Any) -> None:
    """Make a commit time out; librdkafka goes on with it."""
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("any", b"x")
    assert producer.flush(WAIT_S) == 0
    busy(kafka, mock_cluster, 1000)
    with pytest.raises(kafka.KafkaException):
        producer.commit_transaction(0.3)


def refuse_commit(mock_cluster: MockCluster, *errors: int) -> None:
    """Make the coordinator answer that commit with these errors, and track the requests then."""
    mock_cluster.start_request_tracking()
    # Just after an attempt, so that none comes between the next two calls.
    mock_cluster.wait_for_requests("EndTxn", timeout=WAIT_S)
    mock_cluster.clear_request_errors("EndTxn")
    mock_cluster.push_request_errors("EndTxn", list(errors))
    mock_cluster.clear_requests()


def closed_soon(producer: Any) -> Any:
    started = time.monotonic()
    outcome = producer.close()
    assert time.monotonic() - started < SOON_S
    return outcome


def test_close_after_an_unfinished_init_has_nothing_to_abort(
    kafka: Any, mock_cluster: MockCluster, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    mock_cluster.broker_down()
    with pytest.raises(kafka.KafkaException) as caught:
        broken.init_transactions(0.3)
    assert caught.value.args[0].retriable()

    with caplog.at_level(logging.WARNING, "cykafka"):
        assert closed_soon(broken) is True
    assert caplog.text == ""


def test_close_resumes_a_commit_that_timed_out(
    kafka: Any, mock_cluster: MockCluster, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(kafka.KafkaException), broken.transaction(timeout=0.3):
        broken.produce("any", b"x")
        assert broken.flush(WAIT_S) == 0
        busy(kafka, mock_cluster)
    mock_cluster.clear_request_errors("EndTxn")

    with caplog.at_level(logging.WARNING, "cykafka"):
        assert closed_soon(broken) is True
    assert caplog.text == ""


def test_close_reports_an_unfinished_commit(
    kafka: Any, mock_cluster: MockCluster, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(kafka.KafkaException), broken.transaction(timeout=1):
        broken.produce("any", b"x")
        assert broken.flush(WAIT_S) == 0
        mock_cluster.broker_down()

    with caplog.at_level(logging.WARNING, "cykafka"):
        broken.close(1)
    assert "the transaction's commit did not finish" in caplog.text


def test_fatal_error_of_another_client_aborts_the_block(
    kafka: Any, make_transactional: MakeProducer, topic: str
) -> None:
    reports: list[Any] = []
    producer = make_transactional(**{"linger.ms": 20_000})
    foreign = kafka.KafkaError(kafka.KafkaError.FENCED_INSTANCE_ID, "of a consumer", fatal=True)

    with pytest.raises(kafka.KafkaException) as caught, producer.transaction():
        producer.produce(topic, b"x", on_delivery=lambda error, _: reports.append(error))
        raise kafka.KafkaException(foreign)

    assert caught.value.args[0] is foreign
    assert reports == [kafka.KafkaError._PURGE_QUEUE]
    with producer.transaction():
        producer.produce(topic, b"y")


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.abort_transaction(1),
        lambda producer: producer.commit_transaction(1),
        lambda producer: producer.init_transactions(1),
        lambda producer: producer.begin_transaction(),
        lambda producer: producer.send_offsets_to_transaction([], "group", 1),
        lambda producer: producer.transaction().__enter__(),
    ],
)
def test_transaction_call_in_a_callback_of_a_transaction_call_is_refused(
    kafka: Any, mock_cluster: MockCluster, broken: Any, call: Callable[[Any], None]
) -> None:
    refused: list[Any] = []

    def nested(error: Any, message: Any) -> None:
        try:
            call(broken)
        except kafka.KafkaException as exception:
            refused.append(exception.args[0])
            raise

    busy(kafka, mock_cluster, 4)
    with pytest.raises(kafka.KafkaException) as caught, broken.transaction(timeout=WAIT_S):
        broken.produce("any", b"x", on_delivery=nested)

    assert refused == [kafka.KafkaError._CONFLICT]
    assert "A callback that runs in a transaction call" in refused[0].str()
    assert caught.value.args[0] is refused[0]
    # The next block continues the commit.
    with broken.transaction(timeout=WAIT_S):
        broken.produce("any", b"y")


def test_transaction_call_in_a_callback_of_poll_succeeds(
    kafka: Any, make_transactional: MakeProducer, topic: str
) -> None:
    producer = make_transactional()
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", on_delivery=lambda *_: producer.abort_transaction(WAIT_S))
    assert producer.flush(WAIT_S) == 0

    with producer.transaction():
        producer.produce(topic, b"y")


def test_interrupted_close_leaves_a_usable_producer(
    kafka: Any, mock_cluster: MockCluster, broken: Any
) -> None:
    def interrupt(error: Any, message: Any) -> None:
        raise KeyboardInterrupt

    broken.init_transactions(WAIT_S)
    broken.begin_transaction()
    broken.produce("any", b"x")
    assert broken.flush(WAIT_S) == 0
    # The abort purges the record, and its callback interrupts the close.
    mock_cluster.broker_down()
    broken.produce("any", b"y", on_delivery=interrupt)
    with pytest.raises(KeyboardInterrupt):
        broken.close()

    mock_cluster.broker_up()
    for _ in range(2):
        with broken.transaction(timeout=WAIT_S):
            broken.produce("any", b"z")


def test_interrupt_after_the_abort_of_close_leaves_no_transaction(
    make_transactional: MakeProducer, topic: str
) -> None:
    def interrupt(error: Any, message: Any) -> None:
        raise KeyboardInterrupt

    producer = make_transactional(**{"linger.ms": 20_000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", on_delivery=interrupt)
    with pytest.raises(KeyboardInterrupt):
        producer.close()

    with producer.transaction(timeout=WAIT_S):
        producer.produce(topic, b"y")


@pytest.mark.parametrize("mine", ["words", "none", "error"])
def test_close_raises_the_kafka_exception_of_a_callback_unchanged(
    kafka: Any,
    make_transactional: MakeProducer,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    mine: str,
) -> None:
    raised = {
        "words": kafka.KafkaException("my words"),
        "none": kafka.KafkaException(),
        "error": kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._STATE)),
    }[mine]

    def fail(error: Any, message: Any) -> None:
        raise raised

    producer = make_transactional(**{"linger.ms": 20_000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", on_delivery=fail)

    with (
        caplog.at_level(logging.WARNING, "cykafka"),
        pytest.raises(kafka.KafkaException) as caught,
    ):
        producer.close()
    assert caught.value is raised
    assert caplog.text == ""


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_callback_that_raises_in_close_does_not_stop_the_abort(
    kafka: Any, mock_cluster: MockCluster, broken: Any, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    def fail(error: Any, message: Any) -> None:
        raise LookupError

    broken.init_transactions(WAIT_S)
    if end == "commit":
        with pytest.raises(kafka.KafkaException), broken.transaction(timeout=0.3):
            mock_cluster.broker_down()
            broken.produce("any", b"x", on_delivery=fail)
        mock_cluster.broker_up()
    else:
        broken.begin_transaction()
        broken.produce("any", b"x")
        assert broken.flush(WAIT_S) == 0
        broken.produce("any", b"y", on_delivery=fail)
    mock_cluster.start_request_tracking()
    busy(kafka, mock_cluster, 5)

    with caplog.at_level(logging.WARNING, "cykafka"), pytest.raises(LookupError):
        broken.close()
    assert len(mock_cluster.requests("EndTxn")) == 6
    assert caplog.text == ""


def test_resumed_commit_raises_the_exception_of_a_callback_unchanged(
    kafka: Any, mock_cluster: MockCluster, broken: Any
) -> None:
    raised = kafka.KafkaException("my words")

    def fail(error: Any, message: Any) -> None:
        raise raised

    with pytest.raises(kafka.KafkaException), broken.transaction(timeout=0.3):
        mock_cluster.broker_down()
        broken.produce("any", b"x", on_delivery=fail)
    mock_cluster.broker_up()

    with pytest.raises(kafka.KafkaException) as caught, broken.transaction(timeout=WAIT_S):
        pytest.fail("it has begun")
    assert caught.value is raised
    with broken.transaction(timeout=WAIT_S):
        broken.produce("any", b"y")


def test_failure_of_a_resumed_commit_is_reported(
    kafka: Any, mock_cluster: MockCluster, make_transactional: MakeProducer
) -> None:
    producer = make_transactional(
        **{**IMPATIENT, "bootstrap.servers": mock_cluster.bootstrap_servers}
    )
    with producer.transaction():
        producer.produce("any", b"first")
    with pytest.raises(kafka.KafkaException) as caught, producer.transaction(timeout=0.3):
        mock_cluster.broker_down()
        producer.produce("any", b"lost")
    assert caught.value.args[0].retriable()
    while len(producer):
        producer.poll(0.1)
    mock_cluster.broker_up()

    with (
        pytest.raises(kafka.KafkaException) as caught,
        producer.transaction(timeout=WAIT_S),
    ):
        pytest.fail("it has begun")

    # Either the broker's thread or the main thread, which scans all topics, finds the record.
    assert caught.value.args[0].txn_requires_abort()
    assert re.search("message.*(timed out|failed delivery)", caught.value.args[0].str())
    with producer.transaction(timeout=WAIT_S):
        producer.produce("any", b"third")


def test_failure_of_a_commit_in_close_is_reported(
    kafka: Any,
    mock_cluster: MockCluster,
    make_transactional: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = make_transactional(
        **{**IMPATIENT, "bootstrap.servers": mock_cluster.bootstrap_servers}
    )
    producer.init_transactions(WAIT_S)
    with pytest.raises(kafka.KafkaException), producer.transaction(timeout=0.3):
        mock_cluster.broker_down()
        producer.produce("any", b"lost")
    while len(producer):
        producer.poll(0.1)
    mock_cluster.broker_up()

    assert producer.close(timeout=WAIT_S) is False
    assert "the transaction's commit failed" in caplog.text


def test_failure_of_a_commit_in_close_is_logged_if_callbacks_raise(
    kafka: Any,
    mock_cluster: MockCluster,
    make_transactional: MakeProducer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    raising = threading.Event()

    def stats(_: str) -> None:
        if raising.is_set():
            raise LookupError

    servers = mock_cluster.bootstrap_servers
    producer = make_transactional(
        **{"bootstrap.servers": servers, "statistics.interval.ms": 1, "stats_cb": stats}
    )
    commit_that_times_out(kafka, mock_cluster, producer)
    refuse_commit(mock_cluster, kafka.KafkaError.POLICY_VIOLATION)
    raising.set()

    with pytest.raises(LookupError):
        producer.close(timeout=WAIT_S)

    assert "the transaction's commit failed" in caplog.text
    assert producer.close() is False


def test_close_shares_its_timeout_between_a_commit_and_the_abort_after_it(
    kafka: Any, mock_cluster: MockCluster, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        busy_errors = [kafka.KafkaError.CONCURRENT_TRANSACTIONS] * 1000
        refuse_commit(mock_cluster, kafka.KafkaError.POLICY_VIOLATION, *busy_errors)

    commit_that_times_out(kafka, mock_cluster, broken)
    refusal = threading.Timer(3, refuse)
    refusal.start()
    started = time.monotonic()

    assert broken.close(timeout=6) is False

    assert time.monotonic() - started < 8  # with two timeouts it takes 9
    refusal.join()
    failed, stuck, *_ = caplog.messages
    assert "the transaction's commit failed" in failed
    assert "the open transaction could not be aborted" in stuck


def test_transaction_that_close_cannot_abort_is_reported(
    mock_cluster: MockCluster, make_transactional: MakeProducer
) -> None:
    producer = make_transactional(**{"bootstrap.servers": mock_cluster.bootstrap_servers})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("any", b"x")
    assert producer.flush(WAIT_S) == 0
    mock_cluster.broker_down()

    assert producer.close(timeout=1) is False


def test_closing_the_producer_in_the_block_fails_the_block(
    make_transactional: MakeProducer, topic: str
) -> None:
    producer = make_transactional(**{"linger.ms": 20_000})
    reports: list[Any] = []

    with pytest.raises(RuntimeError, match="closed"), producer.transaction():
        producer.produce(topic, b"x", on_delivery=lambda error, _: reports.append(error))
        producer.close()
    assert [error.name() for error in reports] == ["_PURGE_QUEUE"]


def test_callback_that_closes_during_the_commit_does_not_fail_the_block(
    mock_cluster: MockCluster, make_transactional: MakeProducer
) -> None:
    producer = make_transactional(**{"bootstrap.servers": mock_cluster.bootstrap_servers})
    producer.init_transactions(WAIT_S)
    closed: list[bool] = []
    mock_cluster.start_request_tracking()

    with producer.transaction():
        producer.produce("any", b"x", on_delivery=lambda *_: closed.append(producer.close()))

    assert closed == [True]
    assert len(mock_cluster.requests("EndTxn")) == 1


def test_callback_that_raises_in_the_abort_does_not_stop_the_seek_back(
    kafka: Any,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    fill: Fill,
    read: Read,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(error: Any, message: Any) -> None:
        raise LookupError("of a callback")

    fill(topic, 5)
    producer, consumer = make_transactional(**{"linger.ms": 20_000}), make_consumer()
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    read(consumer, 3)

    with pytest.raises(ValueError, match="of the block") as caught:  # noqa: SIM117
        with producer.transaction(consumer):
            producer.produce(topic, b"x", on_delivery=refuse)
            raise ValueError("of the block")

    assert isinstance(caught.value.__context__, LookupError)
    assert caplog.text == ""
    assert [message.offset() for message in read(consumer, 1)] == [0]


def test_callback_that_raises_the_blocks_exception_makes_no_cycle(
    make_transactional: MakeProducer, topic: str
) -> None:
    failure = ValueError("of both")

    def refuse(error: Any, message: Any) -> None:
        raise failure

    producer = make_transactional(**{"linger.ms": 20_000})
    with pytest.raises(ValueError, match="of both") as caught, producer.transaction():
        producer.produce(topic, b"x", on_delivery=refuse)
        raise failure

    assert caught.value is failure
    assert failure.__context__ is not failure


def commit_that_will_fail(kafka: Any, mock_cluster: MockCluster, producer: Any) -> None:
    """Make a commit time out. If resumed, it fails, and the abort after it takes long."""
    commit_that_times_out(kafka, mock_cluster, producer)
    busy_errors = [kafka.KafkaError.CONCURRENT_TRANSACTIONS] * 1000
    refuse_commit(mock_cluster, kafka.KafkaError.POLICY_VIOLATION, *busy_errors)


def test_failed_commit_is_logged_if_the_abort_in_close_is_interrupted(
    kafka: Any, mock_cluster: MockCluster, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    commit_that_will_fail(kafka, mock_cluster, broken)

    def interrupt() -> None:
        # The commit sends the first EndTxn, the abort sends the others.
        while len(mock_cluster.requests("EndTxn")) < 3:
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        broken.close(timeout=WAIT_S)
    thread.join(WAIT_S)

    assert "the transaction's commit failed" in caplog.text
    mock_cluster.clear_request_errors("EndTxn")
    assert broken.close(timeout=WAIT_S) is True


def test_failed_commit_is_chained_if_the_abort_after_it_raises(
    kafka: Any, mock_cluster: MockCluster, make_transactional: MakeProducer
) -> None:
    armed = threading.Event()

    def stats(_: str) -> None:
        # The commit sends the first EndTxn, the abort sends the others.
        if armed.is_set() and len(mock_cluster.requests("EndTxn")) >= 3:
            raise LookupError

    producer = make_transactional(
        **{
            "bootstrap.servers": mock_cluster.bootstrap_servers,
            "statistics.interval.ms": 20,
            "stats_cb": stats,
            "log_level": 0,
        }
    )
    commit_that_will_fail(kafka, mock_cluster, producer)
    armed.set()

    with pytest.raises(LookupError) as caught, producer.transaction(timeout=WAIT_S):
        pytest.fail("it has begun")

    error = caught.value.__context__
    assert isinstance(error, kafka.KafkaException)
    assert error.args[0] == kafka.KafkaError.POLICY_VIOLATION
    armed.clear()
    mock_cluster.clear_request_errors("EndTxn")


def test_next_block_makes_an_abort_that_had_no_time_to_begin(
    kafka: Any, mock_cluster: MockCluster, broken: Any, make_consumer: MakeConsumer, read: Read
) -> None:
    class Alarm(Exception):
        pass

    def alarm(*_: object) -> None:
        raise Alarm

    mock_cluster.create_topic("in", 1)
    broken.init_transactions(WAIT_S)
    with broken.transaction():
        for number in range(4):
            broken.produce("in", str(number), partition=0)
    consumer = make_consumer({"bootstrap.servers": mock_cluster.bootstrap_servers})
    consumer.assign([kafka.TopicPartition("in", 0, 0)])
    first = read(consumer, 2)
    # Sending the offsets takes long, and a signal handler interrupts it. librdkafka refuses the
    # abort until that request ends.
    previous = signal.signal(signal.SIGALRM, alarm)
    try:
        with pytest.raises(Alarm), broken.transaction(consumer, timeout=0.5):
            broken.produce("out", first[0].value())
            assert broken.flush(WAIT_S) == 0
            mock_cluster.set_rtt(5000)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        mock_cluster.set_rtt(0)

    with broken.transaction(consumer, timeout=WAIT_S):
        again = read(consumer, 2)
        broken.produce("out", again[0].value())
    assert [item.offset() for item in again] == [item.offset() for item in first]
