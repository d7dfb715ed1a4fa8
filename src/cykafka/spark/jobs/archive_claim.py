"""The owner of an archive: a note names the checkpoint and the form of the archive.

Spark's log in the folder knows micro-batches by number, and so do tables. So two checkpoints that
write to one archive would lose records. Folders of two forms could not be read together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.checkpoint import numbers
from cykafka.spark.jobs.folders import AnyFolder, naming
from cykafka.spark.jobs.formats import FOREIGN, MARKERS, NOTE
from cykafka.spark.jobs.problems import ConfigError, wrong_value

if TYPE_CHECKING:
    from cykafka.spark.jobs.config import Archive
    from cykafka.spark.jobs.partitions import Expression
    from cykafka.spark.jobs.session import Run

__all__ = ["Claim", "Owner"]

_ZONE = "spark.sql.session.timeZone"
# The metadata of a catalog's table: 00001-....metadata.json.
_OF_CATALOG = re.compile(r"\d{5}-.*\.metadata\.json")
# A commit in a Delta table's log; and how many of the newest are read: others may write, too.
_DELTA_COMMIT = re.compile(r"\d{20}\.json")
_MOST_COMMITS = 100
# An entry of the folder that shows the kind of an archive, and the words for that kind.
_LOG = "_spark_metadata"
_KINDS = {
    "spark": (_LOG, 'an archive with file_names = "spark"'),
    "delta": (MARKERS["delta"], "a Delta table"),
    "iceberg": (MARKERS["iceberg"], "an Iceberg table"),
}


class Owner:
    """A run's query and the form of its archive, compared with the note of an existing archive.

    Parameters
    ----------
    run : Run
    parts : list of Expression
        What partitions the archive.
    """

    def __init__(self, run: Run[Archive], parts: list[Expression]) -> None:
        config = run.config
        self._config = config
        self._state = run.driver.folder(config.checkpoint)
        tables = config.format != "parquet"
        self.form: dict[str, Any] = {
            **({"format": config.format} if tables else {"file_names": config.file_names}),
            "folders": [str(part) for part in parts],
            "time_zone": run.spark.conf.get(_ZONE),
        }

    def planned(self) -> int:
        """The last micro-batch that the checkpoint has planned; -1 before the first one."""
        return max(self._numbers("offsets"), default=-1)

    def has_committed(self) -> bool:
        """Whether the checkpoint has committed a micro-batch."""
        return bool(self._numbers("commits"))

    def query(self) -> str | None:
        """The permanent id of the checkpoint's query; None before its first run."""
        with naming("checkpoint", self._config.checkpoint):
            if not self._state.exists("metadata"):
                return None
            return str(json.loads(self._state.read("metadata"))["id"])

    def _numbers(self, name: str) -> set[int]:
        with naming("checkpoint", self._config.checkpoint):
            return numbers(self._state, name)

    def note(self) -> str:
        """The note of this run's archive."""
        note = {"query": self.query(), "checkpoint": self._state.address, **self.form}
        return json.dumps(note, indent=1)

    def check(self, text: str, kept: str) -> None:
        """Compare an archive's note with this run; `kept` says where the note is.

        Raises
        ------
        ConfigError
            The archive belongs to another checkpoint, has another form, or the note is malformed.
        """
        try:
            note = json.loads(text)
            note = {name: note[name] for name in ("query", *self.form)}
        except (ValueError, KeyError, TypeError):
            raise self.refused(
                f"its {kept} is malformed; remove it if only this job writes to the archive"
            ) from None
        if note["query"] != self.query():
            raise self.foreign()
        if note["folders"] != self.form["folders"]:
            raise self.other_folders(note["folders"])
        if note["time_zone"] != self.form["time_zone"]:
            raise wrong_value(
                _ZONE,
                self.form["time_zone"],
                f"the dates of {self._config.place[4:]} are in {note['time_zone']!r}; set that "
                "time zone, or use another path and checkpoint",
            )

    def refused(self, words: str) -> ConfigError:
        """The error for the archive's place."""
        return ConfigError([f"{self._config.place}: {words}"])

    def foreign(self) -> ConfigError:
        """The error for an archive of another checkpoint."""
        words = (
            f"{self._config.place[4:]} was archived with another checkpoint, and an archive keeps "
            "one checkpoint forever; use that checkpoint, or another path"
        )
        if self.form.get("file_names") == "deterministic":
            words += (
                f". If that checkpoint is lost, remove {NOTE} from the path and start after the "
                "archived offsets (source.startingOffsets)"
            )
        return wrong_value("checkpoint", self._config.checkpoint, words)

    def not_ours(self) -> ConfigError:
        """The error for a table of another writer."""
        return self.refused(FOREIGN)

    def lost(self) -> ConfigError:
        """The error for a table that is not there although the checkpoint has written to it."""
        return wrong_value(
            "checkpoint",
            self._config.checkpoint,
            f"it has committed micro-batches, but there is no table at {self._config.place[4:]}: "
            "was the table removed, or is this another place or catalog? With this checkpoint a "
            "new table would lack these records; use a new checkpoint",
        )

    def outdated(self, last: int) -> ConfigError:
        """The error for a checkpoint that is older than the table."""
        return wrong_value(
            "checkpoint",
            self._config.checkpoint,
            f"it ends before micro-batch {last}, which {self._config.place[4:]} has: it is an old "
            "copy, and with it the job would skip records; use the newest checkpoint",
        )

    def other_folders(self, there: list[str]) -> ConfigError:
        """The error for an archive with other partitions."""
        return self.refused(
            f"it is partitioned by {', '.join(there)}, but with these keys it would be by "
            f"{', '.join(self.form['folders'])}, and readers need one kind; keep "
            '"partition_by", "decode" and "schema" as they were, or use another path and '
            "checkpoint"
        )


