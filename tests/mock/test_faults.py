"""Faults of the cluster: temporary faults are not reported, the others are."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Read, WaitUntil
from machine import WAIT_S

from cykafka.testing import MockCluster


def serve_until_reported(
    wait_until: WaitUntil, producer: Any, errors: list[Any], count: int = 1
) -> None:
    wait_until(lambda: len(errors) >= count, lambda: producer.poll(0.1))


def test_retriable_error_of_the_broker_is_not_reported(
    mock_cluster: MockCluster, make_producer: MakeProducer, kafka: Any
) -> None:
    errors: list[Any] = []
    config = {"bootstrap.servers": mock_cluster.bootstrap_servers, "retry.backoff.ms": 10}
    producer = make_producer(config)
    mock_cluster.push_request_errors("Produce", [kafka.KafkaError.NOT_LEADER_FOR_PARTITION] * 2)

    producer.produce("retried", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0

    assert errors == [None]


def test_message_waits_for_the_broker_to_come_back(
    mock_cluster: MockCluster, make_producer: MakeProducer, kafka: Any, wait_until: WaitUntil
) -> None:
    calls: list[Any] = []
    errors: list[Any] = []
    producer = make_producer(
        {
            "bootstrap.servers": mock_cluster.bootstrap_servers,
            "error_cb": calls.append,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )
    producer.produce("any", b"1", on_delivery=lambda error, _: errors.append(error))
    serve_until_reported(wait_until, producer, errors)

    mock_cluster.broker_down()
    producer.produce("any", b"2", on_delivery=lambda error, _: errors.append(error))
    wait_until(lambda: kafka.KafkaError._TRANSPORT in calls, lambda: producer.poll(0.1))
    assert producer.flush(0) >= 1  # queued error events count too
    assert errors == [None]
    mock_cluster.broker_up()

    serve_until_reported(wait_until, producer, errors, 2)
    assert errors == [None, None]


def test_consumer_continues_after_the_broker_came_back(
    mock_cluster: MockCluster,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    kafka: Any,
    read: Read,
) -> None:
    quick = {
        "bootstrap.servers": mock_cluster.bootstrap_servers,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
    }
    producer, consumer = make_producer(quick), make_consumer(quick)
    mock_cluster.create_topic("any", 1)
    producer.produce("any", b"1", partition=0)
    producer.flush(WAIT_S)
    consumer.assign([kafka.TopicPartition("any", 0)])
    assert read(consumer, 1)[0].value() == b"1"

    mock_cluster.broker_down()
    assert consumer.poll(0.1) is None
    mock_cluster.broker_up()
    producer.produce("any", b"2", partition=0)
    assert producer.flush(WAIT_S) == 0

    assert read(consumer, 1)[0].value() == b"2"


@pytest.mark.parametrize("with_on_lost", [True, False])
def test_lost_assignment_calls_on_lost_if_given(
    mock_cluster: MockCluster,
    make_consumer: MakeConsumer,
    kafka: Any,
    wait_until: WaitUntil,
    with_on_lost: bool,
) -> None:
    calls: list[tuple[str, list[int]]] = []

    def hear(kind: str) -> Callable[[Any, Any], None]:
        return lambda _, partitions: calls.append((kind, sorted(p.partition for p in partitions)))

    mock_cluster.create_topic("any", 2)
    consumer = make_consumer(
        {
            "bootstrap.servers": mock_cluster.bootstrap_servers,
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 50,
        }
    )
    lost = {"on_lost": hear("lost")} if with_on_lost else {}
    consumer.subscribe(["any"], on_assign=hear("assigned"), on_revoke=hear("revoked"), **lost)
    wait_until(lambda: consumer.assignment(), lambda: consumer.poll(0.05))

    mock_cluster.push_request_errors("Heartbeat", [kafka.KafkaError.UNKNOWN_MEMBER_ID])
    wait_until(lambda: len(calls) >= 2, lambda: consumer.poll(0.05))

    assert calls[:2] == [
        ("assigned", [0, 1]),
        ("lost" if with_on_lost else "revoked", [0, 1]),
    ]


def test_fenced_producer_gets_a_fatal_error(
    mock_cluster: MockCluster, make_producer: MakeProducer, kafka: Any
) -> None:
    producer = make_producer(
        {"bootstrap.servers": mock_cluster.bootstrap_servers, "transactional.id": "fenced"}
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("any", b"x")
    mock_cluster.push_request_errors("EndTxn", [kafka.KafkaError.PRODUCER_FENCED])

    with pytest.raises(kafka.KafkaException) as caught:
        producer.commit_transaction(WAIT_S)

    error = caught.value.args[0]
    assert error.fatal()
    assert not error.retriable()
    assert not error.txn_requires_abort()
    # No transaction is left to abort. close() may raise that once.
    with contextlib.suppress(kafka.KafkaException):
        producer.close()


def test_refused_commit_is_raised_or_reported(
    mock_cluster: MockCluster, make_consumer: MakeConsumer, kafka: Any, wait_until: WaitUntil
) -> None:
    reports: list[tuple[Any, Any]] = []
    refused = kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
    mock_cluster.create_topic("any", 1)
    consumer = make_consumer(
        {
            "bootstrap.servers": mock_cluster.bootstrap_servers,
            "on_commit": lambda *report: reports.append(report),
        }
    )
    offsets = [kafka.TopicPartition("any", 0, 1)]

    mock_cluster.push_request_errors("OffsetCommit", [refused, refused])
    with pytest.raises(kafka.KafkaException) as caught:
        consumer.commit(offsets=offsets, asynchronous=False)
    assert caught.value.args[0] == refused
    consumer.commit(offsets=offsets)
    wait_until(lambda: reports, lambda: consumer.poll(0.1))

    assert reports[0][0] == refused


@pytest.mark.parametrize("method", ["get_watermark_offsets", "committed", "offsets_for_times"])
def test_request_with_a_slow_answer_times_out(
    mock_cluster: MockCluster, make_consumer: MakeConsumer, kafka: Any, method: str
) -> None:
    mock_cluster.create_topic("any", 1)
    consumer = make_consumer({"bootstrap.servers": mock_cluster.bootstrap_servers})
    partition = kafka.TopicPartition("any", 0, 1)
    argument = partition if method == "get_watermark_offsets" else [partition]
    getattr(consumer, method)(argument, timeout=WAIT_S)
    mock_cluster.set_rtt(1000)

    with pytest.raises(kafka.KafkaException) as caught:
        getattr(consumer, method)(argument, timeout=0.1)

    assert caught.value.args[0] == kafka.KafkaError._TIMED_OUT
    mock_cluster.set_rtt(0)


@pytest.mark.ours
@pytest.mark.parametrize(
    ("protocol", "hint"), [("plaintext", "SSL listener?"), ("ssl", "PLAINTEXT broker listener?")]
)
def test_listener_of_the_other_protocol_is_named(
    make_producer: MakeProducer, wait_until: WaitUntil, protocol: str, hint: str
) -> None:
    """A listener closes the connection when it does not understand the first bytes."""
    errors: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def close_connections() -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                connection.recv(1)
                # The unread bytes make it a reset.
                connection.close()

    closing = threading.Thread(target=close_connections)
    closing.start()
    try:
        producer = make_producer(
            {
                "bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]}",
                "security.protocol": protocol,
                "error_cb": lambda error: errors.append(error.str()),
            }
        )
        wait_until(lambda: len(errors) >= 2, lambda: producer.poll(0.1))
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        closing.join(WAIT_S)

    assert any(hint in error for error in errors[:2]), errors
