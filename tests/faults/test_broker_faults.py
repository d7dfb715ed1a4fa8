"""Brokers and clients fail while clients of every kind work: each record has its one outcome.

`make soak` has 50 faults. A failed test prints its seed, and its temporary folder keeps the
histories: ``python tests/faults/checker.py FOLDER``.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import checker
import pytest
from brokers import Brokers
from children import Clients
from fixture_types import Unique, WaitUntil
from history import History
from machine import WAIT_S
from repeated import SOAK, kills
from topic_log import records

from cykafka.testing import KafkaCluster

pytestmark = [
    pytest.mark.ours,
    pytest.mark.soak,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not SOAK, reason="three brokers fail for minutes: make soak"),
]

CONFIG = {
    "enable.idempotence": True,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}
# Enough records per second for each fault to hit some.
PACE = {"count": 100, "pause": 0.05}
PARTITIONS = 3
SENDERS = ("publish", "produce", "awaited", "transactions")


@dataclass
class Job:
    """A client that is replaced when it is killed."""

    clients: Clients
    kind: str
    given: dict[str, Any]

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.process: Popen[bytes] = self.clients.start(self.kind, **self.given)

    def kill(self) -> str:
        self.clients.kill(self.process)
        self.start()
        return f"kill the client {self.kind}"

    def end(self) -> None:
        self.clients.end(self.process, 3 * WAIT_S)


@contextmanager
def working(
    cluster: KafkaCluster, folder: Path, senders: tuple[str, ...], readers: dict[str, str]
) -> Iterator[tuple[list[Job], list[Job]]]:
    """Clients of one topic: one of each kind of sender, and two members of each group."""
    config = {**CONFIG, "bootstrap.servers": cluster.bootstrap_servers}
    with Clients(folder, folder.name, config).killed_at_the_end() as clients:
        yield (
            [Job(clients, kind, {"name": f"{folder.name}-{kind}", **PACE}) for kind in senders],
            [Job(clients, kind, {"name": name}) for name, kind in readers.items() for _ in "12"],
        )


@pytest.mark.parametrize("senders", [SENDERS[:3], SENDERS[3:]], ids=["plain", "transactions"])
def test_each_record_has_one_outcome_while_brokers_and_clients_fail(
    kafka_cluster_3: KafkaCluster,
    unique: Unique,
    wait_until: WaitUntil,
    tmp_path: Path,
    senders: tuple[str, ...],
) -> None:
    cluster = kafka_cluster_3
    seed = int(os.environ.get("CYKAFKA_TEST_SEED", random.randrange(2**32)))
    print(f"CYKAFKA_TEST_SEED={seed}")
    dice = random.Random(seed)
    topic, group, shared = unique("faults"), unique("group"), unique("share")
    cluster.create_topic(topic, PARTITIONS, replication_factor=3)
    cluster.tool("kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", shared,
                 "--add-config", "share.auto.offset.reset=earliest,share.isolation.level="
                 "read_committed")  # fmt: skip
    folder = tmp_path / topic
    folder.mkdir()
    history, brokers = History(folder), Brokers(cluster, topic, group, dice)
    readers = {group: "group", shared: "share"}
    with working(cluster, folder, senders, readers) as (sending, reading):
        brokers.wait_until_in_sync()
        for number in range(kills(4, 50)):
            fault = brokers.fail() if number % 2 else dice.choice([*sending, *reading]).kill()
            sending[0].clients.check()
            history.fault(fault)
            print(fault, flush=True)
        time.sleep(2)  # for successes after the last fault
        for job in sending:
            job.end()
        history.log(records(cluster, topic, PARTITIONS))
        count = checker.check(folder).counts["in the log"]
        for reader in readers:
            wait_until(
                lambda reader=reader: checker.handed_over(folder, reader) == count,
                lambda: time.sleep(2),
                3 * WAIT_S,
            )
            history.finished(reader)
        for job in reading:
            job.end()
    brokers.close()
    history.close()

    verdict = checker.check(folder)
    print(verdict)
    assert verdict.faults == {}
    assert verdict.counts["stored"] > 0
