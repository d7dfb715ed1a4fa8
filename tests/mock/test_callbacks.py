"""Callbacks of the client itself: errors, statistics, logs, throttling.

The mock never throttles, so of `throttle_cb` only the setting is covered here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, RunScript, Unique, WaitUntil
from machine import WAIT_S

NO_BROKER = "127.0.0.1:1"

KINDS = ["make_producer", "make_consumer"]


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Make clients of the kind that the test is parametrized with."""
    made: Callable[..., Any] = request.getfixturevalue(request.param)
    return made


both_kinds = pytest.mark.parametrize("make", KINDS, indirect=True)


@both_kinds
def test_error_cb_gets_the_error_that_no_broker_is_reachable(
    make: Callable[..., Any], kafka: Any, wait_until: WaitUntil
) -> None:
    calls: list[Any] = []
    client = make({"bootstrap.servers": NO_BROKER, "error_cb": calls.append})

    wait_until(lambda: kafka.KafkaError._TRANSPORT in calls, lambda: client.poll(0.1))

    assert all(isinstance(error, kafka.KafkaError) for error in calls)
    transport = calls[[error.code() for error in calls].index(kafka.KafkaError._TRANSPORT)]
    assert NO_BROKER in transport.str()
    assert not transport.fatal()


@both_kinds
def test_error_cb_that_raises_reaches_the_caller(
    make: Callable[..., Any], wait_until: WaitUntil
) -> None:
    def complain(error: Any) -> None:
        raise LookupError("from error_cb")

    client = make({"bootstrap.servers": NO_BROKER, "error_cb": complain})

    for _ in range(2):
        with pytest.raises(LookupError, match="from error_cb"):
            wait_until(lambda: False, lambda: client.poll(0.1))


@both_kinds
def test_stats_cb_gets_json_about_the_client(
    make: Callable[..., Any], wait_until: WaitUntil
) -> None:
    calls: list[str] = []
    client = make({"statistics.interval.ms": 20, "stats_cb": calls.append, "client.id": "counted"})

    wait_until(lambda: len(calls) >= 2, lambda: client.poll(0.1))

    report = json.loads(calls[0])
    assert report["client_id"] == "counted"
    assert report["type"] == type(client).__name__.lower()
    assert {"ts", "brokers", "topics", "msg_cnt"} <= report.keys()
    assert json.loads(calls[1])["ts"] > report["ts"]


@both_kinds
def test_stats_cb_that_raises_reaches_the_caller(
    make: Callable[..., Any], wait_until: WaitUntil
) -> None:
    def complain(report: str) -> None:
        raise LookupError("from stats_cb")

    client = make({"statistics.interval.ms": 20, "stats_cb": complain})

    for _ in range(2):
        with pytest.raises(LookupError, match="from stats_cb"):
            wait_until(lambda: False, lambda: client.poll(0.1))
    # close() may run one more callback that raises. A second close() runs none.
    with contextlib.suppress(LookupError):
        client.close()


def test_on_commit_that_raises_reaches_the_caller(
    make_consumer: MakeConsumer, wait_until: WaitUntil
) -> None:
    def complain(error: Any, partitions: list[Any]) -> None:
        raise LookupError("from on_commit")

    consumer = make_consumer({"on_commit": complain})
    consumer.commit()

    with pytest.raises(LookupError, match="from on_commit"):
        wait_until(lambda: False, lambda: consumer.poll(0.1))


def test_callbacks_run_in_consume(make_consumer: MakeConsumer, wait_until: WaitUntil) -> None:
    calls: list[str] = []
    consumer = make_consumer({"statistics.interval.ms": 20, "stats_cb": calls.append})

    wait_until(lambda: calls, lambda: consumer.consume(10, timeout=0.1))


def test_callbacks_run_in_flush(make_producer: MakeProducer, wait_until: WaitUntil) -> None:
    calls: list[Any] = []
    producer = make_producer({"bootstrap.servers": NO_BROKER, "error_cb": calls.append})
    producer.produce("any", b"x")

    wait_until(lambda: calls, lambda: producer.flush(0.1))

    assert len(producer) == 1


def test_callbacks_run_in_the_thread_that_polls(
    make_producer: MakeProducer, wait_until: WaitUntil
) -> None:
    threads: list[threading.Thread] = []
    producer = make_producer(
        {
            "statistics.interval.ms": 20,
            "stats_cb": lambda _: threads.append(threading.current_thread()),
        }
    )

    wait_until(lambda: threads, lambda: producer.poll(0.1))

    assert set(threads) == {threading.current_thread()}


def test_throttle_cb_is_accepted(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"throttle_cb": print})

    producer.produce(topic, b"x")

    assert producer.flush(WAIT_S) == 0


class Records(logging.Handler):
    """A handler that keeps its records and their threads."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []
        self.threads: set[threading.Thread] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)
        self.threads.add(threading.current_thread())


@pytest.fixture
def records(unique: Unique) -> Iterator[tuple[logging.Logger, Records]]:
    logger = logging.getLogger(unique("kafka-client"))
    handler = Records()
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, handler
    logger.removeHandler(handler)


@pytest.mark.parametrize("form", ["keyword", "key"])
@both_kinds
def test_logger_gets_librdkafkas_lines_through_poll(
    make: Callable[..., Any],
    records: tuple[logging.Logger, Records],
    wait_until: WaitUntil,
    form: str,
) -> None:
    logger, handler = records
    config = {"debug": "generic,broker,consumer", "client.id": "logged"}
    if form == "keyword":
        client = make(config, logger=logger)
    else:
        client = make({**config, "logger": logger})
    assert handler.kept == [], "a line arrived without a call to poll"

    wait_until(lambda: handler.kept, lambda: client.poll(0.1))

    assert {record.name for record in handler.kept} == {logger.name}
    assert {record.levelno for record in handler.kept} <= {logging.DEBUG, logging.INFO}
    assert any("logged" in record.getMessage() for record in handler.kept)
    assert handler.threads == {threading.current_thread()}


def test_logger_level_follows_librdkafkas(
    make_producer: MakeProducer, records: tuple[logging.Logger, Records], wait_until: WaitUntil
) -> None:
    logger, handler = records
    producer = make_producer({"bootstrap.servers": NO_BROKER}, logger=logger)

    wait_until(
        lambda: any(record.levelno == logging.ERROR for record in handler.kept),
        lambda: producer.poll(0.1),
    )

    refused = [record for record in handler.kept if record.levelno == logging.ERROR]
    assert NO_BROKER in refused[0].getMessage()


def test_logger_keeps_the_lines_off_standard_error(run_script: RunScript, cluster: Any) -> None:
    done = run_script(
        """
        import logging, sys
        logger = logging.getLogger("quiet")
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        producer = kafka.Producer(
            {"bootstrap.servers": sys.argv[1], "debug": "all"}, logger=logger
        )
        producer.poll(0.2)
        producer.close()
        """,
        cluster.bootstrap_servers,
    )

    assert (done.returncode, done.stderr) == (0, "")
