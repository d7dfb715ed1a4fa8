"""Offsets: their JSON, the rate limit, how ranges become tasks, and offsets in Spark's reports.

This module uses neither Spark nor a broker. JSON and arithmetic match Spark's own Kafka connector.
So both sources can use the same checkpoint, and the same options produce the same batches.

A report is the JSON of a `StreamingQueryProgress`. Spark creates a report after each micro-batch,
and every ten seconds while a query waits for records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = [
    "EARLIEST",
    "LATEST",
    "Offsets",
    "PartitionRange",
    "divide",
    "format_offsets",
    "lag_of",
    "pack",
    "parse_offsets",
    "parse_partitions",
    "ranges_of",
    "rate_limit",
    "split",
    "take_start",
    "with_start",
]

EARLIEST = -2
LATEST = -1

_MAX = 2**63 - 1
_MAX_PARTITION = 2**31 - 1

# A topic and a partition number; and an offset (or time) per partition.
Partition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Partition, int]

# The key under which the end of a stream's first batch carries the start of that batch. It is not
# a legal topic name. Other connectors fail to parse it and quote it, so its text says what to do.
START_KEY = "(the first batch began at; another reader can go on once a second batch is done)"


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """One partition's offsets from ``start`` up to, but not including, ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; 0 if the range ends before it begins."""
        return max(self.end - self.start, 0)


# -- JSON


def format_offsets(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """Format offsets like Spark's Kafka connector: ``{"topic": {"0": 5}}``, sorted."""
    out: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        out.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return out


def parse_offsets(value: object, what: str, *, lowest: int = EARLIEST) -> Offsets:
    """Parse offsets (or times) from JSON, as an object or as a text.

    Parameters
    ----------
    value : object
        A result from ``format_offsets``, or its JSON.
    what : str
        The name of the option or value, for exceptions.
    lowest : int
        The lowest valid number: -2 means the earliest offset, -1 the latest.

    Raises
    ------
    ValueError
        The value has a different form.
    """
    expected = 'expected JSON such as {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    topics = _object(value, what, expected)
    offsets: Offsets = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f"{what}: {expected}, got {partitions!r} for topic {topic!r}")
        for text, offset in partitions.items():
            partition = _partition(text)
            if partition < 0:
                raise ValueError(f"{what}: {expected}, got partition {text!r} of topic {topic!r}")
            if type(offset) is not int:
                raise ValueError(f"{what}: {expected}, got {offset!r} for {topic} [{partition}]")
            if not lowest <= offset <= _MAX:
                raise ValueError(
                    f"{what}: {offset} for {topic} [{partition}] is out of range; {expected}"
                )
            offsets[topic, partition] = offset
    return offsets


def parse_partitions(value: object, what: str) -> tuple[Partition, ...]:
    """Parse partitions from JSON such as ``{"topicA":[0,1],"topicB":[2]}``; sorted and unique."""
    expected = 'expected JSON such as {"topicA":[0,1],"topicB":[2,4]}'
    found: set[Partition] = set()
    for topic, partitions in _object(value, what, expected).items():
        if not isinstance(partitions, list):
            raise ValueError(f"{what}: {expected}, got {partitions!r} for topic {topic!r}")
        for partition in partitions:
            number = -1 if isinstance(partition, bool) else _partition(str(partition))
            if number < 0:
                raise ValueError(f"{what}: {expected}, got {partition!r} for topic {topic!r}")
            found.add((topic, number))
    if not found:
        raise ValueError(f"{what}: {expected}, got no partitions")
    return tuple(sorted(found))


def _object(value: object, what: str, expected: str) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(f"{what}: {expected}, got {value!r}") from None
    if not isinstance(value, Mapping):
        raise ValueError(f"{what}: {expected}, got {value!r}")
    return value


def _partition(text: str) -> int:
    """Parse a partition number. Returns -1 if the text is not one."""
    if text.isascii() and text.isdigit() and len(text) <= 10:
        number = int(text)
        if number <= _MAX_PARTITION:
            return number
    return -1


# -- the start of the first batch, carried in its end


def with_start(end: Mapping[Partition, int], start: Mapping[Partition, int]) -> dict[str, Any]:
    """Return a first batch's end as a JSON object that also carries the batch's start."""
    return {**format_offsets(end), START_KEY: format_offsets(start)}


def take_start(value: Mapping[str, Any]) -> tuple[dict[str, Any], Offsets | None]:
    """Split a stream's offset into the offset itself and the first batch's start (or None)."""
    rest = dict(value)
    start = rest.pop(START_KEY, None)
    return rest, None if start is None else parse_offsets(start, "the stream's first offset")


# -- rate limit and tasks


