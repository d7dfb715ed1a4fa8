"""Whose an archive is: a note in its folder says which checkpoint writes there, and in what form.

Two checkpoints in one folder lose records where Spark's log is kept, since it knows micro-batches
by their numbers; folders of two forms cannot be read together.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.errors import ConfigError
from cykafka.spark.jobs.folders import Folder, naming

if TYPE_CHECKING:
    from cykafka.spark.jobs.config import Archive
    from cykafka.spark.jobs.session import Run

__all__ = ["NOTE", "Claim"]

# Spark, pyarrow and others take no file for data whose name begins with an underscore.
NOTE = "_cykafka.json"
_LOG = "_spark_metadata"
_ZONE = "spark.sql.session.timeZone"


class Claim:
    """What a run has to say of an archive's folder, and what the note there says.

    Parameters
    ----------
    run : Run
    folder : Folder
        The archive.
    folders : list of str
        The columns that become folders.
    """

    def __init__(self, run: Run[Archive], folder: Folder, folders: list[str]) -> None:
        config = run.config
        self._folder = folder
        self._path: str = config.path
        self._checkpoint: str = config.checkpoint
        self._state = Folder(run.spark, config.checkpoint)
        self._form: dict[str, Any] = {
            "file_names": config.file_names,
            "folders": folders,
            "time_zone": run.spark.conf.get(_ZONE),
        }

    def check(self) -> None:
        """Look at the folder before the query starts.

        Raises
        ------
        ConfigError
            The archive is of another checkpoint, has another form, or cannot be read.
        """
        with naming("path", self._path):
            names = {name for name in self._folder.names() if not name.startswith(".")}
        note = self._note() if NOTE in names else None
        names.discard(NOTE)
        self._check_kind(names)
        if note is not None:
            self._check_note(note)
            return
        # An archive without a note: one that is older than notes are, or whose note was removed.
        if _LOG in names and not any(self._state.names("offsets")):
            raise self._foreign()
        top = self._form["folders"][0]
        others = {name.partition("=")[0] for name in names if "=" in name} - {top}
        if others:
            raise self._other_folders(sorted(others))

    def make(self) -> None:
        """Make the folder, if it is not there.

        Raises
        ------
        ConfigError
            It cannot be made.
        """
        with naming("path", self._path):
            self._folder.make()

    def take(self) -> None:
        """Write the note if there is none; the query has been started, so its checkpoint is there.

        Raises
        ------
        ConfigError
            Another query has been faster, or nothing can be written there.
        """
        if self._folder.exists(NOTE):
            self._check_note(self._note())
            return
        note = {"query": self._query(), "checkpoint": self._state.address, **self._form}
        with naming("path", self._path):
            self._folder.write(NOTE, json.dumps(note, indent=1) + "\n")

    def _query(self) -> str | None:
        """The identity of the checkpoint's query, for ever the same; None before its first run."""
        if not self._state.exists("metadata"):
            return None
        return str(json.loads(self._state.read("metadata"))["id"])

    def _note(self) -> dict[str, Any]:
        try:
            note = json.loads(self._folder.read(NOTE))
            return {name: note[name] for name in ("query", *self._form)}
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                [
                    f'key "path" = {self._path!r}: its file {NOTE} cannot be understood; remove '
                    "it if this job is the only one that writes there"
                ]
            ) from None

    def _check_kind(self, names: set[str]) -> None:
        # Readers that know Spark's log see only what is in it.
        by_log = self._form["file_names"] == "spark"
        if by_log and names and _LOG not in names:
            words = 'there are files that are not of an archive with file_names = "spark"'
        elif not by_log and _LOG in names:
            words = (
                'it is an archive with file_names = "spark", whose readers would not see other '
                "files"
            )
        else:
            return
        raise ConfigError([f'key "path" = {self._path!r}: {words}; take another folder'])

    def _check_note(self, note: dict[str, Any]) -> None:
        if note["query"] != self._query():
            raise self._foreign()
        if note["folders"] != self._form["folders"]:
            raise self._other_folders(note["folders"])
        if note["time_zone"] != self._form["time_zone"]:
            raise ConfigError(
                [
                    f'key "{_ZONE}" = {self._form["time_zone"]!r}: the dates of "path" = '
                    f"{self._path!r} are of {note['time_zone']!r}; leave it so, or take another "
                    "path and checkpoint"
                ]
            )

    def _foreign(self) -> ConfigError:
        words = (
            f'key "checkpoint" = {self._checkpoint!r}: "path" = {self._path!r} was archived with '
            "another one, and an archive has one checkpoint for ever; take that one, or another "
            "path"
        )
        if self._form["file_names"] == "deterministic":
            words += (
                f". If that one is lost, remove {NOTE} there, and begin behind what is archived "
                "(source.startingOffsets)"
            )
        return ConfigError([words])

    def _other_folders(self, there: list[str]) -> ConfigError:
        def named(folders: list[str]) -> str:
            return "/".join(f"{name}=..." for name in folders)

        return ConfigError(
            [
                f'key "path" = {self._path!r}: its folders are {named(there)}, and with these '
                f"keys they would be {named(self._form['folders'])}, which nobody could read "
                'together; leave "decode" and "schema" as they were, or take another path and '
                "checkpoint"
            ]
        )
