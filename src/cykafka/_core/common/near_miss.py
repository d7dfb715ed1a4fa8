"""A hint for a misspelled name: the known name that is probably meant."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean", "near_miss"]

_SEPARATORS = str.maketrans("", "", "._-")


def near_miss(name: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """The known name that `name` is probably a misspelling of; None if no name is similar.

    Parameters
    ----------
    name : str
        Upper case and the separators ``.``, ``_`` and ``-`` make no difference.
    known : iterable of str
        Of names that differ only in case and separators the first one counts.
    cutoff : float
        The least similarity, from 0 to 1.
    """
    import difflib  # slow to import, and only errors need it

    plain: dict[str, str] = {}
    for each in known:
        plain.setdefault(_plain(each), each)
    close = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=cutoff)
    return plain[close[0]] if close else None


def did_you_mean(
    name: str, known: Iterable[str], *, prefix: str = "", cutoff: float = 0.75
) -> str:
    """The end of an error message: ``; did you mean "x"?``, or nothing if no name is similar.

    `prefix` precedes the known name in the message. `near_miss` explains the others.
    """
    close = near_miss(name, known, cutoff)
    return "" if close is None else f'; did you mean "{prefix}{close}"?'


def _plain(name: str) -> str:
    return name.lower().translate(_SEPARATORS)
