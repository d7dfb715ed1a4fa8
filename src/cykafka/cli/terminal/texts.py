"""Formats values for people: counts, partitions, times, and foreign texts without controls."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from cykafka import TopicPartition

__all__ = ["counted", "iso", "name_of", "printable", "printable_json", "printable_text"]

# Terminal controls, line separators, marks that change the text direction, and surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_UNSAFE_IN_TEXT = re.compile(rf"(?![\t\n]){_UNSAFE.pattern}")


def counted(count: int, noun: str) -> str:
    """Return ``1 record`` or ``2,000 records``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def name_of(partition: TopicPartition) -> str:
    """Return a partition's name in messages, such as ``orders[3]``."""
    return f"{partition.topic}[{partition.partition}]"


def iso(timestamp: int) -> str:
    """Return a timestamp in ms as ISO 8601 in UTC, or as a number beyond the year 9999."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError):
        return str(timestamp)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    r"""Return a text with escapes such as ``\x1b`` instead of unsafe characters."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_text(data: bytes) -> bytes:
    """Do the same as `printable` for bytes that may have several lines: keep newlines and tabs."""
    text = data.decode("utf-8", "backslashreplace")
    return _UNSAFE_IN_TEXT.sub(lambda match: printable(match[0]), text).encode()


def printable_json(line: str) -> str:
    """Do the same as `printable` for a line of JSON, without changing its value."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)
