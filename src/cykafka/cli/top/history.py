"""Rates and courses of lag, from successive samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cykafka.cli.top.sampling import Key, Sample

_T = TypeVar("_T", int, float)

__all__ = ["History", "Row", "by_group", "sparkline"]

# A course has one value for each sample.
_LENGTH = 120
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the page: a partition that a group reads, or all partitions of a group's topic."""

    group: str
    topic: str
    partition: int | None
    """None for all partitions of the topic"""
    partitions: int = 1
    lag: int | None = None
    produced_s: float | None = None
    """records a second that arrive in the partition; None if not known yet"""
    consumed_s: float | None = None
    """records a second that the group commits; None if not known yet"""
    course: tuple[int, ...] = ()
    """the lag in the latest samples, the oldest first"""
    client_id: str | None = None
    state: str = ""
    errors: tuple[str, ...] = ()


class History:
    """The latest samples of each partition."""

    def __init__(self) -> None:
        self._before: Sample | None = None
        self._courses: dict[Key, deque[int]] = {}

    def add(self, sample: Sample) -> list[Row]:
        """The rows after a further sample, in the order of their names."""
        before = {each.key: each for each in self._before.positions} if self._before else {}
        seconds = sample.clock_s - self._before.clock_s if self._before else 0.0
        states = {group.name: group for group in sample.groups}
        courses = {}
        rows = []
        for position in sample.positions:
            course = self._courses.get(position.key) or deque(maxlen=_LENGTH)
            if position.lag is not None:
                course.append(position.lag)
            courses[position.key] = course
            earlier = before.get(position.key)
            group = states[position.group]
            rows.append(
                Row(
                    group=position.group,
                    topic=position.topic,
                    partition=position.partition,
                    lag=position.lag,
                    produced_s=_rate(earlier.end if earlier else None, position.end, seconds),
                    consumed_s=_rate(
                        earlier.committed if earlier else None, position.committed, seconds
                    ),
                    course=tuple(course),
                    client_id=position.client_id,
                    state=group.state,
                    errors=tuple(filter(None, (group.error, position.error))),
                )
            )
        read = {position.group for position in sample.positions}
        rows += [
            Row(
                group=each.name,
                topic="",
                partition=None,
                partitions=0,
                state=each.state,
                errors=tuple(filter(None, (each.error,))),
            )
            for each in sample.groups
            if each.name not in read
        ]
        self._before, self._courses = sample, courses
        return rows


def by_group(rows: Iterable[Row]) -> list[Row]:
    """One row for each group and topic."""
    together: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        together.setdefault((row.group, row.topic), []).append(row)
    return [
        Row(
            group=group,
            topic=topic,
            partition=None,
            partitions=sum(each.partitions for each in parts),
            lag=_total([each.lag for each in parts]),
            produced_s=_total([each.produced_s for each in parts]),
            consumed_s=_total([each.consumed_s for each in parts]),
            course=_added([each.course for each in parts]),
            state=parts[0].state,
            errors=tuple(dict.fromkeys(error for each in parts for error in each.errors)),
        )
        for (group, topic), parts in together.items()
    ]


def sparkline(values: Sequence[int], width: int) -> str:
    """The latest values as bars; the highest bar is the highest of them."""
    latest = values[-width:] if width else ()
    top = max(latest, default=0)
    return "".join(_BARS[(len(_BARS) - 1) * value // top] if top else _BARS[0] for value in latest)


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    """None also if the offset went back: the group was reset, or the topic was made anew."""
    if before is None or now is None or seconds <= 0 or now < before:
        return None
    return (now - before) / seconds


def _total(values: list[_T | None]) -> _T | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _added(courses: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The sum of courses that end together."""
    length = max(map(len, courses))
    return tuple(
        sum(course[-back] for course in courses if len(course) >= back)
        for back in range(length, 0, -1)
    )
