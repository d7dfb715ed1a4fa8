"""Spark Connect: clients without a JVM, against a server in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S
from spark_jobs import Bench, offsets_by_listing, once
from spark_servers import connect_server

HERE = Path(__file__).parent
PER_PARTITION = 10
RECORDS = 4 * PER_PARTITION


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, java_options: str) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("connect")
    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.python.daemon.module": "cykafka.spark.daemon",
    }
    with connect_server(folder, conf) as address:
        yield address


@pytest.fixture
def bench(cluster: Any) -> Bench:
    return Bench(None, cluster.bootstrap_servers, "")


@pytest.fixture
def topics(cluster: Any, unique: Any) -> tuple[str, str]:
    """Two topics that keep old records."""
    names = unique("topic"), unique("target")
    for name in names:
        cluster.create_topic(name, 4, config={"retention.ms": -1})
    return names


@pytest.mark.timeout(600)
def test_source_sink_and_jobs_work_without_a_jvm(
    server: str, bench: Bench, topics: tuple[str, str], tmp_path: Path
) -> None:
    topic, target = topics
    bench.fill(topic, PER_PARTITION - 1)
    bench.send(topic, [{"value": f'{{"id": {partition}}}', "headers": [("n", b"")] * 3,
                        "partition": partition} for partition in range(4)])  # fmt: skip

    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "connect_client.py"), bench.servers, server,
         topic, target, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(HERE.parent / "shared"), "JAVA_HOME": "/nonexistent"},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])

    assert (found["count"], found["headers"], found["rows"]) == (RECORDS, RECORDS, 2 * RECORDS)
    assert found["archive"]["records"] == RECORDS
    assert found["archive"]["offsets"][topic]["3"] == {"start": 0, "end": PER_PARTITION}
    assert offsets_by_listing(str(tmp_path / "archive")) == once(topic, PER_PARTITION)
    assert found["mirror"]["bad"] == RECORDS - 4
    assert found["mirror"]["would_send"] == {target: 1}
    assert found["replay"]["records"] == RECORDS
    # The batch sink, the stream's sink, foreachBatch, and the job replay.
    values = Counter(message.value() for message in bench.read(target))
    assert set(values.values()) == {4}
    assert sum(values.values()) == 4 * RECORDS


@pytest.mark.timeout(600)
def test_command_stops_after_the_running_batch(
    server: str, bench: Bench, topics: tuple[str, str], tmp_path: Path
) -> None:
    topic, target = topics
    bench.fill(topic, PER_PARTITION)
    before = set(Path("/tmp").glob("cykafka-run-*"))

    job = subprocess.Popen(
        [sys.executable, "-m", "cykafka.spark", "mirror", "--bootstrap-servers", bench.servers,
         "--master", server, "--topics", topic, "--to", target, "--trigger", "continuous",
         "--checkpoint", str(tmp_path / "checkpoint"), "--summary", str(tmp_path / "summary")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 2 * WAIT_S
        while len(bench.read(target)) < RECORDS:
            assert job.poll() is None, job.communicate()[0]
            assert time.monotonic() < deadline
        job.send_signal(signal.SIGTERM)
        said, _ = job.communicate(timeout=2 * WAIT_S)
    finally:
        job.kill()
        job.wait()

    assert job.returncode == 0, said
    summary = json.loads((tmp_path / "summary").read_text())
    assert (summary["outcome"], summary["records"]) == ("stopped", RECORDS)
    assert len(bench.read(target)) == RECORDS
    assert set(Path("/tmp").glob("cykafka-run-*")) <= before


def test_server_that_is_down_is_reported_at_once(bench: Bench, topics: tuple[str, str]) -> None:
    topic, _ = topics
    server = "sc://127.0.0.1:1/;token=hidden-1"
    command = [sys.executable, "-m", "cykafka.spark", "profile", "--topics", topic,
               "--bootstrap-servers", bench.servers, "--master", server]  # fmt: skip

    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)

    assert done.returncode == 1
    assert "cannot connect to Spark at sc://127.0.0.1:1/" in done.stderr
    assert "hidden-1" not in done.stderr + done.stdout
