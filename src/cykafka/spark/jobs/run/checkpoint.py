"""A query's checkpoint: its owner, and its micro-batches.

A note in the checkpoint's directory names the owner's job and target. Spark resumes at the
position in any checkpoint. With another job's or target's checkpoint, Spark would silently skip
everything before that position. If the wrong query failed, it could also leave plans in the
checkpoint that the right job cannot run.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cykafka.spark.jobs.config.models import Archive, Mirror, StreamConfig
from cykafka.spark.jobs.config.table_formats import ARCHIVE_NOTE
from cykafka.spark.jobs.folders import AnyFolder, convert_errors
from cykafka.spark.jobs.problems import ConfigError, wrong_value
from cykafka.spark.jobs.records.targets import cluster_of
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.source.offsets import Offsets, Partition, parse_offsets, take_start

__all__ = ["CHECKPOINT_NOTE", "Undone", "claim_checkpoint", "find_undone", "list_batches"]

CHECKPOINT_NOTE = "cykafka.json"


def claim_checkpoint(run: JobRun[StreamConfig]) -> None:
    """Check that the checkpoint is new or belongs to this job; write its note unless a dry run.

    Raises
    ------
    ConfigError
        The checkpoint belongs to another job or target, or cannot be created.
    """
    with convert_errors("checkpoint", run.config.checkpoint):
        folder = run.driver.folder(run.config.checkpoint)
        own, found = _own(run), _read_note(folder)
        # If no micro-batch is planned, no position can be lost.
        if any(folder.names("offsets")):
            _check(run, found, own)
        if found != own and not run.config.is_dry_run:
            folder.make()
            folder.write(CHECKPOINT_NOTE, json.dumps(own) + "\n")


def _own(run: JobRun[StreamConfig]) -> dict[str, Any]:
    """Return the content of this job's note. The job's name is first, to be compared first."""
    config = run.config
    own: dict[str, Any] = {"job": config.job}
    if isinstance(config, Archive):
        if config.table is not None:
            own["table"] = config.table
        else:
            own["path"] = run.driver.folder(config.folder).address.rstrip("/")
        return own
    if isinstance(config, Mirror):
        own["to"] = config.to
    if not config.is_dry_run:
        own["cluster"] = cluster_of(config.sink_options())
    return own


def _read_note(folder: AnyFolder) -> dict[str, Any] | None:
    """Return the content of the checkpoint's note; None if the note is missing or invalid."""
    if not folder.exists(CHECKPOINT_NOTE):
        return None
    with suppress(ValueError):
        note = json.loads(folder.read(CHECKPOINT_NOTE))
        if isinstance(note, dict):
            return note
    return None


def _check(run: JobRun[StreamConfig], found: dict[str, Any] | None, own: dict[str, Any]) -> None:
    # If the archive has a note, the archive's claim has already checked that it names this query.
    config = run.config
    known = (
        isinstance(config, Archive)
        and config.path is not None
        and run.driver.folder(config.path).exists(ARCHIVE_NOTE)
    )
    if found is None:
        if known:
            return
        raise _refused(
            run,
            f"a streaming query has used it, but it has no valid file {CHECKPOINT_NOTE} that "
            f"names the job; if it was this job, write {json.dumps(own)} to that file",
        )
    for name, value in own.items():
        if found.get(name) == value or (name == "path" and known):  # the archive was moved
            continue
        words = f"it belongs to the job {found.get('job')}"
        if name != "job":
            words += f" with {name} = {found.get(name)!r}, but this job has {value!r}"
        raise _refused(run, words)


def _refused(run: JobRun[StreamConfig], words: str) -> ConfigError:
    advice = "use another directory"
    if not isinstance(run.config, Archive):  # an archive always keeps the same checkpoint
        advice += ", or delete this one to start from the beginning"
    return wrong_value(
        "checkpoint",
        run.config.checkpoint,
        f"{words}. With it, this job would resume at another job's position and skip all records "
        f"before: {advice}",
    )


@dataclass(frozen=True)
class Undone:
    """A planned micro-batch without a commit, which Spark repeats.

    `spans` contains each partition's first and last offset.
    """

    number: int
    spans: dict[Partition, tuple[int, int]]


def find_undone(checkpoint: AnyFolder) -> Undone | None:
    """Return the micro-batch that a query repeats when it starts from this checkpoint, or None."""
    planned = max(list_batches(checkpoint, "offsets"), default=None)
    if planned is None or planned in list_batches(checkpoint, "commits"):
        return None
    end, start = _planned(checkpoint, planned)
    if planned > 0:
        start = _planned(checkpoint, planned - 1)[0]
    # The start of a new partition is not in the checkpoint; 0 is at or before it.
    spans = {
        partition: (start.get(partition, 0), behind - 1)
        for partition, behind in end.items()
        if start.get(partition, 0) < behind
    }
    return Undone(planned, spans)


def list_batches(folder: AnyFolder, log: str) -> set[int]:
    """Return the micro-batches in one of Spark's logs: ``7``, or ``9.compact`` for all up to 9."""
    names = (name.removesuffix(".compact") for name in folder.names(log))
    return {int(name) for name in names if name.isascii() and name.isdigit()}


def _planned(checkpoint: AnyFolder, number: int) -> tuple[Offsets, Offsets]:
    """Return a micro-batch's end; and its start, or {} if the end does not carry the start."""
    version, *lines = checkpoint.read(f"offsets/{number}").splitlines()
    # After the version come a line of Spark's own and one line for each source: here one.
    if version != "v1" or len(lines) != 2:
        raise RuntimeError(
            f"{checkpoint.address}/offsets/{number} has an unknown format; keep "
            "spark.sql.streaming.offsetLog.formatVersion at 1"
        )
    end, start = take_start(json.loads(lines[1]))
    return parse_offsets(end, "the checkpoint's offsets"), start or {}
