"""pytest fixtures for Kafka clusters, registered by the package's ``pytest11`` entry point.

pytest imports this module in every run, so it loads the client only when a test uses a fixture.

The fixtures take real brokers from the first available source: the address in
``CYKAFKA_TEST_BOOTSTRAP``; a container, if testcontainers is installed and an engine responds;
Java processes (see `cykafka.testing.KafkaCluster`). If brokers are unavailable, a test that needs
them is skipped with the reason, or fails if ``CYKAFKA_REQUIRE_BROKER=1``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from cykafka.testing.cluster import MockCluster
    from cykafka.testing.kafka import KafkaCluster, RealCluster

C = TypeVar("C", bound="RealCluster")

_KEPT = pytest.StashKey[list[Path]]()
_KEPT_BY_WORKER = "cykafka_logs"


@pytest.fixture
def mock_cluster_factory() -> Iterator[Callable[..., MockCluster]]:
    """A function that creates MockClusters from their arguments and closes them after the test."""
    from cykafka.testing.cluster import MockCluster

    with ExitStack() as clusters:

        def make(*args: Any, **kwargs: Any) -> MockCluster:
            return clusters.enter_context(MockCluster(*args, **kwargs))

        yield make


@pytest.fixture
def mock_cluster(mock_cluster_factory: Callable[..., MockCluster]) -> MockCluster:
    """A new MockCluster with one broker. It is closed after the test."""
    return mock_cluster_factory()


@pytest.fixture(scope="session")
def kafka_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """One or more real brokers for the whole run. Use your own topics and groups.

    The workers of pytest-xdist share them.
    """
    from cykafka.testing._provide import any_cluster, shared_cluster

    starting: AbstractContextManager[RealCluster] = (
        shared_cluster(tmp_path_factory.getbasetemp().parent / "kafka")
        if hasattr(request.config, "workerinput") and "CYKAFKA_TEST_BOOTSTRAP" not in os.environ
        else any_cluster()
    )
    with _started(request, starting) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_cluster_3(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A KafkaCluster of three nodes for the whole run. A test that stops a node restarts it."""
    from cykafka.testing._provide import own_cluster

    with _started(request, own_cluster(nodes=3)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_cluster_factory(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., KafkaCluster]]:
    """A function that creates KafkaClusters from their arguments; closes them after the module."""
    from cykafka.testing._provide import own_cluster

    with ExitStack() as clusters:

        def make(nodes: int = 1, **options: Any) -> KafkaCluster:
            return clusters.enter_context(_started(request, own_cluster(nodes=nodes, **options)))

        yield make


def no_broker(reason: Exception) -> NoReturn:
    """Skip a test that lacks a broker, or fail it with CYKAFKA_REQUIRE_BROKER=1."""
    if os.environ.get("CYKAFKA_REQUIRE_BROKER") == "1":
        pytest.fail(f"CYKAFKA_REQUIRE_BROKER=1, but: {reason}", pytrace=False)
    pytest.skip(f"no broker: {reason}")


@contextmanager
def _started(request: pytest.FixtureRequest, starting: AbstractContextManager[C]) -> Iterator[C]:
    """Start a cluster or skip the test; keep the logs if a test with the cluster failed."""
    from cykafka.testing._process import NoBrokerError

    failed_before = request.session.testsfailed
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(starting)
        except NoBrokerError as error:
            no_broker(error)
        yield cluster
        if request.session.testsfailed > failed_before and (kept := cluster.keep_logs()):
            request.config.stash.setdefault(_KEPT, []).append(kept)
            if hasattr(request.config, "workeroutput"):  # pass the path to the worker's controller
                folders = request.config.workeroutput.setdefault(_KEPT_BY_WORKER, [])
                folders.append(str(kept))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Collect the log paths that a pytest-xdist worker has kept."""
    folders = getattr(node, "workeroutput", {}).get(_KEPT_BY_WORKER, [])
    node.config.stash.setdefault(_KEPT, []).extend(map(Path, folders))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the directories of the brokers' logs if tests failed."""
    for folder in config.stash.get(_KEPT, []):
        terminalreporter.write_line(f"logs of Kafka brokers: {folder}")
