"""Several queues on one connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pip_services4_commons.errors import ConfigException
from pip_services4_components.refer import Descriptor
from pip_services_rig import in_thread

from pip_services4_kafka.connect import KafkaConnection

pytestmark = pytest.mark.ours

ONE = {"options__write_partition": 1}


@pytest.fixture
def shared(make_connection: Callable[..., Any], make_references: Callable[..., Any]) -> Any:
    connection = make_connection(**{"options__kafka__group.protocol": "consumer"})
    return make_references(), connection


def share(references: Any, connection: Any) -> Any:
    references.put(Descriptor("pip-services", "connection", "kafka", "default", "1.0"), connection)
    return references


def test_queue_finds_a_shared_connection_and_leaves_it_open(
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


def test_keys_without_effect_on_a_shared_connection_log_warnings(
    make_queue: Callable[..., Any], shared: Any, logger: Any
) -> None:
    references, connection = shared
    make_queue(
        references=share(references, connection),
        autocomit=False,
        options__max_attemps=3,
        options__write_partition=1,
        options__acks=1,
        client_id="me",
        **{"options.kafka.compression.type": "zstd"},
    )
    text = logger.all()
    for key, words in (
        ("autocomit", 'did you mean "autocommit"'),
        ("options.max_attemps", 'did you mean "options.max_attempts"'),
        ("options.write_partition", "belongs to the shared connection"),
        ("options.kafka.compression.type", "belongs to the shared connection"),
        ("client_id", "belongs to the shared connection"),
    ):
        assert any(f'"{key}"' in line and words in line for line in text.splitlines()), key
    assert '"options.acks"' not in text


def test_misspelled_property_on_a_shared_connection_is_named(
    make_queue: Callable[..., Any], shared: Any
) -> None:
    references, connection = shared
    with pytest.raises(ConfigException, match=r"options\.kafka\.compression\.type") as raised:
        make_queue(
            references=share(references, connection),
            **{"options.kafka.compresion.type": "zstd"},
        )
    assert raised.value.code == "UNKNOWN_PROPERTY"


def test_a_queue_may_name_the_connection_it_shares(
    make_queue: Callable[..., Any], shared: Any, cluster: Any
) -> None:
    references, connection = shared
    references.put(Descriptor("test", "connection", "kafka", "theirs", "1.0"), connection)
    queue = make_queue(
        references=references,
        connection__uri=f"tcp://{cluster.bootstrap_servers}",
        dependencies__connection="test:connection:kafka:theirs:1.0",
    )
    assert queue._connection is connection


def test_queue_with_its_own_connection_does_not_share_one(
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
    threads = [t for t in threading.enumerate() if t.name.startswith("kafka-session")]
    assert threads
    queue.close(None)
    connection.publish(queue._get_topic(), [{"value": b"late"}])
    assert connection._subscriptions == []
    assert not any(thread.is_alive() for thread in threads)
    assert queue._messages == []


def test_closing_the_shared_connection_ends_listen_and_receive(
    make_queue: Callable[..., Any],
    shared: Any,
    make_receiver: Callable[..., Any],
    bodies: Callable[..., Any],
    received: Callable[..., Any],
) -> None:
    references, connection = shared
    queue = make_queue(references=share(references, connection), **ONE)
    receiver = make_receiver()
    thread = in_thread(lambda: queue.listen(None, receiver))
    queue.send_batch(None, bodies(1))
    receiver.wait(1)
    connection.close(None)
    thread.join(30)
    assert not thread.is_alive()

    connection.open(None)
    queue.send_batch(None, bodies(1, 1))
    assert received(queue, 1)[-1] in ("0", "1")


def test_close_waits_for_a_receiver_even_after_the_connection_closed(
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
    closing = in_thread(lambda: queue.close(None))
    closing.join(0.2)
    assert closing.is_alive()
    go_on.set()
    closing.join(30)
    assert not closing.is_alive()
