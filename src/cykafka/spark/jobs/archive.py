"""The job ``archive``: topics to Parquet, by topic and date."""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cykafka.spark.jobs.config import ConfigError
from cykafka.spark.jobs.folders import Folder
from cykafka.spark.jobs.report import Summary
from cykafka.spark.jobs.streams import counted, finish, records_stream, start
from cykafka.spark.jobs.values import decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from cykafka.spark.jobs.session import Run

__all__ = ["begin", "run"]

RECORD = ("key", "value", "headers")
PLACE = ("partition", "offset", "timestamp", "timestampType")
_ENVELOPE = ("message_id", "trace_id", "message_type", "sent_time", "body")
_LOG = "_spark_metadata"
_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)-(?P<start>\d+)-(?P<end>\d+)\.parquet")


def run(run: Run) -> Summary:
    """Archive what there is, or until asked to stop."""
    finish(run, begin(run))
    return run.summary


def begin(run: Run) -> StreamingQuery:
    """Start the query."""
    records, folders = _rows(run)
    config = run.config
    folder = Folder(run.spark, config["path"])
    if config["file_names"] == "deterministic":
        _check_kind(folder, False, config["path"])
        files = Files(run, folder, folders)
        return start(run, records, lambda writer: writer.foreachBatch(files.write))
    _check_kind(folder, True, config["path"])
    _check_checkpoint(run, folder)
    return start(
        run,
        records,
        lambda writer: (
            writer.format("parquet")
            .partitionBy(*folders)
            .option("compression", config["compression"])
            .option("path", config["path"])
        ),
    )


def _rows(run: Run) -> tuple[DataFrame, list[str]]:
    """What is written, and the columns that become folders."""
    from pyspark.sql import functions as F

    config = run.config
    plain = config["decode"] == "none" and config["schema"] is None
    try:
        records = decoded(records_stream(run), config["decode"], config["schema"])
    except ValueError as error:
        raise ConfigError([f'key "schema": {error}']) from None
    records = counted(records, bad=F.col("error").isNotNull())
    records = records.withColumn("date", F.date_format("timestamp", "yyyy-MM-dd"))
    columns = [*(RECORD if config["keep_raw"] else ()), *PLACE]
    folders = ["topic", "date"]
    if not plain:
        # Bad records lie in folders of their own: whoever reads status=good never sees them.
        status = F.when(F.col("error").isNull(), "good").otherwise("bad")
        records = records.withColumn("status", status)
        columns += ["error", *(_ENVELOPE if config["decode"] != "none" else ())]
        columns += ["json"] if config["schema"] is not None else []
        folders.insert(0, "status")
    return records.select(*columns, *folders), folders


def _check_kind(folder: Folder, by_log: bool, path: str) -> None:
    """Refuse a folder of the other kind: readers that know Spark's log see only what is in it."""
    names = {name for name in folder.names() if not name.startswith(".")}
    if by_log and names and _LOG not in names:
        raise ConfigError(
            [
                f'key "path" = {path!r}: there are files that are not of an archive with '
                'file_names = "spark"; take another folder'
            ]
        )
    if not by_log and _LOG in names:
        raise ConfigError(
            [
                f'key "path" = {path!r}: it is an archive with file_names = "spark", whose '
                "readers would not see other files; take another folder"
            ]
        )


def _check_checkpoint(run: Run, folder: Folder) -> None:
    """Refuse a new checkpoint for an archive by Spark's log, which knows batches by their numbers:
    those of the new query would be taken for done, and not be written."""
    config = run.config
    if folder.exists(_LOG) and not any(Folder(run.spark, config["checkpoint"]).names("offsets")):
        raise ConfigError(
            [
                f'key "checkpoint" = {config["checkpoint"]!r}: it is new, and "path" = '
                f"{config['path']!r} was archived with another one, without which nothing more "
                "would be written there; take that checkpoint, or another path"
            ]
        )


@dataclass(frozen=True)
class _File:
    folder: str
    name: str
    topic: str
    partition: int
    start: int
    end: int  # the last offset


# Names, first and last offsets of files, by topic and partition.
_Found: TypeAlias = dict[tuple[str, int], list[tuple[str, int, int]]]


