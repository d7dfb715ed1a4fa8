"""The job replay, against a real broker: what an archive holds comes back as it was, in order."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench

from cykafka.spark.jobs import replay
from cykafka.spark.jobs.config import ConfigError

START_MS = 1_700_000_000_000


@pytest.fixture
def archive(bench: Bench, topic: str, places: dict[str, str]) -> dict[str, str]:
    """An archive of 4 x 30 records, and the path that replay takes."""
    bench.fill(topic, 30)
    bench.run("archive", topics=topic, file_names="deterministic",
              source__maxOffsetsPerTrigger=50, **places)  # fmt: skip
    return {"path": places["path"]}


def content(messages: list[Any]) -> list[tuple[Any, ...]]:
    return [(m.partition(), m.key(), m.value(), m.headers(), m.timestamp()) for m in messages]


def test_records_come_back_as_they_were(
    bench: Bench, topic: str, other_topic: str, archive: dict[str, str]
) -> None:
    bench.send(topic, [{"value": None, "key": None, "partition": 3, "timestamp": START_MS}])

    summary = bench.run("replay", to=other_topic, **archive)

    assert (summary.records, summary.bad, summary.counts) == (120, 0, {"sent": 120})
    assert summary.ranges == {(topic, each): (0, 30) for each in range(4)}
    sent = bench.read(other_topic, 120)
    assert content(sent) == content(bench.read(topic)[:120])
    assert sent[0].headers()[0] == ("n", b"0")


def test_a_window_of_the_archive_is_replayed(
    bench: Bench, topic: str, other_topic: str, archive: dict[str, str]
) -> None:
    keys = {"to": other_topic, "topics": topic, **archive}

    by_offset = bench.run("replay", from_offset=3, until_offset=5, partitions="1,2", **keys)
    by_time = bench.run(
        "replay", from_time=START_MS + 10, until_time=START_MS + 12, where="partition = 0", **keys
    )

    assert by_offset.ranges == {(topic, 1): (3, 5), (topic, 2): (3, 5)}
    assert by_time.ranges == {(topic, 0): (10, 12)}
    assert [each.value() for each in bench.read(other_topic)] == [
        b"v0-10", b"v0-11", b"v1-3", b"v1-4", b"v2-3", b"v2-4",
    ]  # fmt: skip


def test_a_dry_run_sends_nothing_and_tells_what_it_would_send(
    bench: Bench, topic: str, other_topic: str, archive: dict[str, str]
) -> None:
    summary = bench.run("replay", to=other_topic, dry_run=True, from_offset=25, **archive)

    assert (summary.records, summary.counts) == (20, {"sent": 0})
    assert summary.bytes == sum(len(f"k0-{n % 7}v0-{n}") * 4 for n in range(25, 30))
    assert summary.details == {"would_send": {other_topic: 20}}
    assert bench.read(other_topic) == []


def test_partitions_and_times_may_be_new(
    bench: Bench, other_topic: str, archive: dict[str, str]
) -> None:
    before = time.time() * 1000

    bench.run(
        "replay",
        to=other_topic,
        keep_partitions=False,
        keep_timestamps=False,
        until_offset=7,
        **archive,
    )

    sent = bench.read(other_topic, 28)
    by_key: dict[bytes, set[int]] = {}
    for message in sent:
        by_key.setdefault(message.key(), set()).add(message.partition())
        assert message.timestamp()[1] >= before - 60_000
    assert all(len(partitions) == 1 for partitions in by_key.values())
    # By key, not as it was: key k0-1 and k0-2 were both of partition 0.
    assert len({tuple(each) for key, each in by_key.items() if key.startswith(b"k0")}) > 1


def test_a_cap_on_the_rate_holds(bench: Bench, other_topic: str, archive: dict[str, str]) -> None:
    bench.run("replay", to=other_topic, rate=20, from_offset=10, keep_timestamps=False, **archive)

    times = sorted(message.timestamp()[1] for message in bench.read(other_topic, 80))
    # Two tasks of 10 records per second each, and each begins at once.
    assert times[-1] - times[0] >= 3_000
    for first, last in itertools.pairwise(times[::40]):
        assert last - first >= 1_000, "they come steadily"


def test_a_restart_goes_on_behind_the_last_step(
    bench: Bench, topic: str, other_topic: str, archive: dict[str, str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    keys = {"to": other_topic, "checkpoint": str(tmp_path / "replayed"), "step": 40, **archive}
    sender = replay._sender
    steps = []

    def fails_at_the_third(run: Any, records: Any, step: Any) -> Any:
        steps.append(step)
        if len(steps) == 3:
            raise RuntimeError("third step")
        return sender(run, records, step)

    monkeypatch.setattr(replay, "_sender", fails_at_the_third)
    run = bench.prepare("replay", **keys)
    with pytest.raises(RuntimeError, match="third step"):
        bench.work("replay", run)
    assert (run.summary.records, run.summary.outcome) == (80, "failed")
    assert run.summary.ranges == {(topic, each): (0, 20) for each in range(4)}

    rest = bench.run("replay", **keys)
    nothing = bench.run("replay", **keys)

    assert (rest.records, nothing.records) == (40, 0)
    assert rest.ranges == {(topic, each): (20, 30) for each in range(4)}
    assert content(bench.read(other_topic, 120)) == content(bench.read(topic))


def test_a_checkpoint_of_another_replay_is_refused(
    bench: Bench, other_topic: str, archive: dict[str, str], tmp_path: Path
) -> None:
    keys = {"checkpoint": str(tmp_path / "replayed"), **archive}
    bench.run("replay", to=other_topic, until_offset=1, **keys)

    with pytest.raises(ConfigError, match='key "checkpoint": it is of a replay with until_offset'):
        bench.run("replay", to=other_topic, until_offset=2, **keys)


@pytest.mark.parametrize(
    ("files", "told"),
    [(None, "there is no such folder"), ({}, "no Parquet files"), ({"a": [1]}, "there is no key")],
)
def test_a_folder_that_is_no_archive_is_a_mistake(
    bench: Bench, tmp_path: Path, files: dict[str, Any] | None, told: str
) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "folder"
    if files is not None:
        path.mkdir()
    if files:
        pyarrow.parquet.write_table(pyarrow.table(files), path / "a.parquet")

    with pytest.raises(ConfigError, match=told):
        bench.run("replay", path=str(path))


def test_a_condition_that_is_none_is_a_mistake(bench: Bench, archive: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="key \"where\" = 'nonsense = 1'"):
        bench.run("replay", where="nonsense = 1", **archive)


def test_the_note_of_a_checkpoint_is_plain(
    bench: Bench, topic: str, other_topic: str, archive: dict[str, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    bench.run("replay", to=other_topic, until_offset=2, checkpoint=str(tmp_path / "c"), **archive)

    note = json.loads((tmp_path / "c" / "replay.json").read_text())

    assert note["next"] == {topic: {str(each): 2 for each in range(4)}}
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["replay.json"]
