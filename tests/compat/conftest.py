"""A mock cluster for programs that import cykafka under another library's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A mock cluster of one broker, kept for the whole run. Each test uses its own topics."""
    from cykafka.testing import MockCluster

    with MockCluster() as cluster:
        yield cluster
