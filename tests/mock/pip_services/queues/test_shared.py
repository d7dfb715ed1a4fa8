"""Several queues on one connection."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fixture_types import Unique
from pip_services4_commons.errors import ConfigException
from pip_services4_components.refer import Descriptor, References
from pip_services_queues import ONE, MakeQueue, Receiver, bodies, received
from pip_services_rig import Gate, MakeConnection, MakeReferences, Recorder, finish, in_thread

from pip_services4_kafka.connect import KafkaConnection

pytestmark = pytest.mark.ours


@pytest.fixture
def shared(make_connection: MakeConnection) -> KafkaConnection:
    return make_connection(**{"options__kafka__group.protocol": "consumer"})


@pytest.fixture
def references(make_references: MakeReferences, shared: KafkaConnection) -> References:
    return make_references(connection=shared)


def test_queue_finds_a_shared_connection_and_leaves_it_open(
    make_queue: MakeQueue, references: References, shared: KafkaConnection
) -> None:
    queue = make_queue(references=references)
    assert queue._connection is shared
    queue.send_batch(None, bodies(1))
    assert received(queue, 1) == ["0"]
    queue.close(None)
    assert shared.is_open()
    assert shared._subscriptions == []


def test_keys_without_effect_on_a_shared_connection_log_warnings(
    make_queue: MakeQueue, references: References, logger: Recorder
) -> None:
    make_queue(
        references=references,
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
    make_queue: MakeQueue, references: References
) -> None:
    with pytest.raises(ConfigException, match=r"options\.kafka\.compression\.type") as raised:
        make_queue(
            references=references,
            **{"options.kafka.compresion.type": "zstd"},
        )
    assert raised.value.code == "UNKNOWN_PROPERTY"


def test_a_queue_may_name_the_connection_it_shares(
    make_queue: MakeQueue, make_references: MakeReferences, shared: KafkaConnection, cluster: Any
) -> None:
    references = make_references()
    references.put(Descriptor("test", "connection", "kafka", "theirs", "1.0"), shared)
    queue = make_queue(
        references=references,
        connection__uri=f"tcp://{cluster.bootstrap_servers}",
        dependencies__connection="test:connection:kafka:theirs:1.0",
    )
    assert queue._connection is shared


def test_queue_with_its_own_connection_does_not_share_one(
    make_queue: MakeQueue, references: References, shared: KafkaConnection, cluster: Any
) -> None:
    queue = make_queue(
        references=references,
        connection__uri=f"tcp://{cluster.bootstrap_servers}",
    )
    assert queue._connection is not shared
    assert isinstance(queue._connection, KafkaConnection)


def test_queues_of_one_connection_get_their_own_messages(
    make_queue: MakeQueue, references: References, unique: Unique, cluster: Any
) -> None:
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
    make_queue: MakeQueue, references: References, shared: KafkaConnection
) -> None:
    queue = make_queue(references=references, **ONE)
    queue.send_batch(None, bodies(1))
    received(queue, 1)
    threads = [t for t in threading.enumerate() if t.name.startswith("kafka-session")]
    assert threads
    queue.close(None)
    shared.publish(queue._get_topic(), [{"value": b"late"}])
    assert shared._subscriptions == []
    assert not any(thread.is_alive() for thread in threads)
    assert queue._messages == []


def test_closing_the_shared_connection_ends_listen_and_receive(
    make_queue: MakeQueue, references: References, shared: KafkaConnection
) -> None:
    queue = make_queue(references=references, **ONE)
    receiver = Receiver()
    thread = in_thread(lambda: queue.listen(None, receiver))
    queue.send_batch(None, bodies(1))
    receiver.wait(1)
    shared.close(None)
    finish(thread)

    shared.open(None)
    queue.send_batch(None, bodies(1, 1))
    assert received(queue, 1)[-1] in ("0", "1")


def test_close_waits_for_a_receiver_even_after_the_connection_closed(
    make_queue: MakeQueue, references: References, shared: KafkaConnection
) -> None:
    gate = Gate()

    queue = make_queue(references=references, **ONE)
    queue.send_batch(None, bodies(1))
    queue.begin_listen(None, Receiver(gate.hold))
    gate.wait()
    shared.close(None)
    closing = in_thread(lambda: queue.close(None))
    closing.join(0.2)
    assert closing.is_alive()
    gate.open()
    finish(closing)
