"""Numbers with their nouns, as people read them."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str) -> str:
    """``1 record`` or ``2,000 records``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
