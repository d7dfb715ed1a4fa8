"""Ctrl-C and SIGTERM: the first signal ends the work cleanly, the second ends it at once."""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

__all__ = ["Interrupts"]

_TICK_S = 0.2
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A block in which the first signal only sets `requested`; a second one raises.

    Use this class in the main thread. The first signal ends waits. Outside the block, signals act
    as usual, even during waits.
    """

    def __init__(self) -> None:
        self.requested = False
        self.since = math.inf
        """When the first signal arrived, by time.monotonic()."""
        self._wakeups: list[int] = []

    def __enter__(self) -> Self:
        read_end, write_end = os.pipe()
        self._wakeups = [read_end]
        self._write_end = write_end
        os.set_blocking(write_end, False)
        self._wakeup = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        self._handlers: dict[signal.Signals, Any] = {
            number: signal.signal(number, self._handle) for number in _SIGNALS
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._wakeups.pop())
        os.close(self._write_end)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.since = time.monotonic()

    def wait_readable(self, file: int, meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Wait until a file is readable. Returns False if a signal comes first.

        Parameters
        ----------
        file : int
            The file's descriptor.
        meanwhile : callable
            Called every 0.2 s during the wait.
        """
        while not self.requested:
            ready, _, _ = select.select([file, *self._wakeups], [], [], _TICK_S)
            if file in ready and not self.requested:
                return True
            self._drain(ready)
            meanwhile()
        return False

    def pause(self, seconds: float, meanwhile: Callable[[], object]) -> bool:
        """Wait. Returns False if a signal ends the wait. `meanwhile`: see `wait_readable`."""
        deadline = time.monotonic() + seconds
        while not self.requested and (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select(self._wakeups, [], [], min(left, _TICK_S))
            self._drain(ready)
            meanwhile()
        return not self.requested

    def _drain(self, ready: list[int]) -> None:
        # Other signals, such as a window resize, also arrive here.
        for wakeup in self._wakeups:
            if wakeup in ready:
                os.read(wakeup, 64)
