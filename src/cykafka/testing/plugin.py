"""pytest fixtures for an embedded cluster, registered by the package's ``pytest11`` entry point.

pytest imports this module in every run, so it loads the client only when a fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cykafka.testing.cluster import MockCluster


@pytest.fixture
def mock_cluster_factory() -> Iterator[Callable[..., MockCluster]]:
    """A function that takes MockCluster's arguments; what it makes is closed after the test."""
    from cykafka.testing.cluster import MockCluster

    with ExitStack() as clusters:

        def make(*args: Any, **kwargs: Any) -> MockCluster:
            return clusters.enter_context(MockCluster(*args, **kwargs))

        yield make


@pytest.fixture
def mock_cluster(mock_cluster_factory: Callable[..., MockCluster]) -> MockCluster:
    """A fresh MockCluster of one broker, closed after the test."""
    return mock_cluster_factory()
