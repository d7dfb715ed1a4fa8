"""Sources of brokers for tests: an address, a container, or Java processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from cykafka.testing._errors import NoBrokerError
from cykafka.testing._process import HOST, Port
from cykafka.testing._real import RealCluster
from cykafka.testing._settings import PLAINTEXT, Endpoint, server_properties
from cykafka.testing.kafka import KafkaCluster

ADDRESS = "CYKAFKA_TEST_BOOTSTRAP"
_IMAGE = "apache/kafka:4.3.0"
_CONTAINER_DATA = "/tmp/kafka-data"
_CONTAINER_CONTROLLER = "127.0.0.1:9093"
_CONTAINER_READY = "Kafka Server started"
_CONTAINER_TIMEOUT_S = 120


class ExternalCluster(RealCluster):
    """Brokers that already run; a test cannot stop or pause them.

    Parameters
    ----------
    bootstrap_servers : str
        ``host:port,...`` of a listener without authentication.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def __repr__(self) -> str:
        return f"<ExternalCluster at {self._bootstrap_servers}>"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the brokers, joined by commas; for ``bootstrap.servers``."""
        return self._bootstrap_servers

    def _askable(self) -> list[str]:
        return [self._bootstrap_servers]


@contextmanager
def any_cluster() -> Iterator[RealCluster]:
    """One or more brokers, from the first source that has any.

    Raises
    ------
    NoBrokerError
        If no source has brokers; the message has the reason of each.
    """
    if address := os.environ.get(ADDRESS):
        yield ExternalCluster(address)
        return
    with ExitStack() as stack:
        cluster: RealCluster
        try:
            cluster = stack.enter_context(_container())
        except NoBrokerError as no_container:
            try:
                cluster = stack.enter_context(KafkaCluster())
            except NoBrokerError as no_java:
                raise NoBrokerError(
                    f"{ADDRESS} is not set; {no_container}; {no_java}"
                ) from no_java
        yield cluster


@contextmanager
def own_cluster(**options: Any) -> Iterator[KafkaCluster]:
    """A KafkaCluster, for tests that kill nodes or choose the settings.

    Raises
    ------
    NoBrokerError
        If it cannot be started here, or the tests must use the brokers of an address.
    """
    if address := os.environ.get(ADDRESS):
        raise NoBrokerError(
            f"the brokers at {address} ({ADDRESS}) are not under the test's control"
        )
    with KafkaCluster(**options) as cluster:
        yield cluster


@contextmanager
def _container() -> Iterator[ExternalCluster]:
    """One broker in a container, if testcontainers is installed and an engine answers."""
    try:
        import docker  # type: ignore[import,unused-ignore]
        from testcontainers.core.container import (  # type: ignore[import,unused-ignore]
            DockerContainer,
        )
        from testcontainers.core.waiting_utils import (  # type: ignore[import,unused-ignore]
            wait_for_logs,
        )
    except ImportError:
        raise NoBrokerError("testcontainers is not installed") from None
    try:
        docker.from_env().ping()
    except Exception as error:  # every error of the engine's client means: no engine
        raise NoBrokerError(f"no container engine answers: {error}") from None
    with Port() as port:
        endpoint = Endpoint(PLAINTEXT, "PLAINTEXT", HOST, port.number)
        number = port.number
    container = DockerContainer(_IMAGE).with_bind_ports(number, number)
    settings = server_properties(1, _CONTAINER_DATA, [endpoint], {1: _CONTAINER_CONTROLLER})
    # The engine forwards the port to the container's own address.
    settings["listeners"] = settings["listeners"].replace(f"//{endpoint.address}", f"//:{number}")
    for key, value in settings.items():
        container = container.with_env(f"KAFKA_{key.upper().replace('.', '_')}", value)
    try:
        container.start()
    except Exception as error:
        raise NoBrokerError(f"the container engine cannot run {_IMAGE}: {error}") from error
    try:
        wait_for_logs(container, _CONTAINER_READY, timeout=_CONTAINER_TIMEOUT_S)
        yield ExternalCluster(endpoint.address)
    finally:
        container.stop()
