"""The job replay on a real broker: archived records come back unchanged and in order."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench

from cykafka.spark.jobs.problems import ConfigError, Stopped
from cykafka.spark.jobs.replay import replaying
from cykafka.spark.jobs.replay.read_files import Part, step_of
from cykafka.spark.jobs.run.session import Stop

START_MS = 1_700_000_000_000


@pytest.fixture
def archive(bench: Bench, topic: str, places: dict[str, str]) -> dict[str, str]:
    """The key `path` of an archive with 4 x 30 records."""
    bench.fill(topic, 30)
    bench.run("archive", topics=topic, file_names="deterministic",
              source__maxOffsetsPerTrigger=50, **places)  # fmt: skip
    return {"path": places["path"]}


@pytest.fixture(params=["tasks", "Spark"])
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Keys that leave the choice of the archive's reader to the job, or make Spark read it."""
    return {} if request.param == "tasks" else {"where": "true"}


def content(messages: list[Any]) -> list[tuple[Any, ...]]:
    return [(m.partition(), m.key(), m.value(), m.headers(), m.timestamp()) for m in messages]


def fail_at(bench: Bench, monkeypatch: pytest.MonkeyPatch, run: Any, step: str) -> None:
    """Run the job until it announces a step with these words, which then fails."""
    watch = run.watch

    def fails(what: str, work: Any) -> Any:
        if step in what:
            raise RuntimeError("a task died")
        return watch(what, work)

    monkeypatch.setattr(run, "watch", fails)
    with pytest.raises(RuntimeError, match="a task died"):
        bench.work("replay", run)


def test_replayed_records_are_unchanged(
    bench: Bench,
    topic: str,
    other_topic: str,
    archive: dict[str, str],
    way: dict[str, Any],
) -> None:
    bench.send(topic, [{"value": None, "key": None, "partition": 3, "timestamp": START_MS}])

    summary = bench.run("replay", to=other_topic, **archive, **way)

    assert (summary.records, summary.bad, summary.counts) == (120, 0, {"sent": 120})
    assert summary.ranges == {(topic, partition): (0, 30) for partition in range(4)}
    sent = bench.read(other_topic, 120)
    assert content(sent) == content(bench.read(topic)[:120])
    assert sent[0].headers()[0] == ("n", b"0")


def test_a_window_of_the_archive_is_replayed(
    bench: Bench,
    topic: str,
    other_topic: str,
    archive: dict[str, str],
    way: dict[str, Any],
) -> None:
    keys = {"to": other_topic, "topics": topic, **archive, **way}

    by_offset = bench.run("replay", from_offset=3, until_offset=5, partitions="1,2", **keys)
    by_time = bench.run(
        "replay", from_time=START_MS + 10, until_time=START_MS + 12, partitions="0", **keys
    )

    assert by_offset.ranges == {(topic, 1): (3, 5), (topic, 2): (3, 5)}
    assert by_time.ranges == {(topic, 0): (10, 12)}
    assert [message.value() for message in bench.read(other_topic)] == [
        b"v0-10", b"v0-11", b"v1-3", b"v1-4", b"v2-3", b"v2-4",
    ]  # fmt: skip


def test_dry_run_sends_nothing_and_reports_what_it_would_send(
    bench: Bench, topic: str, other_topic: str, archive: dict[str, str]
) -> None:
    summary = bench.run("replay", to=other_topic, dry_run=True, from_offset=25, **archive)

    assert (summary.records, summary.counts) == (20, {"sent": 0})
    assert summary.bytes == sum(len(f"k0-{n % 7}v0-{n}") * 4 for n in range(25, 30))
    assert summary.details == {"would_send": {other_topic: 20}}
    assert bench.read(other_topic) == []


