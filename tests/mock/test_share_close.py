"""How the close of a share consumer ends."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from fixture_types import WaitUntil
from machine import WAIT_S

from cykafka import Consumer, KafkaError, ShareConsumer
from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours


@pytest.fixture
def slow() -> Iterator[MockCluster]:
    """A cluster whose responses arrive half a second late."""
    with MockCluster() as cluster:
        cluster.create_topic("topic", 1)
        cluster.set_rtt(500)
        cluster.start_request_tracking()
        yield cluster


@pytest.mark.parametrize("cls", [ShareConsumer, Consumer])
def test_close_while_the_assignment_waits_for_metadata(
    slow: MockCluster, wait_until: WaitUntil, cls: type[Consumer] | type[ShareConsumer]
) -> None:
    config = {"bootstrap.servers": slow.bootstrap_servers, "group.id": "group", "log_level": 3}
    if cls is Consumer:
        config["group.protocol"] = "consumer"
    with cls(config) as consumer:
        consumer.subscribe(["topic"])
        api = "ShareGroupHeartbeat" if cls is ShareConsumer else "ConsumerGroupHeartbeat"

        def asks_for_the_topic() -> bool:
            """Whether the member has sent a Metadata request after its first heartbeat."""
            apis = [request.api for request in slow.requests()]
            return api in apis and "Metadata" in apis[apis.index(api) :]

        wait_until(asks_for_the_topic, timeout=WAIT_S)
        assert consumer.close(WAIT_S) is True


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def send_corrupt_records(cluster: MockCluster, topic: str) -> None:
    """Send a batch of records that says it is gzip's, and is not."""
    records = struct.pack(">hiqqqhii", 1, 0, 0, 0, -1, -1, -1, 1) + b"no gzip"
    batch = struct.pack(">ibI", 0, 2, 0) + records
    batch = struct.pack(">qi", 0, len(batch)) + batch
    request = struct.pack(">hhi", 0, 7, 1) + text(b"test")  # Produce, version 7
    request += struct.pack(">hhii", -1, 1, 10_000, 1) + text(topic.encode())
    request += struct.pack(">iii", 1, 0, len(batch)) + batch
    host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), WAIT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        assert connection.recv(1)  # the response


@pytest.mark.timeout(60)
def test_close_beside_a_batch_of_errors_alone() -> None:
    with MockCluster() as cluster:
        cluster.configure_share_groups(auto_offset_reset="earliest")
        cluster.create_topic("topic", 1)
        send_corrupt_records(cluster, "topic")
        config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "group",
                  "log_level": 3}  # fmt: skip
        consumer = ShareConsumer(config)
        consumer.subscribe(["topic"])
        batch = consumer.consume_batch(timeout=WAIT_S)
        assert (len(batch), len(batch.errors)) == (0, 1)
        assert consumer.close(WAIT_S) is True
        assert batch.errors[0].error().code() == KafkaError._BAD_COMPRESSION
