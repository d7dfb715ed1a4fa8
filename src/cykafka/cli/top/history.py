"""Rates and courses of lag, from successive samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from cykafka.cli.top.sampling import Group, Key, Position, Sample

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
        self._clock_s: float | None = None
        self._positions: dict[Key, Position] = {}
        self._courses: dict[Key, deque[int]] = {}

    def add(self, sample: Sample) -> list[Row]:
        """The rows after a further sample, in the order of their names."""
        seconds = 0.0 if self._clock_s is None else sample.clock_s - self._clock_s
        groups = {group.name: group for group in sample.groups}
        positions, courses = {each.key: each for each in sample.positions}, {}
        rows = []
        for key, now in positions.items():
            course = courses[key] = self._courses.get(key) or deque(maxlen=_LENGTH)
            if now.lag is not None:
                course.append(now.lag)
            rows.append(_row(self._positions.get(key), now, seconds, course, groups[now.group]))
        read = {each.group for each in sample.positions}
        rows += [_row_of_group(each) for each in sample.groups if each.name not in read]
        self._clock_s, self._positions, self._courses = sample.clock_s, positions, courses
        return rows


def _row(
    before: Position | None, now: Position, seconds: float, course: Iterable[int], group: Group
) -> Row:
    return Row(
        group=now.group,
        topic=now.topic,
        partition=now.partition,
        lag=now.lag,
        produced_s=_rate(before.end if before else None, now.end, seconds),
        consumed_s=_rate(before.committed if before else None, now.committed, seconds),
        course=tuple(course),
        client_id=now.client_id,
        state=group.state,
        errors=tuple(filter(None, (group.error, now.error))),
    )


def _row_of_group(group: Group) -> Row:
    """The row of a group that reads nothing."""
    errors = tuple(filter(None, (group.error,)))
    return Row(
        group=group.name, topic="", partition=None, partitions=0, state=group.state, errors=errors
    )


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
    from_the_end = zip_longest(*map(reversed, courses), fillvalue=0)
    return tuple(map(sum, from_the_end))[::-1]
