"""The job replay when its tasks read the files: which files, in which order, and their errors."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench

from cykafka.spark.jobs.replay import replaying

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000
BY_TASKS = "the tasks read the files"


@pytest.fixture
def reason(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """The log's line about who has read the archive."""
    caplog.set_level(logging.INFO, "cykafka.spark")

    def last() -> str:
        reasons = [
            record.getMessage()
            for record in caplog.records
            if "the archive" in record.getMessage()
        ]
        return reasons[-1]

    return last


def fill(bench: Bench, topic: str, count: int, partitions: int = 4) -> None:
    """Send records whose days alternate, so that files of a partition overlap."""
    bench.send(
        topic,
        [
            {"value": f"v{partition}-{number}", "partition": partition,
             "timestamp": START_MS + number + number % 2 * DAY_MS}
            for number in range(count)
            for partition in range(partitions)
        ],
    )  # fmt: skip


def check_order(bench: Bench, topic: str, count: int, partitions: int = 4) -> None:
    values = [message.value().decode() for message in bench.read(topic)]
    assert values == [f"v{partition}-{number}" for partition in range(partitions)
                      for number in range(count)]  # fmt: skip


def paths(folder: str) -> list[Path]:
    return sorted(Path(folder).rglob("[!_.]*.parquet"))


@pytest.mark.parametrize(
    ("file_names", "partition_by"),
    [
        ("spark", "topic,date"),
        ("spark", "topic,partition,date"),
        ("spark", "date"),
        ("deterministic", "topic,date"),
        ("deterministic", "topic,partition,date"),
    ],
)
def test_many_files_are_sent_in_the_order_of_offsets(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], tmp_path: Path,
    file_names: str, partition_by: str, reason: Callable[[], str],
) -> None:  # fmt: skip
    fill(bench, topic, 100)
    bench.run("archive", topics=topic, source__maxOffsetsPerTrigger=100, file_names=file_names,
              partition_by=partition_by, source__maxRecordsPerPartition=25, **places)  # fmt: skip
    keys = {"path": places["path"], "to": other_topic, "step": 150,
            "checkpoint": str(tmp_path / "replayed")}  # fmt: skip
    assert len(paths(places["path"])) >= 8

    summary = bench.run("replay", **keys)

    assert summary.ranges == {(topic, partition): (0, 100) for partition in range(4)}
    assert summary.records == 400
    check_order(bench, other_topic, 100)
    assert BY_TASKS in reason()


def test_partition_too_large_for_a_shared_task_has_its_own_file(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], reason: Callable[[], str]
) -> None:
    """The limit of the jobs is lower than the source's."""
    fill(bench, topic, 1_001)
    bench.run("archive", topics=topic, **places)

    summary = bench.run("replay", path=places["path"], to=other_topic)

    assert summary.records == 4_004
    assert BY_TASKS in reason()


def test_files_with_several_partitions_are_read_by_spark(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], reason: Callable[[], str]
) -> None:
    fill(bench, topic, 100)
    bench.run("archive", topics=topic, source__maxOffsetsPerTrigger=100, **places)

    summary = bench.run("replay", path=places["path"], to=other_topic)

    assert summary.records == 400
    check_order(bench, other_topic, 100)
    assert "several partitions" in reason()


def test_files_that_sparks_log_does_not_have_are_not_sent(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], reason: Callable[[], str]
) -> None:
    fill(bench, topic, 10, partitions=1)
    bench.run("archive", topics=topic, **places)
    for path in paths(places["path"]):
        shutil.copy(path, path.with_name(f"orphan-{path.name}"))

    summary = bench.run("replay", to=other_topic, path=places["path"])

    assert summary.records == 10
    check_order(bench, other_topic, 10, partitions=1)
    assert BY_TASKS in reason()


