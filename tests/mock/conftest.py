"""One mock cluster for the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A mock cluster of one broker, kept for the whole run: tests take topics of their own."""
    from cykafka.testing import MockCluster

    # Members hear of a rebalance with their next heartbeat: often, then.
    with MockCluster(group_consumer_heartbeat_interval_ms=100) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def handles_are_freed(cluster: Any, no_handle_left: None) -> None:
    """The cluster's own handle is there before those of a module are counted."""


@pytest.fixture
def records(
    make_consumer: Callable[..., Any], read: Callable[..., list[Any]]
) -> Callable[..., list[Any]]:
    """Read that many records of a topic, in the order of partitions and offsets."""

    def records(topic: str, count: int) -> list[Any]:
        consumer = make_consumer()
        consumer.subscribe([topic])
        messages = read(consumer, count)
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))

    return records
