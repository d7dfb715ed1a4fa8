"""No order of a consumer's calls ends the process, with real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from orders import PROTOCOLS, Child, test_no_order_ends_the_process  # noqa: F401
from orders_child import TOPICS

pytestmark = pytest.mark.ours


@pytest.fixture(scope="module")
def topics(cluster: Any) -> None:
    for topic in TOPICS:
        cluster.create_topic(topic, 2)


@pytest.fixture(scope="module", params=PROTOCOLS)
def child(request: pytest.FixtureRequest, cluster: Any, topics: None) -> Iterator[Child]:
    child = Child({"bootstrap.servers": cluster.bootstrap_servers, **PROTOCOLS[request.param]})
    yield child
    assert child.end() == ""
