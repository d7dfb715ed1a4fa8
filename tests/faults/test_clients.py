"""The clients of the fault tests write right histories, and the checker sees a wrong client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import checker
import pytest
from children import Clients
from fixture_types import WaitUntil
from history import History, identity
from machine import WAIT_S

from cykafka import Consumer, TopicPartition
from cykafka.testing import MockCluster

TOPIC, PARTITIONS = "orders", 4


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(brokers=3) as made:
        made.create_topic(TOPIC, PARTITIONS, 3)
        yield made


@pytest.fixture
def clients(cluster: MockCluster, tmp_path: Path) -> Iterator[Clients]:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}
    with Clients(tmp_path, TOPIC, config).killed_at_the_end() as made:
        yield made


def lines(folder: Path, table: str) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob(f"{table}-*.csv"))


def write_log(cluster: MockCluster, folder: Path) -> None:
    """The mock has no consumer of Kafka."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "enable.partition.eof": True,
              "group.id": "log"}  # fmt: skip
    history, ends = History(folder), 0
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(TOPIC, part, 0) for part in range(PARTITIONS)])
        while ends < PARTITIONS:
            with consumer.consume_batch(10_000, 0.1) as batch:
                ends += len(batch.errors)
                rows = zip(batch.partitions, batch.offsets, batch.values(), strict=True)
                history.log((part, at, *identity(data)) for part, at, data in rows)
    history.close()


@pytest.mark.parametrize("kind", ["publish", "produce", "awaited"])
def test_a_sender_writes_what_it_sends(
    cluster: MockCluster,
    clients: Clients,
    tmp_path: Path,
    wait_until: WaitUntil,
    kind: str,
) -> None:
    client = clients.start(kind, count=100, most=5)  # the mock keeps 5 MB of a partition
    wait_until(lambda: lines(tmp_path, "ends"))
    clients.end(client, WAIT_S)
    write_log(cluster, tmp_path)

    verdict = checker.check(tmp_path)

    assert verdict.faults == {}
    assert verdict.counts["stored"] == verdict.counts["in the log"] == 500


def test_a_killed_sender_loses_no_acknowledged_record(
    cluster: MockCluster,
    clients: Clients,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    for _ in range(3):
        before = lines(tmp_path, "outcomes")
        client = clients.start("publish", count=10, most=1000)
        wait_until(lambda before=before: lines(tmp_path, "outcomes") > before + 100)
        clients.kill(client)
    write_log(cluster, tmp_path)

    verdict = checker.check(tmp_path)

    assert verdict.faults == {}
    assert verdict.counts["stored"] > 300


@pytest.mark.parametrize("kind", ["group", "share"])
def test_members_hand_over_every_record(
    cluster: MockCluster,
    clients: Clients,
    tmp_path: Path,
    wait_until: WaitUntil,
    kind: str,
) -> None:
    cluster.configure_share_groups(session_timeout_ms=1000, auto_offset_reset="earliest")
    config = {} if kind == "share" else {"session.timeout.ms": 1000, "heartbeat.interval.ms": 100}
    first = clients.start(kind, name="readers", count=100, more=config)
    sender = clients.start("publish", count=100, most=100)
    wait_until(lambda: lines(tmp_path, "reads") > 300)
    clients.kill(first)
    second = clients.start(kind, name="readers", more=config)
    wait_until(lambda: lines(tmp_path, "ends"))
    clients.end(sender, WAIT_S)
    write_log(cluster, tmp_path)
    wait_until(lambda: checker.handed_over(tmp_path, "readers") == 10_000)
    clients.end(second, WAIT_S)
    finished = History(tmp_path)
    finished.finished("readers")
    finished.close()

    assert checker.check(tmp_path).faults == {}
