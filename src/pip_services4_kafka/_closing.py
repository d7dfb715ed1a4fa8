"""The state of a running close(), and a way for open() to wait for its end."""

from __future__ import annotations

import threading


class Closing:
    """True between `begin` and `end`. The caller holds the owner's lock for both calls."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._ended.set()
        self._thread: int | None = None

    def __bool__(self) -> bool:
        return not self._ended.is_set()

    def begin(self) -> None:
        """Mark the start of close() in this thread."""
        self._thread = threading.get_ident()
        self._ended.clear()

    def end(self) -> None:
        """Mark the end of close() and wake all waiters."""
        self._thread = None
        self._ended.set()

    def is_mine(self) -> bool:
        """Whether this thread runs close(): a signal handler inside it must not wait."""
        return self._thread == threading.get_ident()

    def wait(self) -> None:
        """Wait until close() has ended."""
        self._ended.wait()
