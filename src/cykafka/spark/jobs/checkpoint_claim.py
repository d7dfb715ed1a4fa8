"""Whose a checkpoint is: a note in its folder says which job goes on there, and where it sends.

Spark goes on wherever the checkpoint it is given says. With that of another job, or of the same
job with another target, all that is before would silently never be done; and a query that fails
may have left its plans there, which the right job cannot carry out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.archive_claim import NOTE as ARCHIVE_NOTE
from cykafka.spark.jobs.config import ConfigError
from cykafka.spark.jobs.folders import Folder

if TYPE_CHECKING:
    from cykafka.spark.jobs.session import Run

__all__ = ["NOTE", "claim_checkpoint"]

NOTE = "cykafka.json"


def claim_checkpoint(run: Run) -> None:
    """See that the checkpoint is new, or this job's; note whose it is, but for a dry run.

    Raises
    ------
    ConfigError
        It is of another query, or cannot be made.
    """
    try:
        _claim(run, Folder(run.spark, run.config["checkpoint"]))
    except OSError as error:
        told = f"it cannot be read or made: {error}"
        raise ConfigError([f'key "checkpoint" = {run.config["checkpoint"]!r}: {told}']) from error


def _claim(run: Run, folder: Folder) -> None:
    config = run.config
    # The job's name first: it is what differs most.
    own: dict[str, Any] = {"job": config.job.name}
    if config.job.name == "archive":
        own["path"] = Folder(run.spark, config["path"]).address.rstrip("/")
    elif config.job.name == "mirror":
        own["to"] = config["to"]
    found = _note(folder, config["checkpoint"])
    if any(folder.names("offsets")):  # else nothing was planned, and there is nothing to lose
        _check(run, found, own)
    if found != own and not config.values.get("dry_run"):
        folder.make()
        folder.write(NOTE, json.dumps(own) + "\n")


def _check(run: Run, found: dict[str, Any] | None, own: dict[str, Any]) -> None:
    checkpoint = run.config["checkpoint"]
    if found is None:
        raise _refused(checkpoint, "a streaming query has begun it that was none of these jobs")
    for name, value in own.items():
        if found.get(name) == value or (name == "path" and _moved(run)):
            continue
        words = f"it is of the job {found.get('job')}"
        if name != "job":
            words += f" with {name} = {found.get(name)!r}, and this one has {value!r}"
        raise _refused(checkpoint, words)


def _note(folder: Folder, checkpoint: str) -> dict[str, Any] | None:
    if not folder.exists(NOTE):
        return None
    try:
        note = json.loads(folder.read(NOTE))
    except ValueError:
        note = None
    if not isinstance(note, dict):
        raise ConfigError(
            [
                f'key "checkpoint" = {checkpoint!r}: its file {NOTE} cannot be understood; remove '
                "the folder to begin anew"
            ]
        )
    return note


def _moved(run: Run) -> bool:
    """Whether the archive has a note of its own, by which it was known to be this checkpoint's."""
    return Folder(run.spark, run.config["path"]).exists(ARCHIVE_NOTE)


def _refused(checkpoint: str, words: str) -> ConfigError:
    return ConfigError(
        [
            f'key "checkpoint" = {checkpoint!r}: {words}; it would go on where that one is, and '
            "never do what is before: take another folder, or delete it to begin anew"
        ]
    )
