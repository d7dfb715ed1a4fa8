"""Members whose coordinator does not know the heartbeat of their group protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from machine import WAIT_S

from cykafka import Consumer, KafkaError, KafkaException, ShareConsumer
from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours


@pytest.fixture
def old() -> Iterator[MockCluster]:
    """A cluster as of Kafka 3, which has neither KIP-848 nor share groups."""
    with MockCluster() as cluster:
        cluster.create_topic("topic", 1)
        for api in ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat"):
            cluster.set_api_versions(api, -1, -1)
        yield cluster


def test_share_consumer_says_which_kafka_it_needs(old: MockCluster) -> None:
    config = {"bootstrap.servers": old.bootstrap_servers, "group.id": "group", "log_level": 3}
    with ShareConsumer(config) as consumer:
        consumer.subscribe(["topic"])
        for _ in range(2):  # a loop that catches errors learns it again
            with pytest.raises(KafkaException, match=r"share groups need Kafka 4\.2") as caught:
                consumer.poll(WAIT_S)
            error = caught.value.args[0]
            assert error == KafkaError._UNSUPPORTED_FEATURE
            assert error.fatal()
        assert consumer.close(WAIT_S) is True


def test_consumer_reports_a_protocol_that_the_broker_does_not_have(old: MockCluster) -> None:
    config = {
        "bootstrap.servers": old.bootstrap_servers, "group.id": "group",
        "group.protocol": "consumer",
    }  # fmt: skip
    with Consumer(config) as consumer:
        consumer.subscribe(["topic"])
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.fatal()
        assert "ConsumerGroupHeartbeat fatal error: Local: Required feature" in error.str()
