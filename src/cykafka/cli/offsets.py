"""Where to begin and to end in partitions: offsets, counts from the end, and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from cykafka import Consumer, TopicPartition, Watermarks
from cykafka.cli.failures import Failed
from cykafka.cli.times import milliseconds

__all__ = ["Place", "Span", "parse_place", "spans"]

_MOST = 2**63 - 1


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


@dataclass(frozen=True)
class Span:
    """A part of a partition: its first offset and the one after its last."""

    topic: str
    partition: int
    start: int
    end: int


def parse_place(text: str) -> Place:
    """The place that a text names: beginning, end, stored, N, -N or @TIME.

    Raises
    ------
    ValueError
        The text is none of these.
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


def spans(
    consumer: Consumer,
    partitions: Iterable[tuple[str, int]],
    start: Place,
    until: Place | None,
    timeout: float,
    warn: Callable[[str], None],
) -> list[Span]:
    """The parts of partitions between two places, as their offsets are now.

    Parameters
    ----------
    consumer : Consumer
    partitions : iterable of (str, int)
        Topics and numbers of partitions.
    start, until : Place
        The first record, and the one after the last; None is the end.
    timeout : float
        Time in s for each request.
    warn : callable
        Called with a text for each partition that does not have its first offset.

    Raises
    ------
    Failed
        The brokers did not name an offset.
    """
    keys = [TopicPartition(topic, number) for topic, number in partitions]
    marks: dict[tuple[str, int], Watermarks] = {}
    for key, found in consumer.watermarks(keys, timeout).items():
        if key.error is not None:
            raise Failed(f"no offsets of {key.topic}[{key.partition}]: {key.error.str()}")
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
    match place.kind:
        case "beginning":
            return {key: low for key, (low, _) in marks.items()}
        case "end":
            return {key: high for key, (_, high) in marks.items()}
        case "offset":
            return dict.fromkeys(marks, place.number)
        case "last":
            return {key: max(low, high - place.number) for key, (low, high) in marks.items()}
    asked = [TopicPartition(topic, number, place.number) for topic, number in marks]
    if place.kind == "time":
        answer = consumer.offsets_for_times(asked, timeout)
    else:
        answer = consumer.committed(asked, timeout)
    offsets = {}
    for each in answer:
        if each.error is not None:
            raise Failed(f"no offset of {each.topic}[{each.partition}]: {each.error.str()}")
        low, high = marks[each.topic, each.partition]
        # No record is as late as the time, or the group has committed nothing.
        missing = high if place.kind == "time" else low
        offsets[each.topic, each.partition] = missing if each.offset < 0 else each.offset
    return offsets
