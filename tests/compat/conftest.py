"""A mock cluster for programs that run on us under another library's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A mock cluster of one broker, kept for the whole run: tests take topics of their own."""
    from cykafka.testing import MockCluster

    with MockCluster() as cluster:
        yield cluster
