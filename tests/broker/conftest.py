"""Real brokers for the whole run. In this folder the clients of tests/conftest.py use them."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from fixture_types import CodeOf, WaitUntil
from machine import WAIT_S

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cykafka import TopicPartition
    from cykafka.admin import AdminClient, ClusterMetadata
    from cykafka.testing import KafkaCluster


@pytest.fixture(scope="session")
def cluster(kafka_cluster: Any) -> Any:
    """Real brokers, kept for the whole run. Each test uses its own topics."""
    _make_coordinators(kafka_cluster.bootstrap_servers)
    return kafka_cluster


def _make_coordinators(servers: str) -> None:
    """Make brokers create the topics of groups and transactions, and wait until they serve them.

    Until then a request for the offsets of a group fails.
    """
    import cykafka

    group = {"bootstrap.servers": servers, "group.id": "first", "fetch.wait.max.ms": 20}
    with cykafka.Consumer(group) as consumer:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                consumer.committed([cykafka.TopicPartition("first", 0)], WAIT_S)
                break
            except cykafka.KafkaException:
                if time.monotonic() > deadline:
                    raise
    config = {"bootstrap.servers": servers, "transactional.id": "first", "log_level": 3}
    with cykafka.Producer(config) as producer:
        producer.init_transactions(WAIT_S)


@pytest.fixture
def three(kafka_cluster_3: KafkaCluster, wait_until: WaitUntil) -> Iterator[KafkaCluster]:
    """Three nodes. After the test all nodes run and all replicas are in sync.

    If a test killed the only node in sync, many partitions would have no leader.
    """
    yield kafka_cluster_3
    for node in kafka_cluster_3.nodes:
        node.resume()
        node.start(wait=False)
    for node in kafka_cluster_3.nodes:
        node.wait_ready()
    from cykafka.admin import AdminClient

    with AdminClient({"bootstrap.servers": kafka_cluster_3.bootstrap_servers}) as client:
        wait_until(lambda: _in_sync(client.list_topics(timeout=WAIT_S)))


def _in_sync(metadata: ClusterMetadata) -> bool:
    return all(
        set(partition.isrs) == set(partition.replicas)
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
    )


@pytest.fixture(scope="session")
def own_brokers() -> None:
    """Skip if this machine cannot start brokers; for tests that start them in other processes."""
    from cykafka.testing import NoBrokerError
    from cykafka.testing._java import classpath, java
    from cykafka.testing.plugin import no_broker

    try:
        java()
        classpath()
    except NoBrokerError as error:
        no_broker(error)


@pytest.fixture(scope="module", autouse=True)
def handles_are_freed(no_handle_left: None) -> None:
    """Fail a module that leaves clients alive."""


@pytest.fixture(scope="session")
def api(kafka: ModuleType) -> ModuleType:
    """The `admin` module of the module under test."""
    return importlib.import_module(f"{kafka.__name__}.admin")


@pytest.fixture
def alice_alone_administers(secured: KafkaCluster) -> Iterator[None]:
    """Only alice may administer the secured cluster while the test runs."""
    from cykafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    rule = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:alice", "*",
            AclOperation.ALL, AclPermissionType.ALLOW)  # fmt: skip

    with AdminClient({"bootstrap.servers": secured.bootstrap_servers}) as admin:

        def wait_for(count: int) -> None:
            deadline = time.monotonic() + WAIT_S
            while len(admin.describe_acls(AclBindingFilter(*rule)).result(WAIT_S)) != count:
                assert time.monotonic() < deadline

        for made in admin.create_acls([AclBinding(*rule)]).values():
            made.result(WAIT_S)
        wait_for(1)
        yield
        for deleted in admin.delete_acls([AclBindingFilter(*rule)]).values():
            deleted.result(WAIT_S)
        wait_for(0)


@pytest.fixture
def make_admin(api: ModuleType, cluster: Any) -> Iterator[Callable[..., AdminClient]]:
    """Make administrative clients of the cluster, and close them after the test."""
    with contextlib.ExitStack() as clients:

        def make(**config: Any) -> AdminClient:
            base = {"bootstrap.servers": cluster.bootstrap_servers}
            client: AdminClient = api.AdminClient({**base, **config})
            return clients.enter_context(client)

        yield make


@pytest.fixture
def admin(make_admin: Callable[..., AdminClient]) -> AdminClient:
    return make_admin()


@pytest.fixture
def result_of() -> Callable[[Any], Any]:
    """Return the result of the only future of an answer, which is a dict or the future itself."""

    def result(answer: Any) -> Any:
        if isinstance(answer, dict):
            (answer,) = answer.values()
        return answer.result(WAIT_S)

    return result


@pytest.fixture
def code_of(kafka: ModuleType) -> CodeOf:
    """Return the code of the error that a future fails with."""

    def code(future: Future[Any]) -> int:
        failure = future.exception(WAIT_S)
        assert isinstance(failure, kafka.KafkaException), failure
        return int(failure.args[0].code())

    return code


@pytest.fixture
def delete_topic(admin: AdminClient) -> Callable[[str], None]:
    def delete_topic(name: str) -> None:
        admin.delete_topics([name])[name].result()

    return delete_topic


@pytest.fixture
def add_partitions(admin: AdminClient, api: ModuleType) -> Callable[[str, int], None]:
    """Increase the partitions of a topic to a total."""

    def add_partitions(name: str, total: int) -> None:
        admin.create_partitions([api.NewPartitions(name, total)])[name].result()

    return add_partitions


@pytest.fixture
def delete_records(admin: AdminClient, kafka: ModuleType) -> Callable[[TopicPartition, int], None]:
    """Delete the records of a partition before an offset."""

    def delete_records(partition: TopicPartition, before: int) -> None:
        asked = kafka.TopicPartition(partition.topic, partition.partition, before)
        for future in admin.delete_records([asked]).values():
            future.result()

    return delete_records


@pytest.fixture
def run_cli(
    cluster: Any, capsys: pytest.CaptureFixture[str], own_profiles: None
) -> Callable[..., Any]:
    """Run the command ``cykafka`` with the cluster; see `command_line.runner`."""
    from command_line import runner

    return runner(cluster.bootstrap_servers, capsys)


@pytest.fixture
def own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the profiles of the user who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("CYKAFKA_PROFILE", "CYKAFKA_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
