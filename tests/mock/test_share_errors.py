"""ShareConsumer: after an error of the group, the session or a record, no record is lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from machine import WAIT_S

from cykafka import KafkaError, MessageBatch, Producer, ShareConsumer
from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

VALUES = (b"a", b"b", b"c")


@pytest.fixture
def sharing(topic: str) -> Iterator[MockCluster]:
    """Brokers with a topic of one partition, in whose share groups locks expire soon."""
    with MockCluster() as cluster:
        cluster.configure_share_groups(
            auto_offset_reset="earliest", heartbeat_interval_ms=100, record_lock_duration_ms=500
        )
        cluster.create_topic(topic, 1)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.publish(topic, list(VALUES), partitions=0).wait(WAIT_S)
        yield cluster


@pytest.fixture
def make_share(sharing: MockCluster, topic: str) -> Callable[[], ShareConsumer]:
    """Create a subscribed member in explicit mode."""

    def make() -> ShareConsumer:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": sharing.bootstrap_servers,
                "group.id": "g",
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        return consumer

    return make


def accept(consumer: ShareConsumer, batch: MessageBatch) -> list[bytes | None]:
    """Accept the records of a batch. Return their values if the group has accepted them."""
    values = batch.values()
    consumer.acknowledge(batch)
    results = consumer.commit_sync(WAIT_S)
    return values if set(results.values()) == {None} else []


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("ShareGroupHeartbeat", KafkaError.UNKNOWN_MEMBER_ID),
        ("ShareGroupHeartbeat", KafkaError.FENCED_MEMBER_EPOCH),
        ("ShareGroupHeartbeat", KafkaError.NOT_COORDINATOR),
        ("ShareGroupHeartbeat", KafkaError._TRANSPORT),
        ("ShareFetch", KafkaError.SHARE_SESSION_NOT_FOUND),
        ("ShareFetch", KafkaError.INVALID_SHARE_SESSION_EPOCH),
        ("ShareFetch", KafkaError.FENCED_STATE_EPOCH),
        ("ShareFetch", KafkaError._TRANSPORT),
        ("ShareAcknowledge", KafkaError.SHARE_SESSION_NOT_FOUND),
        ("ShareAcknowledge", KafkaError.INVALID_SHARE_SESSION_EPOCH),
        ("ShareAcknowledge", KafkaError.INVALID_RECORD_STATE),
        ("ShareAcknowledge", KafkaError.FENCED_STATE_EPOCH),
        ("ShareAcknowledge", KafkaError.UNKNOWN_MEMBER_ID),
        ("ShareAcknowledge", KafkaError._TRANSPORT),
    ],
)
def test_each_record_is_accepted_once(
    sharing: MockCluster, make_share: Callable[[], ShareConsumer], api: str, error: int
) -> None:
    accepted: Counter[bytes | None] = Counter()
    with make_share() as first:
        acquired = first.consume_batch(WAIT_S)
        assert acquired.values() == list(VALUES)
        sharing.start_request_tracking()
        sharing.push_request_errors(api, [error])
        accepted.update(accept(first, acquired))
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            accepted.update(accept(first, first.consume_batch(0.5)))
            if len(accepted) == len(VALUES):
                break
        sharing.wait_for_requests(api)
    with make_share() as second:
        accepted.update(accept(second, second.consume_batch(1)))
    assert accepted == dict.fromkeys(VALUES, 1)
