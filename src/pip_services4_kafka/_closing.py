"""A close() that is at work, and the open() that waits for it."""

from __future__ import annotations

import threading


class Closing:
    """False until `begin` is called, and after `end`. Its owner has the lock for both."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._ended.set()
        self._thread: int | None = None

    def __bool__(self) -> bool:
        return not self._ended.is_set()

    def begin(self) -> None:
        """This thread begins to close."""
        self._thread = threading.get_ident()
        self._ended.clear()

    def end(self) -> None:
        """It is closed."""
        self._thread = None
        self._ended.set()

    def is_mine(self) -> bool:
        """Whether this thread is at it: who calls is a signal handler, say, and must not wait."""
        return self._thread == threading.get_ident()

    def wait(self) -> None:
        """Wait until it is closed."""
        self._ended.wait()
