"""A hint for a misspelled name: the known name that is probably meant."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["did_you_mean"]

_SEPARATORS = str.maketrans("", "", "._-")


def did_you_mean(
    name: str, known: Iterable[str], *, prefix: str = "", cutoff: float = 0.75
) -> str:
    """The end of an error message: ``; did you mean "x"?``, or nothing if no name is similar.

    Parameters
    ----------
    name : str
        Upper case and the separators ``.``, ``_`` and ``-`` make no difference.
    known : iterable of str
        Of names that differ only in case and separators the first one counts.
    prefix : str
        Precedes the known name in the message.
    cutoff : float
        The least similarity, from 0 to 1.
    """
    import difflib  # slow to import, and only errors need it

    plain: dict[str, str] = {}
    for item in known:
        plain.setdefault(_plain(item), item)
    close = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=cutoff)
    return f'; did you mean "{prefix}{plain[close[0]]}"?' if close else ""


def _plain(name: str) -> str:
    return name.lower().translate(_SEPARATORS)
