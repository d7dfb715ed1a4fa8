"""The job ``compact``: rewrites the small files of a table to larger ones."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from cykafka.spark.jobs.config.models import Compact
from cykafka.spark.jobs.config.table_formats import ICEBERG_NOTE, MARKERS
from cykafka.spark.jobs.folders import convert_errors
from cykafka.spark.jobs.observing.report import Summary, human_bytes
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.jobs.tables.iceberg import DataFile, Table

__all__ = ["run"]

_MIB = 1024 * 1024
_FULL = 0.75
_DELTA = "spark.databricks.delta.optimize."


def run(run: JobRun[Compact]) -> Summary:
    """Rewrite the small files in one transaction."""
    began = time.monotonic()
    summary = run.summary
    try:
        run.driver.check_format(run.config.format)
        removed, added, size = (
            _compact_iceberg if run.config.format == "iceberg" else _compact_delta
        )(run)
    finally:
        summary.seconds = time.monotonic() - began
    summary.details |= {"files_removed": removed, "files_added": added, "bytes_rewritten": size}
    summary.report = [
        f"{removed:,} small files became {added:,} files, with {human_bytes(size)}"
        if removed
        else "no partition has two files to merge"
    ]
    return summary


def _compact_delta(run: JobRun[Compact]) -> tuple[int, int, int]:
    config = run.config
    with convert_errors("path", config.folder):
        folder = run.driver.folder(config.folder)
        if not folder.exists(MARKERS["delta"]):
            raise ConfigError(f"{config.place}: the directory is not a Delta table")
    most = config.file_size * _MIB
    run.spark.conf.set(f"{_DELTA}maxFileSize", str(most))
    run.spark.conf.set(f"{_DELTA}minFileSize", str(int(most * _FULL)))
    path = folder.address.replace("`", "``")
    rows = run.watch(
        "rewriting files", lambda: run.spark.sql(f"OPTIMIZE delta.`{path}`").collect()
    )
    metrics: Any = rows[0]["metrics"]
    removed, added = metrics["numFilesRemoved"], metrics["numFilesAdded"]
    return int(removed), int(added), int(metrics["filesAdded"]["totalSize"] or 0)


def _compact_iceberg(run: JobRun[Compact]) -> tuple[int, int, int]:
    table = Table(run)
    if not table.exists:
        raise ConfigError(f"{run.config.place}: the Iceberg table does not exist")
    if table.get(ICEBERG_NOTE) is None:
        raise ConfigError(f"{run.config.place}: no job archive has written this Iceberg table")
    expressions = table.expressions
    snapshot = table.snapshot()
    most = run.config.file_size * _MIB
    small = _small(run.watch("listing the table", table.files), most, table.partitions())
    if not small:
        return 0, 0, 0
    # Aim for files of the wanted size, assuming that the record size stays about the same.
    size, records = sum(file.size for file in small), sum(file.records for file in small)
    rows = run.spark.read.schema(table.columns).parquet(*(file.path for file in small))
    rows = rows.repartition(*table.values(rows, expressions))
    files = run.watch(
        "rewriting files",
        lambda: table.write(rows, expressions, most_records=max(1, records * most // size)),
    )
    there = sum(int(file.recordCount()) for file in files)
    if there != records:  # such as with spark.sql.files.ignoreMissingFiles
        raise RuntimeError(
            f"{run.config.place}: the files to rewrite have {records} records, but Spark has read "
            f"{there} of them: the job leaves the table unchanged"
        )
    table.commit(lambda transaction: table.replace(transaction, snapshot, small, files))
    return len(small), len(files), size


def _small(files: list[DataFile], most: int, partitions: int) -> list[DataFile]:
    """Return the files to rewrite: small ones, if a partition contains at least two."""
    groups: dict[str, list[DataFile]] = defaultdict(list)
    for file in files:
        # Files from before a change of the table's partitions stay.
        if file.size < most * _FULL and file.spec == partitions:
            groups[file.partition].append(file)
    return [file for group in groups.values() if len(group) > 1 for file in group]
