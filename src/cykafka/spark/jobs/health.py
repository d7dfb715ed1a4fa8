"""Whether a job is alive and makes progress, for the probes of a scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Health"]


class Health:
    """The times of a job's last progress and of Spark's last answer.

    The job's thread notes them, and any thread may ask.

    Parameters
    ----------
    timeout : float
        The longest time without an answer of Spark or without progress, s.
    clock : callable
        Returns the time, s.
    """

    def __init__(
        self, timeout: float = 300.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout = timeout
        self._clock = clock
        self._answered: float | None = None
        self._moved: float | None = None
        self._doing = ""

    def answered(self) -> None:
        """Note that Spark has answered."""
        self._answered = self._clock()

    def moved(self) -> None:
        """Note that a micro-batch has ended, or that there is none to run."""
        self._moved = self._clock()

    def doing(self, words: str) -> None:
        """Note the words of Spark about what it does now."""
        self._doing = words

    def live(self) -> str | None:
        """None, or the reason why a scheduler should end the job: its Spark does not answer."""
        return self._late("Spark has not answered", self._answered)

    def ready(self) -> str | None:
        """None, or the reason why the job makes no progress."""
        if self._answered is None:
            return "the job is starting"
        what = "the micro-batch has not ended"
        return self.live() or self._late(what, self._moved, self._doing)

    def _late(self, what: str, since: float | None, doing: str = "") -> str | None:
        seconds = 0.0 if since is None else self._clock() - since
        if seconds <= self._timeout:
            return None
        words = f"{what} for {seconds:.0f} s (health_timeout: {self._timeout:g} s)"
        return f"{words}; Spark: {doing}" if doing else words
