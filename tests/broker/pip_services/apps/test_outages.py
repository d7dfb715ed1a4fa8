"""What queues report of brokers that are away, and of topics that are gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from fixture_types import MakeConsumer, Read, Unique
from machine import WAIT_S
from pip_services4_commons.errors import ConnectionException, NotFoundException
from pip_services4_observability.log import LogLevel
from pip_services_queues import MakeQueue, Receiver, bodies, envelope
from pip_services_rig import MakeConnection, MakeReferences, Recorder, config, eventually

from cykafka.testing import KafkaCluster
from pip_services4_kafka.connect import KafkaConnection
from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = pytest.mark.ours


@pytest.fixture(scope="module")
def cluster(kafka_cluster_factory: Callable[..., KafkaCluster]) -> KafkaCluster:
    """One node that this module may kill, and that creates no topic by itself."""
    return kafka_cluster_factory(properties={"auto.create.topics.enable": "false"})


def test_outage_is_logged_once_when_it_begins_and_once_when_it_is_over(
    make_connection: MakeConnection,
    make_queue: MakeQueue,
    make_references: MakeReferences,
    unique: Unique,
    cluster: KafkaCluster,
    logger: Recorder,
) -> None:
    """Three queues share a connection: two of them listen, and one sends."""
    fast = {"options__retry_timeout": 1000, "options__kafka__auto.commit.interval.ms": 500}
    references = make_references(connection=make_connection(**fast))
    queues = [
        make_queue(topic=name, group_id=name, references=references)
        for name in (unique("a"), unique("b"), unique("c"))
    ]
    receivers = [Receiver() for _ in queues[:2]]
    for queue, receiver in zip(queues, receivers, strict=False):
        queue.begin_listen(None, receiver)
        queue.send(None, envelope("before"))
        receiver.wait(1)

    def serious() -> list[str]:
        return [text for level, text, _ in list(logger.lines) if level <= LogLevel.Info]

    logger.lines.clear()
    cluster.nodes[0].kill()
    sent = threading.Event()

    def send() -> None:
        queues[2].send(None, envelope("in between"))
        sent.set()

    threading.Thread(target=send, daemon=True).start()
    eventually(serious)
    time.sleep(3)  # the time in which clients try again and again
    assert len(serious()) == 1
    cluster.nodes[0].start()
    eventually(lambda: len(serious()) > 1)
    assert sent.wait(WAIT_S)
    for queue, receiver in zip(queues, receivers, strict=False):
        queue.send(None, envelope("after"))
        eventually(lambda receiver=receiver: "after" in receiver.bodies())
    assert len(serious()) == 2, serious()
    begun, over = serious()
    assert (
        begun
        == f"No Kafka broker responds ({cluster.bootstrap_servers}); the clients keep retrying"
    )
    assert over.startswith(f"Kafka responds again ({cluster.bootstrap_servers}) after ")
    reason = next(error for _, text, error in logger.lines if text == begun)
    assert isinstance(reason, ConnectionException)
    assert cluster.bootstrap_servers in str(reason)  # refused, or reset while the node dies
    connection = queues[0]._connection
    for queue in queues:
        queue.close(None)
    connection.close(None)  # what its clients met in the outage is no news
    assert serious() == [begun, over]


def test_deleted_topic_is_not_found_long_before_the_request_timeout(
    make_queue: MakeQueue, connection: KafkaConnection, topic: str
) -> None:
    queue = make_queue(options__request_timeout=60_000)
    queue.send(None, envelope())
    connection.delete_queue(topic)
    for longest in (15, 1):
        begun = time.monotonic()
        with pytest.raises(NotFoundException) as caught:
            queue.send(None, envelope())
        assert time.monotonic() - begun < longest
        assert topic in str(caught.value)
    with pytest.raises(NotFoundException):
        queue.read_message_count()


def test_queue_works_again_when_its_topic_is_back(
    make_queue: MakeQueue, connection: KafkaConnection, topic: str
) -> None:
    queue = make_queue()
    queue.send(None, envelope())
    connection.delete_queue(topic)
    with pytest.raises(NotFoundException):
        queue.send(None, envelope())
    connection.create_queue(topic)

    def sent() -> bool:
        try:
            queue.send(None, envelope("back"))
        except NotFoundException:
            return False
        return True

    eventually(sent, 30)


def test_broker_that_keeps_little_metadata_gets_shorter_commits(
    kafka_cluster_factory: Callable[..., KafkaCluster],
) -> None:
    """It refuses commits with longer metadata; more finished messages come again then."""
    cluster = kafka_cluster_factory(properties={"offset.metadata.max.bytes": 256})
    given = config(
        topic="t",
        connection__uri=f"tcp://{cluster.bootstrap_servers}",
        from_beginning=True,
        autocommit=False,
        options__connect_timeout=10_000,
    )
    queue = KafkaMessageQueue()
    queue.configure(given)
    queue.open(None)
    queue.send_batch(None, bodies(400))
    messages = [queue.receive(None, 30_000) for _ in range(400)]
    for message in messages[1::2]:
        queue.complete(message)
    queue.complete(messages[0])  # this commit lists the others as far as there is room
    queue.close(None)

    queue.open(None)
    found = []
    while (again := queue.receive(None, 3000)) is not None:
        found.append(int(again.get_message_as_string()))
    queue.close(None)
    assert set(range(2, 400, 2)) <= set(found)
    assert 0 not in found
    assert 3 not in found
    assert len(found) < 399 - 20


@pytest.mark.parametrize(("size", "fits"), [(1_048_000, True), (1_048_350, False)])
def test_dead_letter_has_a_large_value_only_if_brokers_accept_it(
    make_queue: MakeQueue,
    make_consumer: MakeConsumer,
    read: Read,
    topic: str,
    size: int,
    fits: bool,
) -> None:
    queue = make_queue(options__max_attempts=1)
    queue.send(None, envelope("x" * size))
    queue.abandon(queue.receive(None, 30_000))
    consumer = make_consumer()
    consumer.subscribe([f"{topic}.dlq"])
    (record,) = read(consumer, 1)
    assert len(record.value() or b"") == (size if fits else 0)
    assert (("dlq_without_value", b"true") in record.headers()) is not fits
    assert queue.read_message_count() == 0


def test_timeout_says_which_messages_may_be_stored(
    make_queue: MakeQueue, cluster: KafkaCluster
) -> None:
    queue = make_queue(options__request_timeout=4000)
    queue.send_batch(None, bodies(1))
    cluster.nodes[0].pause()
    try:
        with pytest.raises(ConnectionException) as caught:
            queue.send_batch(None, bodies(3, 1))
    finally:
        cluster.nodes[0].resume()
    assert caught.value.code in ("MSG_TIMED_OUT", "REQUEST_TIMED_OUT")
    assert "stored" in caught.value.message
    details = caught.value.details
    assert details.get("failed") == "3"
    assert details.get("indices") == details.get("perhaps_stored") == "0,1,2"
