"""Counts that a function of foreachBatch makes, by the number of the micro-batch."""

from __future__ import annotations

import json
from typing import Any

from cykafka.spark.jobs.folders import AnyFolder

__all__ = ["WOULD_SEND", "BatchResults"]

# The name of the records by topic that a dry run would send.
WOULD_SEND = "would_send"


class BatchResults:
    """The counts of the micro-batches that the job has not read yet.

    Parameters
    ----------
    folder : AnyFolder, optional
        With Spark Connect, where the counts are files. There the function runs in a process of the
        server, with a copy of this object.
    """

    def __init__(self, folder: AnyFolder | None = None) -> None:
        self._folder = folder
        self._kept: dict[int, dict[str, Any]] = {}
        self.is_used = False

    def put(self, number: int, counts: dict[str, Any]) -> None:
        """Keep the counts of a micro-batch; those of an earlier attempt are replaced."""
        if self._folder is None:
            self._kept[number] = counts
            return
        self._folder.make()
        self._folder.write(f"{number}.json", json.dumps(counts))

    def pop(self, number: int, default: dict[str, Any]) -> dict[str, Any]:
        """The counts of a micro-batch; `default` if it has none."""
        if self._folder is None or not self.is_used:
            return self._kept.pop(number, default)
        name = f"{number}.json"
        if not self._folder.exists(name):
            return default
        counts: dict[str, Any] = json.loads(self._folder.read(name))
        self._folder.delete(name)
        return counts
