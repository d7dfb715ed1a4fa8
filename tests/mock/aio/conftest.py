"""Configurations of asynchronous clients for the mock cluster."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_types import Unique

from cykafka.testing import MockCluster


@pytest.fixture
def settings(cluster: Any) -> dict[str, Any]:
    """What every client needs."""
    return {"bootstrap.servers": cluster.bootstrap_servers}


@pytest.fixture
def quick(settings: dict[str, Any]) -> dict[str, Any]:
    """A producer without linger."""
    return {**settings, "linger.ms": 0}


@pytest.fixture
def slow(settings: dict[str, Any]) -> dict[str, Any]:
    """A producer whose records stay in its queue until they are purged."""
    return {**settings, "linger.ms": 60_000}


@pytest.fixture
def unreachable() -> dict[str, Any]:
    """A producer whose brokers do not exist."""
    with MockCluster() as gone:
        return {"bootstrap.servers": gone.bootstrap_servers, "log_level": 2}


@pytest.fixture
def reading(settings: dict[str, Any], unique: Unique) -> dict[str, Any]:
    """A consumer in a group of its own that reads from the start and commits nothing."""
    return {
        **settings,
        "group.id": unique("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 20,
    }


@pytest.fixture
def transactional(settings: dict[str, Any], unique: Unique) -> dict[str, Any]:
    """A producer with a ``transactional.id`` of its own."""
    return {**settings, "linger.ms": 0, "transactional.id": unique("transaction")}
