"""Writers for an archive's micro-batches, which write each micro-batch exactly once.

- `NamedFiles`: files with offsets in their names; each offset is in one file
- `LoggedFiles`: files that Spark's log lists, in the directory ``_spark_metadata``
- `Appends`: an Iceberg table that stores the number of its last micro-batch

Spark itself writes other archives. ``write(batch, number)`` is a function for foreachBatch.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Any, TypeAlias
from urllib.parse import unquote

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from cykafka.spark.jobs.archive.ownership import SPARK_LOG, Claim, Owner, check_columns
from cykafka.spark.jobs.archive.write_files import UNFINISHED, Staged, collect_staged
from cykafka.spark.jobs.config.models import Archive
from cykafka.spark.jobs.config.partition_by import Expression
from cykafka.spark.jobs.config.table_formats import FOREIGN, ICEBERG_NOTE
from cykafka.spark.jobs.folders import AnyFolder, Folder
from cykafka.spark.jobs.run.checkpoint import find_undone
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.jobs.tables.iceberg import MAPPING, Table
from cykafka.spark.source.offsets import Partition

__all__ = [
    "STAGING",
    "Appends",
    "LoggedFiles",
    "NamedFiles",
    "file_name",
    "has_spark_log",
    "staging",
]


# -- files with their offsets in their names

# Spark, pyarrow and other readers skip files whose names begin with these characters. Topic names
# may begin with them. Such file names get a prefix with no meaning in topics, paths, patterns.
_HIDDEN = ("_", ".")
_SIGN = "+"
_NAME = re.compile(
    r"(?:\+(?=[_.]))?(?P<topic>[^+]+)-(?P<partition>\d+)-(?P<start>\d+)-(?P<end>\d+)\.parquet"
)
_MOST_FOLDERS = 1000
_COUNTERPARTS = {"status=good": "status=bad", "status=bad": "status=good"}


def file_name(file: Staged) -> str:
    """Return a file's name in the archive, with its partition and offsets."""
    sign = _SIGN if file.topic.startswith(_HIDDEN) else ""
    return f"{sign}{file.topic}-{file.partition}-{file.start}-{file.end}.parquet"


def _counterpart(folder: str) -> str:
    """Return the directory for bad records beside one for good records, and vice versa."""
    top, slash, rest = folder.partition("/")
    return _COUNTERPARTS.get(top, top) + slash + rest


# Names, first and last offsets of files, by topic and partition.
_Found: TypeAlias = dict[Partition, list[tuple[str, int, int]]]


def staging(config: Archive, folder: AnyFolder) -> str:
    """Return the address of the directory for files that are not in the archive yet."""
    place = config.staging or folder.address.rstrip("/") + ".unfinished"
    # Use a subfolder for this job: the staging folder may have other content.
    job = hashlib.sha256(str(config.checkpoint).encode()).hexdigest()[:16]
    return f"{place.rstrip('/')}/cykafka-{job}"


