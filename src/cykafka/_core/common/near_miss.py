"""Suggests the known name that a misspelled name probably means."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]

_SEPARATORS = str.maketrans("", "", "._-")


def did_you_mean(
    name: str, known: Iterable[str], *, prefix: str = "", cutoff: float = 0.75
) -> str:
    """Return the end of an error message: ``; did you mean "x"?``, or "" if no name is similar.

    Parameters
    ----------
    name : str
        The comparison ignores case and the separators ``.``, ``_`` and ``-``.
    known : iterable of str
        If names differ only in case and separators, the first name takes precedence.
    prefix : str
        A text before the known name in the message.
    cutoff : float
        The minimum similarity, from 0 to 1.
    """
    import difflib  # slow to import, and only errors need it

    plain: dict[str, str] = {}
    for item in known:
        plain.setdefault(_plain(item), item)
    close = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=cutoff)
    return f'; did you mean "{prefix}{plain[close[0]]}"?' if close else ""


def _plain(name: str) -> str:
    return name.lower().translate(_SEPARATORS)
