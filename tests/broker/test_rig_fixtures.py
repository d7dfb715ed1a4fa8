"""The pytest fixtures as a user's tests get them, with and without brokers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ours

WAIT_S = 120.0
TESTS = """
def test_any(kafka_cluster):
    assert kafka_cluster.bootstrap_servers

def test_three(kafka_cluster_3):
    assert len(kafka_cluster_3.nodes) == 3
"""
FAILING = """
def test_fails(kafka_cluster_factory):
    assert not kafka_cluster_factory().nodes
"""
SHARED = """
import pytest

@pytest.mark.parametrize("number", range(2))
def test_address(kafka_cluster, number, worker_id):
    print(f"{worker_id} has {kafka_cluster.bootstrap_servers}")
    assert not number
"""


def run(
    folder: Path, tests: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / "test_users.py").write_text(tests)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CYKAFKA_REQUIRE_BROKER", "CYKAFKA_TEST_BOOTSTRAP", "JAVA_HOME")
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments,
         str(folder)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd=folder,
        env={**inherited, **environment},
        check=False,
    )  # fmt: skip


def test_no_broker_skips_with_the_reason(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, PATH=str(tmp_path))

    assert done.returncode == 0, done.stdout
    assert "2 skipped" in done.stdout
    for reason in ("CYKAFKA_TEST_BOOTSTRAP is not set", "Java 17", "apt-get install"):
        assert reason in done.stdout


def test_no_broker_fails_where_one_is_required(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, PATH=str(tmp_path), CYKAFKA_REQUIRE_BROKER="1")

    assert done.returncode == 1
    assert "2 errors" in done.stdout
    assert "CYKAFKA_REQUIRE_BROKER=1, but: " in done.stdout


def test_given_address_is_used_and_not_controlled(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, PATH=str(tmp_path), CYKAFKA_TEST_BOOTSTRAP="kafka.example:9092")

    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    assert "the brokers at kafka.example:9092" in done.stdout


@pytest.mark.usefixtures("own_brokers")
def test_failed_test_keeps_the_logs_and_prints_their_path(tmp_path: Path) -> None:
    kept = tmp_path / "tmp"
    kept.mkdir()
    done = run(tmp_path, FAILING, TMPDIR=str(kept))

    assert done.returncode == 1
    said = re.search(r"^logs of Kafka brokers: (.+)$", done.stdout, re.MULTILINE)
    assert said, done.stdout
    assert "Kafka Server started" in Path(said[1], "node-1.log").read_text()
    assert [str(path) for path in kept.iterdir() if "cykafka" in path.name] == [said[1]]


@pytest.mark.usefixtures("own_brokers")
def test_workers_share_the_brokers_and_their_controller_names_the_logs(tmp_path: Path) -> None:
    kept = tmp_path / "tmp"
    kept.mkdir()
    options = ("-n2", "--dist=each", "-rA", "-p", "no:timeout")
    done = run(tmp_path, SHARED, *options, TMPDIR=str(kept))

    found = set(re.findall(r"(gw\d) has (\S+)", done.stdout))
    assert {worker for worker, _ in found} == {"gw0", "gw1"}, done.stdout
    assert len({servers for _, servers in found}) == 1
    said = re.findall(r"^logs of Kafka brokers: (.+)$", done.stdout, re.MULTILINE)
    assert len(said) == 2, done.stdout
    assert all("Kafka Server started" in Path(item, "node-1.log").read_text() for item in said)
