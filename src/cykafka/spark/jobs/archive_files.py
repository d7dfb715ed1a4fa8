"""Files of an archive with their offsets in their names; each offset is in one file."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from cykafka.spark.jobs.checkpoint import undone
from cykafka.spark.jobs.folders import AnyFolder
from cykafka.spark.jobs.staged_files import Staged, staging, written
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

    A batch is written to a staging folder beside the archive, with a file for each partition and
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
    by_tasks : bool
        Whether the tasks have written the files (`archive_tasks`). Else the batches have the
        records, which Spark writes.
    """

    def __init__(
        self,
        run: Run[Archive],
        folder: AnyFolder,
        folders: list[str],
        claim: Claim,
        by_tasks: bool,
    ) -> None:
        config = run.config
        self._folder = folder
        self._folders = folders
        self._claim = claim
        self._by_tasks = by_tasks
        self._compression = config.compression
        self._staging = run.driver.folder(staging(config, folder))
        self._staging.delete()  # a crash may have left files
        self._undone = undone(run.driver.folder(config.checkpoint))
        self._made: set[str] = set()
        self._found: dict[str, _Found] = {}

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a micro-batch."""
        staged = written(batch, self._staging) if self._by_tasks else self._by_spark(batch)
        moves = [(each.path, self._file(each)) for each in staged]
        if moves:
            self._claim.take()
        files = {file for _, file in moves}
        self._clear(files, number)
        for source, file in moves:
            if file.folder not in self._made:
                self._folder.make(file.folder)
                self._made.add(file.folder)
            self._folder.take(self._staging, source, f"{file.folder}/{file.name}")
        self._remember(files)
        self._staging.delete()

    def _file(self, staged: Staged) -> File:
        """The file of the archive that a staged file becomes."""
        offsets = staged.topic, staged.partition, staged.start, staged.end
        return File(staged.folder, file_name(*offsets), *offsets)

    def _by_spark(self, batch: DataFrame) -> list[Staged]:
        """Let Spark write the records of a batch to the staging folder."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        seen = Observation()
        observed = batch.observe(seen, F.count(F.lit(1)).alias("count"))
        place = uuid.uuid4().hex  # a task of an attempt that failed may still write elsewhere
        observed.withColumn("_partition", F.col("partition")).write.partitionBy(
            *self._folders, "_partition"
        ).option("compression", self._compression).parquet(f"{self._staging.address}/{place}")
        staged = self._look_at_staged(batch.sparkSession, place)
        count, there = int(seen.get.get("count") or 0), sum(each.records for each in staged)
        if there != count:
            raise RuntimeError(
                f"the micro-batch has {count} records, but only {there} of them are in the files "
                f"in {self._staging.address}: check that all workers and the driver use the same "
                "file system, and that no other program deletes files there"
            )
        return staged

    def _look_at_staged(self, spark: SparkSession, place: str) -> list[Staged]:
        """The files that Spark wrote to this place in the staging folder.

        This reads the column `offset` of the files. The offsets of the batch are known without it,
        but those of each date are not.
        """
        from pyspark.sql import functions as F

        files = (
            spark.read.schema("offset BIGINT")
            .option("recursiveFileLookup", "true")
            .parquet(f"{self._staging.address}/{place}")
            .groupBy(F.col("_metadata.file_path").alias("file"))
            .agg(
                F.min("offset").alias("start"),
                F.max("offset").alias("end"),
                F.count(F.lit(1)).alias("records"),
            )
        )
        found = []
        depth = len(self._folders) + 2
        for row in files.collect():
            parts = unquote(row.file).rsplit("/", depth)[1:]  # Spark gives URIs
            values = [part.partition("=")[2] for part in parts[:-1]]
            topic, partition = values[self._folders.index("topic")], int(values[-1])
            span = row.start, row.end, row.records
            folder, path = "/".join(parts[:-2]), "/".join([place, *parts])
            found.append(Staged(path, folder, topic, partition, *span, bytes=0))
        return found

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
