"""`with producer.transaction():`: the calls it makes, and how it handles errors.

The mock neither hides aborted messages nor applies the offsets; tests/broker checks these.
"""
# ruff: noqa: PT012 -- the end of the block raises, not a statement in it

from __future__ import annotations

import logging
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read, WaitUntil
from machine import WAIT_S

from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours


@pytest.fixture
def broken(mock_cluster: MockCluster, make_transactional: MakeProducer) -> Any:
    """A producer whose cluster the test may break."""
    return make_transactional(**{"bootstrap.servers": mock_cluster.bootstrap_servers})


def test_block_commits_at_its_end(make_transactional: MakeProducer, topic: str) -> None:
    reports: list[Any] = []
    producer = make_transactional()

    for _ in range(2):
        with producer.transaction() as entered:
            assert entered is producer
            entered.produce(topic, b"x", on_delivery=lambda error, _: reports.append(error))

    assert reports == [None, None]


def test_block_follows_an_explicit_init(make_transactional: MakeProducer, topic: str) -> None:
    reports: list[Any] = []
    producer = make_transactional()
    producer.init_transactions(WAIT_S)

    with producer.transaction(timeout=WAIT_S):
        producer.produce(topic, b"x", on_delivery=lambda error, _: reports.append(error))

    assert reports == [None]


@pytest.mark.parametrize("exception", [LookupError, KeyboardInterrupt, SystemExit])
def test_exception_aborts_and_the_next_block_commits(
    kafka: Any, make_transactional: MakeProducer, topic: str, exception: type[BaseException]
) -> None:
    reports: list[Any] = []
    producer = make_transactional(**{"linger.ms": 20_000})
    raised = exception("mine")

    with pytest.raises(exception) as caught, producer.transaction():
        producer.produce(topic, b"x", on_delivery=lambda error, _: reports.append(error))
        raise raised

    assert caught.value is raised
    assert raised.__context__ is None
    assert reports == [kafka.KafkaError._PURGE_QUEUE]
    with producer.transaction():
        producer.produce(topic, b"y")


def test_block_that_the_caller_ended_is_not_ended_again(
    make_transactional: MakeProducer, topic: str
) -> None:
    producer = make_transactional()

    with producer.transaction():
        producer.produce(topic, b"x")
        producer.abort_transaction()
    with producer.transaction():
        producer.produce(topic, b"x")
        producer.commit_transaction()


def test_block_does_not_end_the_callers_open_transaction(
    kafka: Any, make_transactional: MakeProducer, topic: str
) -> None:
    producer = make_transactional()
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()

    with pytest.raises(kafka.KafkaException) as caught, producer.transaction():
        pytest.fail("it has begun")
    assert caught.value.args[0] == kafka.KafkaError._STATE

    producer.produce(topic, b"x")
    producer.commit_transaction(WAIT_S)


def test_block_is_entered_once(make_transactional: MakeProducer) -> None:
    block = make_transactional().transaction()

    with block:
        pass
    with pytest.raises(RuntimeError, match="entered twice"), block:
        pytest.fail("it has begun")


def test_producer_without_a_transactional_id_is_refused(kafka: Any, producer: Any) -> None:
    with pytest.raises(kafka.KafkaException) as caught, producer.transaction():
        pytest.fail("it has begun")
    assert caught.value.args[0] == kafka.KafkaError._NOT_CONFIGURED


