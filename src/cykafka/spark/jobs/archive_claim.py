"""The owner of an archive: a note in its folder names the checkpoint and the form of the files.

Spark's log in the folder knows micro-batches by number. So two checkpoints that write to one
folder would lose records. Folders of two forms could not be read together.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.folders import AnyFolder, naming
from cykafka.spark.jobs.problems import ConfigError, wrong_value

if TYPE_CHECKING:
    from cykafka.spark.jobs.config import Archive
    from cykafka.spark.jobs.session import Run

__all__ = ["NOTE", "Claim"]

# Spark, pyarrow and other readers skip files whose names begin with an underscore.
NOTE = "_cykafka.json"
_LOG = "_spark_metadata"
_ZONE = "spark.sql.session.timeZone"


class Claim:
    """A run's claim to an archive's folder, checked against the note in the folder.

    Parameters
    ----------
    run : Run
    folder : AnyFolder
        The archive's folder.
    folders : list of str
        The columns that become folders.
    """

    def __init__(self, run: Run[Archive], folder: AnyFolder, folders: list[str]) -> None:
        config = run.config
        self._folder = folder
        self._path: str = config.path
        self._checkpoint: str = config.checkpoint
        self._state = run.driver.folder(config.checkpoint)
        self._form: dict[str, Any] = {
            "file_names": config.file_names,
            "folders": folders,
            "time_zone": run.spark.conf.get(_ZONE),
        }

    def check(self) -> None:
        """Check the folder before the query starts.

        Raises
        ------
        ConfigError
            The archive belongs to another checkpoint, has another form, or cannot be read.
        """
        with naming("path", self._path):
            names = {name for name in self._folder.names() if not name.startswith(".")}
        note = self._note() if NOTE in names else None
        names.discard(NOTE)
        self._check_kind(names)
        if note is not None:
            self._check_note(note)
            return
        # An archive without a note: an older version wrote it, or somebody removed the note.
        if _LOG in names and not any(self._state.names("offsets")):
            raise self._foreign()
        top = self._form["folders"][0]
        others = {name.partition("=")[0] for name in names if "=" in name} - {top}
        if others:
            raise self._other_folders(sorted(others))

    def make(self) -> None:
        """Create the folder, if it does not exist.

        Raises
        ------
        ConfigError
            The folder cannot be created.
        """
        with naming("path", self._path):
            self._folder.make()

    def take(self) -> None:
        """Write the note if there is none. The query has started, so its checkpoint has its id.

        Raises
        ------
        ConfigError
            Another query wrote its note first, or the folder is not writable.
        """
        if self._folder.exists(NOTE):
            self._check_note(self._note())
            return
        note = {"query": self._query(), "checkpoint": self._state.address, **self._form}
        with naming("path", self._path):
            self._folder.write(NOTE, json.dumps(note, indent=1) + "\n")

    def _query(self) -> str | None:
        """The permanent id of the checkpoint's query; None before its first run."""
        if not self._state.exists("metadata"):
            return None
        return str(json.loads(self._state.read("metadata"))["id"])

    def _note(self) -> dict[str, Any]:
        try:
            note = json.loads(self._folder.read(NOTE))
            return {name: note[name] for name in ("query", *self._form)}
        except (ValueError, KeyError, TypeError):
            raise wrong_value(
                "path",
                self._path,
                f"its file {NOTE} is malformed; remove it if only this job writes to the archive",
            ) from None

    def _check_kind(self, names: set[str]) -> None:
        # Readers that use Spark's log see only the files that it lists.
        by_log = self._form["file_names"] == "spark"
        if by_log and names and _LOG not in names:
            words = 'it has files that are not of an archive with file_names = "spark"'
        elif not by_log and _LOG in names:
            words = (
                'it is an archive with file_names = "spark", whose readers would not see files '
                "with other names"
            )
        else:
            return
        raise wrong_value("path", self._path, f"{words}; use another folder")

    def _check_note(self, note: dict[str, Any]) -> None:
        if note["query"] != self._query():
            raise self._foreign()
        if note["folders"] != self._form["folders"]:
            raise self._other_folders(note["folders"])
        if note["time_zone"] != self._form["time_zone"]:
            raise wrong_value(
                _ZONE,
                self._form["time_zone"],
                f'the dates of "path" = {self._path!r} are in {note["time_zone"]!r}; set that '
                "time zone, or use another path and checkpoint",
            )

    def _foreign(self) -> ConfigError:
        words = (
            f'"path" = {self._path!r} was archived with another checkpoint, and an archive keeps '
            "one checkpoint forever; use that checkpoint, or another path"
        )
        if self._form["file_names"] == "deterministic":
            words += (
                f". If that checkpoint is lost, remove {NOTE} from the path and start after the "
                "archived offsets (source.startingOffsets)"
            )
        return wrong_value("checkpoint", self._checkpoint, words)

    def _other_folders(self, there: list[str]) -> ConfigError:
        def named(folders: list[str]) -> str:
            return "/".join(f"{name}=..." for name in folders)

        return wrong_value(
            "path",
            self._path,
            f"its folders are {named(there)}, but with these keys they would be "
            f'{named(self._form["folders"])}, and readers need one kind; keep "decode" and '
            '"schema" as they were, or use another path and checkpoint',
        )
