"""Answers of HTTP servers, errors included."""

from __future__ import annotations

import urllib.error
import urllib.request

__all__ = ["get"]


def get(url: str) -> tuple[int, str]:
    """The status and the body of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