class NamedFiles:
    """Writes micro-batches as files with offsets in their names.

    A batch first goes to a staging directory beside the archive, as one file per partition and
    date. When the batch is complete, this class renames the files into the archive. After a crash
    before the commit, the repeated batch replaces the files of its first attempt. The checkpoint
    identifies that batch and its offsets. Other batches never replace files. So readers that list
    the directory see each offset once, and committed files stay.

    Parameters
    ----------
    run : JobRun
    folder : AnyFolder
        The archive's directory.
    folders : list of str
        The columns that become directories.
    claim : Claim
    by_tasks : bool
        Whether the tasks have written the files (`write_files`). Otherwise the batches contain the
        records, and Spark writes them.
    """

    def __init__(
        self,
        run: JobRun[Archive],
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
        self._undone = find_undone(run.driver.folder(config.checkpoint))
        self._made: set[str] = set()
        self._found: dict[str, _Found] = {}

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a micro-batch."""
        staged = (
            collect_staged(batch, self._staging) if self._by_tasks else self._write_by_spark(batch)
        )
        if staged:
            self._claim.write_note()
        self._clear(staged, number)
        for file in staged:
            if file.folder not in self._made:
                self._folder.make(file.folder)
                self._made.add(file.folder)
            self._folder.take(self._staging, file.path, f"{file.folder}/{file_name(file)}")
        self._remember(staged)
        self._staging.delete()

    def _write_by_spark(self, batch: DataFrame) -> list[Staged]:
        """Let Spark write the records of a batch to the staging folder."""
        seen = Observation()
        observed = batch.observe(seen, F.count(F.lit(1)).alias("count"))
        place = uuid.uuid4().hex  # a task from a failed attempt may still write elsewhere
        observed.withColumn("_partition", F.col("partition")).write.partitionBy(
            *self._folders, "_partition"
        ).option("compression", self._compression).parquet(f"{self._staging.address}/{place}")
        staged = self._look_at_staged(batch.sparkSession, place)
        count, there = int(seen.get.get("count") or 0), sum(file.records for file in staged)
        if there != count:
            raise RuntimeError(
                f"the micro-batch has {count} records, but only {there} of them are in the files "
                f"in {self._staging.address}: check that all workers and the driver use the same "
                "file system, and that no other program deletes files there"
            )
        return staged

    def _look_at_staged(self, spark: SparkSession, place: str) -> list[Staged]:
        """Return the files that Spark wrote to this place in the staging directory.

        This reads the files' column `offset`. The batch's offsets are known, but not the offsets
        per date.
        """
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

    def _clear(self, files: list[Staged], number: int) -> None:
        """Delete the files that the batch's first attempt left, except files to be replaced.

        Raises
        ------
        RuntimeError
            Another file contains offsets of the batch.
        """
        again = self._undone is not None and self._undone.number == number
        own = self._undone.spans if self._undone is not None and again else {}
        spans: dict[tuple[str, str, int], tuple[int, int]] = {}
        for file in files:
            place = file.folder, file.topic, file.partition
            low, high = spans.get(place, (file.start, file.end))
            spans[place] = min(low, file.start), max(high, file.end)
        if again:
            # The first attempt may have judged records differently: it used another schema, or the
            # registry contained fewer schemas.
            for (folder, topic, partition), span in list(spans.items()):
                spans.setdefault((_counterpart(folder), topic, partition), span)
        names = {(file.folder, file_name(file)) for file in files}
        # Delete only after all checks, so that an error leaves the archive unchanged.
        gone: list[str] = []
        for (folder, topic, partition), (low, high) in spans.items():
            # Use the planned offsets, too: compaction may have removed records since then.
            first, last = own.get((topic, partition), (low, high))
            first, last = min(first, low), max(last, high)
            found, left = self._list_archived(folder), []
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

    def _list_archived(self, folder: str) -> _Found:
        """Return the archive's files in a directory. Caches them: only this job writes there."""
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

    def _remember(self, files: list[Staged]) -> None:
        """Add new files to the cache."""
        for file in sorted(files, key=lambda file: file.start):
            there = self._found[file.folder].setdefault((file.topic, file.partition), [])
            start = file.start
            if there and there[-1][2] + 1 == start:
                start = there.pop()[1]  # merge adjacent files, so that the cache stays small
            there.append((file_name(file), start, file.end))
        while len(self._found) > _MOST_FOLDERS:
            folder = next(iter(self._found))
            del self._found[folder]
            self._made.discard(folder)


# -- Spark's log of files

# The archive's subdirectory for incomplete files; readers skip it.
STAGING = "_cykafka.unfinished"


def has_spark_log(spark: SparkSession) -> bool:
    """Whether a session has the classes: Spark Connect lacks a JVM, and Spark may rename them."""
    # py4j treats an unknown name as a package, which is not callable.
    return hasattr(spark, "_jvm") and callable(_sinks(spark).FileStreamSinkLog)


def _sinks(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.execution.streaming.sinks


class LoggedFiles:
    """Adds files that tasks have written to Spark's log, with the classes of Spark's own sink.

    Spark reads a file once the log names it. The tasks write to the directory `STAGING`, and the
    files move to their places when the micro-batch is complete. So other readers never see partial
    files, even if the job stops within a micro-batch.

    Parameters
    ----------
    spark : SparkSession
        A session with a JVM.
    address : str
        The archive's folder.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._folder = Folder(spark, address)
        self._staging = Folder(spark, f"{self._folder.address}/{STAGING}")
        self._staging.delete()  # a crash may have left files
        sinks = _sinks(spark)
        self._status = sinks.SinkFileStatus
        log, place = sinks.FileStreamSinkLog, f"{self._folder.address}/{SPARK_LOG}"
        self._log: Any = log(log.VERSION(), spark._jsparkSession, place, jvm.scala.Option.empty())

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a micro-batch, unless the log already contains it."""
        last = self._log.getLatestBatchId()
        if last.isDefined() and number <= last.get():
            return
        staged = collect_staged(batch, self._staging)
        files = self._gateway.new_array(self._status, len(staged))
        for index, file in enumerate(staged):
            path = file.path.removesuffix(UNFINISHED)
            self._folder.make(file.folder)
            self._folder.take(self._staging, file.path, path)
            files[index] = self._status.apply(self._folder.status(path))
        if not self._log.add(number, files):
            for file in staged:  # the other query wrote these records
                self._folder.delete(file.path.removesuffix(UNFINISHED))
            raise RuntimeError(
                f"{self._folder.address}: another query has written micro-batch {number} to "
                f"{SPARK_LOG}; an archive takes one query at a time"
            )
        self._staging.delete()


# -- Iceberg tables

# The table property with the number of the last micro-batch.
BATCH = "cykafka.batch"


class Appends:
    """Appends micro-batches to a table, each with its number in the same transaction.

    Parameters
    ----------
    run : JobRun
    table : Table
    owner : Owner
    rows : DataFrame
        The rows to write.
    expressions : list of Expression
    """

    def __init__(self, run: JobRun[Archive], table: Table, owner: Owner, rows: DataFrame,
                 expressions: list[Expression]) -> None:  # fmt: skip
        self._config = run.config
        self._run = run
        self._table = table
        self._owner = owner
        self._merged = False
        self._columns = table.stored(rows.schema)
        self._rows = rows
        self._expressions = expressions

    def check(self) -> None:
        """Check the table before the query starts.

        Raises
        ------
        ConfigError
            The table belongs to another writer, or its partitions or columns differ. Or the
            checkpoint is older than the table.
        """
        if not self._table.exists:
            if self._owner.has_committed():
                raise self._owner.lost()
            self._table.check(self._rows, self._columns, self._expressions)
            return
        self._check_owner(self._table.get(ICEBERG_NOTE))
        last = self._table.get(BATCH)
        if last is not None and int(last) > self._owner.planned():
            raise self._owner.outdated(int(last))
        check_columns(self._run, self._table.columns, self._columns)
        if self._config.merge_schema:
            self._table.attempt(self._merge)

    def _check_owner(self, note: str | None) -> None:
        if note is None:
            raise self._owner.refused(FOREIGN)
        self._owner.check(note, f"property {ICEBERG_NOTE}")
        there = [str(expression) for expression in self._table.expressions]
        if there != self._owner.form["folders"]:  # another writer has changed the partitions
            raise self._owner.other_folders(there)

    def write(self, batch: DataFrame, number: int) -> None:
        """Append a micro-batch, unless the table already contains it."""
        table = self._table
        if not table.exists:
            table.create(self._columns, self._expressions, self._owner.note())
        table.load()
        self._check_owner(table.get(ICEBERG_NOTE))
        if self._config.merge_schema and not self._merged:
            table.commit(self._merge)
            self._merged = True
        if self._has(table.get(BATCH), number):
            return
        files = table.write(batch, self._expressions, compression=self._config.compression)

        def append(transaction: Any) -> bool:
            properties = transaction.table().properties()
            self._check_owner(properties.get(ICEBERG_NOTE))
            if self._has(properties.get(BATCH), number):
                return False
            update = transaction.newAppend()
            for file in files:
                update.appendFile(file)
            update.set(BATCH, str(number))
            update.commit()
            changes = transaction.updateProperties().set(BATCH, str(number))
            if properties.get(MAPPING) is None:  # it comes with the first files, which need it
                changes.set(MAPPING, table.names())
            changes.commit()
            return True

        table.commit(append)

    def _merge(self, transaction: Any) -> bool:
        there = {field.name: field.dataType.simpleString() for field in self._table.columns}
        rows = {field.name: field.dataType.simpleString() for field in self._columns}
        if rows.items() <= there.items():
            return False
        self._table.add_columns(transaction, self._columns)
        return True

    @staticmethod
    def _has(last: str | None, number: int) -> bool:
        return last is not None and int(last) >= number
