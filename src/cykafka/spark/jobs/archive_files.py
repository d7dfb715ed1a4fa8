"""Files of an archive with their offsets in their names; each offset is in one file."""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from cykafka.spark.jobs.checkpoint import undone
from cykafka.spark.jobs.folders import AnyFolder
from cykafka.spark.offsets import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cykafka.spark.jobs.archive_claim import Claim
    from cykafka.spark.jobs.config import Archive
    from cykafka.spark.jobs.session import Run

__all__ = ["File", "Files", "file_name"]

# Spark, pyarrow and other readers skip files whose names begin with these characters, but names of
# topics may. Such file names get a sign in front, which has no meaning in topics, paths, patterns.
_HIDDEN = ("_", ".")
_SIGN = "+"
_NAME = re.compile(
    r"(?:\+(?=[_.]))?(?P<topic>[^+]+)-(?P<partition>\d+)-(?P<start>\d+)-(?P<end>\d+)\.parquet"
)
_MOST_FOLDERS = 1000
_COUNTERPARTS = {"status=good": "status=bad", "status=bad": "status=good"}


def file_name(topic: str, partition: int, start: int, end: int) -> str:
    """The name of a file with these offsets of a partition."""
    sign = _SIGN if topic.startswith(_HIDDEN) else ""
    return f"{sign}{topic}-{partition}-{start}-{end}.parquet"


def _counterpart(folder: str) -> str:
    """The folder for bad records beside one for good records, and the reverse."""
    top, slash, rest = folder.partition("/")
    return _COUNTERPARTS.get(top, top) + slash + rest


@dataclass(frozen=True)
class File:
    """A file of a micro-batch. `start` and `end` are its first and last offset."""

    folder: str
    name: str
    topic: str
    partition: int
    start: int
    end: int


# Names, first and last offsets of files, by topic and partition.
_Found: TypeAlias = dict[Partition, list[tuple[str, int, int]]]


