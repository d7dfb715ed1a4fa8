"""Whose a checkpoint is: a note in its folder says which job goes on there, and where it sends.

Spark goes on wherever the checkpoint it is given says. With that of another job, or of the same
job with another target, all that is before would silently never be done; and a query that fails
may have left its plans there, which the right job cannot carry out.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.archive_claim import NOTE as ARCHIVE_NOTE
from cykafka.spark.jobs.config import Archive, Mirror, StreamConfig
from cykafka.spark.jobs.errors import ConfigError
from cykafka.spark.jobs.folders import Folder, naming
from cykafka.spark.jobs.targets import cluster_of

if TYPE_CHECKING:
    from cykafka.spark.jobs.session import Run

__all__ = ["NOTE", "claim_checkpoint"]

NOTE = "cykafka.json"


def claim_checkpoint(run: Run[StreamConfig]) -> None:
    """See that the checkpoint is new, or this job's; note whose it is, but for a dry run.

    Raises
    ------
    ConfigError
        It is of another query, or cannot be made.
    """
    with naming("checkpoint", run.config.checkpoint):
        _claim(run, Folder(run.spark, run.config.checkpoint))


def _claim(run: Run[StreamConfig], folder: Folder) -> None:
    own = _own(run)
    found = _note(folder)
    if any(folder.names("offsets")):  # else nothing was planned, and there is nothing to lose
        _check(run, found, own)
    if found != own and not run.config.is_dry_run:
        folder.make()
        folder.write(NOTE, json.dumps(own) + "\n")


def _own(run: Run[StreamConfig]) -> dict[str, Any]:
    """What the note of this job says: its name first, which differs most."""
    config = run.config
    own: dict[str, Any] = {"job": config.job}
    if isinstance(config, Archive):
        own["path"] = Folder(run.spark, config.path).address.rstrip("/")
        return own
    if isinstance(config, Mirror):
        own["to"] = config.to
    if not config.is_dry_run:
        own["cluster"] = cluster_of(config.sink_options())
    return own


def _note(folder: Folder) -> dict[str, Any] | None:
    """What the note says; None if there is none that can be understood."""
    if not folder.exists(NOTE):
        return None
    with suppress(ValueError):
        note = json.loads(folder.read(NOTE))
        if isinstance(note, dict):
            return note
    return None


def _check(run: Run[StreamConfig], found: dict[str, Any] | None, own: dict[str, Any]) -> None:
    # The archive's own note names this query: that was looked at before.
    config = run.config
    known = isinstance(config, Archive) and Folder(run.spark, config.path).exists(ARCHIVE_NOTE)
    if found is None:
        if known:
            return
        raise _refused(
            run,
            f"a streaming query has begun it, and no {NOTE} in it says whose; if it was this job, "
            f"write {json.dumps(own)} there",
        )
    for name, value in own.items():
        if found.get(name) == value or (name == "path" and known):  # it was moved
            continue
        words = f"it is of the job {found.get('job')}"
        if name != "job":
            words += f" with {name} = {found.get(name)!r}, and this one has {value!r}"
        raise _refused(run, words)


def _refused(run: Run[StreamConfig], words: str) -> ConfigError:
    advice = "take another folder"
    if not isinstance(run.config, Archive):  # which has one checkpoint for ever
        advice += ", or delete it to begin anew"
    return ConfigError(
        [
            f'key "checkpoint" = {run.config.checkpoint!r}: {words}. It would go on where that '
            f"one is, and never do what is before: {advice}"
        ]
    )
