"""Leaders that die and brokers that stall: deliveries, reads and errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S
from relay import switch_to
from replaced_brokers import (
    clients_of,
    go_on_with_other_brokers,
    group_commits_at_both_addresses,
    have_same_records,
    moving_broker,
    transaction_commits_at_the_new_address,
)


@pytest.fixture
def make_client(
    make_producer: MakeProducer, make_consumer: MakeConsumer, three: Any
) -> dict[str, Callable[..., Any]]:
    """Factories of clients of the three nodes that refresh metadata soon after a failure."""
    base = {
        "bootstrap.servers": three.bootstrap_servers,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 2,
    }
    return {
        "producer": lambda **config: make_producer(
            {**base, **{key.replace("_", "."): value for key, value in config.items()}}
        ),
        "consumer": lambda **config: make_consumer(
            {**base, **{key.replace("_", "."): value for key, value in config.items()}}
        ),
    }


def leader_of(client: Any, cluster: Any, topic: str) -> Any:
    number = client.list_topics(topic, WAIT_S).topics[topic].partitions[0].leader
    (node,) = (node for node in cluster.nodes if node.id == number)
    return node


def test_leader_epoch_grows_and_no_record_is_lost_when_the_leader_dies(
    make_client: dict[str, Callable[..., Any]],
    kafka: Any,
    three: Any,
    unique: Unique,
    wait_until: WaitUntil,
) -> None:
    name = unique("led")
    three.create_topic(name, 1, replication_factor=3)
    producer = make_client["producer"](enable_idempotence=True)
    consumer = make_client["consumer"]()
    consumer.assign([kafka.TopicPartition(name, 0, 0)])
    sent: list[bytes] = []
    errors: list[Any] = []
    messages: list[Any] = []

    def work() -> None:
        for _ in range(20):
            sent.append(str(len(sent)).encode())
            producer.produce(name, sent[-1], on_delivery=lambda e, _: errors.append(e))
        producer.poll(0)
        messages.extend(m for m in consumer.consume(200, 0.1) if not m.error())

    wait_until(lambda: len(messages) > 100, work, WAIT_S)
    before = messages[-1].leader_epoch()

    leader_of(producer, three, name).kill()

    wait_until(lambda: messages[-1].leader_epoch() > before, work, WAIT_S)
    assert producer.flush(WAIT_S) == 0
    wait_until(
        lambda: len(messages) >= len(sent),
        lambda: messages.extend(m for m in consumer.consume(200, 0.1) if not m.error()),
        WAIT_S,
    )
    assert errors == [None] * len(sent)
    assert [message.value() for message in messages] == sent
    assert [message.offset() for message in messages] == list(range(len(sent)))
    epochs = [message.leader_epoch() for message in messages]
    assert epochs == sorted(epochs)


def test_message_fails_with_too_few_in_sync_replicas(
    make_client: dict[str, Callable[..., Any]],
    kafka: Any,
    three: Any,
    unique: Unique,
    wait_until: WaitUntil,
) -> None:
    name = unique("replicated")
    three.create_topic(name, 1, replication_factor=3, config={"min.insync.replicas": 3})
    producer = make_client["producer"](acks="all", retries=0, request_timeout_ms=3000)
    errors: list[Any] = []

    def produce() -> None:
        producer.produce(name, b"x", on_delivery=lambda error, _: errors.append(error))
        # librdkafka notices the timeout of a message late while it reconnects.
        assert producer.flush(2 * WAIT_S) == 0

    produce()
    assert errors == [None]
    leader = leader_of(producer, three, name)
    next(node for node in three.nodes if node is not leader).pause()

    # Until the leader notices, a message waits for the replica and times out.
    wait_until(
        lambda: errors[-1] == kafka.KafkaError.NOT_ENOUGH_REPLICAS,
        produce,
        WAIT_S,
    )
    assert errors[-1].str() == "Broker: Not enough in-sync replicas"

    # A producer that does not require all replicas succeeds.
    lax = make_client["producer"](acks=1)
    lax.produce(name, b"y", on_delivery=lambda error, _: errors.append(error))
    assert lax.flush(WAIT_S) == 0
    assert errors[-1] is None


def test_purge_fails_messages_in_flight(
    make_client: dict[str, Callable[..., Any]],
    kafka: Any,
    three: Any,
    unique: Unique,
    wait_until: WaitUntil,
) -> None:
    name = unique("stalled")
    three.create_topic(name, 1, replication_factor=1)
    producer = make_client["producer"]()
    errors: list[Any] = []
    producer.produce(name, b"1", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    leader = leader_of(producer, three, name)
    leader.pause()
    try:
        producer.produce(name, b"2", on_delivery=lambda error, _: errors.append(error))
        # The message is sent at once, without lingering. flush() cannot end before the answer.
        assert producer.flush(0.5) == 1

        producer.purge(in_queue=True, in_flight=True)

        assert producer.flush(WAIT_S) == 0
    finally:
        leader.resume()
    assert errors == [None, kafka.KafkaError._PURGE_INFLIGHT]


def test_message_times_out_while_the_broker_stalls(
    make_client: dict[str, Callable[..., Any]], kafka: Any, three: Any, unique: Unique
) -> None:
    name = unique("stalled")
    three.create_topic(name, 1, replication_factor=1)
    producer = make_client["producer"](message_timeout_ms=4000)
    errors: list[Any] = []
    producer.produce(name, b"1", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    leader = leader_of(producer, three, name)
    leader.pause()
    try:
        start = time.monotonic()
        producer.produce(name, b"2", on_delivery=lambda error, _: errors.append(error))

        assert producer.flush(WAIT_S) == 0
        assert 3.5 < time.monotonic() - start < 15
    finally:
        leader.resume()
    assert errors == [None, kafka.KafkaError._MSG_TIMED_OUT]


def test_batches_published_while_leaders_are_killed_arrive_once_in_order(
    make_client: dict[str, Callable[..., Any]], kafka: Any, three: Any, unique: Unique
) -> None:
    name = unique("killed")
    three.create_topic(name, partitions=2, replication_factor=3)
    producer = make_client["producer"](
        enable_idempotence=True, linger_ms=1, queue_buffering_max_messages=3000,
        retry_backoff_ms=20,
    )  # fmt: skip
    deliveries: list[Any] = []
    for round_ in range(3):
        for batch in range(20):
            first = (round_ * 20 + batch) * 500
            values = [b"%d" % number for number in range(first, first + 500)]
            deliveries.append(producer.publish(name, values, partitions=batch % 2))
            if batch == 10:
                node = leader_of(producer, three, name)
                node.kill()
        node.start()
    for delivery in deliveries:
        delivery.wait(4 * WAIT_S)

    consumer = make_client["consumer"](group_id=unique("g"))
    consumer.assign([kafka.TopicPartition(name, number, 0) for number in range(2)])
    read: dict[int, list[int]] = {0: [], 1: []}
    deadline = time.monotonic() + 2 * WAIT_S
    while sum(map(len, read.values())) < 30_000 and time.monotonic() < deadline:
        batch = consumer.consume_batch(30_000, 0.5)
        for partition, value in zip(batch.partitions, batch.values(), strict=True):
            read[partition].append(int(value))
    sent: dict[int, list[int]] = {0: [], 1: []}
    for index, delivery in enumerate(deliveries):
        sent[index % 20 % 2] += range(index * 500, index * 500 + 500)
        assert delivery.failed == 0
    for number, values in sent.items():
        assert sorted(set(values) - set(read[number])) == [], "lost"
        assert len(read[number]) == len(values), "more than once"
        assert read[number] == values, "out of order"


def test_clients_reconnect_when_all_brokers_are_replaced(
    kafka_cluster: Any,
    three: Any,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    unique: Unique,
) -> None:
    """The address in `bootstrap.servers` stays, but leads to another cluster's brokers."""
    topic = unique("replaced")
    have_same_records((three, kafka_cluster), topic, make_producer)
    with switch_to(three.bootstrap_servers.split(",")[0]) as switch:
        producer, consumer = clients_of(switch, topic, make_producer, make_consumer)
        switch.turn_to(kafka_cluster.bootstrap_servers.split(",")[0])
        for node in three.nodes:
            node.kill()
        go_on_with_other_brokers(producer, consumer, topic)
        producer.close()
        consumer.close()


def test_group_and_transactions_follow_their_coordinator_to_a_new_address(
    kafka_cluster: Any,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    wait_until: WaitUntil,
) -> None:
    with moving_broker(kafka_cluster.bootstrap_servers) as moving:
        group_commits_at_both_addresses(moving, topic, make_producer, make_consumer, wait_until)
    with moving_broker(kafka_cluster.bootstrap_servers) as moving:
        transaction_commits_at_the_new_address(moving, topic, make_producer)