class Files:
    """Writes micro-batches as files with names that tell their offsets.

    Spark writes a batch to a staging folder beside the archive, a file for each partition and
    date; they are renamed when the batch is complete. A batch that is done again, since a crash
    came before its commit, gives the same names, or else files that hold what those of the first
    attempt did: these go first. So whoever lists the folder sees each offset once.

    Parameters
    ----------
    run : Run
    folder : Folder
        The archive.
    folders : list of str
        The columns that become folders.
    """

    def __init__(self, run: Run, folder: Folder, folders: list[str]) -> None:
        config = run.config
        self._spark = run.spark
        self._folder = folder
        self._folders = folders
        self._compression = config["compression"]
        # A folder of this job's own: others may keep things beside it.
        staging = config["staging"] or folder.address.rstrip("/") + ".unfinished"
        job = hashlib.sha256(str(config["checkpoint"]).encode()).hexdigest()[:16]
        self._staging = Folder(run.spark, f"{staging.rstrip('/')}/cykafka-{job}")
        self._staging.delete()  # what a crash has left
        self._made: set[str] = set()
        self._found: dict[str, _Found] = {}

    def write(self, batch: DataFrame, _number: int) -> None:
        """Write a micro-batch."""
        from pyspark.sql import functions as F

        place = uuid.uuid4().hex
        staged = f"{self._staging.address}/{place}"
        batch.withColumn("_partition", F.col("partition")).write.partitionBy(
            *self._folders, "_partition"
        ).option("compression", self._compression).parquet(staged)
        moves = self._staged(staged)
        self._clear({file for _, file in moves})
        for source, file in moves:
            if file.folder not in self._made:
                self._folder.make(file.folder)
                self._made.add(file.folder)
            self._folder.take(self._staging, f"{place}/{source}", f"{file.folder}/{file.name}")
        self._staging.delete()

    def _staged(self, staged: str) -> list[tuple[str, _File]]:
        """The files of a batch, and what they will be called.

        That takes a pass over the column `offset`, of files that have just been written; the
        offsets of the batch are known without, but not those of each date.
        """
        from pyspark.sql import functions as F

        files = (
            self._spark.read.schema("offset BIGINT")
            .option("recursiveFileLookup", "true")
            .parquet(staged)
            .groupBy(F.col("_metadata.file_path").alias("file"))
            .agg(F.min("offset").alias("start"), F.max("offset").alias("end"))
        )
        moves = []
        depth = len(self._folders) + 2
        for row in files.collect():
            parts = row.file.rsplit("/", depth)[1:]
            values = [part.partition("=")[2] for part in parts[:-1]]
            topic, partition = values[self._folders.index("topic")], int(values[-1])
            name = f"{topic}-{partition}-{row.start}-{row.end}.parquet"
            folder = "/".join(parts[:-2])
            moves.append(
                ("/".join(parts), _File(folder, name, topic, partition, row.start, row.end))
            )
        return moves

    def _clear(self, files: set[_File]) -> None:
        """Delete what an attempt that was not committed has left in the way of these files.

        What a run finds in a folder is remembered: what it adds is never in its own way.
        """
        for folder in {file.folder for file in files}:
            if folder not in self._found:
                self._found[folder] = self._look(folder)
        spans: dict[tuple[str, str, int], tuple[int, int]] = {}
        for file in files:
            place = file.folder, file.topic, file.partition
            low, high = spans.get(place, (file.start, file.end))
            spans[place] = min(low, file.start), max(high, file.end)
        names = {(file.folder, file.name) for file in files}
        # Nothing is deleted before all has been looked at: a refusal leaves the archive as it is.
        gone: list[str] = []
        left_of: dict[tuple[str, str, int], list[tuple[str, int, int]]] = {}
        for (folder, topic, partition), (low, high) in spans.items():
            left = left_of[folder, topic, partition] = []
            for name, first, last in self._found[folder].get((topic, partition), ()):
                if last < low or first > high:
                    left.append((name, first, last))
                elif first < low or last > high:
                    raise RuntimeError(
                        f"{folder}/{name} holds offsets that this run would write again "
                        f"({low} to {high}): was the checkpoint lost, or is this another one? "
                        "Take the checkpoint this archive was made with, or another path"
                    )
                elif (folder, name) not in names:
                    gone.append(f"{folder}/{name}")
        for name in gone:
            self._folder.delete(name)
        for (folder, topic, partition), left in left_of.items():
            self._found[folder][topic, partition] = left

    def _look(self, folder: str) -> _Found:
        found: _Found = {}
        for name in self._folder.names(folder):
            match = _NAME.fullmatch(name)
            if match is not None:
                place = match["topic"], int(match["partition"])
                span = name, int(match["start"]), int(match["end"])
                found.setdefault(place, []).append(span)
        return found
