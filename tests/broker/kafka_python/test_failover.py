"""Clients while brokers die and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import Unique

from cykafka.compat.kafka_python import (
    KafkaClient,
    KafkaConsumer,
    SimpleConsumer,
    SimpleProducer,
    create_message,
)
from cykafka.compat.kafka_python.common import (
    ConsumerTimeout,
    FailedPayloadsError,
    FetchRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetRequest,
    ProduceRequest,
)

WAIT_S = 60


@pytest.fixture
def place(three: Any, unique: Unique) -> str:
    """A topic of three nodes."""
    name = unique("topic")
    three.create_topic(name, 4, replication_factor=3)
    return name


@pytest.fixture
def survivor(three: Any) -> Iterator[KafkaClient]:
    """A client of three nodes."""
    client = KafkaClient(three.bootstrap_servers)
    yield client
    client.close()


def node_at(cluster: Any, port: int) -> Any:
    (node,) = [node for node in cluster.nodes if node.bootstrap_servers.endswith(f":{port}")]
    return node


def test_coordinator_moves(three: Any, survivor: KafkaClient, place: str, unique: Unique) -> None:
    group = unique("group")
    commit = OffsetCommitRequest(place, 0, 5, b"")
    survivor.send_offset_commit_request(group, [commit])
    old = survivor.send_consumer_metadata_request(group)
    node_at(three, old.port).kill()
    deadline = time.monotonic() + WAIT_S
    while True:
        (response,) = survivor.send_offset_commit_request(
            group, [commit._replace(offset=6)], fail_on_error=False
        )
        if getattr(response, "error", -1) == 0:
            break
        assert time.monotonic() < deadline, response
    assert survivor.send_consumer_metadata_request(group).nodeId != old.nodeId
    node_at(three, old.port).start()
    for _ in range(20):  # the old node may become the coordinator again
        (found,) = survivor.send_offset_fetch_request(group, [OffsetFetchRequest(place, 0)])
        assert found.offset == 6
        time.sleep(0.2)


def test_leader_dies_under_producers_and_consumers(
    three: Any, survivor: KafkaClient, place: str
) -> None:
    values = [b"%d" % number for number in range(40)]
    consumer = SimpleConsumer(survivor, None, place, partitions=[0])
    found: list[bytes] = []
    for number, value in enumerate(values):
        if number == 20:
            survivor.load_metadata_for_topics(place)
            leader = survivor.topics_to_brokers[(place.encode(), 0)]  # type: ignore[index]
            assert leader is not None
            node_at(three, leader.port or 0).kill()
        (response,) = survivor.send_produce_request(
            [ProduceRequest(place, 0, [create_message(value)])], acks=-1, timeout=30_000
        )
        assert response.error == 0
        found += [item.message.value for item in consumer.get_messages(1, timeout=WAIT_S)]
    consumer.stop()
    assert found == values


def test_commits_while_the_broker_is_down_fail_and_later_ones_succeed(
    kafka_cluster_factory: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = kafka_cluster_factory()
    cluster.create_topic("t", 1)
    client = KafkaClient(cluster.bootstrap_servers, timeout=2)
    SimpleProducer(client).send_messages("t", *[b"x"] * 10)
    consumer = SimpleConsumer(client, "g", "t", auto_commit=False)
    assert len(consumer.get_messages(10, timeout=30)) == 10
    cluster.nodes[0].kill()
    for _ in range(3):
        assert consumer.commit() is False
    assert "saving offsets" in caplog.text
    begun = time.monotonic()
    for _ in range(5):  # librdkafka has noticed that the broker is down
        assert consumer.commit() is False
    assert time.monotonic() - begun < 5  # 2 s each, otherwise
    cluster.nodes[0].start()
    deadline = time.monotonic() + WAIT_S
    while not consumer.commit():
        assert time.monotonic() < deadline
    (found,) = client.send_offset_fetch_request("g", [OffsetFetchRequest("t", 0)])
    assert found.offset == 10
    consumer.stop()
    client.close()


def test_requests_of_a_client_whose_only_broker_is_down(
    kafka_cluster_factory: Callable[..., Any],
) -> None:
    cluster = kafka_cluster_factory()
    cluster.create_topic("t", 1)
    client = KafkaClient(cluster.bootstrap_servers)
    SimpleProducer(client).send_messages("t", *[b"x"] * 30)
    consumer = SimpleConsumer(client, "g", "t", auto_commit_every_n=1, auto_commit_every_t=None)
    assert len(consumer.get_messages(10, timeout=30)) == 10
    assert client.send_fetch_request([FetchRequest("t", 0, 30, 4096)])[0].error == 0
    cluster.nodes[0].kill()
    begun = time.monotonic()
    # Each of them commits, in vain.
    assert sum(len(consumer.get_messages(1, timeout=1)) for _ in range(20)) == 20
    assert time.monotonic() - begun < 25
    deadline = time.monotonic() + WAIT_S
    while True:
        (response,) = client.send_fetch_request([FetchRequest("t", 0, 30, 4096)], False)
        if isinstance(response, FailedPayloadsError):
            break
        assert time.monotonic() < deadline
    assert "the brokers did not respond for t[0]" in str(response)
    while True:  # also if the requests are longer apart than an outage is remembered
        time.sleep(4)
        (response,) = client.send_fetch_request([FetchRequest("t", 0, 30, 4096)], False)
        if isinstance(response, FailedPayloadsError):
            break
        assert time.monotonic() < deadline
    begun = time.monotonic()
    consumer.stop()
    client.close()
    assert time.monotonic() - begun < 5


def test_only_broker_restarts(kafka_cluster_factory: Callable[..., Any]) -> None:
    cluster = kafka_cluster_factory()
    cluster.create_topic("t", 1)
    client = KafkaClient(cluster.bootstrap_servers, timeout=30)
    producer = SimpleProducer(client)
    producer.send_messages("t", b"1")
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="smallest",
        consumer_timeout_ms=2000,
    )
    assert consumer.next().value == b"1"
    cluster.nodes[0].kill()
    begun = time.monotonic()
    with pytest.raises(ConsumerTimeout):
        consumer.next()
    assert time.monotonic() - begun < 20
    cluster.nodes[0].start()
    deadline = time.monotonic() + WAIT_S
    while True:  # a quiet partition is not down
        response = client.send_fetch_request(
            [FetchRequest("t", 0, 1, 4096)], fail_on_error=False, min_bytes=1, max_wait_time=100
        )[0]
        if not isinstance(response, FailedPayloadsError):
            break
        assert time.monotonic() < deadline
    assert client.send_offset_request([OffsetRequest("t", 0, -1, 1)])[0].offsets == (1,)
    producer.send_messages("t", b"2")
    assert consumer.next().value == b"2"
    consumer.close()
    client.close()
