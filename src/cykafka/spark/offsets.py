"""Offsets: their JSON, the rate limit, and how ranges become tasks.

This module uses neither Spark nor a broker. The JSON and the arithmetic are those of Spark's own
Kafka connector. So both can use the same checkpoint, and the same options make the same batches.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = [
    "EARLIEST",
    "LATEST",
    "Offsets",
    "PartitionRange",
    "divide",
    "format_offsets",
    "pack",
    "parse_offsets",
    "parse_partitions",
    "rate_limit",
    "split",
    "take_start",
    "with_start",
]

EARLIEST = -2
LATEST = -1

_MAX = 2**63 - 1
_MAX_PARTITION = 2**31 - 1

# A topic with the number of a partition; and the offset (or time) of each partition.
Partition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = dict[Partition, int]

# The key under which the end of a stream's first batch carries the start of that batch. It is not
# a legal topic name. Other connectors fail to parse it and quote it, so its text says what to do.
START_KEY = "(the first batch began at; another reader can go on once a second batch is done)"


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The offsets from ``start`` to before ``end`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; 0 if the range ends before it begins."""
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return f"{self.topic} [{self.partition}] from {self.start} to {self.end}"


# -- JSON


def format_offsets(offsets: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark's Kafka connector writes them: ``{"topic": {"0": 5}}``, sorted."""
    out: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        out.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return out


def parse_offsets(value: object, what: str, *, lowest: int = EARLIEST) -> Offsets:
    """Parse offsets (or times) from JSON, as an object or as a text.

    Parameters
    ----------
    value : object
        A result of ``format_offsets``, or its JSON.
    what : str
        The name of the option or value, for errors.
    lowest : int
        The lowest valid number: -2 means the earliest offset, -1 the latest.

    Raises
    ------
    ValueError
        The value has another form.
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
    """The partitions in JSON such as ``{"topicA":[0,1],"topicB":[2]}``, sorted, each once."""
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
    """The number of a partition, or -1."""
    if text.isascii() and text.isdigit() and len(text) <= 10:
        number = int(text)
        if number <= _MAX_PARTITION:
            return number
    return -1


# -- the start of the first batch, carried in its end


def with_start(end: Mapping[Partition, int], start: Mapping[Partition, int]) -> dict[str, Any]:
    """The JSON object of a first batch's end, with the batch's start."""
    return {**format_offsets(end), START_KEY: format_offsets(start)}


def take_start(value: Mapping[str, Any]) -> tuple[dict[str, Any], Offsets | None]:
    """A stream's offset without the start of the first batch; and that start, or None."""
    rest = dict(value)
    start = rest.pop(START_KEY, None)
    return rest, None if start is None else parse_offsets(start, "the stream's first offset")


# -- rate limit and tasks


def rate_limit(
    limit: int, start: Mapping[Partition, int], end: Mapping[Partition, int]
) -> Offsets:
    """Lower the ends so that a batch has about `limit` offsets.

    Each partition gets a share in proportion to its offsets, but at least one, as in Spark's own
    connector. So the sum may exceed the limit by up to the number of partitions.

    Parameters
    ----------
    limit : int
        The number of offsets in a batch.
    start, end : mapping of (str, int) to int
        Partitions without a start keep their end.
    """
    sizes = {
        each: end[each] - start[each] for each in end if each in start and end[each] > start[each]
    }
    total = sum(sizes.values())
    limited = dict(end)
    for each, size in sizes.items():
        share = limit * (size / total)
        whole = math.ceil(share) if share < 1 else math.floor(share)
        limited[each] = min(end[each], start[each] + whole)
    return limited


def divide(whole: PartitionRange, parts: int) -> list[PartitionRange]:
    """Cut a range into so many parts. Sizes differ by at most one; the last parts are larger."""
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
    """Cut ranges as ``maxRecordsPerPartition`` and ``minPartitions`` say; large ones into more.

    Parameters
    ----------
    ranges : iterable of PartitionRange
        Empty ranges are left out.
    min_partitions : int, optional
        The target number of ranges; the result has about so many.
    max_records : int, optional
        The most offsets in one range.
    """
    pieces = [each for each in ranges if each.size]
    if max_records is not None:
        pieces = [part for each in pieces for part in divide(each, -(-each.size // max_records))]
    if min_partitions is None or min_partitions <= len(pieces):
        return pieces
    total = sum(each.size for each in pieces)
    # Ranges that are too small to cut take one place each; the others share the remaining places.
    whole = {each for each in pieces if _share(each.size, total, min_partitions) == 1}
    places = max(min_partitions - len(whole), 1)
    rest = total - sum(each.size for each in whole)
    return [
        part
        for each in pieces
        for part in ([each] if each in whole else divide(each, _share(each.size, rest, places)))
    ]


def _share(size: int, total: int, places: int) -> int:
    return max(math.floor(size / total * places + 0.5), 1)


def pack(
    ranges: Iterable[PartitionRange],
    per_task: int,
    min_tasks: int | None = None,
) -> list[tuple[PartitionRange, ...]]:
    """Combine small ranges into tasks, because a task costs more than some thousand records.

    Parameters
    ----------
    ranges : iterable of PartitionRange
    per_task : int
        The most offsets in a task of several ranges.
    min_tasks : int, optional
        The least number of tasks, unless there are fewer ranges.

    Returns
    -------
    list of tuple of PartitionRange
        One tuple for each task. No task has two ranges of the same partition.
    """
    ranges = [each for each in ranges if each.size]
    if min_tasks is not None:
        total = sum(each.size for each in ranges)
        per_task = min(per_task, -(-total // min_tasks))
    tasks: list[list[PartitionRange]] = []
    size = 0
    last: PartitionRange | None = None
    for each in ranges:
        same = last is not None and (last.topic, last.partition) == (each.topic, each.partition)
        if not tasks or same or size + each.size > per_task:
            tasks.append([])
            size = 0
        tasks[-1].append(each)
        size += each.size
        last = each
    if min_tasks is not None and len(tasks) < min_tasks:
        return [(each,) for each in ranges]
    return [tuple(task) for task in tasks]
