"""Instants on the command line: ms since the epoch, ISO 8601, and times relative to now."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

__all__ = ["iso", "milliseconds"]

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+)(ms|[smhdw])")
_RELATIVE = re.compile(r"[-+](?:\d+(?:ms|[smhdw]))+")
_MOST_MS = 2**63 - 1


def milliseconds(text: str, sign: str = "") -> int:
    """The instant that a text names, in ms since the epoch.

    Parameters
    ----------
    text : str
        ``now``; ms since the epoch; a time relative to now such as ``-1h`` or ``-1d12h`` with the
        units ms, s, m, h, d, w; or an ISO 8601 date or time. One without an offset from UTC is
        local time.
    sign : str
        The sign before the text on the command line, for the error.

    Raises
    ------
    ValueError
        The text is none of these.
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


def iso(timestamp: int) -> str:
    """A timestamp in ms as ISO 8601 in UTC; the number itself beyond the year 9999."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError):
        return str(timestamp)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _now() -> int:
    return time.time_ns() // 1_000_000
