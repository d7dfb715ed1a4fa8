"""Whether a job is alive and gets on, for the probes of a scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Health"]


class Health:
    """What a job has last done. The job's thread reports it, and any thread may ask.

    Parameters
    ----------
    timeout : float
        Without an answer of Spark, or without progress, for longer than this the job counts as
        hung, s.
    clock : callable
        The time, s.
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
        """Note what Spark does now, in its own words."""
        self._doing = words

    def live(self) -> str | None:
        """None, or the reason why the job is to be ended: its Spark does not answer."""
        return self._late("Spark has not answered", self._answered)

    def ready(self) -> str | None:
        """None, or the reason why the job does not get on."""
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
