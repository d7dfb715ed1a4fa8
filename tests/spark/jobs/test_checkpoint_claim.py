"""The owner of a checkpoint: another job would resume at its position and skip records."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench

from cykafka.admin import AdminClient
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.run.checkpoint import CHECKPOINT_NOTE


def refusal(bench: Bench, job: str, **keys: Any) -> str:
    plans = Path(keys["checkpoint"], "offsets")
    before = sorted(path.name for path in plans.iterdir())
    with pytest.raises(ConfigError) as info:
        bench.run(job, **keys)
    assert sorted(path.name for path in plans.iterdir()) == before
    return str(info.value)


@pytest.fixture
def mirrored(bench: Bench, topic: str, other_topic: str, checkpoint: str) -> dict[str, Any]:
    """The keys of a mirror job that has run."""
    keys = {"topics": topic, "to": other_topic, "checkpoint": checkpoint}
    bench.fill(topic, 2)
    assert bench.run("mirror", **keys).records == 8
    return keys


@pytest.mark.parametrize("dry_run", [False, True])
def test_another_target_is_refused(
    bench: Bench, mirrored: dict[str, Any], unique: Any, dry_run: bool
) -> None:
    text = refusal(bench, "mirror", **{**mirrored, "to": unique("third")}, dry_run=dry_run)

    assert f"it belongs to the job mirror with to = {mirrored['to']!r}" in text
    assert bench.run("mirror", **mirrored).records == 0


def test_another_job_is_refused(bench: Bench, mirrored: dict[str, Any], tmp_path: Path) -> None:
    keys = {"topics": mirrored["topics"], "checkpoint": mirrored["checkpoint"]}

    assert "it belongs to the job mirror. " in refusal(bench, "redrive", **keys)
    path = str(tmp_path / "archive")
    for form in ("spark", "deterministic"):
        text = refusal(bench, "archive", path=path, file_names=form, **keys)
        assert "it belongs to the job mirror. " in text
    assert not Path(path).exists()


def test_target_of_a_checkpoint_includes_the_cluster(
    bench: Bench, cluster: Any, mirrored: dict[str, Any]
) -> None:
    note = Path(mirrored["checkpoint"], CHECKPOINT_NOTE)
    own = json.loads(note.read_text())
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        assert own["cluster"] == admin.cluster_id(30)
    note.write_text(json.dumps({**own, "cluster": "another"}))

    assert "mirror with cluster = 'another'" in refusal(bench, "mirror", **mirrored)
    assert bench.run("mirror", dry_run=True, **mirrored).records == 0


@pytest.mark.parametrize("words", [None, "{", "[]"])
def test_checkpoint_with_a_missing_or_empty_note_is_refused(
    bench: Bench, mirrored: dict[str, Any], words: str | None
) -> None:
    note = Path(mirrored["checkpoint"], CHECKPOINT_NOTE)
    note.unlink()
    if words is not None:
        note.write_text(words)

    text = refusal(bench, "mirror", **mirrored)
    assert f"no valid file {CHECKPOINT_NOTE} that names the job" in text
    # The advice of the error works.
    (own,) = re.findall(r"write (\{.*\}) to that file", text)
    note.write_text(own)

    assert bench.run("mirror", **mirrored).records == 0


@pytest.mark.parametrize("form", ["spark", "deterministic"])
def test_archive_recognizes_its_checkpoint_without_the_note(
    bench: Bench, topic: str, places: dict[str, str], form: str
) -> None:
    keys = {"topics": topic, "file_names": form, **places}
    bench.fill(topic, 2)
    bench.run("archive", **keys)
    note = Path(places["checkpoint"], CHECKPOINT_NOTE)
    own = note.read_text()
    note.unlink()

    assert bench.run("archive", **keys).records == 0
    assert note.read_text() == own


def test_dry_run_does_not_claim_the_checkpoint(
    bench: Bench, topic: str, other_topic: str, checkpoint: str
) -> None:
    bench.fill(topic, 2)
    keys = {"topics": topic, "checkpoint": checkpoint}
    assert bench.run("mirror", to="another", dry_run=True, **keys).records == 8
    assert not Path(checkpoint).exists()

    assert bench.run("mirror", to=other_topic, **keys).records == 8


def test_query_that_planned_nothing_releases_its_checkpoint(
    bench: Bench, topic: str, other_topic: str, checkpoint: str, unique: Any
) -> None:
    bench.fill(topic, 2)
    keys = {"to": other_topic, "checkpoint": checkpoint}
    with pytest.raises(Exception, match="does not exist"):
        bench.run("mirror", topics=unique("missing"), **{**keys, "to": "misspelt"})
    assert Path(checkpoint, CHECKPOINT_NOTE).exists()

    assert bench.run("mirror", topics=topic, **keys).records == 8


@pytest.mark.parametrize("form", ["spark", "deterministic"])
def test_archive_may_move_but_another_archive_is_refused(
    bench: Bench, topic: str, places: dict[str, str], tmp_path: Path, form: str
) -> None:
    bench.fill(topic, 2)
    keys = {"topics": topic, "file_names": form}
    assert bench.run("archive", **places, **keys).records == 8
    elsewhere = {**places, "path": str(tmp_path / "elsewhere")}
    text = refusal(bench, "archive", **elsewhere, **keys)
    assert "it belongs to the job archive with path = " in text

    moved = {name: str(tmp_path / "moved" / name) for name in places}
    for name, folder in moved.items():
        shutil.move(places[name], folder)
    bench.fill(topic, 1)
    assert bench.run("archive", **moved, **keys).records == 4
    # The checkpoint now belongs to the archive's new path.
    assert bench.run("archive", **moved, **keys).records == 0
