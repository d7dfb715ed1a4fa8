"""The life of a connection, and the messages that it sends."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fixture_types import MakeConsumer, RunScript, Unique
from live import live_before
from machine import WAIT_S
from pip_services4_commons.errors import (
    ApplicationException,
    BadRequestException,
    ConfigException,
    ConnectionException,
    InvalidStateException,
    NotFoundException,
)
from pip_services4_components.context import Context
from pip_services4_observability.log import ConsoleLogger, LogLevel
from pip_services_rig import Committed, Gate, Listener, MakeConnection, MakeReferences, eventually

import cykafka
from cykafka.testing import MockCluster
from pip_services4_kafka.connect import KafkaConnection

pytestmark = pytest.mark.ours


@pytest.fixture
def dead_port() -> int:
    """A port without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def sessions() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("kafka-session")]


# -- opening and closing


def test_connection_is_closed_before_it_is_opened(new_connection: MakeConnection) -> None:
    connection = new_connection(connection__host="one")

    assert connection.is_open() is False
    for call in (
        connection.read_queue_names,
        connection._check_open,
        connection._connect_to_admin,
        lambda: connection.create_queue("t"),
        lambda: connection.delete_queue("t"),
        lambda: connection.publish("t", [{"value": "x"}]),
        lambda: connection.subscribe("t", None, {}, None),
        lambda: connection.commit("t", None, 0, 0, None),
        lambda: connection.seek("t", None, 0, 0, None),
    ):
        with pytest.raises(InvalidStateException) as caught:
            call()
        assert caught.value.code == "NOT_OPEN"
    connection.unsubscribe("t", None, None)
    connection.close(None)


def test_connection_opens_closes_and_opens_again(connection: KafkaConnection, topic: str) -> None:
    for _ in range(2):
        connection.open("trace")
        connection.open(None)
        assert connection.is_open() is True
        assert connection.get_connection() is connection.get_producer() is not None
        assert connection.getProducer() is connection.get_producer()
        connection.publish(topic, [{"value": "x"}])
        connection.close(None)
        connection.close("trace")
        assert connection.is_open() is False
        assert connection.get_connection() is None
        assert connection.get_producer() is None


def test_open_with_a_closed_port_fails_soon_and_leaves_nothing_open(
    new_connection: MakeConnection, dead_port: int
) -> None:
    connection = new_connection(
        connection__host="127.0.0.1", connection__port=dead_port, options__connect_timeout=300
    )
    before = live_before()["handles"]
    began = time.monotonic()
    with pytest.raises(ConnectionException) as caught:
        connection.open("trace-1")

    assert time.monotonic() - began < 3
    assert caught.value.code == "CONNECT_FAILED"
    assert caught.value.trace_id == "trace-1"
    assert isinstance(caught.value.cause, cykafka.KafkaException)
    assert "Connection refused" in caught.value.message
    assert f":{dead_port}" in caught.value.message
    assert connection.is_open() is False
    assert cykafka.testing.live_handles()["handles"] == before


@pytest.mark.parametrize("secured", [False, True])
def test_open_with_a_silent_broker_raises_no_response(
    new_connection: MakeConnection, secured: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = new_connection(
            connection__host="127.0.0.1",
            connection__port=server.getsockname()[1],
            credential__ssl=secured,
            options__connect_timeout=300,
        )
        with pytest.raises(ConnectionException, match="no response from 127") as caught:
            connection.open(None)

    assert "options.connect_timeout: 300 ms" in caught.value.message
    assert ("credential.ssl turns TLS on" in caught.value.message) is not secured


def test_open_reports_a_wrong_configuration(new_connection: MakeConnection) -> None:
    with pytest.raises(ConfigException) as caught:
        new_connection(connection__protocol="tcp").open(None)

    assert caught.value.code == "NO_HOST"


@pytest.mark.parametrize("context", [None, "", "trace", Context.from_trace_id("trace")])
def test_context_may_be_a_str_with_a_console_logger(
    make_references: MakeReferences,
    make_connection: MakeConnection,
    capsys: pytest.CaptureFixture[str],
    context: Any,
) -> None:
    console = ConsoleLogger()
    console.set_level(LogLevel.Trace)
    connection = make_connection(references=make_references(logger=console))
    connection.close(context)
    connection.open(context)
    connection.close(context)

    assert ("[trace:" in capsys.readouterr().out) is bool(context)


def test_first_use_by_eight_threads_makes_one_client_of_each_kind(
    new_connection: MakeConnection, cluster: Any, topic: str
) -> None:
    connection = new_connection(connection__uri=cluster.bootstrap_servers)
    before = live_before()["handles"]
    together = threading.Barrier(8)

    def use(number: int) -> tuple[Any, ...]:
        together.wait(WAIT_S)
        connection.open(None)
        connection.publish(topic, [{"value": str(number)}], {"acks": number % 2})
        connection.read_queue_names()
        return connection._admin_client, connection.get_producer()

    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(use, range(8)))

    assert len(clients) == 1
    # Producers for the acks -1 (configured), 0 and 1, and the administrative client.
    assert cykafka.testing.live_handles()["handles"] == before + 4


