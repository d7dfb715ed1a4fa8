"""Finished ranges in the metadata of a committed offset.

A commit has the offset of the first unfinished message. Its metadata lists the finished offsets
beyond it, so that the next owner of the partition skips them: ``cykafka/1 100 3+5 2+1`` means that
of the offsets from 100 on, 3 are not finished, the next 5 are, the next 2 are not, and 1 is. The
offset is there because tools such as MirrorMaker copy metadata to other offsets.
Brokers keep metadata of up to ``offset.metadata.max.bytes`` (4096 by default).
"""

from __future__ import annotations

from collections.abc import Iterable

from ._partition import Range

_MARK = "cykafka/1"
# Two offsets of 64 bits and a plus.
_ITEM_MAX = 39


def encode(committed: int, ranges: Iterable[Range], limit: int) -> tuple[str, int]:
    """The metadata for a committed offset, of at most `limit` characters.

    Returns
    -------
    tuple
        The metadata, empty without ranges, and the number of ranges that had no room.
    """
    text, last, left_out = f"{_MARK} {committed}", committed, 0
    for start, stop in ranges:
        item = f" {start - last}+{stop - start}"
        if left_out or len(text) + len(item) > limit:
            left_out += 1
        else:
            text += item
            last = stop
    return (text if last != committed else ""), left_out


def decode(committed: int, metadata: str | None) -> list[Range]:
    """The finished ranges beyond a committed offset; none if the metadata is another's."""
    mark = f"{_MARK} {committed} "
    ranges: list[Range] = []
    if metadata is not None and metadata.startswith(mark) and metadata.isascii():
        last, items = committed, metadata[len(mark) :].split(" ")
        for item in items:
            gap, plus, length = item.partition("+")
            numbers = gap.isdecimal() and length.isdecimal() and len(item) <= _ITEM_MAX
            if not (plus and numbers and int(length)):
                return []  # damaged: messages that come again are better than lost ones
            start = last + int(gap)
            last = start + int(length)
            ranges.append((start, last))
    return ranges
