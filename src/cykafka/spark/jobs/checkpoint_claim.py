"""The owner of a checkpoint: a note in its folder names the job and the target.

Spark resumes at the position in any checkpoint. With the checkpoint of another job or target, it
would silently skip everything before that position. And if the wrong query failed, it could leave
plans in the checkpoint that the right job cannot run.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.config import Archive, Mirror, StreamConfig
from cykafka.spark.jobs.folders import AnyFolder, naming
from cykafka.spark.jobs.formats import NOTE as ARCHIVE_NOTE
from cykafka.spark.jobs.problems import ConfigError, wrong_value
from cykafka.spark.jobs.targets import cluster_of

if TYPE_CHECKING:
    from cykafka.spark.jobs.session import Run

__all__ = ["NOTE", "claim_checkpoint"]

NOTE = "cykafka.json"


def claim_checkpoint(run: Run[StreamConfig]) -> None:
    """Check that the checkpoint is new or belongs to this job; write its note unless a dry run.

    Raises
    ------
    ConfigError
        The checkpoint belongs to another job or target, or cannot be created.
    """
    with naming("checkpoint", run.config.checkpoint):
        _claim(run, run.driver.folder(run.config.checkpoint))


def _claim(run: Run[StreamConfig], folder: AnyFolder) -> None:
    own = _own(run)
    found = _note(folder)
    if any(folder.names("offsets")):  # else no micro-batch was planned, so no position can be lost
        _check(run, found, own)
    if found != own and not run.config.is_dry_run:
        folder.make()
        folder.write(NOTE, json.dumps(own) + "\n")


def _own(run: Run[StreamConfig]) -> dict[str, Any]:
    """The content of this job's note. The job's name is first, because it is compared first."""
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


def _note(folder: AnyFolder) -> dict[str, Any] | None:
    """The content of the checkpoint's note; None if the note is missing or invalid."""
    if not folder.exists(NOTE):
        return None
    with suppress(ValueError):
        note = json.loads(folder.read(NOTE))
        if isinstance(note, dict):
            return note
    return None


def _check(run: Run[StreamConfig], found: dict[str, Any] | None, own: dict[str, Any]) -> None:
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
            f"a streaming query has used it, but it has no valid file {NOTE} that names the job; "
            f"if it was this job, write {json.dumps(own)} to that file",
        )
    for name, value in own.items():
        if found.get(name) == value or (name == "path" and known):  # the archive was moved
            continue
        words = f"it belongs to the job {found.get('job')}"
        if name != "job":
            words += f" with {name} = {found.get(name)!r}, but this job has {value!r}"
        raise _refused(run, words)


def _refused(run: Run[StreamConfig], words: str) -> ConfigError:
    advice = "use another folder"
    if not isinstance(run.config, Archive):  # an archive keeps one checkpoint forever
        advice += ", or delete this one to start from the beginning"
    return wrong_value(
        "checkpoint",
        run.config.checkpoint,
        f"{words}. With it, this job would resume at another job's position and skip all records "
        f"before: {advice}",
    )
