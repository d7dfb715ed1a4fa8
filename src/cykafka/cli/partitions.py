"""Partitions as arguments: ``orders``, ``orders:0``, ``orders:0,2-4``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from cykafka import TopicPartition
from cykafka.cli.failures import Failed, UsageError
from cykafka.internal import did_you_mean

__all__ = ["chosen_partitions", "parse_numbers", "parse_partitions"]

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_MOST = 100_000


def parse_numbers(text: str) -> list[int]:
    """Numbers of partitions out of a text such as ``0,2-4``, sorted and each once.

    Raises
    ------
    ValueError
        The text has another form.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high < low + _MOST:
            raise ValueError(f"expected numbers of partitions such as 0,2-4: {text!r}")
        numbers.update(range(low, high + 1))
    return sorted(numbers)


def parse_partitions(text: str) -> tuple[str, list[int] | None]:
    """A topic and its partitions; None for all of them.

    Raises
    ------
    UsageError
        The text is not ``TOPIC`` or ``TOPIC:PARTITIONS``.
    """
    topic, separator, numbers = text.partition(":")
    if not separator and topic:
        return topic, None
    with suppress(ValueError):
        if topic:
            return topic, parse_numbers(numbers)
    raise UsageError(f"expected TOPIC or TOPIC:PARTITIONS such as orders:0,2-4: {text!r}")


def chosen_partitions(arguments: Sequence[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    """The partitions that arguments name, sorted and each once.

    Parameters
    ----------
    arguments : sequence of str
    counts : mapping of str to int
        The number of partitions of each topic that exists.

    Raises
    ------
    UsageError
        An argument is not ``TOPIC`` or ``TOPIC:PARTITIONS``.
    Failed
        There is no such topic or partition.
    """
    chosen: set[tuple[str, int]] = set()
    for argument in arguments:
        topic, numbers = parse_partitions(argument)
        if topic not in counts:
            raise Failed(f"there is no topic {topic!r}{did_you_mean(topic, counts)}")
        last = counts[topic] - 1
        for number in range(last + 1) if numbers is None else numbers:
            if number > last:
                raise Failed(f"{topic} has no partition {number}; its last one is {last}")
            chosen.add((topic, number))
    return [TopicPartition(topic, number) for topic, number in sorted(chosen)]
