"""Queues are configured, opened and closed."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from fixture_types import Unique
from live import live_before
from pip_services4_commons.errors import (
    ConfigException,
    ConnectionException,
    InvalidStateException,
)
from pip_services4_components.config import ConfigParams
from pip_services4_components.context import Context
from pip_services4_components.refer import Descriptor, References
from pip_services4_messaging.queues import MessageEnvelope
from pip_services4_observability.log import ConsoleLogger, LogLevel
from pip_services_queues import ONE, MakeQueue, Receiver, bodies, envelope, received, receiving
from pip_services_rig import MakeConnection, MakeReferences, Recorder, config, in_thread

from cykafka import KafkaException
from cykafka.testing import MockCluster, live_handles
from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = pytest.mark.ours

# -- opening and closing


def test_a_queue_is_not_open_before_it_is_opened() -> None:
    assert KafkaMessageQueue("x").is_open() is False


def test_a_failed_open_leaves_nothing_open(make_queue: MakeQueue) -> None:
    before = live_before()
    queue = make_queue(
        opened=False, connection__uri="tcp://127.0.0.1:1", options__connect_timeout=300
    )
    with pytest.raises(ConnectionException) as raised:
        queue.open("123")
    assert raised.value.code == "CONNECT_FAILED"
    assert raised.value.trace_id == "123"
    assert raised.value.cause
    assert isinstance(raised.value.__cause__, KafkaException)
    assert not queue.is_open()
    assert not queue._connection.is_open()
    assert live_handles() == before


def test_a_shared_connection_is_opened_before_its_queues(
    make_queue: MakeQueue, new_connection: MakeConnection, make_references: MakeReferences
) -> None:
    shared = new_connection(connection__uri="tcp://127.0.0.1:1")
    with pytest.raises(ConnectionException, match="open it before its queues") as raised:
        make_queue(references=make_references(connection=shared))
    assert raised.value.code == "CONNECT_FAILED"


def test_open_over_a_shared_connection_without_brokers_raises(
    make_queue: MakeQueue,
    make_connection: MakeConnection,
    make_references: MakeReferences,
    mock_cluster: MockCluster,
) -> None:
    shared = make_connection(
        connection__uri=mock_cluster.bootstrap_servers, options__request_timeout=1000
    )
    queue = make_queue(opened=False, references=make_references(connection=shared))
    mock_cluster.broker_down()
    with pytest.raises(ConnectionException) as raised:
        queue.open("123")
    assert raised.value.code == "CONNECT_FAILED"
    assert raised.value.trace_id == "123"
    assert raised.value.__cause__ not in (None, raised.value)
    assert not queue.is_open()


def test_an_open_that_fails_after_connecting_closes_the_connection(make_queue: MakeQueue) -> None:
    class Broken(KafkaMessageQueue):
        def _get_topic(self) -> str:
            raise LookupError("no topic today")

    queue = make_queue(Broken, opened=False)
    with pytest.raises(ConnectionException) as raised:
        queue.open(None)
    assert isinstance(raised.value.__cause__, LookupError)
    assert not queue._connection.is_open()


def test_open_without_a_host_names_the_missing_key(make_queue: MakeQueue) -> None:
    queue = make_queue(opened=False, connection__uri=None)
    with pytest.raises(ConfigException):
        queue.open(None)
    assert not queue.is_open()


def test_close_is_quick_and_wakes_up_receive(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(1))
    received(queue, 1)
    found: list[Any] = []
    thread = in_thread(lambda: found.append(queue.receive(None, 60000)))
    time.sleep(0.05)  # receive() waits by now, or finds the queue closed
    begin = time.monotonic()
    queue.close(None)
    assert time.monotonic() - begin < 5
    thread.join(10)
    assert found in ([None], [])
    queue.close(None)  # a second close does nothing


def test_open_works_after_close(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    for n in range(3):
        queue.send_batch(None, bodies(1, n))
        assert received(queue, 1) == [str(n)]
        queue.close(None)
        assert not queue.is_open()
        queue.open(None)


def test_closed_queue_leaves_no_handles(make_queue: MakeQueue) -> None:
    threads, handles = threading.active_count(), live_before()
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(2))
    received(queue, 1)
    queue.close(None)
    assert live_handles() == handles
    assert threading.active_count() == threads


def test_close_after_unset_references_raises_and_closes(make_queue: MakeQueue) -> None:
    handles = live_before()
    queue = make_queue()
    queue.peek(None)
    queue.unset_references()
    with pytest.raises(InvalidStateException) as raised:
        queue.send(None, envelope())
    assert raised.value.code == "NO_CONNECTION"
    with pytest.raises(InvalidStateException) as raised:
        queue.close("123")
    assert raised.value.code == "NO_CONNECTION"
    assert not queue.is_open()
    assert live_handles() == handles
    queue.close(None)


def test_eight_threads_at_first_use_make_one_consumer(make_queue: MakeQueue) -> None:
    queue = make_queue(**ONE)
    found: list[str] = []
    queue.send_batch(None, bodies(8))

    def run() -> None:
        message = queue.receive(None, 30000)
        found.append(message.get_message_as_string())

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [str(n) for n in range(8)]
    assert len(queue._connection._subscriptions) == 1


def test_autosubscribe_joins_at_open(make_queue: MakeQueue) -> None:
    assert make_queue()._subscribed is False
    queue = make_queue(options__autosubscribe=True)
    assert queue._subscribed is True
    assert len(queue._connection._subscriptions) == 1


# -- configuration


def test_the_name_comes_from_the_configuration() -> None:
    def named(given: str | None, **values: Any) -> tuple[str, str]:
        queue = KafkaMessageQueue(given)
        queue.configure(config(**values))
        return queue.get_name(), queue._get_topic()

    descriptor = "pip-services:message-queue:kafka:described:1.0"
    assert named("given") == ("given", "given")
    assert named("given", topic="t") == ("t", "t")
    assert named("given", name="n", topic="t") == ("n", "t")
    assert named("given", name="n") == ("n", "n")
    assert named(None, descriptor=descriptor) == ("described", "described")
    assert named(None, descriptor=descriptor, topic="t") == ("t", "t")
    # The configuration of a factory has its descriptor.
    assert named("given", descriptor=descriptor) == ("given", "given")


def test_the_documented_fields_follow_the_configuration() -> None:
    queue = KafkaMessageQueue()
    values = config(
        topic="t",
        group_id="g",
        from_beginning=True,
        read_partitions=3,
        autocommit=False,
        options__autosubscribe=True,
        options__acks=1,
    )
    before = dict(values)
    queue.configure(values)
    assert dict(values) == before
    assert (queue._topic, queue._group_id, queue._read_partitions) == ("t", "g", 3)
    assert (queue._from_beginning, queue._auto_commit, queue._auto_subscribe) == (
        True,
        False,
        True,
    )
    assert queue._acks == 1
    assert queue._messages == []


def test_invalid_acks_are_named() -> None:
    with pytest.raises(ConfigException, match=r"options\.acks"):
        KafkaMessageQueue().configure(config({"options.acks": 7}))


def test_invalid_numbers_log_a_warning_and_use_the_default(
    make_queue: MakeQueue, logger: Recorder
) -> None:
    queue = make_queue(
        read_partitions=1_000_000, options__max_pending="many", options__max_attempts=-1
    )
    found = [text for _, text, _ in logger.lines if "expected a number" in text]
    name = queue.get_name()
    expected = "expected a number"
    assert found == [
        f'Queue {name}: read_partitions: {expected} from 1 to 1000, got "1000000"; using 1',
        f'Queue {name}: options.max_pending: {expected} of at least 1, got "many"; using 10000',
        f'Queue {name}: options.max_attempts: {expected} of at least 0, got "-1"; using 10',
    ]
    queue.peek(None)
    settings = receiving(queue).settings
    assert (settings.max_pending, settings.max_attempts) == (10000, 10)
    assert queue._read_partitions == 1


def test_queue_without_topic_and_name_raises(make_queue: MakeQueue) -> None:
    queue = make_queue(opened=False, topic=None)
    with pytest.raises(ConfigException, match="neither a topic nor a name") as raised:
        queue.open(None)
    assert raised.value.code == "NO_TOPIC"
    assert not queue.is_open()


def test_capabilities_list_the_supported_calls() -> None:
    found = KafkaMessageQueue().get_capabilities()
    names = [
        "message_count",
        "send",
        "receive",
        "peek",
        "peek_batch",
        "renew_lock",
        "abandon",
        "dead_letter",
        "clear",
    ]
    assert {name for name in names if not getattr(found, f"can_{name}")} == {"renew_lock"}
    assert KafkaMessageQueue().renew_lock(None, 100) is None  # type: ignore[func-returns-value]


# -- contexts, and the documentation


@pytest.mark.parametrize("context", [None, "123", Context.from_trace_id("123")])
def test_every_context_works_with_the_console_logger(make_queue: MakeQueue, context: Any) -> None:
    logger = ConsoleLogger()
    logger.set_level(LogLevel.Trace)
    references = References.from_tuples(
        Descriptor("pip-services", "logger", "console", "default", "1.0"), logger
    )
    queue = make_queue(opened=False, references=references)
    queue.open(context)
    queue.send(context, MessageEnvelope(None, "test", "x"))
    queue.send_as_object(context, "test", {"a": 1})
    queue.peek(context)
    queue.peek_batch(context, 2)
    message = queue.receive(context, 30000)
    queue.complete(context, message)
    queue.begin_listen(context, Receiver())
    queue.end_listen(context)
    queue.clear(context)
    queue.close(context)
    assert not queue.is_open()


def test_the_documented_example_runs(cluster: Any, unique: Unique) -> None:
    queue = KafkaMessageQueue("myqueue")
    topic = unique("mytopic")
    cluster.create_topic(topic, 1)
    host, port = cluster.bootstrap_servers.split(",")[0].split(":")

    queue.configure(
        ConfigParams.from_tuples(
            "topic", topic,
            "connection.protocol", "tcp",
            "connection.host", host,
            "connection.port", port,
        )
    )  # fmt: skip

    queue.open("123")
    queue.send("123", MessageEnvelope(None, "mymessage", "ABC"))
    message = queue.receive("123")

    assert message is not None
    assert message.get_message_as_string() == "ABC"
    queue.complete("123", message)
    queue.close("123")
