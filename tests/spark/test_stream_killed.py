"""Streams whose drivers and workers are killed with -9 at any moment.

One driver has three streams, into files, into a topic, and into a topic with transactions. So each
kill hits all of them. While a driver works, the next one starts its JVM, so that a kill costs only
the start of the streams.

CYKAFKA_TEST_KILLS: the number of kills (3, in `make soak` 20), a fifth of them of the driver.
CYKAFKA_TEST_SEED=... repeats the random choices; the timing of the processes still varies.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the group spark is not installed")

import pyarrow.parquet as pq
from machine import WAIT_S
from processes import kill, kill_all, python_workers, session
from repeated import kills

import cykafka

KILLS = kills(3, 20)
DRIVER_KILLS = max(KILLS // 5, 1)
SEED = os.environ.get("CYKAFKA_TEST_SEED") or str(random.SystemRandom().randrange(2**32))
PARTITIONS = 4
EACH = 150 * max(KILLS, 5)
PER_BATCH = 400
MOST_S = 0.6

pytestmark = [pytest.mark.soak, pytest.mark.timeout(KILLS * 30 + 600)]


class Driver:
    """A process with streams, and all its child processes, in their own process session."""

    def __init__(self, given: dict[str, Any], log: Path) -> None:
        script = Path(__file__).with_name("killed_query.py")
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def go(self, how: str) -> None:
        """Let it begin, and wait until its streams have started."""
        self.expect("ready")
        assert self.process.stdin is not None
        self.process.stdin.write(how + "\n")
        self.process.stdin.flush()
        self.expect("running")

    def expect(self, words: str) -> None:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        assert said == words, f"{self.log.read_text()[-5000:]}\nCYKAFKA_TEST_SEED={SEED}"

    def kill(self) -> None:
        # Kill the first process first, because it could start others.
        self.process.kill()
        kill_all(session(self.process.pid))
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Drivers:
    """The working driver, and its successor."""

    def __init__(self, given: dict[str, Any], log: Path) -> None:
        self._given = given
        self._log = log
        self._all: list[Driver] = []
        self.next = self._started()
        self.killed: Counter[str] = Counter()

    def _started(self) -> Driver:
        self._all.append(Driver(self._given, self._log))
        return self._all[-1]

    def take(self, how: str = "go on") -> Driver:
        driver = self.next
        driver.go(how)
        if how != "end":
            self.next = self._started()
        return driver

    def close(self) -> None:
        for driver in self._all:
            driver.kill()


@pytest.fixture
def filled(cluster: Any, unique: Callable[[str], str], make_producer: Any) -> str:
    """A topic whose values are the offsets of their records."""
    name = unique("killed")
    cluster.create_topic(name, PARTITIONS)
    producer = make_producer()
    for partition in range(PARTITIONS):
        values = [b"%d" % number for number in range(EACH)]
        producer.publish(name, values, partitions=partition).wait(30)
    return name


@pytest.fixture
def copies(cluster: Any, unique: Callable[[str], str]) -> dict[str, str]:
    names = {kind: unique(kind) for kind in ("plain", "transactions")}
    for name in names.values():
        cluster.create_topic(name, PARTITIONS)
    return names


@pytest.fixture(params=["executors", "driver"])
def drivers(
    request: pytest.FixtureRequest,
    cluster: Any,
    spark_config: dict[str, str],
    filled: str,
    copies: dict[str, str],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> Iterator[Drivers]:
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    transactional = {"transactional": "true", "transactionalIdPrefix": unique("tx")}
    sinks = [
        ("parquet", {"path": str(tmp_path / "out")}),
        ("cykafka", {**servers, "topic": copies["plain"]}),
        ("cykafka", {**servers, "topic": copies["transactions"], **transactional}),
    ]
    # On executors, two tasks per batch.
    tasks = {"maxRecordsPerPartition": str(PER_BATCH // PARTITIONS // 2)}
    given = {
        # Spark retries the task of a killed worker.
        "config": {**spark_config, "spark.master": "local[2,8]", "spark.app.name": "killed"},
        "source": {
            **servers,
            "subscribe": filled,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(PER_BATCH),
            "readOn": request.param,
            **(tasks if request.param == "executors" else {}),
        },
        "sinks": [
            {
                "format": kind,
                "options": {**options, "checkpointLocation": str(tmp_path / f"checkpoint-{i}")},
            }
            for i, (kind, options) in enumerate(sinks)
        ],
    }
    found = Drivers(given, tmp_path / "log")
    yield found
    found.close()


def kill_often(drivers: Drivers) -> None:
    """Repeatedly kill workers and drivers, then let the streams run to their end."""
    dice = random.Random(SEED)
    plan = ["driver"] * DRIVER_KILLS + ["worker"] * (KILLS - DRIVER_KILLS)
    dice.shuffle(plan)
    driver = drivers.take()
    for kind in plan:
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.process.wait(dice.uniform(0, MOST_S))
        deadline = time.monotonic() + WAIT_S
        while kind == "worker" and driver.process.poll() is None:
            workers = python_workers(driver.process)
            if workers and kill(dice.choice(workers)):
                drivers.killed[kind] += 1
                break
            assert time.monotonic() < deadline, "the driver has no workers"
            time.sleep(0.02)  # no event signals this
        if kind == "driver" or driver.process.poll() is not None:
            # A task that is killed too often ends the stream, and thus the driver.
            drivers.killed["driver"] += 1
            driver.kill()
            driver = drivers.take()
    driver.kill()
    drivers.take("end").expect("done")


def check(counts: Counter[tuple[int, int]], what: str, once: bool = True) -> None:
    expected = {(partition, at) for partition in range(PARTITIONS) for at in range(EACH)}
    missing = sorted(expected - counts.keys())
    where = f"in {what}; CYKAFKA_TEST_SEED={SEED}"
    assert not missing, f"{len(missing)} are missing, {missing[:5]}, {where}"
    assert counts.keys() == expected
    doubled = sorted(item for item, count in counts.items() if count > 1)
    assert not (once and doubled), f"{len(doubled)} more than once, {doubled[:5]}, {where}"


def files_of(out: Path) -> set[Path]:
    """The files of a folder, by the log of Spark's file sink."""
    logs = sorted(
        (path for path in (out / "_spark_metadata").iterdir() if path.name[0] != "."),
        key=lambda path: int(path.name.partition(".")[0]),
    )
    compact = [number for number, path in enumerate(logs) if path.name.endswith(".compact")]
    lines = [
        line for log in logs[compact[-1] if compact else 0 :] for line in log.read_text().split()
    ]
    return {out / Path(json.loads(line)["path"]).name for line in lines if line[0] == "{"}


