"""All brokers of a client are gone, or replaced by others behind the same bootstrap address.

Both need librdkafka's `rd_atomic32_set()` to return the old value. Its CMake build returns the
new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from relay import switch_to
from replaced_brokers import clients_of, go_on_with_other_brokers, have_same_records

NO_BROKER = "127.0.0.1:1"


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_error_cb_hears_that_all_brokers_are_down(
    kafka: Any, request: pytest.FixtureRequest, wait_until: Callable[..., None], kind: str
) -> None:
    heard: list[int] = []
    config = {
        "bootstrap.servers": NO_BROKER,
        "error_cb": lambda error: heard.append(error.code()),
        "log_level": 0,
    }
    client = request.getfixturevalue(f"make_{kind}")(config)
    wanted = {kafka.KafkaError._TRANSPORT, kafka.KafkaError._ALL_BROKERS_DOWN}
    wait_until(lambda: wanted <= set(heard), lambda: client.poll(0.1))


def test_clients_go_on_when_all_brokers_are_replaced(
    mock_cluster_factory: Callable[..., Any],
    make_producer: Callable[..., Any],
    make_consumer: Callable[..., Any],
    unique: Callable[[str], str],
) -> None:
    topic = unique("replaced")
    old, new = mock_cluster_factory(brokers=3), mock_cluster_factory(brokers=3)
    have_same_records((old, new), topic, make_producer)
    with switch_to(old.bootstrap_servers.split(",")[0]) as switch:
        producer, consumer = clients_of(switch, topic, make_producer, make_consumer)
        switch.turn_to(new.bootstrap_servers.split(",")[0])
        old.close()
        go_on_with_other_brokers(producer, consumer, topic)
        producer.close()
        consumer.close()
