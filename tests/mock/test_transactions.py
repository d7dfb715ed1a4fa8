"""Transactions: their calls, their errors' flags, and the offsets sent with them.

The mock answers the requests but neither hides aborted messages nor applies the offsets.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read, Unique, WaitUntil
from machine import WAIT_S

from cykafka.testing import MockCluster

NO_BROKER = "127.0.0.1:1"


@pytest.fixture
def ready(make_transactional: MakeProducer) -> Any:
    """A producer that can begin a transaction."""
    producer = make_transactional()
    producer.init_transactions(WAIT_S)
    return producer


def test_commit_delivers_the_messages(
    ready: Any, consumer: Any, kafka: Any, topic: str, read: Read
) -> None:
    seen: list[Any] = []

    assert ready.begin_transaction() is None
    ready.produce(topic, b"1", partition=0, on_delivery=lambda *report: seen.append(report))
    ready.produce(topic, b"2", partition=0)
    assert ready.commit_transaction(WAIT_S) is None

    assert [error for error, _ in seen] == [None]
    consumer.assign([kafka.TopicPartition(topic, 0)])
    assert [m.value() for m in read(consumer, 2)] == [b"1", b"2"]


def test_producer_commits_several_transactions(ready: Any, topic: str) -> None:
    for _ in range(3):
        ready.begin_transaction()
        ready.produce(topic, b"x")
        ready.commit_transaction()

    assert len(ready) == 0


@pytest.mark.ours  # confluent_kafka's librdkafka treats the answer as fatal
def test_abort_before_the_coordinator_accepts_succeeds(
    kafka: Any, mock_cluster: MockCluster, make_transactional: MakeProducer, wait_until: WaitUntil
) -> None:
    """The coordinator is still completing the last transaction, as on a busy broker."""
    producer = make_transactional(**{"bootstrap.servers": mock_cluster.bootstrap_servers})
    producer.init_transactions(WAIT_S)
    mock_cluster.start_request_tracking()
    mock_cluster.push_request_errors(
        "AddPartitionsToTxn", [kafka.KafkaError.CONCURRENT_TRANSACTIONS] * 1000
    )
    mock_cluster.push_request_errors("EndTxn", [kafka.KafkaError.INVALID_TXN_STATE])
    producer.begin_transaction()
    producer.produce("topic", b"aborted")
    wait_until(lambda: mock_cluster.requests("AddPartitionsToTxn"))

    assert producer.abort_transaction(WAIT_S) is None

    assert mock_cluster.requests("EndTxn")
    mock_cluster.clear_request_errors("AddPartitionsToTxn")
    producer.begin_transaction()
    producer.produce("topic", b"committed")
    assert producer.commit_transaction(WAIT_S) is None


@pytest.mark.parametrize("accepted", ["a partition", "offsets"])
def test_abort_that_the_coordinator_refuses_is_fatal(
    kafka: Any,
    mock_cluster: MockCluster,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    accepted: str,
) -> None:
    servers = {"bootstrap.servers": mock_cluster.bootstrap_servers}
    mock_cluster.create_topic("topic", 1)
    producer, consumer = make_transactional(**servers), make_consumer(servers)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    if accepted == "offsets":
        offsets = [kafka.TopicPartition("topic", 0, 1)]
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, metadata, WAIT_S)
    else:
        producer.produce("topic", b"x")
        assert producer.flush(WAIT_S) == 0
    mock_cluster.push_request_errors("EndTxn", [kafka.KafkaError.INVALID_TXN_STATE])

    with pytest.raises(kafka.KafkaException) as caught:
        producer.abort_transaction(WAIT_S)
    assert caught.value.args[0].fatal()


def test_abort_fails_queued_messages(
    make_transactional: MakeProducer, kafka: Any, topic: str
) -> None:
    seen: list[Any] = []
    producer = make_transactional(**{"linger.ms": 20_000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", on_delivery=lambda *report: seen.append(report))

    assert producer.abort_transaction(WAIT_S) is None

    ((error, message),) = seen
    assert error.code() in (kafka.KafkaError._PURGE_QUEUE, kafka.KafkaError._PURGE_INFLIGHT)
    assert message.value() == b"x"
    producer.begin_transaction()
    producer.abort_transaction()


@pytest.mark.ours
def test_abort_does_not_wait_for_records_that_would_be_retried(
    make_transactional: MakeProducer, kafka: Any, mock_cluster: MockCluster
) -> None:
    """A request in flight is refused after the purge of the queues, and nothing is sent meanwhile.
    A single call of librdkafka would wait until the record times out; ours is made in slices, and
    each purges again."""
    mock_cluster.create_topic("t")
    producer = make_transactional(**{"bootstrap.servers": mock_cluster.bootstrap_servers})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("t", b"first", partition=0)
    assert producer.flush(WAIT_S) == 0
    mock_cluster.set_rtt(500)
    mock_cluster.push_request_errors("Produce", [kafka.KafkaError.NOT_LEADER_FOR_PARTITION])
    mock_cluster.start_request_tracking()
    producer.produce("t", b"refused", partition=0)
    mock_cluster.wait_for_requests("Produce", timeout=WAIT_S)

    producer.abort_transaction(WAIT_S)

    assert len(producer) == 0


def test_calls_take_their_arguments_by_keyword(
    make_transactional: MakeProducer, consumer: Any
) -> None:
    producer = make_transactional()
    metadata = consumer.consumer_group_metadata()

    producer.init_transactions(timeout=WAIT_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(positions=[], group_metadata=metadata, timeout=WAIT_S)
    producer.commit_transaction(timeout=WAIT_S)
    producer.begin_transaction()
    producer.abort_transaction(timeout=WAIT_S)


@pytest.mark.parametrize(
    "method", ["begin_transaction", "commit_transaction", "abort_transaction"]
)
def test_calls_before_init_are_out_of_order(
    make_transactional: MakeProducer, kafka: Any, method: str
) -> None:
    producer = make_transactional()

    with pytest.raises(kafka.KafkaException) as caught:
        getattr(producer, method)()

    error = caught.value.args[0]
    assert error == kafka.KafkaError._STATE
    assert (error.fatal(), error.retriable(), error.txn_requires_abort()) == (False, False, False)


def test_calls_out_of_order_are_errors(ready: Any, kafka: Any, topic: str) -> None:
    def code(call: Callable[[], Any]) -> int:
        with pytest.raises(kafka.KafkaException) as caught:
            call()
        number: int = caught.value.args[0].code()
        return number

    state = kafka.KafkaError._STATE
    assert code(lambda: ready.init_transactions(WAIT_S)) == state
    assert code(ready.commit_transaction) == state
    assert code(lambda: ready.produce(topic, b"outside")) == state
    ready.begin_transaction()
    assert code(ready.begin_transaction) == state
    ready.abort_transaction()


def test_calls_without_a_transactional_id_are_errors(producer: Any, kafka: Any) -> None:
    for call in (lambda: producer.init_transactions(WAIT_S), producer.begin_transaction):
        with pytest.raises(kafka.KafkaException, match=r"transactional\.id") as caught:
            call()
        assert caught.value.args[0] == kafka.KafkaError._NOT_CONFIGURED


def test_init_without_a_broker_can_be_tried_again(kafka: Any) -> None:
    producer = kafka.Producer({"bootstrap.servers": NO_BROKER, "transactional.id": "t"})
    try:
        with pytest.raises(kafka.KafkaException) as caught:
            producer.init_transactions(0.1)

        error = caught.value.args[0]
        assert error == kafka.KafkaError._TIMED_OUT
        assert error.retriable()
        assert not error.fatal()
        assert not error.txn_requires_abort()
    finally:
        # close() warns that the transaction's state is unknown. That does not matter here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            producer.close()


def test_commit_after_a_failed_message_requires_an_abort(
    make_transactional: MakeProducer, kafka: Any, topic: str
) -> None:
    producer = make_transactional()
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.purge()

    with pytest.raises(kafka.KafkaException) as caught:
        producer.commit_transaction(WAIT_S)

    error = caught.value.args[0]
    assert error.txn_requires_abort()
    assert not error.fatal()
    producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"y", partition=0)
    producer.commit_transaction(WAIT_S)


def test_offsets_are_sent_with_the_groups_metadata(
    ready: Any,
    make_consumer: MakeConsumer,
    kafka: Any,
    topic: str,
    unique: Unique,
    fill: Fill,
    read: Read,
) -> None:
    fill(topic, 3)
    consumer = make_consumer({"group.protocol": "consumer"})
    consumer.subscribe([topic])
    messages = read(consumer, 3)

    ready.begin_transaction()
    for message in messages:
        ready.produce(unique("copy"), message.value())
    positions = consumer.position(consumer.assignment())
    assert (
        ready.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        is None
    )
    ready.commit_transaction(WAIT_S)


def test_empty_offsets_are_accepted(ready: Any, consumer: Any) -> None:
    ready.begin_transaction()

    assert (
        ready.send_offsets_to_transaction([], consumer.consumer_group_metadata(), WAIT_S) is None
    )

    ready.abort_transaction()


@pytest.mark.parametrize(("positions", "metadata"), [(3, None), ([3], None), ([], 3)], ids=repr)
def test_offsets_of_a_wrong_type_are_rejected(
    ready: Any, consumer: Any, positions: Any, metadata: Any
) -> None:
    metadata = metadata or consumer.consumer_group_metadata()

    with pytest.raises(TypeError):
        ready.send_offsets_to_transaction(positions, metadata, WAIT_S)


@pytest.mark.ours
@pytest.mark.parametrize("group", ["", "a\0b"])
def test_invalid_group_name_is_refused(ready: Any, group: str) -> None:
    with pytest.raises(ValueError, match="expected a group name"):
        ready.send_offsets_to_transaction([], group, WAIT_S)


def test_close_aborts_an_open_transaction(
    make_transactional: MakeProducer, kafka: Any, topic: str
) -> None:
    seen: list[Any] = []
    producer = make_transactional(**{"linger.ms": 20_000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", on_delivery=lambda *report: seen.append(report))

    assert producer.close() is True

    ((error, _),) = seen
    assert error.code() in (kafka.KafkaError._PURGE_QUEUE, kafka.KafkaError._PURGE_INFLIGHT)


@pytest.mark.ours
@pytest.mark.parametrize("method", ["commit_transaction", "abort_transaction"])
def test_callback_that_raises_reaches_the_caller_and_can_be_repeated(
    make_transactional: MakeProducer, topic: str, method: str
) -> None:
    def complain(error: Any, message: Any) -> None:
        raise LookupError("from the report")

    producer = make_transactional(**{"linger.ms": 20_000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", on_delivery=complain)

    with pytest.raises(LookupError, match="from the report"):
        getattr(producer, method)(WAIT_S)

    # Whether or not the first call completed, the producer must not hang.
    producer.close()


@pytest.mark.ours
def test_commit_of_a_batch_with_unread_failures_is_refused(
    ready: Any, kafka: Any, topic: str
) -> None:
    # After this the producer knows the topic, and refuses missing partitions at once.
    ready.begin_transaction()
    ready.publish(topic, ["a"], partitions=0).wait(WAIT_S)
    ready.commit_transaction(WAIT_S)

    ready.begin_transaction()
    ready.publish(topic, ["a", "b", "c"], partitions=[0, 99, 99])
    with pytest.raises(kafka.KafkaException, match=r"2 record.* could not be queued") as raised:
        ready.commit_transaction(WAIT_S)
    assert raised.value.args[0].txn_requires_abort()
    ready.abort_transaction(WAIT_S)

    # Failures of one transaction do not affect the next one. Failures that the program has read do
    # not matter either.
    ready.begin_transaction()
    ready.publish(topic, ["a"], partitions=0)
    ready.commit_transaction(WAIT_S)
    ready.begin_transaction()
    delivery = ready.publish(topic, ["a", "b"], partitions=[0, 99])
    assert list(delivery.errors) == [1]
    ready.commit_transaction(WAIT_S)


@pytest.mark.ours
@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction"])
def test_call_during_a_flush_keeps_its_timeout(
    kafka: Any, mock_cluster: MockCluster, make_transactional: MakeProducer, call: str
) -> None:
    mock_cluster.create_topic("slow", 1)
    producer = make_transactional(**{"bootstrap.servers": mock_cluster.bootstrap_servers})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    mock_cluster.set_rtt(8000)
    producer.produce("slow", b"x")

    def flush() -> None:
        with contextlib.suppress(RuntimeError):  # closed
            producer.flush()

    flushing = threading.Thread(target=flush)
    flushing.start()
    time.sleep(0.2)  # until it waits; no event signals that
    started = time.monotonic()

    with contextlib.suppress(kafka.KafkaException):  # in time or not
        getattr(producer, call)(0.3)

    assert time.monotonic() - started < 5
    assert flushing.is_alive() or call == "abort_transaction"
    producer.close(timeout=0)
    flushing.join()