def test_killed_streams_have_every_offset(
    drivers: Drivers, copies: dict[str, str], make_consumer: Callable[..., Any], tmp_path: Path
) -> None:
    """Files and transactions (read_committed) have each offset once, a topic at least once."""
    kill_often(drivers)
    assert drivers.killed["worker"] >= KILLS // 2, drivers.killed

    def records(topic: str) -> Counter[tuple[int, int]]:
        consumer = make_consumer(
            {"isolation.level": "read_committed", "enable.partition.eof": True}
        )
        consumer.assign([cykafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: Counter[tuple[int, int]] = Counter()
        ends = 0
        while ends < PARTITIONS:
            message = consumer.poll(WAIT_S)
            assert message is not None, "the reader did not reach the end of the partition in time"
            if message.error() is None:
                found[message.partition(), int(message.value())] += 1
            else:
                assert message.error().code() == cykafka.KafkaError._PARTITION_EOF
                ends += 1
        return found

    written: Counter[tuple[int, int]] = Counter()
    for file in files_of(tmp_path / "out"):
        table = pq.read_table(file, columns=["partition", "offset"])
        columns = [table.column(name).to_pylist() for name in ("partition", "offset")]
        written.update(zip(*columns, strict=True))
    check(written, "the files")
    check(records(copies["plain"]), "the topic", once=False)
    check(records(copies["transactions"]), "the topic that is written in transactions")
