"""Drivers and workers that are killed with -9 at any moment: what comes of their streams.

CYKAFKA_TEST_KILLS: how many kills (3; 20 take a quarter of an hour). CYKAFKA_TEST_SEED=... throws
the same dice again, though the processes' own timing stays what it is.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

KILLS = int(os.environ.get("CYKAFKA_TEST_KILLS", "3"))
SEED = os.environ.get("CYKAFKA_TEST_SEED") or str(random.SystemRandom().randrange(2**32))
PARTITIONS = 4
EACH = 1_500
PER_BATCH = 300
END_S = 600

pytestmark = pytest.mark.timeout(KILLS * 240 + 600)


class Driver:
    """A process with a stream, and all that it has started: a group of its own."""

    def __init__(self, given: dict[str, Any], log: Path) -> None:
        script = Path(__file__).with_name("killed_query.py")
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), json.dumps(given)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def workers(self) -> list[int]:
        """The Python workers that run tasks: forked by a daemon of Spark's."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it has just ended
            if int(fields[2]) == self.process.pid and b"pyspark.daemon" in line:
                found[int(entry.name)] = int(fields[1])
        return [each for each, parent in found.items() if parent in found]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start(
    cluster: Any, spark_config: dict[str, str], tmp_path: Path
) -> Iterator[Callable[..., Driver]]:
    """Start a driver that reads a topic; all of them are gone after the test."""
    drivers = []

    def start(topic: str, sink: dict[str, str], *, format: str, available_now: bool) -> Driver:
        given = {
            # A task of a worker that was killed is tried again.
            "config": {**spark_config, "spark.master": "local[2,8]", "spark.app.name": "killed"},
            "source": {
                "kafka.bootstrap.servers": cluster.bootstrap_servers,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(PER_BATCH),
                "maxRecordsPerPartition": "150",
            },
            "sink": {**sink, "checkpointLocation": str(tmp_path / "checkpoint")},
            "format": format,
            "available_now": available_now,
        }
        drivers.append(Driver(given, tmp_path / "log"))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()


def kill_often(
    start: Callable[..., Driver], topic: str, sink: dict[str, str], format: str
) -> None:
    """Kill the stream again and again, then let it come to its end."""
    dice = random.Random(SEED)
    driver = None
    for _ in range(KILLS):
        if driver is None or driver.process.poll() is not None:
            driver = start(topic, sink, format=format, available_now=False)
            if driver.said() != "running":
                continue  # it did not come up again: the last run tells why
        moment = dice.uniform(0, 2)
        try:
            driver.process.wait(moment)
        except subprocess.TimeoutExpired:
            workers = driver.workers()
            if workers and dice.random() < 0.4:
                try:
                    os.kill(dice.choice(sorted(workers)), signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it had ended by itself
            else:
                driver.kill()
    if driver is not None and driver.process.poll() is None:
        driver.kill()
    driver = start(topic, sink, format=format, available_now=True)
    said = [driver.said(), driver.said()]
    assert said == ["running", "done"], driver.log.read_text()[-5000:]
    driver.process.wait(END_S)


@pytest.fixture
def filled(cluster: Any, unique: Callable[[str], str], make_producer: Any) -> str:
    name = unique("killed")
    cluster.create_topic(name, PARTITIONS)
    producer = make_producer()
    for partition in range(PARTITIONS):
        values = [b"%d" % number for number in range(EACH)]
        producer.publish(name, values, partitions=partition).wait(30)
    return name


def check(counts: Counter[tuple[int, int]], most: int | None) -> None:
    expected = {(partition, at) for partition in range(PARTITIONS) for at in range(EACH)}
    missing = sorted(expected - counts.keys())
    assert not missing, f"{len(missing)} are missing: {missing[:5]}; CYKAFKA_TEST_SEED={SEED}"
    assert counts.keys() == expected
    if most is not None:
        doubled = sorted(each for each, count in counts.items() if count > most)
        assert not doubled, f"{len(doubled)} too often: {doubled[:5]}; CYKAFKA_TEST_SEED={SEED}"


def test_parquet_has_every_offset_exactly_once(
    spark: Any, start: Callable[..., Driver], filled: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    kill_often(start, filled, {"path": out}, "parquet")

    rows = spark.read.parquet(out).select("partition", "offset").collect()
    check(Counter((row.partition, row.offset) for row in rows), most=1)


def test_topic_has_every_offset_at_least_once(
    cluster: Any,
    start: Callable[..., Driver],
    filled: str,
    unique: Callable[[str], str],
    batch: Callable[..., Any],
) -> None:
    pytest.importorskip("cykafka.spark.sink")
    copy = unique("copy")
    cluster.create_topic(copy, PARTITIONS)
    # The sink writes value and partition; topic is the option's.
    sink = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": copy}
    kill_often(start, filled, sink, "cykafka")

    rows = batch(subscribe=copy).select("partition", "value").collect()
    check(Counter((row.partition, int(row.value)) for row in rows), most=None)