class Files:
    """Writes micro-batches as files with their offsets in their names.

    Spark writes a batch to a staging folder beside the archive, with a file for each partition and
    date. When the batch is complete, the files are renamed into the archive. If a crash came
    before a batch's commit, the repeated batch replaces the files of its first attempt. The
    checkpoint says which batch that is and which offsets it has. No other batch replaces files. So
    readers that list the folder see each offset once, and committed files stay.

    Parameters
    ----------
    run : Run
    folder : AnyFolder
        The archive's folder.
    folders : list of str
        The columns that become folders.
    claim : Claim
    """

    def __init__(
        self, run: Run[Archive], folder: AnyFolder, folders: list[str], claim: Claim
    ) -> None:
        config = run.config
        self._folder = folder
        self._folders = folders
        self._claim = claim
        self._compression = config.compression
        # Use a subfolder for this job: the staging folder may have other content.
        staging = config.staging or folder.address.rstrip("/") + ".unfinished"
        job = hashlib.sha256(str(config.checkpoint).encode()).hexdigest()[:16]
        self._staging = run.driver.folder(f"{staging.rstrip('/')}/cykafka-{job}")
        self._staging.delete()  # a crash may have left files
        self._undone = undone(run.driver.folder(config.checkpoint))
        self._made: set[str] = set()
        self._found: dict[str, _Found] = {}

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a micro-batch."""
        place = uuid.uuid4().hex
        staged = f"{self._staging.address}/{place}"
        count = self._stage(batch, staged)
        moves, there = self._staged(batch.sparkSession, staged)
        if there != count:
            raise RuntimeError(
                f"the micro-batch has {count} records, but only {there} of them are in the files "
                f"in {staged}: check that all workers and the driver use the same file system, "
                "and that no other program deletes files there"
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
        """Write the batch to the staging folder and return its number of records."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        seen = Observation()
        batch = batch.observe(seen, F.count(F.lit(1)).alias("count"))
        batch.withColumn("_partition", F.col("partition")).write.partitionBy(
            *self._folders, "_partition"
        ).option("compression", self._compression).parquet(staged)
        return int(seen.get.get("count") or 0)

    def _staged(self, spark: SparkSession, staged: str) -> tuple[list[tuple[str, File]], int]:
        """The staged files of a batch with their final names, and their number of records.

        This reads the column `offset` of the files. The offsets of the batch are known without it,
        but those of each date are not.
        """
        from pyspark.sql import functions as F

        files = (
            spark.read.schema("offset BIGINT")
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
            parts = unquote(row.file).rsplit("/", depth)[1:]  # Spark gives URIs
            values = [part.partition("=")[2] for part in parts[:-1]]
            topic, partition = values[self._folders.index("topic")], int(values[-1])
            name = file_name(topic, partition, row.start, row.end)
            file = File("/".join(parts[:-2]), name, topic, partition, row.start, row.end)
            moves.append(("/".join(parts), file))
            there += row.records
        return moves, there

    def _clear(self, files: set[File], number: int) -> None:
        """Delete the files that the batch's first attempt left, except those to be replaced.

        Raises
        ------
        RuntimeError
            Another file has offsets of the batch.
        """
        again = self._undone is not None and self._undone.number == number
        own = self._undone.spans if self._undone is not None and again else {}
        spans: dict[tuple[str, str, int], tuple[int, int]] = {}
        for file in files:
            place = file.folder, file.topic, file.partition
            low, high = spans.get(place, (file.start, file.end))
            spans[place] = min(low, file.start), max(high, file.end)
        if again:
            # The first attempt may have judged records otherwise: its schema was another one, or
            # the registry had fewer schemas.
            for (folder, topic, partition), span in list(spans.items()):
                spans.setdefault((_counterpart(folder), topic, partition), span)
        names = {(file.folder, file.name) for file in files}
        # Delete only after all checks, so that an error leaves the archive unchanged.
        gone: list[str] = []
        for (folder, topic, partition), (low, high) in spans.items():
            # Use the planned offsets, too: compaction may have removed records since then.
            first, last = own.get((topic, partition), (low, high))
            first, last = min(first, low), max(last, high)
            found, left = self._look(folder), []
            for name, start, end in found.get((topic, partition), ()):
                if end < first or start > last:
                    left.append((name, start, end))
                elif not again or start < first or end > last:
                    raise RuntimeError(
                        f"{folder}/{name} holds offsets that this run would write again ({first} "
                        f"to {last} of {topic} [{partition}]): probably the topic was created "
                        "again, or the checkpoint was lost. Use another path and checkpoint, or "
                        "start after the archived offsets (source.startingOffsets)"
                    )
                elif (folder, name) not in names:
                    gone.append(f"{folder}/{name}")
            found[topic, partition] = left
        for name in gone:
            self._folder.delete(name)

    def _look(self, folder: str) -> _Found:
        """The archive's files in a folder. They are cached, because only this job writes there."""
        found = self._found.pop(folder, None)
        if found is None:
            found = {}
            for name in self._folder.names(folder):
                match = _NAME.fullmatch(name)
                if match is not None:
                    place = match["topic"], int(match["partition"])
                    span = name, int(match["start"]), int(match["end"])
                    found.setdefault(place, []).append(span)
        self._found[folder] = found  # the folder that was used last is last
        return found

    def _remember(self, files: set[File]) -> None:
        """Add new files to the cache."""
        for file in sorted(files, key=lambda file: file.start):
            there = self._found[file.folder].setdefault((file.topic, file.partition), [])
            start = file.start
            if there and there[-1][2] + 1 == start:
                start = there.pop()[1]  # merge adjacent files, so that the cache stays small
            there.append((file.name, start, file.end))
        while len(self._found) > _MOST_FOLDERS:
            folder = next(iter(self._found))
            del self._found[folder]
            self._made.discard(folder)
