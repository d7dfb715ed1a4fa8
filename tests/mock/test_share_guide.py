"""The Python of docs/share-groups.md runs and does what the page says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fixture_types import MakeConsumer
from guides import blocks
from machine import WAIT_S

from cykafka import AcknowledgeType, Producer, ShareConsumer, TopicPartition
from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

READ, EXPLICIT, POISON = blocks("docs/share-groups.md")


class Stop(BaseException):
    """Ends an example's loop. `except Exception` does not catch it."""


@pytest.fixture
def sharing() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        cluster.configure_share_groups(auto_offset_reset="earliest", heartbeat_interval_ms=100)
        for topic in ("orders", "orders.dead"):
            cluster.create_topic(topic, 1)
        yield cluster


@pytest.fixture
def producer(sharing: MockCluster) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": sharing.bootstrap_servers}) as producer:
        yield producer


def run(cluster: MockCluster, block: str, names: dict[str, Any]) -> None:
    """Run an example until a function that it calls raises Stop."""
    source = block.replace("localhost:9092", cluster.bootstrap_servers)
    with pytest.raises(Stop):
        exec(compile(source, "docs/share-groups.md", "exec"), names)


def test_implicit_mode_accepts_what_is_processed(sharing: MockCluster, producer: Producer) -> None:
    producer.publish("orders", [b"1", b"2"]).wait(WAIT_S)
    mails: list[bytes] = []

    def send_mail(order: bytes) -> None:
        if order == b"stop":
            raise Stop
        mails.append(order)
        if len(mails) == 2:
            producer.publish("orders", [b"stop"]).wait(WAIT_S)

    run(sharing, READ, {"send_mail": send_mail})
    assert mails == [b"1", b"2"]
    # Only the last record was not accepted.
    with member(sharing, "mails") as consumer:
        (again,) = consumer.poll(WAIT_S)
        assert again.value() == b"stop"


def test_explicit_mode_releases_what_failed(sharing: MockCluster, producer: Producer) -> None:
    producer.publish("orders", [b"good", b"bad"]).wait(WAIT_S)
    calls: list[bytes] = []

    def send_mail(order: bytes) -> bool:
        calls.append(order)
        if calls.count(b"bad") == 3:
            raise Stop
        return order == b"good"

    import cykafka

    config = {"bootstrap.servers": sharing.bootstrap_servers, "group.id": "explicit"}
    names: dict[str, Any] = {"cykafka": cykafka, "config": config, "send_mail": send_mail}
    run(sharing, EXPLICIT, names)
    names["consumer"].close()
    assert calls == [b"good", b"bad", b"bad", b"bad"]


def test_poison_records_become_dead_letters(
    sharing: MockCluster, producer: Producer, make_consumer: MakeConsumer
) -> None:
    producer.publish(
        "orders", [b"good", b"poison"], keys=["a", "b"], headers=[[("h", b"1")], [("h", b"2")]]
    ).wait(WAIT_S)
    calls: list[tuple[bytes | None, int | None]] = []

    def handle(message: Any) -> None:
        calls.append((message.value(), message.delivery_count()))
        if message.value() == b"stop":
            raise Stop
        if message.value() == b"poison":
            if message.delivery_count() == 3:
                producer.publish("orders", [b"stop"]).wait(WAIT_S)
            raise ValueError("no such customer")

    with member(sharing, "poison") as consumer:
        consumer.subscribe(["orders"])
        names = {
            "consumer": consumer, "handle": handle, "dead_letters": producer,
            "AcknowledgeType": AcknowledgeType,
        }  # fmt: skip
        run(sharing, POISON, names)
    assert calls == [(b"good", 1), (b"poison", 1), (b"poison", 2), (b"poison", 3), (b"stop", 1)]
    reader = make_consumer({"bootstrap.servers": sharing.bootstrap_servers})
    reader.assign([TopicPartition("orders.dead", 0, 0)])
    (dead,) = reader.consume(1, WAIT_S)
    assert (dead.key(), dead.value()) == (b"b", b"poison")
    assert dead.headers() == [("h", b"2"), ("error", b"ValueError('no such customer')")]
    # The rejected record never comes again.
    with member(sharing, "poison") as consumer:
        (again,) = consumer.poll(WAIT_S)
        assert again.value() == b"stop"
        consumer.acknowledge(again)
        assert len(consumer.poll(0.5)) == 0


def member(cluster: MockCluster, group: str) -> ShareConsumer:
    """A member in explicit mode, which is subscribed."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 3,
        }
    )
    consumer.subscribe(["orders"])
    return consumer