def test_partitions_and_timestamps_may_be_reassigned(
    bench: Bench,
    other_topic: str,
    archive: dict[str, str],
    way: dict[str, Any],
) -> None:
    before = time.time() * 1000

    bench.run(
        "replay",
        to=other_topic,
        keep_partitions=False,
        keep_timestamps=False,
        until_offset=7,
        **archive,
        **way,
    )

    sent = bench.read(other_topic, 28)
    by_key: dict[bytes, set[int]] = {}
    for message in sent:
        by_key.setdefault(message.key(), set()).add(message.partition())
        assert message.timestamp()[1] >= before - 60_000
    assert all(len(partitions) == 1 for partitions in by_key.values())
    # Partitions follow the keys: k0-1 and k0-2 were both in partition 0 before.
    assert len({tuple(item) for key, item in by_key.items() if key.startswith(b"k0")}) > 1


def test_rate_limit_holds(bench: Bench, other_topic: str, archive: dict[str, str]) -> None:
    bench.run("replay", to=other_topic, rate=20, from_offset=10, keep_timestamps=False, **archive)

    times = sorted(message.timestamp()[1] for message in bench.read(other_topic, 80))
    # Two tasks send 10 records per second each, and both begin at once.
    assert times[-1] - times[0] >= 3_000
    for first, last in itertools.pairwise(times[::40]):
        assert last - first >= 1_000, "the rate is not steady"