def _batches(names: Iterable[str]) -> list[int]:
    """The micro-batches in Spark's log: ``7``, or ``9.compact`` for all up to this one."""
    found = (name.partition(".")[0] for name in names)
    return [int(name) for name in found if name.isascii() and name.isdigit()]


class Claim:
    """A run's claim to an archive's folder, checked against the note in the folder.

    Parameters
    ----------
    run : Run
    folder : AnyFolder
        The archive's folder.
    parts : list of Expression
        What partitions the archive. Each becomes a level of folders.
    """

    def __init__(self, run: Run[Archive], folder: AnyFolder, parts: list[Expression]) -> None:
        config = run.config
        self._folder = folder
        self._path = config.folder
        self._owner = Owner(run, parts)
        self._top = parts[0].name
        self._kind: str = config.file_names if config.format == "parquet" else config.format

    def check(self) -> None:
        """Check the folder before the query starts.

        Raises
        ------
        ConfigError
            The archive belongs to another checkpoint, has another form, or cannot be read.
        """
        names = self.check_kind()
        if NOTE in names:
            self._owner.check(self._folder.read(NOTE), f"file {NOTE}")
        else:
            self._check_without_note(names)
        self._check_age(names)

    def _check_without_note(self, names: set[str]) -> None:
        # An archive without a note: an older version wrote it, somebody removed the note, or the
        # first run ended before it could write the note.
        begun = self._owner.planned() >= 0
        if MARKERS["delta"] in names and not begun:
            raise self._owner.not_ours()
        if _LOG in names and not begun:
            raise self._owner.foreign()
        others = {name.partition("=")[0] for name in names if "=" in name} - {self._top}
        if others:
            raise self._owner.other_folders(sorted(others))

    def _check_age(self, names: set[str]) -> None:
        """Raise ConfigError if the checkpoint is an old copy, or the table is gone."""
        last = -1
        if _LOG in names:
            last = max(_batches(self._folder.names(_LOG)), default=-1)
        elif self._kind == "delta" and MARKERS["delta"] in names:
            last = self._last_of_delta()
        elif self._kind == "delta" and self._owner.has_committed():
            raise self._owner.lost()
        if last > self._owner.planned():
            raise self._owner.outdated(last)

    def _last_of_delta(self) -> int:
        """The last micro-batch of this query in a Delta table's newest commits; -1: none."""
        log, query = MARKERS["delta"], self._owner.query()
        commits = sorted(filter(_DELTA_COMMIT.fullmatch, self._folder.names(log)), reverse=True)
        for name in commits[:_MOST_COMMITS]:
            for line in self._folder.read(f"{log}/{name}").splitlines():
                found = json.loads(line).get("txn")
                if found and found["appId"] == query:
                    return int(found["version"])
        return -1

    def check_kind(self) -> set[str]:
        """Check that the folder has no files of another kind; return the names in it.

        Raises
        ------
        ConfigError
            It has such files, or cannot be read.
        """
        with naming("path", self._path):
            names = {name for name in self._folder.names() if not name.startswith(".")}
        for kind, (marker, words) in _KINDS.items():
            if kind != self._kind and marker in names:
                raise self._owner.refused(
                    f"it is {words}, whose readers would not see files of another kind; use "
                    "another folder"
                )
        # Readers that use a log see only the files that it lists.
        marker, words = _KINDS.get(self._kind, ("", ""))
        others = names - {NOTE}
        if marker and others and marker not in others and not self._is_begun_delta(names):
            raise self._owner.refused(f"it has files that are not of {words}; use another folder")
        if marker == MARKERS["iceberg"] and any(
            map(_OF_CATALOG.match, self._folder.names(marker))
        ):
            raise self._owner.refused(
                'a catalog has this Iceberg table; use the key "table" instead of the path'
            )
        return names

    def _is_begun_delta(self, names: set[str]) -> bool:
        """Whether an archive may have files before its first commit, which makes Delta's log."""
        if self._kind != "delta" or NOTE not in names:
            return False
        return '"format": "delta"' in self._folder.read(NOTE)

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
            self._owner.check(self._folder.read(NOTE), f"file {NOTE}")
            return
        with naming("path", self._path):
            self._folder.write(NOTE, self._owner.note() + "\n")
