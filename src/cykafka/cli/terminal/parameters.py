r"""Options and arguments: how commands declare them, and value formats that several share.

- delimiters: texts with the escapes ``\n \r \t \0 \\ \xHH``
- times: ms since the epoch, ISO 8601, and times relative to now
- partitions: ``orders``, ``orders:0``, ``orders:0,2-4``
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

from cyclopts import Parameter, Token, convert

from cykafka import TopicPartition
from cykafka.cli.terminal.failures import Failed, UsageError
from cykafka.internal import did_you_mean

__all__ = [
    "Flag",
    "Names",
    "choose_partitions",
    "delimiter",
    "milliseconds",
    "option",
    "parse_numbers",
    "parse_partitions",
    "plain",
    "unescape",
]

_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.)|\Z)", re.DOTALL)
_SIMPLE = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+)(ms|[smhdw])")
_RELATIVE = re.compile(r"[-+](?:\d+(?:ms|[smhdw]))+")
_MOST_MS = 2**63 - 1
_NUMBERS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_MOST_NUMBERS = 100_000

Names = Annotated[tuple[str, ...], Parameter(negative=())]
"""The arguments of a command that needs one or more."""


def plain(*aliases: str, **more: Any) -> Parameter:
    """Declare an option without a negative form, whose help does not show a default.

    Cyclopts names it after the parameter. `more` goes to `Parameter`.
    """
    return Parameter(alias=aliases, negative=(), show_default=False, **more)


Flag = Annotated[bool, plain()]


def option(*aliases: str, **more: Any) -> Parameter:
    """Declare an option like `plain`, with a text that may begin with a hyphen."""
    return plain(*aliases, allow_leading_hyphen=True, converter=_converted, **more)


def _converted(kind: Any, tokens: Sequence[Token]) -> Any:
    # main() has replaced each single hyphen, which means standard input only among the files.
    return convert(kind, ["-" if token.value == "/dev/stdin" else token.value for token in tokens])


# -- delimiters


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text with escapes.

    Raises
    ------
    ValueError
        An escape is unknown.
    """

    def one(match: re.Match[bytes]) -> bytes:
        if match[1] is not None:
            return bytes.fromhex(match[1].decode())
        if match[2] not in _SIMPLE:
            raise ValueError(
                rf"unknown escape {match[0].decode(errors='replace')!r}: write \n \r \t \0 \\ \xHH"
            )
        return _SIMPLE[match[2]]

    return _ESCAPE.sub(one, text.encode("utf-8", "surrogateescape"))


def delimiter(name: str, text: str | None) -> bytes | None:
    """Return the bytes of an option's delimiter, or None if the option is missing.

    Raises
    ------
    UsageError
        An escape is unknown.
    """
    if text is None:
        return None
    try:
        return unescape(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


# -- times


def milliseconds(text: str, sign: str = "") -> int:
    """Return the instant that a text names, in ms since the epoch.

    Parameters
    ----------
    text : str
        ``now``; ms since the epoch; a time relative to now such as ``-1h`` or ``-1d12h`` with the
        units ms, s, m, h, d, w; or an ISO 8601 date or time, which without a UTC offset is local
        time.
    sign : str
        The sign before the text on the command line, for the error.

    Raises
    ------
    ValueError
        The text is not a time.
    """
    if text == "now":
        return _now()
    if text.isascii() and text.isdigit() and int(text) <= _MOST_MS:
        return int(text)
    if _RELATIVE.fullmatch(text):
        span = sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
        return min(max(_now() + (span if text[0] == "+" else -span), 0), _MOST_MS)
    try:
        return max(round(datetime.fromisoformat(text).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{sign + text!r} is not a time: write {sign}now, {sign}1767225600000 (ms since the "
            f"epoch), {sign}2026-01-31T12:00:00Z (without Z: local time), or {sign}-1h"
        ) from None


def _now() -> int:
    return time.time_ns() // 1_000_000


# -- partitions


def parse_numbers(text: str) -> list[int]:
    """Return the partition numbers in a text such as ``0,2-4``, sorted and unique.

    Raises
    ------
    ValueError
        The text has another form.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        match = _NUMBERS.fullmatch(part.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high < low + _MOST_NUMBERS:
            raise ValueError(f"expected numbers of partitions such as 0,2-4: {text!r}")
        numbers.update(range(low, high + 1))
    return sorted(numbers)


def parse_partitions(text: str) -> tuple[str, list[int] | None]:
    """Return a topic and its partition numbers; None for all partitions.

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


def choose_partitions(arguments: Sequence[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions that arguments name, sorted and unique.

    Parameters
    ----------
    arguments : sequence of str
    counts : mapping of str to int
        The partition count of each existing topic.

    Raises
    ------
    UsageError
        An argument is not ``TOPIC`` or ``TOPIC:PARTITIONS``.
    Failed
        The topic or partition does not exist.
    """
    chosen: set[tuple[str, int]] = set()
    for argument in arguments:
        topic, numbers = parse_partitions(argument)
        if topic not in counts:
            raise Failed(f"topic {topic!r} does not exist{did_you_mean(topic, counts)}")
        last = counts[topic] - 1
        for number in range(last + 1) if numbers is None else numbers:
            if number > last:
                raise Failed(f"{topic} has no partition {number}; its last is {last}")
            chosen.add((topic, number))
    return [TopicPartition(topic, number) for topic, number in sorted(chosen)]
