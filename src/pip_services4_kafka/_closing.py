"""The state of a running close(), so that open() can wait until close() has ended."""

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

    def wait(self, is_awaited: bool) -> bool:
        """Wait until close() has ended.

        Returns False at once if close() waits for this thread (`is_awaited`), or if a signal
        handler calls this in the thread that runs close().
        """
        if self._thread == threading.get_ident() or is_awaited:
            return False
        return self._ended.wait()
