"""The job archive, killed with -9 at random moments, has each offset once.

Each round kills the driver at its end. Some rounds first kill the Python processes that read for
it. Spark then retries their tasks, or gives up the query. One driver archives with both kinds of
file names and into an Iceberg table; with PySpark 4.2 it archives into a Delta table. While it
works, the next driver starts its JVM, so that a kill costs little time. A failure prints its seed:
``CYKAFKA_TEST_SEED=...`` repeats the random choices, ``CYKAFKA_TEST_KILLS=200`` kills more often.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import spark_archives
from processes import family, kill
from repeated import kills
from spark_jobs import Bench, archive_rows

from cykafka.testing.plugin import no_broker

KILLS, MORE = kills(2, 20), 20
SEED = os.environ.get("CYKAFKA_TEST_SEED") or os.urandom(4).hex()
PARTITIONS, RECORDS = 4, 150
MOST_S = 1.5
# The Python of a streaming source has 10 s to start, which a busy machine may exceed. Spark then
# ends the query and the driver. The test recovers from that too.
BUSY = "Python worker failed to connect back"
START_S = 120


class Driver:
    """A process with Spark that waits for a line before it continues."""

    def __init__(
        self, bench: Bench, topic: str, folder: Path, kinds: dict[str, dict[str, str]]
    ) -> None:
        program = [sys.executable, spark_archives.__file__]
        more = json.dumps(kinds)
        self.process = subprocess.Popen(
            [*program, bench.servers, topic, str(folder), bench.java_options, more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = ""

    def hear(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line == word, f"the driver said {line!r}, expected {word!r}"

    def go(self) -> None:
        assert self.process.stdin is not None
        self.hear("ready")
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def was_ended_by_spark(self) -> bool:
        """Whether the driver ended because the machine is busy; fail for any other reason."""
        if self.process.poll() is None:
            return False
        if not self.said:
            assert self.process.stdout is not None
            self.said = self.process.stdout.read()
        assert BUSY in self.said, self.said
        return True

    def kill_workers(self) -> int:
        """Kill the processes that run Python for the JVM; return their number."""
        return sum(
            kill(item)
            for item in family(self.process)[1:]
            if b"pyspark" in item.command().partition(b"-m\0")[2]
        )

    def kill(self, all_at_once: bool) -> None:
        """Kill Python, and optionally the JVM, which otherwise ends by itself."""
        processes = family(self.process)
        for item in processes if all_at_once else processes[:1]:
            kill(item)
        self.process.communicate(timeout=30)
        deadline = time.monotonic() + 60
        while any(item.is_running() for item in processes):
            if time.monotonic() > deadline:
                for item in processes:
                    kill(item)
            time.sleep(0.02)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill(all_at_once=True)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    made: list[Driver] = []
    yield made
    for driver in made:
        driver.close()


def listed(folder: Path) -> Counter[tuple[int, int]]:
    """The records in the files of a folder, counted by partition and offset."""
    if not list(folder.rglob("*.parquet")):
        return Counter()
    query = f'SELECT "partition", "offset" FROM read_parquet(\'{folder}/**/*.parquet\')'
    return Counter(duckdb.sql(query).fetchall())


@pytest.fixture
def kinds(tables: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The kinds of archives, with Spark's settings for each."""
    name = "delta" if "delta" in tables else "iceberg"
    if isinstance(tables[name], Exception):
        no_broker(tables[name])
    plain: dict[str, dict[str, str]] = {"deterministic": {}}
    return plain | ({"spark": {}} if name == "iceberg" else {}) | {name: tables[name]}


def committed(folder: Path, kind: str) -> int:
    """The number of committed micro-batches of an archive."""
    return len(list((folder / f"{kind}.checkpoint" / "commits").glob("[0-9]*")))


def archived(bench: Bench, kind: str, path: str) -> Counter[tuple[int, int]]:
    """The records that Spark, or a reader of the table's format, finds."""
    rows = archive_rows(bench, kind, path).select("partition", "offset").collect()
    return Counter((row.partition, row.offset) for row in rows)


def wait_for_more(folder: Path, kind: str, before: int, driver: Driver) -> None:
    deadline = time.monotonic() + START_S
    while committed(folder, kind) <= before and not driver.was_ended_by_spark():
        assert time.monotonic() < deadline, "no micro-batch was committed"
        time.sleep(0.01)


def twice(offsets: Counter[tuple[int, int]]) -> dict[tuple[int, int], int]:
    return {place: count for place, count in offsets.items() if count > 1}


@pytest.mark.soak
@pytest.mark.timeout(START_S + 60 * (KILLS + MORE))
def test_each_offset_is_archived_once_despite_kills(
    bench: Bench,
    topic: str,
    tmp_path: Path,
    drivers: list[Driver],
    kinds: dict[str, dict[str, str]],
) -> None:
    print(f"CYKAFKA_TEST_SEED={SEED}")
    dice = random.Random(SEED)
    drivers.append(Driver(bench, topic, tmp_path, kinds))
    seen = workers = number = fills = 0
    midway = False
    # If all kills came before the first archived record, more follow.
    while number < KILLS or (not midway and number < KILLS + MORE):
        bench.fill(topic, RECORDS, PARTITIONS)
        fills += 1
        driver = drivers[-1]
        driver.go()
        drivers.append(Driver(bench, topic, tmp_path, kinds))
        # Some drivers die while queries start or plan, others during a micro-batch.
        kind = dice.choice(list(kinds))
        before = committed(tmp_path, kind)
        if dice.random() < 0.9:
            driver.hear("started")
            if dice.random() < 0.8:
                wait_for_more(tmp_path, kind, before, driver)
        time.sleep(dice.uniform(0, MOST_S))
        killed = 0
        if dice.random() < 0.5:
            killed = driver.kill_workers()
            workers += killed
            time.sleep(dice.uniform(0, MOST_S))
        # A driver without workers may end for any reason.
        number += killed > 0 or not driver.was_ended_by_spark()
        driver.kill(all_at_once=dice.random() < 0.7)
        offsets = listed(tmp_path / "deterministic")
        assert not twice(offsets), f"seed {SEED}, kill {number}"
        assert len(offsets) >= seen, f"seed {SEED}, kill {number}: archived records are missing"
        seen = len(offsets)
        midway |= 0 < seen < fills * PARTITIONS * RECORDS

    expected = {
        (partition, offset): 1
        for partition in range(PARTITIONS)
        for offset in range(fills * RECORDS)
    }
    assert workers > 0 or KILLS < 10, "no worker was killed"
    assert midway, "no kill came while only a part of the records was archived"
    for kind in kinds:
        rest = spark_archives.config(bench.servers, topic, tmp_path, bench.java_options, kind)
        given = {"topics": topic, "path": rest.path, "checkpoint": rest.checkpoint}
        key = "format" if kind in spark_archives.TABLES else "file_names"
        summary = bench.run("archive", **{key: kind}, **given)
        assert summary.outcome == "finished"
        found = archived(bench, kind, rest.folder)
        assert found == expected, f"seed {SEED}, {kind}: {len(found)}, twice {twice(found)}"
    assert listed(tmp_path / "deterministic") == expected