def test_close_waits_only_for_the_messages_in_flight(
    connection: KafkaConnection, topic: str, records: Callable[..., list[Any]]
) -> None:
    producer = connection.get_producer()
    for _ in range(100):
        producer.produce(topic, b"x")
    began = time.monotonic()
    connection.close(None)

    assert time.monotonic() - began < 5
    assert len(records(topic, 100)) == 100


def test_close_with_dead_brokers_ends(
    make_connection: MakeConnection, mock_cluster: MockCluster
) -> None:
    mock_cluster.create_topic("t", 1)
    connection = make_connection(
        connection__uri=mock_cluster.bootstrap_servers, options__request_timeout=2000
    )
    connection.publish("t", [{"value": "x"}])
    mock_cluster.broker_down()
    delivery = connection.get_producer().publish("t", [b"x"])
    began = time.monotonic()
    connection.close(None)

    assert time.monotonic() - began < 8
    assert connection.is_open() is False
    assert delivery.done
    assert delivery.failed == 1


def test_interrupted_close_leaves_no_client(
    make_connection: MakeConnection, mock_cluster: MockCluster
) -> None:
    mock_cluster.create_topic("t", 1)
    before, threads = live_before()["handles"], threading.active_count()
    connection = make_connection(
        connection__uri=mock_cluster.bootstrap_servers, options__request_timeout=60_000
    )
    connection.publish("t", [{"value": "x"}])
    connection.get_producer(0)
    mock_cluster.broker_down()
    delivery = connection.get_producer().publish("t", [b"x"])
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            connection.close(None)
    finally:
        signal.signal(signal.SIGALRM, handler)

    assert time.monotonic() - began < 5
    assert (delivery.done, delivery.failed) == (True, 1)
    # A thread frees the client after an interrupted close.
    eventually(lambda: cykafka.testing.live_handles()["handles"] == before)
    eventually(lambda: threading.active_count() == threads)


def test_close_joins_the_thread_of_a_subscription_and_commits(
    connection: KafkaConnection, topic: str, committed: Committed, unique: Unique
) -> None:
    group, listener = unique("group"), Listener()
    connection.subscribe(topic, group, {}, listener)
    connection.publish(topic, [{"value": "x", "partition": 2}] * 5)
    listener.wait(5)
    began = time.monotonic()
    connection.close(None)

    assert time.monotonic() - began < 5
    assert sessions() == []
    assert committed(topic, group) == {2: 5}


def test_listener_may_close_the_connection(connection: KafkaConnection, topic: str) -> None:
    listener = Listener(lambda message: connection.close("inside"))
    connection.subscribe(topic, None, {}, listener)
    connection.publish(topic, [{"value": "x"}])
    listener.wait(1)

    eventually(lambda: sessions() == [])
    assert connection.is_open() is False


