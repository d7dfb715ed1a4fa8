"""Where to begin and end in partitions: offsets, counts from the end, and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cykafka import Consumer, TopicPartition, Watermarks
from cykafka.admin import OffsetSpec
from cykafka.cli.cluster.administration import Cluster, Outcomes
from cykafka.cli.terminal.failures import Failed, UsageError
from cykafka.cli.terminal.parameters import milliseconds
from cykafka.cli.terminal.texts import name_of

__all__ = ["Place", "Span", "find_offsets", "parse_place", "parse_place_option", "spans"]

_MOST = 2**63 - 1
# Names that kafka-consumer-groups.sh and kafka-get-offsets.sh use.
_JAVA_NAMES = {"earliest": "beginning", "latest": "end", "current": "stored"}


@dataclass(frozen=True)
class Place:
    """A place in each partition.

    Parameters
    ----------
    kind : {"beginning", "end", "stored", "offset", "last", "time"}
        Which place: ``stored`` is the offset that the group committed, ``last`` counts from the
        end.
    number : int
        The offset, the count, or the time in ms since the epoch.
    """

    kind: Literal["beginning", "end", "stored", "offset", "last", "time"]
    number: int = 0

    def offset(self, begin: int, end: int, stored: int = 0) -> int:
        """Return the offset in a partition with these ends; not for a time."""
        return {
            "beginning": begin,
            "end": end,
            "stored": stored,
            "offset": self.number,
            "last": max(end - self.number, begin),
        }[self.kind]


@dataclass(frozen=True)
class Span:
    """A part of a partition: its first offset, and the offset after its last."""

    topic: str
    partition: int
    start: int
    end: int


def parse_place(text: str) -> Place:
    """Return the place that a text names: beginning, end, stored, N, -N or @TIME.

    Raises
    ------
    ValueError
        The text does not name a place.
    """
    if text in ("beginning", "end", "stored"):
        return Place(text)  # type: ignore[arg-type]
    if text.startswith("@"):
        return Place("time", milliseconds(text[1:], "@"))
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and int(digits) <= _MOST:
        return Place("last" if text.startswith("-") else "offset", int(digits))
    hint = f"; a time begins with @: @{text}" if text[:1] in "-+" or ":" in text else ""
    raise ValueError(f"{text!r} is not beginning, end, stored, N, -N or @TIME{hint}")


def parse_place_option(option: str, text: str) -> Place:
    """Return the place that an option's value names.

    Raises
    ------
    UsageError
        The text does not describe a place.
    """
    try:
        return parse_place(_JAVA_NAMES.get(text, text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def spans(
    consumer: Consumer,
    partitions: Iterable[tuple[str, int]],
    start: Place,
    until: Place | None,
    timeout: float,
    warn: Callable[[str], None],
) -> list[Span]:
    """Return the parts of partitions between two places, from the current offsets.

    Parameters
    ----------
    consumer : Consumer
    partitions : iterable of (str, int)
        Topics and partition numbers.
    start, until : Place
        The first record, and the record after the last; None is the end.
    timeout : float
        Timeout per request, s.
    warn : callable
        Called with a text for each partition that lacks its first offset.

    Raises
    ------
    Failed
        The brokers did not return an offset.
    """
    keys = [TopicPartition(topic, number) for topic, number in partitions]
    marks: dict[tuple[str, int], Watermarks] = {}
    for key, found in consumer.watermarks(keys, timeout).items():
        if key.error is not None:
            raise Failed(f"cannot get the offsets of {name_of(key)}: {key.error.str()}")
        marks[key.topic, key.partition] = found
    starts = _offsets(consumer, start, marks, timeout)
    ends = _offsets(consumer, until or Place("end"), marks, timeout)
    found_spans = []
    for (topic, partition), (low, high) in marks.items():
        first = starts[topic, partition]
        begin = min(max(first, low), high)
        if begin != first and start.kind in ("offset", "stored"):
            why = "was deleted" if first < low else "is after the end"
            warn(f"{topic}[{partition}]: offset {first} {why}; reading begins at {begin}")
        found_spans.append(Span(topic, partition, begin, max(ends[topic, partition], begin)))
    return found_spans


def _offsets(
    consumer: Consumer, place: Place, marks: dict[tuple[str, int], Watermarks], timeout: float
) -> dict[tuple[str, int], int]:
    if place.kind not in ("stored", "time"):
        return {key: place.offset(low, high) for key, (low, high) in marks.items()}
    asked = [TopicPartition(topic, number, place.number) for topic, number in marks]
    if place.kind == "time":
        answer = consumer.offsets_for_times(asked, timeout)
    else:
        answer = consumer.committed(asked, timeout)
    offsets = {}
    for partition in answer:
        if partition.error is not None:
            raise Failed(f"cannot get an offset of {name_of(partition)}: {partition.error.str()}")
        low, high = marks[partition.topic, partition.partition]
        # All records are older than the time, or the group has not committed an offset.
        missing = high if place.kind == "time" else low
        offsets[partition.topic, partition.partition] = (
            missing if partition.offset < 0 else partition.offset
        )
    return offsets


def find_offsets(
    cluster: Cluster,
    place: Place,
    ends: Mapping[TopicPartition, tuple[int, int]],
    outcomes: Outcomes,
    stored: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Return the offset of a place in each partition.

    Parameters
    ----------
    place : Place
        For a time: the first record at that time or later, or the end without one.
    ends : mapping
        The first offset of each partition, and the offset after its last record.
    stored : mapping, optional
        The committed offsets; a partition without one is at its end.
    """
    if place.kind == "time":
        found = cluster.offsets(ends, OffsetSpec.for_timestamp(place.number), outcomes)
        return {
            partition: ends[partition][1] if info.offset < 0 else info.offset
            for partition, info in found.items()
        }
    stored = stored or {}
    return {
        partition: place.offset(begin, end, stored.get(partition, end))
        for partition, (begin, end) in ends.items()
    }
