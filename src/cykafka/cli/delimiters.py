r"""Delimiters on the command line: texts with the escapes ``\n \r \t \0 \\ \xHH``."""

from __future__ import annotations

import re

from cykafka.cli.failures import UsageError

__all__ = ["delimiter", "unescape"]

_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.)|\Z)", re.DOTALL)
_SIMPLE = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


def unescape(text: str) -> bytes:
    r"""The bytes of a text with escapes.

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
    """The bytes of an option's delimiter; None if the option is missing.

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
