"""The job archive: repeated batches, replaced files, and refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench, offsets_by_listing, offsets_by_spark, once

from cykafka.spark.jobs.archive import archiving, batch_writers
from cykafka.spark.jobs.archive.batch_writers import LoggedFiles, NamedFiles
from cykafka.spark.jobs.archive.write_files import collect_staged
from cykafka.spark.jobs.folders import Folder
from cykafka.spark.jobs.problems import ConfigError

KINDS = ("spark", "deterministic")
BY_NAME = {"file_names": "deterministic"}
# The tasks write the files of topics and dates themselves; Spark writes the others.
WRITERS = {"tasks": {}, "spark": {"partition_by": "topic,day(timestamp)"}}


def parquet(path: str) -> list[str]:
    return sorted(item.name for item in Path(path).rglob("*.parquet"))


def crash(places: dict[str, str]) -> None:
    """Restore the state of a crash between the last files and their commit."""
    commits = Path(places["checkpoint"], "commits")
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for path in commits.glob(f"*{last}*"):
        if path.name in (str(last), f".{last}.crc"):
            path.unlink()


def other(places: dict[str, str]) -> dict[str, str]:
    return {**places, "checkpoint": places["checkpoint"] + "-2"}


@pytest.mark.parametrize(("most", "writer"), [(10, "tasks"), (100, "tasks"), (10, "spark")])
def test_repeated_batch_writes_the_same_files(
    bench: Bench, topic: str, places: dict[str, str], most: int, writer: str
) -> None:
    bench.fill(topic, 20, partitions=2)
    keys = {"topics": topic, **BY_NAME, **places, **WRITERS[writer]}
    bench.run("archive", source__maxOffsetsPerTrigger=most, **keys)
    before = parquet(places["path"])
    crash(places)

    again = bench.run("archive", source__maxOffsetsPerTrigger=most, **keys)

    assert again.records == min(most, 40)
    assert parquet(places["path"]) == before
    assert offsets_by_listing(places["path"]) == once(topic, 20, 2)


def test_restart_works_after_records_were_compacted_away(
    bench: Bench, topic: str, places: dict[str, str], delete_before: Callable[..., None]
) -> None:
    keys = {"topics": topic, "source__failOnDataLoss": False, **BY_NAME, **places}
    bench.fill(topic, 20, partitions=2)
    bench.run("archive", **keys)
    crash(places)
    delete_before(topic, 0, 5)
    delete_before(topic, 1, 20)

    bench.run("archive", **keys)
    bench.fill(topic, 5, partitions=2)
    bench.run("archive", **keys)

    assert parquet(places["path"]) == sorted(
        f"{topic}-{span}.parquet" for span in ("0-5-19", "0-20-24", "1-0-19", "1-20-24")
    )


def test_recreated_topic_replaces_no_files(
    bench: Bench,
    topic: str,
    places: dict[str, str],
    cluster: Any,
    delete_topic: Callable[[str], None],
) -> None:
    keys = {"topics": topic, "source__failOnDataLoss": False, **BY_NAME, **places}
    bench.fill(topic, 20)
    bench.run("archive", **keys)
    before = parquet(places["path"])
    delete_topic(topic)
    cluster.create_topic(topic, 4, config={"retention.ms": -1})
    bench.fill(topic, 10)
    bench.run("archive", **keys)  # the topic ends before the position: the source restarts here
    bench.fill(topic, 10)

    with pytest.raises(Exception, match="the topic was created again"):
        bench.run("archive", **keys)

    assert parquet(places["path"]) == before


@pytest.mark.parametrize("begin", [0, 10])
def test_an_archive_whose_checkpoint_was_lost_is_not_overwritten(
    bench: Bench, topic: str, places: dict[str, str], begin: int
) -> None:
    bench.fill(topic, 20)
    keys = {"topics": topic, **BY_NAME}
    bench.run("archive", **keys, **places)
    before = parquet(places["path"])
    Path(places["path"], "_cykafka.json").unlink()

    def offsets(at: int) -> str:
        return json.dumps({topic: {str(partition): at for partition in range(4)}})

    with pytest.raises(Exception, match="holds offsets that this run would write again"):
        bench.run("archive", source__startingOffsets=offsets(begin), **keys, **other(places))
    assert parquet(places["path"]) == before

    bench.fill(topic, 5)
    Path(places["path"], "_cykafka.json").unlink()
    behind = {**places, "checkpoint": places["checkpoint"] + "-3"}
    bench.run("archive", source__startingOffsets=offsets(20), **keys, **behind)
    assert offsets_by_listing(places["path"]) == once(topic, 25)


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_has_one_checkpoint(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], kind: str
) -> None:
    keys = {"topics": topic, "file_names": kind}
    bench.fill(topic, 5)
    bench.fill(other_topic, 5)
    bench.run("archive", **keys, **places)

    for topics in (topic, other_topic):  # a lost checkpoint, or another job
        with pytest.raises(ConfigError, match="was archived with another checkpoint") as caught:
            bench.run("archive", **{**keys, "topics": topics}, **other(places))
    found = "If that checkpoint is lost, remove _cykafka.json" in str(caught.value)
    assert found == (kind == "deterministic")

    bench.fill(topic, 5)
    bench.run("archive", **keys, **places)
    assert offsets_by_spark(bench, places["path"]) == once(topic, 10)


def test_new_checkpoint_is_refused_by_the_log_of_spark_without_a_note(
    bench: Bench, topic: str, places: dict[str, str]
) -> None:
    """Spark would skip batches of the new query whose numbers are in its log."""
    bench.fill(topic, 5)
    bench.run("archive", topics=topic, **places)
    Path(places["path"], "_cykafka.json").unlink()

    with pytest.raises(ConfigError, match="was archived with another checkpoint"):
        bench.run("archive", topics=topic, **other(places))


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_decode_cannot_start_in_an_archive_without_decoding(
    bench: Bench, topic: str, places: dict[str, str], kind: str, noted: bool
) -> None:
    keys = {"topics": topic, "file_names": kind, **places}
    bench.fill(topic, 5)
    bench.run("archive", **keys)
    if not noted:
        Path(places["path"], "_cykafka.json").unlink()

    with pytest.raises(ConfigError, match=r'is partitioned by topic.*keep "partition_by"'):
        bench.run("archive", decode="envelope-headers", **keys)

    assert offsets_by_spark(bench, places["path"]) == once(topic, 5)


def test_archive_keeps_its_time_zone(
    bench: Bench, topic: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"topics": topic, **BY_NAME, **places}
    bench.fill(topic, 5)
    bench.run("archive", **keys)
    zone = "spark.sql.session.timeZone"
    before = bench.spark.conf.get(zone)
    bench.spark.conf.set(zone, "Asia/Tokyo")

    try:
        with pytest.raises(ConfigError, match=f"are in '{before}'; set that time zone"):
            bench.run("archive", **keys)
    finally:
        bench.spark.conf.set(zone, before)


def test_invalid_note_is_reported(bench: Bench, topic: str, places: dict[str, str]) -> None:
    Path(places["path"]).mkdir()
    Path(places["path"], "_cykafka.json").write_text("{}")

    with pytest.raises(ConfigError, match="is malformed; remove it"):
        bench.run("archive", topics=topic, **places)


@pytest.mark.parametrize("writer", WRITERS)
def test_batch_with_missing_files_is_not_committed(
    bench: Bench,
    topic: str,
    places: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    writer: str,
) -> None:
    # This simulates a worker that writes to its own disk.
    def lose() -> None:
        next(Path(f"{places['path']}.unfinished").rglob("part-*")).unlink(missing_ok=True)

    look, exists = NamedFiles._look_at_staged, Folder.exists

    def look_too_late(self: NamedFiles, spark: Any, place: str) -> Any:
        lose()
        return look(self, spark, place)

    def exists_no_more(self: Folder, name: str = "") -> bool:
        if ".parquet" in name:
            lose()
        return exists(self, name)

    bench.fill(topic, 5)
    keys = {"topics": topic, **BY_NAME, **places, **WRITERS[writer]}

    with monkeypatch.context() as patched:
        if writer == "tasks":
            patched.setattr(Folder, "exists", exists_no_more)
        else:
            patched.setattr(NamedFiles, "_look_at_staged", look_too_late)
        with pytest.raises(Exception, match="check that all workers and the driver use the same"):
            bench.run("archive", **keys)
    assert not parquet(places["path"])

    assert bench.run("archive", **keys).records == 20
    assert offsets_by_listing(places["path"]) == once(topic, 5)


def test_writers_of_an_archive_may_alternate(
    bench: Bench, topic: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"topics": topic, "source__maxOffsetsPerTrigger": 4, **places}
    batches = 0
    for count, by_tasks in ((3, False), (5, True), (3, False), (4, True)):
        bench.fill(topic, count, timestamp=1_700_000_000_000)
        with monkeypatch.context() as patched:
            if not by_tasks:
                patched.setattr(archiving, "has_spark_log", lambda spark: False)
            batches += bench.run("archive", **keys).batches

    # Spark compacts its log at every tenth micro-batch.
    assert batches == 15
    assert Path(places["path"], "_spark_metadata", "9.compact").exists()
    assert offsets_by_spark(bench, places["path"]) == once(topic, 15)
    assert offsets_by_listing(places["path"]) == once(topic, 15)
    names = parquet(places["path"])
    assert {"c000" in name for name in names} == {True, False}, "only one of them wrote"


def test_batch_that_sparks_log_has_is_not_written_again(
    bench: Bench, topic: str, places: dict[str, str]
) -> None:
    keys = {"topics": topic, **places}
    bench.fill(topic, 5)
    bench.run("archive", **keys)
    before = parquet(places["path"])
    crash(places)
    bench.fill(topic, 5)

    bench.run("archive", **keys)

    assert offsets_by_spark(bench, places["path"]) == once(topic, 10)
    assert set(before) < set(parquet(places["path"]))
    assert offsets_by_listing(places["path"]) == once(topic, 10)


def test_old_copy_of_the_checkpoint_is_refused(
    bench: Bench, topic: str, places: dict[str, str]
) -> None:
    keys = {"topics": topic, **places}
    bench.fill(topic, 5)
    bench.run("archive", **keys)
    shutil.copytree(places["checkpoint"], places["checkpoint"] + ".copy")
    bench.fill(topic, 5)
    bench.run("archive", **keys)
    shutil.rmtree(places["checkpoint"])
    Path(places["checkpoint"] + ".copy").rename(places["checkpoint"])
    bench.fill(topic, 5)

    # Spark would take the next micro-batch for one that the archive has, and skip it.
    with pytest.raises(ConfigError, match=r"ends before micro-batch 1.*use the newest checkpoint"):
        bench.run("archive", **keys)


def test_batch_of_another_query_in_sparks_log_is_an_error(
    bench: Bench, topic: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = LoggedFiles.write

    def late(self: LoggedFiles, batch: Any, number: int) -> None:
        write(self, batch, number)
        # Another query adds the batch while this one writes its files.
        monkeypatch.setattr(self, "_log", Late(self._log))
        write(self, batch, number)

    class Late:
        def __init__(self, log: Any) -> None:
            self.add = log.add
            self.getLatestBatchId = bench.spark._jvm.scala.Option.empty

    monkeypatch.setattr(LoggedFiles, "write", late)
    bench.fill(topic, 5)

    with pytest.raises(Exception, match="another query has written micro-batch 0"):
        bench.run("archive", topics=topic, **places)

    assert offsets_by_spark(bench, places["path"]) == once(topic, 5)
    assert offsets_by_listing(places["path"]) == once(topic, 5)


def test_stop_within_a_batch_leaves_readers_no_files(
    bench: Bench, topic: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"topics": topic, **places}
    bench.fill(topic, 5)
    unfinished: list[str] = []

    def cut(batch: Any, folder: Folder) -> Any:
        staged = collect_staged(batch, folder)
        unfinished.extend(file.path for file in staged)
        raise RuntimeError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(batch_writers, "collect_staged", cut)
        with pytest.raises(Exception, match="cut off"):
            bench.run("archive", **keys)

    assert unfinished
    assert not parquet(places["path"])
    bench.run("archive", **keys)
    assert offsets_by_spark(bench, places["path"]) == once(topic, 5)
    assert offsets_by_listing(places["path"]) == once(topic, 5)
    assert not list(Path(places["path"]).rglob("*unfinished*"))


def test_settings_of_sparks_parquet_writer_hold(
    bench: Bench, topic: str, places: dict[str, str]
) -> None:
    # Other settings of this kind encrypt the files.
    bench.spark.conf.set("spark.hadoop.parquet.bloom.filter.enabled#key", "true")
    try:
        bench.fill(topic, 5)
        bench.run("archive", topics=topic, **places)
    finally:
        bench.spark.conf.unset("spark.hadoop.parquet.bloom.filter.enabled#key")

    assert all("c000" in name for name in parquet(places["path"])), "Spark did not write"
