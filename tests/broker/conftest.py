"""Real brokers for the whole run; the clients of tests/conftest.py are theirs here."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def cluster(kafka_cluster: Any) -> Any:
    """Real brokers, kept for the whole run: tests take topics of their own."""
    return kafka_cluster


@pytest.fixture(scope="session")
def own_brokers() -> None:
    """Brokers can be started here, by tests that do so in processes of their own."""
    from cykafka.testing import NoBrokerError
    from cykafka.testing._artifacts import classpath, java
    from cykafka.testing.plugin import no_broker

    try:
        java()
        classpath()
    except NoBrokerError as error:
        no_broker(error)


@pytest.fixture(scope="module", autouse=True)
def handles_are_freed(no_handle_left: None) -> None:
    """The clients of a module are gone at its end."""
