"""Whether a job may write to an existing archive: its owner, and the columns of a table.

A note in the archive names the owner's checkpoint and the archive's form.

Spark's log in the directory and tables identify micro-batches by number. So two checkpoints that
write to one archive would lose records. Readers could not read directories of two forms together.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark.sql.types import ArrayType, MapType, StructType

from cykafka.spark.jobs.config.models import Archive
from cykafka.spark.jobs.config.partition_by import Expression
from cykafka.spark.jobs.config.table_formats import ARCHIVE_NOTE, FOREIGN, MARKERS
from cykafka.spark.jobs.folders import AnyFolder, convert_errors
from cykafka.spark.jobs.problems import ConfigError, wrong_value
from cykafka.spark.jobs.run.checkpoint import list_batches
from cykafka.spark.jobs.run.session import JobRun

__all__ = ["SPARK_LOG", "Claim", "Owner", "check_columns"]

_ZONE = "spark.sql.session.timeZone"
# The metadata of a catalog's table: 00001-....metadata.json.
_OF_CATALOG = re.compile(r"\d{5}-.*\.metadata\.json")
# A commit in a Delta table's log, and how many of the newest to read: others may also write.
_DELTA_COMMIT = re.compile(r"\d{20}\.json")
_MOST_COMMITS = 100
# A directory entry that shows the kind of an archive, and the words for that kind.
SPARK_LOG = "_spark_metadata"
_KINDS = {
    "spark": (SPARK_LOG, 'an archive with file_names = "spark"'),
    "delta": (MARKERS["delta"], "a Delta table"),
    "iceberg": (MARKERS["iceberg"], "an Iceberg table"),
}


class Owner:
    """Compares a run's query and archive form with an existing archive's note.

    Parameters
    ----------
    run : JobRun
    parts : list of Expression
        The expressions that partition the archive.
    """

    def __init__(self, run: JobRun[Archive], parts: list[Expression]) -> None:
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
        """Return the last micro-batch that the checkpoint planned; -1 before the first one."""
        return max(self._numbers("offsets"), default=-1)

    def has_committed(self) -> bool:
        """Whether the checkpoint has committed a micro-batch."""
        return bool(self._numbers("commits"))

    def query(self) -> str | None:
        """Return the permanent id of the checkpoint's query; None before its first run."""
        with convert_errors("checkpoint", self._config.checkpoint):
            if not self._state.exists("metadata"):
                return None
            return str(json.loads(self._state.read("metadata"))["id"])

    def _numbers(self, name: str) -> set[int]:
        with convert_errors("checkpoint", self._config.checkpoint):
            return list_batches(self._state, name)

    def note(self) -> str:
        """Return the note for this run's archive."""
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
        """Return an error about the archive's place."""
        return ConfigError(f"{self._config.place}: {words}")

    def foreign(self) -> ConfigError:
        """Return the error for another checkpoint's archive."""
        words = (
            f"{self._config.place[4:]} was archived with another checkpoint, and an archive keeps "
            "one checkpoint forever; use that checkpoint, or another path"
        )
        if self.form.get("file_names") == "deterministic":
            words += (
                f". If that checkpoint is lost, remove {ARCHIVE_NOTE} from the path and start "
                "after the archived offsets (source.startingOffsets)"
            )
        return wrong_value("checkpoint", self._config.checkpoint, words)

    def lost(self) -> ConfigError:
        """Return the error for a missing table that the checkpoint has written to."""
        return wrong_value(
            "checkpoint",
            self._config.checkpoint,
            f"it has committed micro-batches, but there is no table at {self._config.place[4:]}: "
            "was the table removed, or is this another place or catalog? With this checkpoint a "
            "new table would lack these records; use a new checkpoint",
        )

    def outdated(self, last: int) -> ConfigError:
        """Return the error for a checkpoint that is older than the table."""
        return wrong_value(
            "checkpoint",
            self._config.checkpoint,
            f"it ends before micro-batch {last}, which {self._config.place[4:]} has: it is an old "
            "copy, and with it the job would skip records; use the newest checkpoint",
        )

    def other_folders(self, there: list[str]) -> ConfigError:
        """Return the error for an archive with different partitions."""
        return self.refused(
            f"it is partitioned by {', '.join(there)}, but these keys would partition new files "
            f"by {', '.join(self.form['folders'])}; keep "
            '"partition_by", "decode" and "schema" as they were, or use another path and '
            "checkpoint"
        )


