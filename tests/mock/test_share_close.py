"""How the close of a share consumer ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixture_types import WaitUntil
from machine import WAIT_S

from cykafka import Consumer, ShareConsumer
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
