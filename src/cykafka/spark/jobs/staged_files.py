"""Files of a micro-batch that are complete, but do not belong to the archive yet."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from cykafka.spark.jobs.folders import AnyFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cykafka.spark.jobs.config import Archive

__all__ = ["UNFINISHED", "Staged", "local_path", "staging", "written"]

# The ending of a file's name until the file is in the archive, so that readers do not take it.
UNFINISHED = ".unfinished"


class Staged(NamedTuple):
    """A file that is complete, but not in the archive yet.

    `path` is in the staging folder, `folder` in the archive. `start` and `end` are the first and
    the last offset, `bytes` those of keys and values. Where a file may have
    several partitions, `partition` is 0; where it may have several topics, `topic` is empty.
    """

    path: str
    folder: str
    topic: str
    partition: int
    start: int
    end: int
    records: int
    bytes: int


def local_path(address: str) -> str | None:
    """The path of a folder by its address; None if it is not in the local file system."""
    scheme, _, path = address.partition(":")
    return "/" + path.lstrip("/") if scheme == "file" else None


def staging(config: Archive, folder: AnyFolder) -> str:
    """The address of the folder for files that are not in the archive yet."""
    place = config.staging or folder.address.rstrip("/") + ".unfinished"
    # Use a subfolder for this job: the staging folder may have other content.
    job = hashlib.sha256(str(config.checkpoint).encode()).hexdigest()[:16]
    return f"{place.rstrip('/')}/cykafka-{job}"


def written(batch: DataFrame, folder: AnyFolder) -> list[Staged]:
    """Let the tasks of a micro-batch do their work, and return the files in `folder`.

    Raises
    ------
    RuntimeError
        The driver does not see a file.
    """
    staged = [Staged(*row) for row in batch.collect()]
    for each in staged:
        if not folder.exists(each.path):
            raise RuntimeError(
                f"{folder.address}/{each.path}: a task has written this file, but the driver does "
                "not see it: check that all workers and the driver use the same file system, and "
                "that no other program deletes files there"
            )
    return staged