class Claim:
    """A run's claim to an archive's directory, checked against the note in the directory.

    Parameters
    ----------
    run : JobRun
    folder : AnyFolder
        The archive's folder.
    parts : list of Expression
        The expressions that partition the archive. Each becomes a directory level.
    """

    def __init__(self, run: JobRun[Archive], folder: AnyFolder, parts: list[Expression]) -> None:
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
        if ARCHIVE_NOTE in names:
            self._owner.check(self._folder.read(ARCHIVE_NOTE), f"file {ARCHIVE_NOTE}")
        else:
            self._check_without_note(names)
        self._check_age(names)

    def _check_without_note(self, names: set[str]) -> None:
        # An archive lacks a note if an older version wrote the archive, if somebody removed the
        # note, or if the first run ended before it could write the note.
        begun = self._owner.planned() >= 0
        if MARKERS["delta"] in names and not begun:
            raise self._owner.refused(FOREIGN)
        if SPARK_LOG in names and not begun:
            raise self._owner.foreign()
        others = {name.partition("=")[0] for name in names if "=" in name} - {self._top}
        if others:
            raise self._owner.other_folders(sorted(others))

    def _check_age(self, names: set[str]) -> None:
        """Raise ConfigError if the checkpoint is an old copy, or the table is gone."""
        last = -1
        if SPARK_LOG in names:
            last = max(list_batches(self._folder, SPARK_LOG), default=-1)
        elif self._kind == "delta" and MARKERS["delta"] in names:
            last = self._last_of_delta()
        elif self._kind == "delta" and self._owner.has_committed():
            raise self._owner.lost()
        if last > self._owner.planned():
            raise self._owner.outdated(last)

    def _last_of_delta(self) -> int:
        """Return this query's last micro-batch in a Delta table's newest commits, or -1."""
        log, query = MARKERS["delta"], self._owner.query()
        commits = sorted(filter(_DELTA_COMMIT.fullmatch, self._folder.names(log)), reverse=True)
        for name in commits[:_MOST_COMMITS]:
            for line in self._folder.read(f"{log}/{name}").splitlines():
                found = json.loads(line).get("txn")
                if found and found["appId"] == query:
                    return int(found["version"])
        return -1

    def check_kind(self) -> set[str]:
        """Check that the directory contains no files of another kind. Returns its entries.

        Raises
        ------
        ConfigError
            The directory contains such files, or cannot be read.
        """
        with convert_errors("path", self._path):
            names = {name for name in self._folder.names() if not name.startswith(".")}
        for kind, (marker, words) in _KINDS.items():
            if kind != self._kind and marker in names:
                raise self._owner.refused(
                    f"it is {words}, whose readers would not see other files; use another "
                    "directory"
                )
        # Readers that use a log see only the files in the log.
        marker, words = _KINDS.get(self._kind, ("", ""))
        others = names - {ARCHIVE_NOTE}
        if marker and others and marker not in others and not self._is_begun_delta(names):
            raise self._owner.refused(
                f"it contains files that are not part of {words}; use another directory"
            )
        if marker == MARKERS["iceberg"] and any(
            map(_OF_CATALOG.match, self._folder.names(marker))
        ):
            raise self._owner.refused(
                'a catalog has this Iceberg table; use the key "table" instead of the path'
            )
        return names

    def _is_begun_delta(self, names: set[str]) -> bool:
        """Whether files may exist before the archive's first commit, which creates Delta's log."""
        if self._kind != "delta" or ARCHIVE_NOTE not in names:
            return False
        return '"format": "delta"' in self._folder.read(ARCHIVE_NOTE)

    def create_folder(self) -> None:
        """Create the directory if it does not exist.

        Raises
        ------
        ConfigError
            The directory cannot be created.
        """
        with convert_errors("path", self._path):
            self._folder.make()

    def write_note(self) -> None:
        """Write the note if it is missing. The query has started, so the checkpoint contains its
        id.

        Raises
        ------
        ConfigError
            Another query wrote its note first, or the directory is not writable.
        """
        if self._folder.exists(ARCHIVE_NOTE):
            self._owner.check(self._folder.read(ARCHIVE_NOTE), f"file {ARCHIVE_NOTE}")
            return
        with convert_errors("path", self._path):
            self._folder.write(ARCHIVE_NOTE, self._owner.note() + "\n")


def check_columns(run: JobRun[Archive], there: StructType, rows: StructType) -> None:
    """Compare the columns of an existing table with those of the rows to write.

    Raises
    ------
    ConfigError
        A column has another type, or is new without the key `merge_schema`.
    """
    before = {field.name: field.dataType for field in there}
    new = [field.name for field in rows if field.name not in before]
    other = [
        f"{field.name} is {before[field.name].simpleString()} in the table, but would be "
        f"{field.dataType.simpleString()}"
        for field in rows
        if field.name in before and not _same(before[field.name], field.dataType)
    ]
    merges = run.config.merge_schema
    if other and not merges:
        raise ConfigError(
            f"{run.config.place}: its columns have other types: {'; '.join(other)}. Keep "
            '"decode" and "schema" as they were, or set merge_schema = true if the format can '
            "widen them"
        )
    if new and not merges:
        raise ConfigError(
            f"{run.config.place}: the table lacks the columns {', '.join(new)}; set "
            "merge_schema = true to add them"
        )


def _same(one: object, other: object) -> bool:
    """Whether two types are the same, apart from nullability and field order."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        return sorted(one.names) == sorted(other.names) and all(
            _same(one[name].dataType, other[name].dataType) for name in one.names
        )
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same(one.elementType, other.elementType)
    if isinstance(one, MapType) and isinstance(other, MapType):
        return _same(one.keyType, other.keyType) and _same(one.valueType, other.valueType)
    return one == other
