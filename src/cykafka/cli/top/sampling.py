"""Samples a cluster's groups, and computes rates and lag courses from successive samples."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import TypeVar

from cykafka import ConsumerGroupState, KafkaException
from cykafka.admin import AdminClient
from cykafka.cli.cluster.administration import Cluster, Outcomes
from cykafka.cli.cluster.connection import Brokers
from cykafka.cli.cluster.lag import Position, describe_groups, find_positions, list_groups
from cykafka.cli.terminal.failures import Failed, reason

__all__ = ["History", "Row", "Sample", "SampledGroup", "Sampler", "by_group", "sparkline"]

_T = TypeVar("_T", int, float)
_Key = tuple[str, str, int]

# A course has one value for each sample.
_LENGTH = 120
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, kw_only=True)
class SampledGroup:
    """A consumer group."""

    name: str
    state: str
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The result of one round of requests."""

    clock_s: float
    """a monotonic clock, for rates"""
    time_s: float
    """seconds since the epoch"""
    groups: tuple[SampledGroup, ...] = ()
    positions: tuple[Position, ...] = ()
    errors: tuple[str, ...] = ()
    """cluster-wide errors, such as a coordinator that did not list its groups"""


class Sampler:
    """Samples matching groups and topics.

    Parameters
    ----------
    brokers : Brokers
    client : AdminClient
        A client of these brokers.
    groups, topics : sequence of str
        Names, or patterns with ``*``, ``?`` and ``[...]``. An empty sequence matches all.
    """

    def __init__(
        self,
        brokers: Brokers,
        client: AdminClient,
        groups: Sequence[str] = (),
        topics: Sequence[str] = (),
    ) -> None:
        self._brokers = brokers
        self._client = client
        self._groups = groups
        self._topics = topics

    def sample(self) -> Sample:
        """Send requests to the brokers. Blocks.

        Raises
        ------
        Failed
            No broker responds. The next call may succeed.
        """
        cluster = Cluster(self._brokers, self._client)
        outcomes = Outcomes(shown=False)
        try:
            listed = list_groups(cluster, outcomes)
        except KafkaException as error:
            raise Failed(f"cannot list the groups: {reason(error)}") from None
        names = [name for name in listed if _matches(name, self._groups)]
        described = describe_groups(cluster, names, outcomes)
        found = find_positions(
            cluster,
            names,
            described,
            outcomes,
            has_topic=lambda topic: _matches(topic, self._topics),
            wait=False,  # waiting would delay the page
        )
        # Read the clock right after the ends arrive, because rates need the time of the ends.
        clock_s, time_s = time.monotonic(), time.time()
        groups = [
            SampledGroup(
                name=name,
                state=_word((described.get(name) or listed[name]).state),
                error=outcomes.error(name),
            )
            for name in names
        ]
        if self._topics:  # omit groups that do not read these topics
            kept = {position.group for position in found}
            groups = [group for group in groups if group.name in kept or group.error]
        return Sample(
            clock_s=clock_s,
            time_s=time_s,
            groups=tuple(groups),
            positions=tuple(found),
            errors=tuple(outcomes.errors.get(None, ())),
        )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _word(state: ConsumerGroupState) -> str:
    return state.name.lower().replace("_", " ")


# -- rates and courses


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line on the page: a partition that a group reads, or all partitions of a group's topic."""

    group: str
    topic: str
    partition: int | None
    """None for all partitions of the topic"""
    partitions: int = 1
    lag: int | None = None
    produced_s: float | None = None
    """records per second that arrive in the partition; None if not known yet"""
    consumed_s: float | None = None
    """records per second that the group commits; None if not known yet"""
    course: tuple[int, ...] = ()
    """the lag in the latest samples, oldest first"""
    client_id: str | None = None
    state: str = ""
    errors: tuple[str, ...] = ()


class History:
    """The latest samples of each partition."""

    def __init__(self) -> None:
        self._clock_s: float | None = None
        self._positions: dict[_Key, Position] = {}
        self._courses: dict[_Key, deque[int]] = {}

    def add(self, sample: Sample) -> list[Row]:
        """Add a sample and return the rows, sorted by name."""
        seconds = 0.0 if self._clock_s is None else sample.clock_s - self._clock_s
        groups = {group.name: group for group in sample.groups}
        positions = {
            (position.group, position.topic, position.partition): position
            for position in sample.positions
        }
        courses = {}
        rows = []
        for key, now in positions.items():
            course = courses[key] = self._courses.get(key) or deque(maxlen=_LENGTH)
            if now.lag is not None:
                course.append(now.lag)
            before, group = self._positions.get(key), groups[now.group]
            rows.append(
                Row(
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
            )
        read = {position.group for position in sample.positions}
        rows += [
            Row(
                group=group.name,
                topic="",
                partition=None,
                partitions=0,
                state=group.state,
                errors=tuple(filter(None, (group.error,))),
            )
            for group in sample.groups
            if group.name not in read
        ]
        self._clock_s, self._positions, self._courses = sample.clock_s, positions, courses
        return rows


def by_group(rows: Iterable[Row]) -> list[Row]:
    """Return one row per group and topic."""
    together: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        together.setdefault((row.group, row.topic), []).append(row)
    return [
        Row(
            group=group,
            topic=topic,
            partition=None,
            partitions=sum(part.partitions for part in parts),
            lag=_total([part.lag for part in parts]),
            produced_s=_total([part.produced_s for part in parts]),
            consumed_s=_total([part.consumed_s for part in parts]),
            course=_added([part.course for part in parts]),
            state=parts[0].state,
            errors=tuple(dict.fromkeys(error for part in parts for error in part.errors)),
        )
        for (group, topic), parts in together.items()
    ]


def sparkline(values: Sequence[int], width: int) -> str:
    """Return the latest values as bars. The highest value gets the highest bar."""
    latest = values[-width:] if width else ()
    top = max(latest, default=0)
    return "".join(_BARS[(len(_BARS) - 1) * value // top] if top else _BARS[0] for value in latest)


def _rate(before: int | None, now: int | None, seconds: float) -> float | None:
    """Return None also if the offset decreased: the group was reset or the topic recreated."""
    if before is None or now is None or seconds <= 0 or now < before:
        return None
    return (now - before) / seconds


def _total(values: list[_T | None]) -> _T | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _added(courses: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sum of courses that end together."""
    from_the_end = zip_longest(*map(reversed, courses), fillvalue=0)
    return tuple(map(sum, from_the_end))[::-1]
