"""Idempotent producers: order, and each record once, while their connections break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S
from relay import relay_before

from cykafka import Consumer, ElectionType, Producer, TopicPartition
from cykafka.admin import AdminClient

pytestmark = pytest.mark.ours

RECORDS, CUTS = 20_000, 10


def test_records_keep_their_order_and_are_there_once_when_connections_break(
    cluster: Any, topic: str
) -> None:
    delivered: list[int] = []
    with relay_before(cluster.bootstrap_servers) as relay:
        config = {
            "bootstrap.servers": relay.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 20,
            "reconnect.backoff.ms": 10,
            "retry.backoff.ms": 10,
            "log_level": 0,
        }
        with Producer(config) as producer:

            def note(error: Any, message: Any) -> None:
                assert error is None
                delivered.append(int(message.value()))

            for number in range(RECORDS):
                producer.produce(topic, str(number), partition=0, on_delivery=note)
                if number % (RECORDS // CUTS) == RECORDS // CUTS - 1:
                    before = len(delivered)
                    while len(delivered) == before:  # requests are on their way
                        producer.poll(0.01)
                    relay.cut()
            assert producer.flush(WAIT_S) == 0
    assert delivered == list(range(RECORDS))
    check_content(cluster.bootstrap_servers, topic, RECORDS)


def test_records_keep_their_order_and_are_there_once_when_the_leader_changes(
    three: Any, unique: Callable[[str], str], wait_until: Callable[..., None]
) -> None:
    topic = unique("led")
    three.create_topic(topic, 1, 3)
    sent, delivered, leaders = 0, [], []
    servers = {"bootstrap.servers": three.bootstrap_servers, "log_level": 0}
    config = {
        **servers,
        "enable.idempotence": True,
        "linger.ms": 0,
        "batch.num.messages": 20,
        "reconnect.backoff.ms": 10,
        "retry.backoff.ms": 10,
    }
    with Producer(config) as producer, AdminClient(servers) as admin:

        def note(error: Any, message: Any) -> None:
            assert error is None
            delivered.append(int(message.value()))

        def send() -> None:
            nonlocal sent
            while len(producer) < 1_000:
                producer.produce(topic, str(sent), partition=0, on_delivery=note)
                sent += 1
            producer.poll(0.005)

        def partition() -> Any:
            return admin.list_topics(topic, WAIT_S).topics[topic].partitions[0]

        def led_by_another() -> bool:
            return partition().leader not in (-1, leaders[-1])

        def more_delivered() -> bool:
            return len(delivered) > before

        leaders.append(partition().leader)
        node = three.nodes[leaders[0] - 1]
        for change in (node.kill, lambda: elect(admin, topic)):
            before = len(delivered)
            wait_until(more_delivered, send)  # requests are on their way
            change()
            wait_until(led_by_another, send)
            leaders.append(partition().leader)
            before = len(delivered)
            wait_until(more_delivered, send)
            if not node.alive:
                node.start()
                wait_until(lambda: len(partition().isrs) == 3, send)
        assert producer.flush(WAIT_S) == 0
    assert leaders[2] == leaders[0] != leaders[1]
    assert delivered == list(range(sent))
    check_content(three.bootstrap_servers, topic, sent)


def elect(admin: AdminClient, topic: str) -> None:
    """Give the partition back to its preferred leader."""
    place = TopicPartition(topic, 0)
    assert admin.elect_leaders(ElectionType.PREFERRED, [place]).result() == {place: None}


def check_content(servers: str, topic: str, count: int) -> None:
    """Check that the partition has the numbers up to `count`, once and in their order."""
    with Consumer({"bootstrap.servers": servers, "group.id": topic}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        while len(found) < count:
            found += [int(message.value()) for message in consumer.consume(count, WAIT_S)]
        assert found == list(range(count))
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)[1] == count