def test_running_listener_can_publish_during_close(
    connection: KafkaConnection, topic: str, unique: Unique
) -> None:
    gate = Gate()
    outcomes: list[Any] = []

    def work(_: Any) -> None:
        gate.hold()
        try:
            outcomes.append(connection.publish(topic, [{"value": "answer", "partition": 3}]))
        except ApplicationException as error:
            outcomes.append(error)

    connection.subscribe(topic, unique("group"), {}, Listener(work))
    connection.publish(topic, [{"value": "x", "partition": 0}])
    gate.wait()
    closing = threading.Thread(target=connection.close, args=(None,))
    closing.start()
    gate.open()
    closing.join(WAIT_S)

    assert outcomes == [None]


def test_forked_child_closes_what_it_inherits(run_script: RunScript) -> None:
    done = run_script(
        """
        import os, warnings
        from cykafka.testing import MockCluster
        from pip_services4_components.config import ConfigParams
        from pip_services4_kafka.connect import IKafkaMessageListener, KafkaConnection

        class Listener(IKafkaMessageListener):
            def on_message(self, topic, partition, message): ...

        warnings.simplefilter("ignore", DeprecationWarning)
        with MockCluster() as cluster:
            cluster.create_topic("t", 1)
            connection = KafkaConnection()
            connection.configure(
                ConfigParams.from_tuples("connection.uri", cluster.bootstrap_servers)
            )
            connection.open(None)
            connection.subscribe("t", None, {}, Listener())
            connection.publish("t", [{"value": "x"}])
            child = os.fork()
            if not child:
                connection.close(None)
                os._exit(17 if not connection.is_open() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
            connection.publish("t", [{"value": "z"}])
            connection.close(None)
        """
    )

    assert done.returncode == 0, done.stderr


# -- topics


def test_queue_names_are_the_topics(connection: KafkaConnection, topic: str) -> None:
    assert topic in connection.read_queue_names()


# -- sending


def test_published_messages_arrive_unchanged(
    connection: KafkaConnection, topic: str, records: Callable[..., list[Any]]
) -> None:
    connection.publish(
        topic,
        [
            {"value": "text", "key": b"k", "headers": {"a": "1", "b": None}, "partition": 0},
            {"value": b"\xff", "key": "k", "headers": [("a", b"2"), ("a", None)], "partition": 1},
            {"value": None, "key": None, "headers": None, "timestamp": 1234567890123},
            {"partition": 3},
        ],
    )
    got = records(topic, 4)
    by_value = {message.value(): message for message in got}

    assert by_value[b"text"].headers() == [("a", b"1"), ("b", None)]
    assert by_value[b"\xff"].headers() == [("a", b"2"), ("a", None)]
    assert by_value[b"text"].key() == by_value[b"\xff"].key() == b"k"
    assert sum(message.value() is None for message in got) == 2
    assert sum(message.timestamp()[1] == 1234567890123 for message in got) == 1
    assert got[0].timestamp()[1] > time.time() * 1000 - 60_000


def test_publish_of_an_empty_list_does_nothing(connection: KafkaConnection, topic: str) -> None:
    connection.publish(topic, [])
    connection.publish(topic, [], None)
    assert connection.read_ends(topic) == dict.fromkeys(range(4), 0)


def test_publish_takes_a_quarter_of_a_million_messages_at_once(
    connection: KafkaConnection, topic: str, make_consumer: MakeConsumer, kafka: Any
) -> None:
    connection.publish(topic, [{"value": b"x", "partition": 0}] * 250_000)
    consumer = make_consumer()

    assert consumer.get_watermark_offsets(kafka.TopicPartition(topic, 0), WAIT_S)[1] == 250_000


def test_publish_to_a_missing_partition_raises_with_the_failed_messages(
    connection: KafkaConnection, topic: str, records: Callable[..., list[Any]]
) -> None:
    messages = [{"value": str(number), "partition": number % 2 * 77} for number in range(6)]
    with pytest.raises(NotFoundException) as caught:
        connection.publish(topic, messages)

    assert caught.value.code == "UNKNOWN_PARTITION"
    assert caught.value.details.get("indices") == "1,3,5"
    assert caught.value.details.get("failed") == "3"
    assert caught.value.details.get("topic") == topic
    assert sorted(caught.value.cause.failures) == [1, 3, 5]
    assert sorted(message.value() for message in records(topic, 3)) == [b"0", b"2", b"4"]


