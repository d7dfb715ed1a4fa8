"""Decoded values as JSON.

=====================  ==========================================================
value                  JSON
=====================  ==========================================================
bytes                  a text in base64
decimal                a text with its digits, such as ``"12.50"``
date, time, timestamp  a text in ISO 8601; an instant ends in Z
UUID                   a text
NaN and infinities     ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
=====================  ==========================================================
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

__all__ = ["FLOATS", "strict_json", "to_json"]

FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def strict_json(value: Any) -> bytes:
    """Return the value of parsed JSON as JSON on one line.

    Raises
    ------
    ValueError
        A text contains half of a surrogate pair, or a number is beyond a double.
    RecursionError
        The value is nested too deeply.
    """
    return _encode(value).encode()


def to_json(value: Any) -> bytes:
    """Return a decoded value as JSON on one line. Raises as above, but for numbers."""
    try:
        text = _encode(value)
    except ValueError:
        text = _encode(_without_nan(value))
    return text.encode()


def _plain(value: Any) -> str:
    match value:
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case datetime() | date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
).encode


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
