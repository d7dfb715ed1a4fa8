"""mirror, redrive and replay, killed with -9 at any moment, lose no record; some come twice.

CYKAFKA_TEST_KILLS: the number of kills of each job (1, in `make soak` 5). A failure prints its
seed; CYKAFKA_TEST_SEED=... repeats it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import family, kill_all, python_workers
from repeated import kills
from spark_jobs import Bench

KILLS = kills(1, 5)
SEED = os.environ.get("CYKAFKA_TEST_SEED") or os.urandom(4).hex()
START_S = 150
MOST_S = 1.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(60 + START_S * (KILLS + 1))]

# The records of each partition: enough that a job still works at the last kill.
EACH = max(500, 250 * KILLS)


def batches(checkpoint: Path) -> int:
    """The number of committed micro-batches."""
    return len(list(checkpoint.glob("commits/[0-9]*")))


def steps(checkpoint: Path) -> int:
    """The progress of a replay, in offsets."""
    note = checkpoint / "replay.json"
    if not note.exists():
        return 0
    return sum(sum(item.values()) for item in json.loads(note.read_text())["next"].values())


def kill_often(bench: Bench, job: str, keys: dict[str, str], far: Callable[[Path], int]) -> None:
    """Repeatedly start the command, and kill it after its next commit."""
    dice = random.Random(SEED)
    checkpoint = Path(keys["checkpoint"])
    command = bench.command(job)
    for name, value in keys.items():
        table, dot, option = name.partition("__")
        option = f"{option}={value}" if dot else value
        command += [f"--{table.replace('_', '-')}", option]
    for _ in range(KILLS):
        before = far(checkpoint)
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                deadline = time.monotonic() + START_S
                while far(checkpoint) <= before:
                    assert process.poll() is None, process.communicate()
                    assert time.monotonic() < deadline, "nothing was committed"
                    time.sleep(0.01)
                time.sleep(dice.uniform(0, MOST_S))
                assert process.poll() is None, "the job ended before it was killed"
            finally:
                # Kill all at once, else the rest runs beside its successor for a moment.
                kill_all(family(process))


def check(messages: list[Any], expected: set[bytes], most: int) -> None:
    counts = Counter(message.value() for message in messages)
    missing = expected - counts.keys()
    assert not missing, f"seed {SEED}: {len(missing)} are lost: {sorted(missing)[:5]}"
    assert counts.keys() == expected
    assert sum(counts.values()) - len(expected) <= most, (
        f"seed {SEED}: more duplicates than records in progress"
    )


VALUES = {f"v{partition}-{number}".encode() for partition in range(4) for number in range(EACH)}
# A kill repeats the batch in progress, and perhaps one that was sent and not yet recorded.
PER_BATCH = 200
TWICE = KILLS * PER_BATCH


def test_a_mirror_that_is_killed_loses_nothing(
    bench: Bench, topic: str, other_topic: str, checkpoint: str
) -> None:
    bench.fill(topic, EACH)
    slow = (
        "SELECT value, CASE WHEN reflect('java.lang.Thread', 'sleep', 5L) = '' THEN 'no' END "
        "AS error FROM records"
    )
    keys = {"topics": topic, "to": other_topic, "checkpoint": checkpoint, "transform": slow,
            "source__maxOffsetsPerTrigger": str(PER_BATCH)}  # fmt: skip

    kill_often(bench, "mirror", {**keys, "trigger": "continuous"}, batches)
    assert len(bench.read(other_topic)) < 4 * EACH
    bench.run("mirror", **{**keys, "transform": "SELECT value FROM records"})

    check(bench.read(other_topic), VALUES, TWICE)


def test_a_redrive_that_is_killed_loses_nothing(
    bench: Bench, topic: str, dead: str, checkpoint: str
) -> None:
    bench.send(dead, [{"value": value, "headers": [("dlq_topic", topic.encode()),
                       ("dlq_partition", b"%d" % (number % 4))]}
                      for number, value in enumerate(sorted(VALUES))])  # fmt: skip
    keys = {"topics": dead, "checkpoint": checkpoint,
            "source__maxOffsetsPerTrigger": str(PER_BATCH)}  # fmt: skip
    slow = "coalesce(reflect('java.lang.Thread', 'sleep', 5L), 'x') <> ''"

    kill_often(bench, "redrive", {**keys, "where": slow, "trigger": "continuous"}, batches)
    assert len(bench.read(topic)) < 4 * EACH
    bench.run("redrive", **keys)

    check(bench.read(topic), VALUES, TWICE)


@pytest.fixture
def replayed(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], tmp_path: Path
) -> dict[str, str]:
    """The keys of a replay of an archive with all values."""
    bench.fill(topic, EACH)
    bench.run("archive", topics=topic, file_names="deterministic", **places)
    return {"path": places["path"], "to": other_topic, "checkpoint": str(tmp_path / "replayed")}


def check_replay(bench: Bench, topic: str, most: int) -> None:
    messages = bench.read(topic)
    check(messages, VALUES, most)
    # In order, except resent records.
    for partition in range(4):
        places_of = [int(m.value().split(b"-")[1]) for m in messages if m.partition() == partition]
        back = sum(later < sooner for sooner, later in itertools.pairwise(places_of))
        assert back <= KILLS


# Small steps are many, so that the job works for a while; a rate makes Spark read the archive.
@pytest.mark.parametrize(("step", "slow"), [(20, {}), (PER_BATCH, {"rate": "200"})])
def test_a_replay_that_is_killed_loses_nothing(
    bench: Bench, replayed: dict[str, str], step: int, slow: dict[str, str]
) -> None:
    keys = {**replayed, "step": str(step)}

    kill_often(bench, "replay", {**keys, **slow}, steps)
    assert len(bench.read(keys["to"])) < 4 * EACH
    bench.run("replay", **keys)

    check_replay(bench, keys["to"], KILLS * step)


def test_a_replay_whose_workers_are_killed_loses_nothing(
    bench: Bench, replayed: dict[str, str]
) -> None:
    dice = random.Random(SEED)
    step = 20
    keys = {**replayed, "step": str(step)}
    command = bench.command("replay", *(f"--{name}={value}" for name, value in keys.items()))
    command[command.index("local[2]")] = "local[2,8]"  # Spark repeats tasks that fail
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            deadline = time.monotonic() + START_S
            for _ in range(KILLS):
                before = steps(Path(keys["checkpoint"]))
                while steps(Path(keys["checkpoint"])) <= before or not python_workers(process):
                    assert process.poll() is None, process.communicate()
                    assert time.monotonic() < deadline, "nothing was sent"
                    time.sleep(0.01)
                kill_all(dice.sample(python_workers(process), 1))
            _, output = process.communicate(timeout=START_S)
        finally:
            kill_all(family(process))

    assert process.returncode == 0, output
    check_replay(bench, keys["to"], KILLS * step)
