"""The parts of a replay: the offsets of each partition that are left to send, and its steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Part", "step_of"]


@dataclass(frozen=True)
class Part:
    """The records to send of a partition: offsets from `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    bytes: int = 0


def step_of(parts: list[Part], number: int, steps: int) -> list[Part]:
    """The offsets of one of several steps.

    Offsets have few gaps, so equal shares of offsets have about equally many records.
    """
    step = []
    for part in parts:
        size = part.end - part.start
        low = part.start + size * number // steps
        high = part.start + size * (number + 1) // steps
        if low < high:
            step.append(replace(part, start=low, end=high, records=0, bytes=0))
    return step