def test_retriable_errors_are_retried(kafka: Any, mock_cluster: MockCluster, broken: Any) -> None:
    error = kafka.KafkaError
    mock_cluster.push_request_errors("EndTxn", [error.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    mock_cluster.push_request_errors("InitProducerId", [error.COORDINATOR_LOAD_IN_PROGRESS] * 3)

    mock_cluster.start_request_tracking()

    with broken.transaction():
        broken.produce("any", b"x")

    assert len(mock_cluster.requests("EndTxn")) == 4


def test_commit_that_requires_an_abort_is_aborted_and_raised(
    kafka: Any, mock_cluster: MockCluster, broken: Any
) -> None:
    with pytest.raises(kafka.KafkaException) as caught, broken.transaction():
        mock_cluster.push_request_errors("Produce", [kafka.KafkaError.MSG_SIZE_TOO_LARGE])
        broken.produce("any", b"x", partition=0)
    assert caught.value.args[0].txn_requires_abort()

    # librdkafka does not reuse the refused record's sequence number, so a broker refuses the next
    # transaction that writes to the same partition, too. Another partition has no such gap.
    with broken.transaction():
        broken.produce("any", b"y", partition=1)


def test_fatal_error_of_the_commit_is_raised(
    kafka: Any, mock_cluster: MockCluster, broken: Any
) -> None:
    with pytest.raises(kafka.KafkaException) as caught, broken.transaction():
        broken.produce("any", b"x")
        mock_cluster.push_request_errors("EndTxn", [kafka.KafkaError.PRODUCER_FENCED])
    assert caught.value.args[0].fatal()

    with pytest.raises(kafka.KafkaException) as caught, broken.transaction():
        pytest.fail("it has begun")
    assert caught.value.args[0].fatal()


def test_fatal_error_of_the_abort_is_not_hidden(
    kafka: Any, mock_cluster: MockCluster, broken: Any
) -> None:
    raised = LookupError("mine")

    with pytest.raises(kafka.KafkaException) as caught, broken.transaction():
        broken.produce("any", b"x")
        assert broken.flush(WAIT_S) == 0
        mock_cluster.push_request_errors("EndTxn", [kafka.KafkaError.PRODUCER_FENCED])
        raise raised

    assert caught.value.args[0].fatal()
    assert caught.value.__context__ is raised


def test_failure_of_the_abort_is_attached_to_the_exception(
    kafka: Any, mock_cluster: MockCluster, broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    before = ValueError("earlier")
    raised = LookupError("mine")

    with (
        caplog.at_level(logging.WARNING, "cykafka"),
        pytest.raises(LookupError) as caught,
        broken.transaction(timeout=0.3),
    ):
        broken.produce("any", b"x")
        assert broken.flush(WAIT_S) == 0
        mock_cluster.broker_down()
        try:
            raise before
        except ValueError:
            raise raised  # noqa: B904

    assert caught.value is raised
    assert raised.__context__ is before
    failure = before.__context__
    assert isinstance(failure, kafka.KafkaException)
    assert failure.args[0].retriable()
    assert "after LookupError the transaction could not be aborted" in caplog.text
    # The next block first repeats the abort.
    mock_cluster.broker_up()
    with broken.transaction(timeout=WAIT_S):
        broken.produce("any", b"y")


def test_next_block_resumes_a_commit_that_timed_out(
    kafka: Any, mock_cluster: MockCluster, broken: Any
) -> None:
    with pytest.raises(kafka.KafkaException) as caught, broken.transaction(timeout=0.3):
        broken.produce("any", b"x")
        assert broken.flush(WAIT_S) == 0
        mock_cluster.broker_down()
    assert caught.value.args[0].retriable()

    mock_cluster.broker_up()
    with broken.transaction(timeout=WAIT_S):
        broken.produce("any", b"y")


def test_exception_of_a_callback_in_the_commit_keeps_the_commit(
    make_transactional: MakeProducer, topic: str
) -> None:
    producer = make_transactional()

    def fail(error: Any, message: Any) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"), producer.transaction():
        producer.produce(topic, b"x", on_delivery=fail)

    with producer.transaction():
        producer.produce(topic, b"y")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"enable.auto.commit": True}, "enable.auto.commit=false"),
        ({"isolation.level": "read_uncommitted"}, "isolation.level=read_committed"),
    ],
)
def test_unsuitable_consumer_is_refused(
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    config: dict[str, Any],
    words: str,
) -> None:
    producer = make_transactional()

    with (
        pytest.raises(ValueError, match=words),
        producer.transaction(make_consumer(config)),
    ):
        pytest.fail("it has begun")
    with producer.transaction():
        pass


def test_arguments_are_checked(make_transactional: MakeProducer) -> None:
    producer = make_transactional()

    with pytest.raises(TypeError, match=r"^consumer: expected a Consumer"):
        producer.transaction("consumer")
    with pytest.raises(TypeError, match=r"^timeout"):
        producer.transaction(timeout="x")


def test_closed_clients_are_refused(make_transactional: MakeProducer, consumer: Any) -> None:
    producer = make_transactional()
    consumer.close()

    with pytest.raises(RuntimeError, match=r"^Consumer closed"), producer.transaction(consumer):
        pytest.fail("it has begun")
    producer.close()
    with pytest.raises(RuntimeError, match=r"^Producer has been closed"), producer.transaction():
        pytest.fail("it has begun")


@pytest.mark.parametrize("aborted", [True, False], ids=["aborted", "left open"])
def test_close_warns_of_records_that_were_not_aborted(
    make_transactional: MakeProducer, topic: str, caplog: pytest.LogCaptureFixture, aborted: bool
) -> None:
    producer = make_transactional(**{"linger.ms": 20_000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    if aborted:
        producer.abort_transaction(WAIT_S)

    with caplog.at_level(logging.WARNING, "cykafka"):
        producer.close()

    assert ("1 record(s) were not delivered" in caplog.text) is not aborted


def test_partitions_lost_in_the_block_abort_it(
    kafka: Any,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    fill: Fill,
    read: Read,
    wait_until: WaitUntil,
) -> None:
    fill(topic, 5)
    producer = make_transactional()
    consumer = make_consumer()
    revoked: list[Any] = []
    consumer.subscribe([topic], on_revoke=lambda _, partitions: revoked.extend(partitions))

    with pytest.raises(kafka.KafkaException) as caught, producer.transaction(consumer):
        read(consumer, 5)
        consumer.unsubscribe()
        wait_until(lambda: revoked, lambda: consumer.poll(0.1))

    assert caught.value.args[0] == kafka.KafkaError._ASSIGNMENT_LOST
    assert caught.value.args[0].txn_requires_abort()
