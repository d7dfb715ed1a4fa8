"""Files of an archive whose names tell their offsets, each offset in one of them."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cykafka.spark.jobs.folders import Folder
from cykafka.spark.offsets import Offsets, Partition, parse_offsets, take_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cykafka.spark.jobs.archive_claim import Claim
    from cykafka.spark.jobs.config import Archive
    from cykafka.spark.jobs.session import Run

__all__ = ["File", "Files", "Undone", "file_name", "undone"]

# Spark, pyarrow and others pass over files whose names begin like this, as topics' names may. No
# topic's name has the sign that is put before these, and it means nothing to paths or patterns.
_HIDDEN = ("_", ".")
_SIGN = "+"
_NAME = re.compile(
    r"(?:\+(?=[_.]))?(?P<topic>[^+]+)-(?P<partition>\d+)-(?P<start>\d+)-(?P<end>\d+)\.parquet"
)
_MOST_FOLDERS = 1000


def file_name(topic: str, partition: int, start: int, end: int) -> str:
    """What a file with these offsets of a partition is called."""
    sign = _SIGN if topic.startswith(_HIDDEN) else ""
    return f"{sign}{topic}-{partition}-{start}-{end}.parquet"


@dataclass(frozen=True)
class File:
    """A file of a micro-batch, and the first and the last offset in it."""

    folder: str
    name: str
    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Undone:
    """A micro-batch that was planned and not committed, so that it is done again: its number, and
    the first and the last offset of each partition."""

    number: int
    spans: dict[Partition, tuple[int, int]]


def undone(checkpoint: Folder) -> Undone | None:
    """What a checkpoint says is done again when its query starts, if anything."""
    planned = max(_numbers(checkpoint, "offsets"), default=None)
    if planned is None or planned in _numbers(checkpoint, "commits"):
        return None
    end, start = _planned(checkpoint, planned)
    if planned > 0:
        start = _planned(checkpoint, planned - 1)[0]
    # A partition that is new begins where it begins, which is nowhere before 0.
    spans = {
        each: (start.get(each, 0), behind - 1)
        for each, behind in end.items()
        if start.get(each, 0) < behind
    }
    return Undone(planned, spans)


def _numbers(checkpoint: Folder, name: str) -> set[int]:
    return {int(each) for each in checkpoint.names(name) if each.isascii() and each.isdigit()}


def _planned(checkpoint: Folder, number: int) -> tuple[Offsets, Offsets]:
    """Where a micro-batch ends, and where it begins if that is written with it."""
    version, *lines = checkpoint.read(f"offsets/{number}").splitlines()
    # After the version there is a line of Spark's own, then one for each source: here one.
    if version != "v1" or len(lines) != 2:
        raise RuntimeError(
            f"{checkpoint.address}/offsets/{number} is of a form that is not known here; leave "
            "spark.sql.streaming.offsetLog.formatVersion at 1"
        )
    end, start = take_start(json.loads(lines[1]))
    return parse_offsets(end, "the checkpoint's offsets"), start or {}


# Names, first and last offsets of files, by topic and partition.
_Found: TypeAlias = dict[Partition, list[tuple[str, int, int]]]


class Files:
    """Writes micro-batches as files with names that tell their offsets.

    Spark writes a batch to a staging folder beside the archive, a file for each partition and
    date; they are renamed when the batch is complete. A batch that is done again, since a crash
    came before its commit, replaces what its first attempt has left; which one that is, and which
    offsets are its own, is known by the checkpoint. No other batch replaces anything. So whoever
    lists the folder sees each offset once, and what is committed stays.

    Parameters
    ----------
    run : Run
    folder : Folder
        The archive.
    folders : list of str
        The columns that become folders.
    claim : Claim
    """

    def __init__(
        self, run: Run[Archive], folder: Folder, folders: list[str], claim: Claim
    ) -> None:
        config = run.config
        self._spark = run.spark
        self._folder = folder
        self._folders = folders
        self._claim = claim
        self._compression = config.compression
        # A folder of this job's own: others may keep things beside it.
        staging = config.staging or folder.address.rstrip("/") + ".unfinished"
        job = hashlib.sha256(str(config.checkpoint).encode()).hexdigest()[:16]
        self._staging = Folder(run.spark, f"{staging.rstrip('/')}/cykafka-{job}")
        self._staging.delete()  # what a crash has left
        self._undone = undone(Folder(run.spark, config.checkpoint))
        self._made: set[str] = set()
        self._found: dict[str, _Found] = {}

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a micro-batch."""
        place = uuid.uuid4().hex
        staged = f"{self._staging.address}/{place}"
        count = self._stage(batch, staged)
        moves, there = self._staged(staged)
        if there != count:
            raise RuntimeError(
                f"the micro-batch has {count} records, and {there} of them are in the files that "
                f"were written to {staged}: does each worker reach the same file system as the "
                "driver, and does nobody else delete there?"
            )
        if moves:
            self._claim.take()
        files = {file for _, file in moves}
        self._clear(files, number)
        for source, file in moves:
            if file.folder not in self._made:
                self._folder.make(file.folder)
                self._made.add(file.folder)
            self._folder.take(self._staging, f"{place}/{source}", f"{file.folder}/{file.name}")
        self._remember(files)
        self._staging.delete()

    def _stage(self, batch: DataFrame, staged: str) -> int:
        """Have the batch written to the staging folder; returns how many records it has."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        seen = Observation()
        batch = batch.observe(seen, F.count(F.lit(1)).alias("count"))
        batch.withColumn("_partition", F.col("partition")).write.partitionBy(
            *self._folders, "_partition"
        ).option("compression", self._compression).parquet(staged)
        return int(seen.get.get("count") or 0)

    def _staged(self, staged: str) -> tuple[list[tuple[str, File]], int]:
        """The files of a batch and what they will be called, and how many records they have.

        That takes a pass over the column `offset`, of files that have just been written; the
        offsets of the batch are known without, but not those of each date.
        """
        from pyspark.sql import functions as F

        files = (
            self._spark.read.schema("offset BIGINT")
            .option("recursiveFileLookup", "true")
            .parquet(staged)
            .groupBy(F.col("_metadata.file_path").alias("file"))
            .agg(
                F.min("offset").alias("start"),
                F.max("offset").alias("end"),
                F.count(F.lit(1)).alias("records"),
            )
        )
        moves, there = [], 0
        depth = len(self._folders) + 2
        for row in files.collect():
            parts = row.file.rsplit("/", depth)[1:]
            values = [part.partition("=")[2] for part in parts[:-1]]
            topic, partition = values[self._folders.index("topic")], int(values[-1])
            name = file_name(topic, partition, row.start, row.end)
            file = File("/".join(parts[:-2]), name, topic, partition, row.start, row.end)
            moves.append(("/".join(parts), file))
            there += row.records
        return moves, there

    def _clear(self, files: set[File], number: int) -> None:
        """Make way for the files of a batch: what its first attempt has left is deleted, or will
        be replaced; whatever else holds offsets of it is an error."""
        again = self._undone is not None and self._undone.number == number
        own = self._undone.spans if self._undone is not None and again else {}
        spans: dict[tuple[str, str, int], tuple[int, int]] = {}
        for file in files:
            place = file.folder, file.topic, file.partition
            low, high = spans.get(place, (file.start, file.end))
            spans[place] = min(low, file.start), max(high, file.end)
        names = {(file.folder, file.name) for file in files}
        # Nothing is deleted before all has been looked at: a refusal leaves the archive as it is.
        gone: list[str] = []
        for (folder, topic, partition), (low, high) in spans.items():
            # What was planned, not what was read: records may have been compacted away since.
            first, last = own.get((topic, partition), (low, high))
            first, last = min(first, low), max(last, high)
            found, left = self._look(folder), []
            for name, start, end in found.get((topic, partition), ()):
                if end < first or start > last:
                    left.append((name, start, end))
                elif not again or start < first or end > last:
                    raise RuntimeError(
                        f"{folder}/{name} holds offsets that this run would write again ({first} "
                        f"to {last} of {topic} [{partition}]): was the topic made anew, or was "
                        "the checkpoint lost? Take another path (and checkpoint), or begin "
                        "behind what is archived"
                    )
                elif (folder, name) not in names:
                    gone.append(f"{folder}/{name}")
            found[topic, partition] = left
        for name in gone:
            self._folder.delete(name)

    def _look(self, folder: str) -> _Found:
        """What is in a folder; known after the first time, since nobody else writes there."""
        found = self._found.pop(folder, None)
        if found is None:
            found = {}
            for name in self._folder.names(folder):
                match = _NAME.fullmatch(name)
                if match is not None:
                    place = match["topic"], int(match["partition"])
                    span = name, int(match["start"]), int(match["end"])
                    found.setdefault(place, []).append(span)
        self._found[folder] = found  # the one that was asked for last is the last
        return found

    def _remember(self, files: set[File]) -> None:
        """Note what has been added."""
        for file in sorted(files, key=lambda file: file.start):
            there = self._found[file.folder].setdefault((file.topic, file.partition), [])
            start = file.start
            if there and there[-1][2] + 1 == start:
                start = there.pop()[1]  # a run of files is as one: batches without end
            there.append((file.name, start, file.end))
        while len(self._found) > _MOST_FOLDERS:
            folder = next(iter(self._found))
            del self._found[folder]
            self._made.discard(folder)
