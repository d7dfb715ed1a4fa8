"""Text of others on a terminal: names of groups and clients, texts of records and brokers."""

from __future__ import annotations

import re

__all__ = ["printable"]

# Controls of terminals, marks that change the direction of the text, and what is no character.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""A text with the escape ``\x1b`` in place of the control character, and so on."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