def test_publishing_to_dead_brokers_raises_within_request_timeout(
    make_connection: MakeConnection, mock_cluster: MockCluster
) -> None:
    mock_cluster.create_topic("t", 1)
    # test_settings checks what librdkafka gets of it.
    connection = make_connection(
        connection__uri=mock_cluster.bootstrap_servers,
        options__request_timeout=30_000,
        **{"options__kafka__message.timeout.ms": 4000},
    )
    connection.publish("t", [{"value": "x"}])
    mock_cluster.broker_down()
    began = time.monotonic()
    with pytest.raises(ConnectionException) as caught:
        connection.publish("t", [{"value": "x"}, {"value": "y"}])

    assert time.monotonic() - began < 20
    assert caught.value.code == "MSG_TIMED_OUT"
    assert caught.value.details.get("indices") == "0,1"


def test_unknown_outcome_raises_after_request_timeout(
    make_connection: MakeConnection, mock_cluster: MockCluster
) -> None:
    mock_cluster.create_topic("t", 1)
    connection = make_connection(
        connection__uri=mock_cluster.bootstrap_servers,
        options__request_timeout=3000,
        **{"options__kafka__message.timeout.ms": 20_000},
    )
    connection.publish("t", [{"value": "x"}])
    mock_cluster.broker_down()
    began = time.monotonic()
    with pytest.raises(ConnectionException, match="timed out before all") as caught:
        connection.publish("t", [{"value": "x"}])

    assert time.monotonic() - began < 15
    assert caught.value.code == "REQUEST_TIMED_OUT"


def test_oversized_message_raises_and_the_others_are_stored(
    make_connection: MakeConnection, topic: str, records: Callable[..., list[Any]]
) -> None:
    """The mock has no limit. Without the option the brokers decide."""
    connection = make_connection(**{"options__kafka__message.max.bytes": 1_000_000})
    with pytest.raises(BadRequestException) as caught:
        connection.publish(topic, [{"value": b"x"}, {"value": b"x" * 2_000_000}])

    assert caught.value.code == "MSG_SIZE_TOO_LARGE"
    assert caught.value.details.get("indices") == "1"
    assert len(records(topic, 1)) == 1


@pytest.mark.parametrize(
    ("messages", "expected_text"),
    [
        ([{"value": 1}], r"values\[0\]"),
        ([{"value": "x"}, {"value": "x", "key": 2}], r"keys\[1\]"),
        ([{"value": "x", "headers": {1: "x"}}], "headers"),
        ([{"value": "x"}, "text"], r"messages\[1\]: expected a dict"),
        ([{"value": "x"}, None], r"messages\[1\]: expected a dict"),
        ([{"vlaue": "x"}], r"messages\[0\].*vlaue"),
        ({"value": "x"}, "expected a list"),
    ],
)
def test_invalid_message_is_named_and_nothing_is_sent(
    connection: KafkaConnection, topic: str, messages: Any, expected_text: str
) -> None:
    with pytest.raises(BadRequestException, match=expected_text) as caught:
        connection.publish(topic, messages)

    assert caught.value.code == "INVALID_MESSAGE"


def test_messages_go_to_write_partition(
    make_connection: MakeConnection, topic: str, records: Callable[..., list[Any]]
) -> None:
    connection = make_connection(options__write_partition="2")
    connection.publish(topic, [{"value": "x"}, {"value": "y"}, {"value": "z", "partition": 1}])

    assert [message.partition() for message in records(topic, 3)] == [1, 2, 2]


def test_each_acks_value_has_its_own_producer(connection: KafkaConnection, topic: str) -> None:
    for acks in (0, 1, -1, "all", None):
        connection.publish(topic, [{"value": "x"}], {"acks": acks})
    producers = {acks: connection.get_producer(acks) for acks in (-1, 0, 1)}

    assert len(set(producers.values())) == 3
    assert connection.get_producer("all") is connection.get_producer() is producers[-1]
    for acks, producer in producers.items():
        assert producer.configuration()["acks"] == str(acks)
    with pytest.raises(ConfigException, match="acks"):
        connection.publish(topic, [{"value": "x"}], {"acks": 2})
