"""Queues are configured, opened, shared, counted and closed.

Longer than 500 lines by a few: one life, one file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pip_services4_commons.errors import (
    ConfigException,
    ConnectionException,
    InvalidStateException,
)
from pip_services4_components.config import ConfigParams
from pip_services4_components.context import Context
from pip_services4_components.refer import Descriptor, References
from pip_services4_messaging.queues import MessageEnvelope

from cykafka._handle import live_handles
from pip_services4_kafka.connect import KafkaConnection
from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = pytest.mark.ours

ONE = {"options__write_partition": 1}


# -- opening and closing


def test_a_queue_is_not_open_before_it_is_opened() -> None:
    assert KafkaMessageQueue("x").is_open() is False


def test_a_failed_open_leaves_nothing_open(make_queue: Callable[..., Any]) -> None:
    before = live_handles()
    queue = make_queue(
        opened=False, connection__uri="tcp://127.0.0.1:1", options__connect_timeout=300
    )
    with pytest.raises(ConnectionException) as raised:
        queue.open("123")
    assert raised.value.code == "CONNECT_FAILED"
    assert raised.value.trace_id == "123"
    assert raised.value.cause
    assert not queue.is_open()
    assert not queue._connection.is_open()
    assert live_handles() == before


def test_a_shared_connection_is_opened_before_its_queues(
    make_queue: Callable[..., Any],
    new_connection: Callable[..., Any],
    make_references: Callable[..., Any],
) -> None:
    from pip_services4_components.refer import Descriptor

    references = make_references()
    shared = new_connection(connection__uri="tcp://127.0.0.1:1")
    references.put(Descriptor("test", "connection", "kafka", "default", "1.0"), shared)
    with pytest.raises(ConnectionException, match="open it before its queues") as raised:
        make_queue(references=references)
    assert raised.value.code == "CONNECT_FAILED"


def test_an_open_that_fails_after_connecting_closes_the_connection(
    make_queue: Callable[..., Any],
) -> None:
    class Broken(KafkaMessageQueue):
        def _get_topic(self) -> str:
            raise LookupError("no topic today")

    queue = make_queue(Broken, opened=False)
    with pytest.raises(ConnectionException) as raised:
        queue.open(None)
    assert isinstance(raised.value.__cause__, LookupError)
    assert not queue._connection.is_open()


def test_an_open_without_a_host_names_the_mistake(make_queue: Callable[..., Any]) -> None:
    queue = make_queue(opened=False, connection__uri=None)
    with pytest.raises(ConfigException):
        queue.open(None)
    assert not queue.is_open()


def test_close_is_quick_and_wakes_up_receive(
    make_queue: Callable[..., Any], bodies: Callable[..., Any], received: Callable[..., Any]
) -> None:
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(1))
    received(queue, 1)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(queue.receive(None, 60000)))
    thread.start()
    time.sleep(0.05)  # it waits by now; if not, it finds the queue closed
    begin = time.monotonic()
    queue.close(None)
    assert time.monotonic() - begin < 1
    thread.join(10)
    assert found in ([None], [])
    queue.close(None)  # again, which is nothing


def test_open_works_after_close(
    make_queue: Callable[..., Any], bodies: Callable[..., Any], received: Callable[..., Any]
) -> None:
    queue = make_queue(**ONE)
    for n in range(3):
        queue.send_batch(None, bodies(1, n))
        assert received(queue, 1) == [str(n)]
        queue.close(None)
        assert not queue.is_open()
        queue.open(None)


def test_a_closed_queue_leaves_nothing_behind(
    make_queue: Callable[..., Any], bodies: Callable[..., Any], received: Callable[..., Any]
) -> None:
    threads, handles = threading.active_count(), live_handles()
    queue = make_queue(**ONE)
    queue.send_batch(None, bodies(2))
    received(queue, 1)
    queue.close(None)
    assert live_handles() == handles
    assert threading.active_count() == threads


def test_closing_after_the_references_were_unset_says_so_and_closes(
    make_queue: Callable[..., Any], envelope: Callable[..., Any]
) -> None:
    handles = live_handles()
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


def test_eight_threads_at_first_use_make_one_consumer(
    make_queue: Callable[..., Any], bodies: Callable[..., Any]
) -> None:
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


def test_autosubscribe_joins_at_open(make_queue: Callable[..., Any]) -> None:
    assert make_queue()._subscribed is False
    queue = make_queue(options__autosubscribe=True)
    assert queue._subscribed is True
    assert len(queue._connection._subscriptions) == 1


# -- shared connections


@pytest.fixture
def shared(make_connection: Callable[..., Any], make_references: Callable[..., Any]) -> Any:
    connection = make_connection(**{"options__kafka__group.protocol": "consumer"})
    return make_references(), connection


def share(references: Any, connection: Any) -> Any:
    references.put(Descriptor("pip-services", "connection", "kafka", "default", "1.0"), connection)
    return references


def test_a_shared_connection_is_found_by_itself_and_stays_open(
    make_queue: Callable[..., Any],
    shared: Any,
    bodies: Callable[..., Any],
    received: Callable[..., Any],
) -> None:
    references, connection = shared
    queue = make_queue(references=share(references, connection))
    assert queue._connection is connection
    queue.send_batch(None, bodies(1))
    assert received(queue, 1) == ["0"]
    queue.close(None)
    assert connection.is_open()
    assert connection._subscriptions == []


def test_a_queue_with_a_connection_of_its_own_does_not_share(
    make_queue: Callable[..., Any], shared: Any, cluster: Any
) -> None:
    references, connection = shared
    queue = make_queue(
        references=share(references, connection),
        connection__uri=f"tcp://{cluster.bootstrap_servers}",
    )
    assert queue._connection is not connection
    assert isinstance(queue._connection, KafkaConnection)


def test_queues_of_one_connection_get_their_own_messages(
    make_queue: Callable[..., Any],
    shared: Any,
    unique: Callable[[str], str],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    cluster: Any,
) -> None:
    references, connection = shared
    share(references, connection)
    names = [unique("own") for _ in range(3)]
    for name in names:
        cluster.create_topic(name, 4)
    queues = [make_queue(references=references, topic=name) for name in names]
    for n, queue in enumerate(queues):
        queue.send_batch(None, bodies(3, 10 * n))
    for n, queue in enumerate(queues):
        assert sorted(received(queue, 3)) == [str(10 * n + i) for i in range(3)]
    queues[0].close(None)
    queues[1].send_batch(None, bodies(1, 99))
    assert received(queues[1], 1) == ["99"]


def test_a_closed_queue_is_not_filled_by_its_shared_connection(
    make_queue: Callable[..., Any],
    shared: Any,
    bodies: Callable[..., Any],
    received: Callable[..., Any],
) -> None:
    references, connection = shared
    queue = make_queue(references=share(references, connection), **ONE)
    queue.send_batch(None, bodies(1))
    received(queue, 1)
    queue.close(None)
    connection.publish(queue._get_topic(), [{"value": b"late"}])
    assert queue._messages == []


def test_a_connection_that_somebody_closes_ends_listen_and_receive(
    make_queue: Callable[..., Any],
    shared: Any,
    make_receiver: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
) -> None:
    references, connection = shared
    queue = make_queue(references=share(references, connection), **ONE)
    thread = threading.Thread(target=lambda: queue.listen(None, make_receiver()), daemon=True)
    thread.start()
    queue.send_batch(None, bodies(1))
    connection.close(None)
    thread.join(30)
    assert not thread.is_alive()

    connection.open(None)
    queue.send_batch(None, bodies(1, 1))
    assert received(queue, 1)[-1] in ("0", "1")


def test_close_waits_for_a_receiver_although_the_connection_was_closed_before(
    make_queue: Callable[..., Any],
    shared: Any,
    make_receiver: Callable[..., Any],
    bodies: Callable[..., Any],
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def then(message: Any, queue: Any) -> None:
        entered.set()
        assert go_on.wait(30)

    references, connection = shared
    queue = make_queue(references=share(references, connection), **ONE)
    queue.send_batch(None, bodies(1))
    queue.begin_listen(None, make_receiver(then))
    assert entered.wait(30)
    connection.close(None)
    closing = threading.Thread(target=lambda: queue.close(None))
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    go_on.set()
    closing.join(30)
    assert not closing.is_alive()


# -- configuration


def test_the_name_comes_from_the_configuration(config: Callable[..., Any]) -> None:
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
    # A factory's configuration has the factory's descriptor.
    assert named("given", descriptor=descriptor) == ("given", "given")


def test_the_documented_fields_follow_the_configuration(config: Callable[..., Any]) -> None:
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


def test_a_wrong_envelope_or_acks_is_named(config: Callable[..., Any]) -> None:
    for key, value in (("options.envelope", "xml"), ("options.acks", 7)):
        with pytest.raises(ConfigException, match=key):
            KafkaMessageQueue().configure(config({key: value}))


def test_capabilities_say_what_is_supported() -> None:
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


# -- counters and logs


def test_counters_count_each_message_once_whatever_other_queues_do(
    make_queue: Callable[..., Any],
    make_references: Callable[..., Any],
    unique: Callable[[str], str],
    counters: Any,
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    cluster: Any,
) -> None:
    references = make_references(counters=counters)
    names = [unique("counted") for _ in range(2)]
    for name in names:
        cluster.create_topic(name, 4)
    queues = [make_queue(references=references, topic=name) for name in names]
    queues[0].set_references(references)  # again
    for queue in queues:
        queue.send_batch(None, bodies(3))
        received(queue, 3)
    for name in names:
        assert counters.value(f"queue.{name}.sent_messages") == 3
        assert counters.value(f"queue.{name}.received_messages") == 3


def test_gauges_tell_lag_and_messages_in_flight(
    make_queue: Callable[..., Any],
    make_references: Callable[..., Any],
    counters: Any,
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    eventually: Callable[..., Any],
    topic: str,
) -> None:
    queue = make_queue(autocommit=False, references=make_references(counters=counters), **ONE)
    queue.send_batch(None, bodies(5))
    received(queue, 2)
    eventually(lambda: counters.value(f"queue.{topic}.lag") == 3)
    eventually(lambda: counters.value(f"queue.{topic}.in_flight") == 2)
    assert counters.value(f"queue.{topic}.errors") == 0


def test_counters_and_loggers_that_raise_change_nothing(
    make_queue: Callable[..., Any],
    make_references: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
) -> None:
    from pip_services4_observability.count import CachedCounters
    from pip_services4_observability.log import Logger, LogLevel

    class Counters(CachedCounters):  # type: ignore[misc]
        def _save(self, counters: Any) -> None:
            pass

        def increment(self, name: str, value: float) -> None:
            raise RuntimeError("no counting")

        last = increment

    class Loud(Logger):  # type: ignore[misc]
        def _write(self, level: Any, context: Any, error: Any, message: Any) -> None:
            if "queue" in message.lower():
                raise RuntimeError("no logging")

    logger = Loud()
    logger.set_level(LogLevel.Trace)
    queue = make_queue(references=make_references(counters=Counters(), logger=logger), **ONE)
    queue.send_batch("123", bodies(3))
    assert received(queue, 3) == ["0", "1", "2"]


def test_logs_are_written_once_per_batch(
    make_queue: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
    logger: Any,
) -> None:
    from pip_services4_observability.log import LogLevel

    logger.set_level(LogLevel.Trace)
    queue = make_queue(**ONE)
    queue.send_batch("123", bodies(1000))
    received(queue, 1000)
    assert len(logger.lines) < 100
    assert any("Sent 1000 messages" in text for _, text, _ in logger.lines)


@pytest.mark.parametrize("context", [None, "123", Context.from_trace_id("123")])
def test_any_context_goes_with_any_logger(
    make_queue: Callable[..., Any], make_receiver: Callable[..., Any], context: Any
) -> None:
    from pip_services4_observability.log import ConsoleLogger, LogLevel

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
    queue.begin_listen(context, make_receiver())
    queue.end_listen(context)
    queue.clear(context)
    queue.close(context)


def test_the_documented_example_runs(cluster: Any, unique: Callable[[str], str]) -> None:
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
