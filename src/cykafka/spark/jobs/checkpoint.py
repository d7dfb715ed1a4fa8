"""What the checkpoint of a query says about its micro-batches."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cykafka.spark.jobs.folders import AnyFolder
from cykafka.spark.offsets import Offsets, Partition, parse_offsets, take_start

__all__ = ["Undone", "numbers", "undone"]


@dataclass(frozen=True)
class Undone:
    """A planned micro-batch without a commit, which Spark repeats.

    `spans` has the first and the last offset of each partition.
    """

    number: int
    spans: dict[Partition, tuple[int, int]]


def undone(checkpoint: AnyFolder) -> Undone | None:
    """The micro-batch that a query repeats when it starts from this checkpoint, if any."""
    planned = max(numbers(checkpoint, "offsets"), default=None)
    if planned is None or planned in numbers(checkpoint, "commits"):
        return None
    end, start = _planned(checkpoint, planned)
    if planned > 0:
        start = _planned(checkpoint, planned - 1)[0]
    # The start of a new partition is not in the checkpoint; 0 is at or before it.
    spans = {
        each: (start.get(each, 0), behind - 1)
        for each, behind in end.items()
        if start.get(each, 0) < behind
    }
    return Undone(planned, spans)


def numbers(checkpoint: AnyFolder, name: str) -> set[int]:
    """The micro-batches in one of a checkpoint's logs: ``offsets`` or ``commits``."""
    return {int(each) for each in checkpoint.names(name) if each.isascii() and each.isdigit()}


def _planned(checkpoint: AnyFolder, number: int) -> tuple[Offsets, Offsets]:
    """The end of a micro-batch; and its start, or {} if the end does not carry it."""
    version, *lines = checkpoint.read(f"offsets/{number}").splitlines()
    # After the version come a line of Spark's own and one line for each source: here one.
    if version != "v1" or len(lines) != 2:
        raise RuntimeError(
            f"{checkpoint.address}/offsets/{number} has an unknown format; keep "
            "spark.sql.streaming.offsetLog.formatVersion at 1"
        )
    end, start = take_start(json.loads(lines[1]))
    return parse_offsets(end, "the checkpoint's offsets"), start or {}