def rate_limit(
    limit: int, start: Mapping[Partition, int], end: Mapping[Partition, int]
) -> Offsets:
    """Lower the ends so that a batch contains about `limit` offsets.

    As in Spark's own connector, each partition's share is proportional to its offsets, but at
    least one. So the sum may exceed the limit by up to the number of partitions.

    Parameters
    ----------
    limit : int
        The number of offsets in a batch.
    start, end : mapping of (str, int) to int
        Partitions without a start keep their end.
    """
    sizes = {
        partition: end[partition] - start[partition]
        for partition in end
        if partition in start and end[partition] > start[partition]
    }
    total = sum(sizes.values())
    limited = dict(end)
    for partition, size in sizes.items():
        share = limit * (size / total)
        whole = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(end[partition], start[partition] + whole)
    return limited


def divide(whole: PartitionRange, parts: int) -> list[PartitionRange]:
    """Cut a range into `parts` parts. Sizes differ by at most one; the last parts are larger."""
    pieces = []
    start = whole.start
    for part in range(parts):
        size = (whole.end - start) // (parts - part)
        pieces.append(PartitionRange(whole.topic, whole.partition, start, start + size))
        start += size
    return [piece for piece in pieces if piece.size]


def split(
    ranges: Iterable[PartitionRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[PartitionRange]:
    """Cut ranges by ``maxRecordsPerPartition`` and ``minPartitions``; large ones into more parts.

    Parameters
    ----------
    ranges : iterable of PartitionRange
        The result omits empty ranges.
    min_partitions : int, optional
        The approximate number of ranges in the result.
    max_records : int, optional
        The most offsets in one range.
    """
    pieces = [piece for piece in ranges if piece.size]
    if max_records is not None:
        pieces = [
            part for piece in pieces for part in divide(piece, -(-piece.size // max_records))
        ]
    if min_partitions is None or min_partitions <= len(pieces):
        return pieces
    total = sum(piece.size for piece in pieces)
    # Each range that is too small to cut takes one place. The others share the remaining places.
    whole = {piece for piece in pieces if _share(piece.size, total, min_partitions) == 1}
    places = max(min_partitions - len(whole), 1)
    rest = total - sum(piece.size for piece in whole)
    return [
        part
        for piece in pieces
        for part in (
            [piece] if piece in whole else divide(piece, _share(piece.size, rest, places))
        )
    ]


def _share(size: int, total: int, places: int) -> int:
    return max(math.floor(size / total * places + 0.5), 1)


def pack(
    ranges: Iterable[PartitionRange],
    per_task: int,
    min_tasks: int | None = None,
) -> list[tuple[PartitionRange, ...]]:
    """Combine small ranges into tasks, because a task costs more than a few thousand records.

    Parameters
    ----------
    ranges : iterable of PartitionRange
    per_task : int
        The most offsets in a task with several ranges.
    min_tasks : int, optional
        The minimum number of tasks, unless there are fewer ranges.

    Returns
    -------
    list of tuple of PartitionRange
        One tuple per task. A task never contains two ranges of the same partition.
    """
    ranges = [part for part in ranges if part.size]
    if min_tasks is not None:
        total = sum(part.size for part in ranges)
        per_task = min(per_task, -(-total // min_tasks))
    tasks: list[list[PartitionRange]] = []
    size = 0
    last: PartitionRange | None = None
    for part in ranges:
        same = last is not None and (last.topic, last.partition) == (part.topic, part.partition)
        if not tasks or same or size + part.size > per_task:
            tasks.append([])
            size = 0
        tasks[-1].append(part)
        size += part.size
        last = part
    if min_tasks is not None and len(tasks) < min_tasks:
        return [(part,) for part in ranges]
    return [tuple(task) for task in tasks]


def ranges_of(source: Mapping[str, Any]) -> dict[Partition, tuple[int | None, int]]:
    """Return a source's offsets in a report, by partition: the first, and the one after the last.

    The first offset is None for a new partition, because the report does not contain it.
    """
    end, carried = take_start(_document(source.get("endOffset")))
    # For the very first batch, only the end carries a start.
    start = _offsets(source.get("startOffset")) or carried or {}
    return {at: (start.get(at), last) for at, last in parse_offsets(end, "endOffset").items()}


def lag_of(report: Mapping[str, Any]) -> Offsets:
    """Return how many offsets the query has not read yet, by topic and partition.

    The result omits sources other than Kafka. It is empty before the query's first micro-batch.
    """
    lag: Offsets = {}
    for source in report.get("sources", ()):
        with suppress(ValueError):  # another source's offsets
            latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
            for at, last in latest.items() if end else ():
                lag[at] = max(lag.get(at, 0), last - end.get(at, last))
    return lag


def _document(offset: Any) -> Any:
    document = json.loads(offset) if isinstance(offset, str) else offset
    return document or {}


def _offsets(offset: Any) -> Offsets:
    document = _document(offset)
    if not isinstance(document, Mapping):
        raise ValueError(f"expected the offsets of topics, got {offset!r}")
    return parse_offsets(take_start(document)[0], "offset")
