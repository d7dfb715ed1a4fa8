"""`cykafka consume --share-group`, and share groups in `cykafka groups` and `cykafka configs`."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest
from command_line import Run
from fixture_types import Unique, WaitUntil
from machine import WAIT_S

from cykafka import Producer

pytestmark = pytest.mark.ours


@pytest.fixture
def jobs(cluster: Any, unique: Unique) -> str:
    """A topic of one partition with ten records."""
    name = unique("jobs")
    cluster.create_topic(name, 1)
    send(cluster, name, range(10))
    return name


@pytest.fixture
def workers(run_cli: Run, unique: Unique) -> str:
    """A share group that begins at the first record."""
    name = unique("workers")
    run_cli("configs", "alter", "group", name, "--set", "share.auto.offset.reset=earliest")
    return name


def send(cluster: Any, topic: str, numbers: range) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in numbers:  # separate batches: a poll gets whole batches
            producer.publish(topic, [b"%d" % number], partitions=0).wait(WAIT_S)


def command(cluster: Any, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "cykafka", *arguments, "-b", cluster.bootstrap_servers]


def consume(cluster: Any, *arguments: str) -> list[int]:
    """Run ``cykafka consume`` to its end, and return the numbers that it has printed."""
    done = subprocess.run(
        command(cluster, "consume", *arguments), stdout=subprocess.PIPE, timeout=WAIT_S, check=True
    )
    return [int(line) for line in done.stdout.split()]


def test_members_print_each_record_once(cluster: Any, jobs: str, workers: str) -> None:
    assert consume(cluster, jobs, "--share-group", workers, "-c", "4") == [0, 1, 2, 3]
    # The records after the fourth were released.
    rest = consume(cluster, jobs, "--share-group", workers, "-c", "6")
    assert sorted(rest) == [4, 5, 6, 7, 8, 9]


def test_killed_member_loses_nothing(
    run_cli: Run, cluster: Any, unique: Unique, workers: str
) -> None:
    lock = "share.record.lock.duration.ms=5000"
    run_cli("configs", "alter", "group", workers, "--set", lock)
    topic = unique("large")
    cluster.create_topic(topic, 1)
    values = [b"%d" % number + b" " * 200_000 for number in range(5)]
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.publish(topic, values, partitions=0).wait(WAIT_S)
    killed = subprocess.Popen(
        command(cluster, "consume", topic, "--share-group", workers), stdout=subprocess.PIPE
    )
    with killed:
        assert killed.stdout is not None
        assert killed.stdout.read(1) == b"0"  # the pipe has no room for the rest
        killed.kill()
    assert consume(cluster, topic, "--share-group", workers, "-c", "5") == [0, 1, 2, 3, 4]


def test_interrupted_member_accepts_what_it_has_printed(
    cluster: Any, jobs: str, workers: str
) -> None:
    member = subprocess.Popen(
        command(cluster, "consume", jobs, "--share-group", workers), stdout=subprocess.PIPE
    )
    with member:
        assert member.stdout is not None
        assert [int(member.stdout.readline()) for _ in range(10)] == list(range(10))
        member.send_signal(signal.SIGINT)
        assert member.wait(WAIT_S) == 130
    send(cluster, jobs, range(10, 11))
    assert consume(cluster, jobs, "--share-group", workers, "-c", "1") == [10]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-G", "other"], "-G and --share-group cannot be combined"),
        (["-o", "end"], "--set share.auto.offset.reset=earliest sets where it begins"),
        (["-e"], "the group decides which records"),
        (["--until", "end"], "the group decides which records"),
        (["-p", "0"], "the group decides which records"),
        (["-k", "key"], "the group would lose the other records"),
        (["-X", "session.timeout.ms=6000"], "session.timeout.ms"),
    ],
)
def test_options_without_a_meaning_are_refused(
    run_cli: Run, jobs: str, options: list[str], words: str
) -> None:
    done = run_cli("consume", jobs, "--share-group", "workers", *options, status=2)
    assert words in " ".join(done.error.split())


def test_patterns_are_refused(run_cli: Run) -> None:
    done = run_cli("consume", "^jobs", "--share-group", "workers", status=2)
    assert "share groups have no regular expressions" in " ".join(done.error.split())


def test_groups_shows_share_groups(
    run_cli: Run, cluster: Any, jobs: str, workers: str, wait_until: WaitUntil
) -> None:
    consume(cluster, jobs, "--share-group", workers, "-c", "10")

    row = {"group": workers, "state": None, "type": "share/streams"}
    assert row in run_cli("groups", "list", "--json").rows
    run_cli("groups", "list", workers, "--type", "consumer", status=1)

    done = run_cli("groups", "describe", workers)
    assert done.out.startswith(f"group {workers}: type share/streams\n")
    assert "share.auto.offset.reset" in done.out
    (found,) = run_cli("groups", "describe", workers, "--json").rows
    assert found["configs"]["share.auto.offset.reset"] == "earliest"
    assert found["configs"]["share.delivery.count.limit"] == "5"

    assert "it is not a consumer group" in run_cli("groups", "lag", workers, status=1).error
    for command in (["reset", workers, "--topic", jobs, "--to", "earliest"],
                    ["delete-offsets", workers, jobs]):  # fmt: skip
        refused = run_cli("groups", *command, "--dry-run", status=1)
        assert f"group {workers} is not a consumer group and has no" in refused.error

    wait_until(lambda: run_cli("groups", "delete", workers, "-y", status=None).status == 0)
    rows = run_cli("groups", "list", "--json").rows
    assert workers not in [row["group"] for row in rows]