def test_a_file_that_overlaps_another_is_sent_like_by_spark(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], reason: Callable[[], str]
) -> None:
    fill(bench, topic, 10, partitions=1)
    bench.run("archive", topics=topic, file_names="deterministic", **places)
    path = paths(places["path"])[0]
    shutil.copy(path, path.with_name("again.parquet"))

    by_tasks = bench.run("replay", to=other_topic, path=places["path"])
    words = reason()
    sent = [message.value() for message in bench.read(other_topic)]
    by_spark = bench.run("replay", to=other_topic, path=places["path"], where="true")

    assert by_tasks.records == by_spark.records == 15
    assert by_tasks.bytes == by_spark.bytes
    assert [message.value() for message in bench.read(other_topic)] == sent + sent
    assert BY_TASKS in words


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_timestamps_of_all_kinds_are_sent(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], kind: str,
    reason: Callable[[], str],
) -> None:  # fmt: skip
    setting = "spark.sql.parquet.outputTimestampType"
    fill(bench, topic, 20)
    before = bench.spark.conf.get(setting)
    bench.spark.conf.set(setting, kind)
    try:
        bench.run("archive", topics=topic, file_names="deterministic", **places)
    finally:
        bench.spark.conf.set(setting, before)
    keys = {"path": places["path"], "to": other_topic}

    middle = bench.run("replay", from_time=START_MS + 3, until_time=START_MS + 7, **keys)
    times = [message.timestamp() for message in bench.read(other_topic)]
    bench.run("replay", **keys)

    assert times == [(1, START_MS + number) for _ in range(4) for number in (4, 6)]
    assert (middle.records, middle.ranges) == (
        8,
        {(topic, partition): (4, 7) for partition in range(4)},
    )
    was = sorted((message.partition(), message.timestamp()) for message in bench.read(topic))
    sent = [(message.partition(), message.timestamp()) for message in bench.read(other_topic)]
    assert sorted(sent) == sorted(
        was + [(partition, time) for partition in range(4) for time in times[:2]]
    )
    assert BY_TASKS in reason()


@pytest.mark.parametrize("first", ["_", ".", "007"])
def test_names_of_topics_that_other_readers_would_skip_or_change(
    bench: Bench, cluster: Any, unique: Any, other_topic: str, places: dict[str, str],
    tmp_path: Path, first: str, reason: Callable[[], str],
) -> None:  # fmt: skip
    topic = first + unique("odd")
    cluster.create_topic(topic, 4, config={"retention.ms": -1})
    fill(bench, topic, 10)
    places = {**places, "path": str(tmp_path / "an archive+%20é")}
    bench.run("archive", topics=topic, file_names="deterministic", **places)

    by_name = bench.run("replay", path=places["path"], topics=topic, to=other_topic)
    own = bench.run("replay", path=places["path"])

    assert BY_TASKS in reason()
    assert by_name.ranges == own.ranges == {(topic, partition): (0, 10) for partition in range(4)}
    check_order(bench, other_topic, 10)
    assert len(bench.read(topic)) == 80


@pytest.mark.parametrize("harm", ["gone", "cut", "other"])
def test_a_file_that_is_harmed_after_the_plan_is_an_error_that_names_it(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], harm: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fill(bench, topic, 20)
    bench.run("archive", topics=topic, file_names="deterministic", **places)
    victim, other = paths(places["path"])[-1], paths(places["path"])[0]
    run = bench.prepare("replay", to=other_topic, path=places["path"],
                        kafka__ssl__key__password="never-shown")  # fmt: skip
    watch = run.watch

    def harmed(what: str, work: Any) -> Any:
        if what.startswith("replay:"):
            if harm == "gone":
                victim.unlink()
            elif harm == "cut":
                victim.write_bytes(victim.read_bytes()[:-30])
            else:
                import pyarrow.parquet

                pyarrow.parquet.write_table(pyarrow.parquet.read_table(other).slice(1), victim)
        return watch(what, work)

    monkeypatch.setattr(run, "watch", harmed)
    with pytest.raises(Exception, match=victim.name) as caught:
        bench.work("replay", run)

    assert (run.summary.outcome, run.summary.records, run.summary.unknown) == ("failed", 0, 80)
    assert "never-shown" not in str(caught.value)


def test_a_damaged_file_is_left_to_spark_which_names_it(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], reason: Callable[[], str]
) -> None:
    fill(bench, topic, 20)
    bench.run("archive", topics=topic, file_names="deterministic", **places)
    victim = paths(places["path"])[-1]
    victim.write_bytes(victim.read_bytes()[:-30])

    with pytest.raises(Exception, match=victim.name):
        bench.run("replay", to=other_topic, path=places["path"])

    assert f"Spark reads the archive: cannot read {victim}" in reason()
    assert bench.read(other_topic) == []


def test_a_stop_ends_the_tasks(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from cykafka.spark.jobs.problems import Stopped
    from cykafka.spark.jobs.run.session import Stop

    fill(bench, topic, 20)
    bench.run("archive", topics=topic, file_names="deterministic", **places)
    stop = Stop()
    # Brokers must not answer the tasks: nothing listens at this port.
    monkeypatch.setattr(replaying, "_check_parts", lambda *_: None)
    run = bench.prepare("replay", stop, to=other_topic, path=places["path"],
                        **{"kafka.bootstrap.servers": "127.0.0.1:1"})  # fmt: skip
    report_progress = run.report_progress

    def stops(words: str, **fields: Any) -> None:
        if "of 2 tasks" in words:
            stop.ask()
        report_progress(words, **fields)

    monkeypatch.setattr(run, "report_progress", stops)
    with pytest.raises(Stopped):
        bench.work("replay", run)

    assert run.summary.outcome == "stopped"