def test_restart_continues_after_the_last_step(
    bench: Bench, topic: str, other_topic: str, archive: dict[str, str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: dict[str, Any],
) -> None:  # fmt: skip
    keys = {
        "to": other_topic,
        "checkpoint": str(tmp_path / "replayed"),
        "step": 40,
        **archive,
        **way,
    }
    run = bench.prepare("replay", **keys)
    fail_at(bench, monkeypatch, run, "step 3 of 3")
    assert (run.summary.records, run.summary.outcome) == (80, "failed")
    assert run.summary.ranges == {(topic, partition): (0, 20) for partition in range(4)}

    rest = bench.run("replay", **keys)
    nothing = bench.run("replay", **keys)

    assert (rest.records, nothing.records) == (40, 0)
    assert rest.ranges == {(topic, partition): (20, 30) for partition in range(4)}
    assert content(bench.read(other_topic, 120)) == content(bench.read(topic))


def test_a_step_may_be_smaller_than_the_number_of_partitions(
    bench: Bench,
    topic: str,
    other_topic: str,
    archive: dict[str, str],
    tmp_path: Path,
    way: dict[str, Any],
) -> None:
    keys = {"to": other_topic, "checkpoint": str(tmp_path / "replayed"), **archive, **way}

    summary = bench.run("replay", step=1, from_offset=28, **keys)

    assert (summary.records, summary.batches) == (8, 2)
    assert content(bench.read(other_topic, 8)) == [
        message for message in content(bench.read(topic)) if message[2].endswith((b"-28", b"-29"))
    ]


@pytest.fixture
def narrow(cluster: Any, unique: Any) -> str:
    """A topic of one partition."""
    name = unique("narrow")
    cluster.create_topic(name, 1, config={"retention.ms": -1})
    return str(name)


@pytest.mark.parametrize("dry_run", [False, True])
def test_missing_partitions_are_reported_before_anything_is_sent(
    bench: Bench, narrow: str, unique: Any, archive: dict[str, str], way: dict[str, Any],
    dry_run: bool,
) -> None:  # fmt: skip
    created = unique("created")  # by the broker, with its number of partitions
    for topic in (narrow, created):
        with pytest.raises(
            ConfigError, match=f"{topic}' has 1 partition.* to partition 3.*--no-k"
        ):
            bench.run("replay", to=topic, dry_run=dry_run, **archive, **way)
    assert bench.read(narrow) == []

    by_key = bench.run("replay", to=narrow, keep_partitions=False, **archive, **way)
    fits = bench.run("replay", to=narrow, partitions="0", **archive, **way)

    assert (by_key.records, fits.records) == (120, 30)


def test_summary_of_a_failed_replay_counts_what_was_sent(
    bench: Bench, narrow: str, archive: dict[str, str], way: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # Somebody creates the topic again with fewer partitions, after the check.
    monkeypatch.setattr(replaying, "_check_parts", lambda *_: None)
    run = bench.prepare("replay", to=narrow, **archive, **way)

    with pytest.raises(Exception, match=r"offset \d+ of .* \[\d\]"):
        bench.work("replay", run)

    sent = len(bench.read(narrow))
    assert sent == 30
    assert (run.summary.outcome, run.summary.counts) == ("failed", {"sent": sent})
    assert run.summary.unknown == 0


def test_replay_whose_tasks_die_reports_an_unknown_outcome(
    bench: Bench, narrow: str, archive: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.prepare("replay", to=narrow, keep_partitions=False, **archive)

    fail_at(bench, monkeypatch, run, "step")

    assert (run.summary.outcome, run.summary.records, run.summary.unknown) == ("failed", 0, 120)
    assert "  unknown      up to 120 more may have been sent" in run.summary.lines()
    assert run.summary.as_dict()["unknown"] == 120


def test_replay_without_records_reports_it(
    bench: Bench,
    topic: str,
    other_topic: str,
    archive: dict[str, str],
    way: dict[str, Any],
) -> None:
    keys = {"to": other_topic, **archive, **way}

    misspelt = bench.run("replay", topics=f"{topic},odrers", partitions="1,17", **keys)
    nothing = bench.run("replay", from_offset=1_000, **keys)

    assert misspelt.warnings == [
        "the archive has no records of topic odrers to send",
        "the archive has no records of partition 17 to send",
    ]
    assert misspelt.records == 30
    assert (nothing.records, nothing.warnings) == (0, ["the archive has no records to send"])


def test_replay_stops_on_request_between_steps(
    bench: Bench,
    other_topic: str,
    archive: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    way: dict[str, Any],
) -> None:
    stop = Stop()
    run = bench.prepare("replay", stop, to=other_topic, **archive, **way)
    watch = run.watch

    def asked_after(what: str, work: Any) -> Any:
        found = watch(what, work)
        if what == "inspecting the archive":
            stop.ask()
        return found

    monkeypatch.setattr(run, "watch", asked_after)

    with pytest.raises(Stopped):
        bench.work("replay", run)

    assert (run.summary.outcome, bench.read(other_topic)) == ("stopped", [])


def test_a_topic_whose_name_is_a_number_is_replayed(
    bench: Bench, cluster: Any, other_topic: str, places: dict[str, str], way: dict[str, Any]
) -> None:
    topic = f"007{time.time_ns()}"
    cluster.create_topic(topic, 4, config={"retention.ms": -1})
    bench.fill(topic, 3)
    bench.run("archive", topics=topic, **places)

    was = bench.read(topic)

    by_name = bench.run("replay", topics=topic, to=other_topic, path=places["path"], **way)
    bench.run("replay", path=places["path"])

    assert by_name.ranges == {(topic, partition): (0, 3) for partition in range(4)}
    assert content(bench.read(other_topic, 12)) == content(was)
    assert len(bench.read(topic)) == 24


def test_times_beyond_those_of_spark_are_kept(
    bench: Bench, cluster: Any, unique: Any, places: dict[str, str], way: dict[str, Any]
) -> None:
    topic, other = unique("far"), unique("far")
    for name in (topic, other):
        cluster.create_topic(
            name, 1, config={"retention.ms": -1, "message.timestamp.after.max.ms": 2**63 - 1}
        )
    times = [1_000, 10**16, 2_000, 1_700_000_000_000_000]
    bench.send(topic, [{"value": b"x", "headers": [("a", b"b")], "timestamp": at} for at in times])
    bench.run("archive", topics=topic, file_names="deterministic", **places)

    bench.run("replay", to=other, path=places["path"], **way)

    assert content(bench.read(other)) == content(bench.read(topic))


@pytest.mark.parametrize("file_names", ["spark", "deterministic"])
def test_decoded_archive_is_replayed_with_its_bad_records(
    bench: Bench,
    topic: str,
    other_topic: str,
    places: dict[str, str],
    file_names: str,
    way: dict[str, Any],
) -> None:
    values = [b'{"id": 1}', b"no json", b'{"id": "x"}', None, b'{"id": 2}']
    bench.send(topic, [{"key": f"k{number}", "value": value, "partition": number % 2,
                        "headers": [("n", b"%d" % number)], "timestamp": START_MS + number}
                       for number, value in enumerate(values * 4)])  # fmt: skip
    done = bench.run("archive", topics=topic, schema="id BIGINT", file_names=file_names, **places)
    assert (done.records, done.bad) == (20, 8)

    summary = bench.run("replay", to=other_topic, path=places["path"], **way)

    assert summary.records == 20
    assert content(bench.read(other_topic, 20)) == content(bench.read(topic))


def test_step_reads_only_its_own_parts(bench: Bench, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    # One file of partition 0 begins at offset 1,000, like the end of partition 1.
    folder = tmp_path / "archive" / "topic=t" / "date=2026-01-01"
    folder.mkdir(parents=True)
    for partition, first in ((0, 1_000), (0, 500), (1, 0), (1, 900)):
        table = pyarrow.table(
            {
                "partition": pyarrow.array([partition] * 10, pyarrow.int32()),
                "offset": pyarrow.array(range(first, first + 10), pyarrow.int64()),
                "value": pyarrow.array([b"%d" % at for at in range(10)], pyarrow.binary()),
            }
        )
        pyarrow.parquet.write_table(table, folder / f"t-{partition}-{first}.parquet")
    for name in ("t-0-500", "t-1-900"):
        # Keep the file's metadata, and destroy its records.
        path = folder / f"{name}.parquet"
        content = bytearray(path.read_bytes())
        start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        content[4:start] = b"\xff" * (start - 4)
        path.write_bytes(content)
    schema = "topic string, partition int, `offset` bigint, value binary"
    records = bench.spark.read.schema(schema).parquet(str(tmp_path / "archive"))
    run = bench.prepare("replay", path=str(tmp_path / "archive"))
    step = [Part("t", 0, 1_000, 1_005, 0, 0), Part("t", 1, 0, 5, 0, 0)]

    rows = replaying._chosen(records, step, replaying._bounds(run, step)).collect()

    found = sorted((row.partition, row.offset) for row in rows)
    assert found == [(0, at) for at in range(1_000, 1_005)] + [(1, at) for at in range(5)]


def test_a_step_of_many_parts_is_read_by_topics(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(topic, partition, offset) for topic in ("a", "b") for partition in range(4)
            for offset in range(6)]  # fmt: skip
    records = bench.spark.createDataFrame(rows, "topic string, partition int, offset bigint")
    step = [Part(topic, partition, partition, partition + 2, 0, 0)
            for topic, partition in (("a", 0), ("a", 2), ("b", 3))]  # fmt: skip
    run = bench.prepare("replay", path="/p")
    expected = [("a", 0, 0), ("a", 0, 1), ("a", 2, 2), ("a", 2, 3), ("b", 3, 3), ("b", 3, 4)]

    for places, passed in ((200, 6), (2, 4 * 4 + 4 * 2), (1, 2 * 4 * 5)):
        monkeypatch.setattr(replaying, "_MOST_PLACES", places)
        chosen = replaying._chosen(records, step, replaying._bounds(run, step)).collect()
        assert sorted((row.topic, row.partition, row.offset) for row in chosen) == expected
        assert records.where(replaying._within(step)).count() == passed


def test_tasks_without_a_partition_take_no_share_of_the_rate(bench: Bench) -> None:
    from pyspark.sql import functions as F

    run = bench.prepare("replay", path="/p", rate=100)
    parts = [Part("t", partition, 0, 10, 0, 0) for partition in range(8)]
    hashes = replaying._bounds(run, parts).select(
        "partition", F.expr("pmod(hash(topic, partition), 2)")
    )
    together = [row[0] for row in hashes.collect() if row[1] == 0]
    bounds = replaying._bounds(run, [parts[name] for name in together])

    with replaying._pace(run, bounds, 2) as rate:
        assert rate == 100
    with replaying._pace(run, replaying._bounds(run, parts), 2) as rate:
        assert rate == 50


def test_a_checkpoint_of_another_replay_is_refused(
    bench: Bench, other_topic: str, archive: dict[str, str], tmp_path: Path
) -> None:
    keys = {"checkpoint": str(tmp_path / "replayed"), **archive}
    bench.run("replay", to=other_topic, until_offset=1, **keys)

    with pytest.raises(
        ConfigError, match='key "checkpoint": it belongs to a replay with until_offset'
    ):
        bench.run("replay", to=other_topic, until_offset=2, **keys)

    note = tmp_path / "replayed" / "replay.json"
    document = json.loads(note.read_text())
    document["of"]["cluster"] = "another"
    note.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="it belongs to a replay with cluster = 'another'"):
        bench.run("replay", to=other_topic, until_offset=1, **keys)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (None, "the directory does not exist"),
        ({}, "no Parquet files"),
        ({"a": [1]}, "missing: key, "),
    ],
)
def test_folder_without_an_archive_is_a_configuration_error(
    bench: Bench, tmp_path: Path, files: dict[str, Any] | None, expected: str
) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "folder"
    if files is not None:
        path.mkdir()
    if files:
        pyarrow.parquet.write_table(pyarrow.table(files), path / "a.parquet")

    with pytest.raises(ConfigError, match=expected):
        bench.run("replay", path=str(path))


def test_invalid_condition_is_a_configuration_error(bench: Bench, archive: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="key \"where\" = 'nonsense = 1'"):
        bench.run("replay", where="nonsense = 1", **archive)


@pytest.mark.parametrize("dry_run", [False, True])
def test_checkpoint_that_cannot_be_created_fails_before_anything_is_sent(
    bench: Bench, archive: dict[str, Any], other_topic: str, tmp_path: Path, dry_run: bool
) -> None:
    (tmp_path / "file").write_text("in the way")
    keys = {"checkpoint": str(tmp_path / "file" / "c"), "dry_run": dry_run, **archive}

    if dry_run:  # a dry run writes no checkpoint
        assert bench.run("replay", to=other_topic, **keys).details["would_send"]
    else:
        with pytest.raises(ConfigError, match=r'key "checkpoint" = .*cannot read or create it'):
            bench.run("replay", to=other_topic, **keys)

    assert bench.read(other_topic) == []


def test_note_of_a_checkpoint_is_plain_json(
    bench: Bench, topic: str, other_topic: str, archive: dict[str, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    bench.run("replay", to=other_topic, until_offset=2, checkpoint=str(tmp_path / "c"), **archive)

    note = json.loads((tmp_path / "c" / "replay.json").read_text())

    assert note["next"] == {topic: {str(partition): 2 for partition in range(4)}}
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["replay.json"]


def test_step_opens_only_its_own_files(bench: Bench, topic: str, places: dict[str, str]) -> None:
    """Otherwise each step would open all files of the archive."""
    for _ in range(2):
        bench.fill(topic, 10, 1)
        bench.run("archive", topics=topic, file_names="deterministic", **places)
    run = bench.prepare("replay", path=places["path"], where="true", to=topic)
    records = replaying._selected(run)
    (part,) = replaying._find_parts(run, records, {})
    low, high = step_of([part], 0, 2), step_of([part], 1, 2)

    (second,) = Path(places["path"]).rglob("*-10-19.parquet")
    second.write_bytes(b"no Parquet file" * 100)

    assert (part.start, part.end, part.records, len(part.spans)) == (0, 20, 20, 2)
    assert replaying._chosen(records, low, replaying._bounds(run, low)).count() == 10
    with pytest.raises(Exception, match="10-19"):
        replaying._chosen(records, high, replaying._bounds(run, high)).count()
