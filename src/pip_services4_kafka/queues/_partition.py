"""A partition of the local queue, and messages handed over from it."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import length_hint
from typing import Any, NamedTuple

from ._progress import HANDED, RETRY, Progress, Run

# How often a thread in Turn.wait() checks whether the owner waits for that thread, s.
_LOOK_S = 0.02


class Turn:
    """A lock that keeps the commits of a partition in order. Reentrant for signal handlers."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owners: list[int] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owners.append(threading.get_ident())

    def __exit__(self, *_: object) -> None:
        self._owners.pop()
        self._lock.release()

    def wait(self, timeout: float, waits_for_me: Callable[[int], bool]) -> bool | None:
        """Acquire the lock within `timeout` s. `waits_for_me` gets the ident of the owner thread.

        True: acquired. None: timed out. False: the owner waits for this thread (a deadlock).
        """
        deadline = time.monotonic() + timeout
        while not self._lock.acquire(timeout=_LOOK_S):
            owners = self._owners
            if owners and waits_for_me(owners[-1]):
                return False
            if time.monotonic() >= deadline:
                return None
        self._owners.append(threading.get_ident())
        return True


class Partition(Progress):
    """An assigned partition: its progress and its waiting messages."""

    def __init__(self, number: int, subscription: Any, max_pending: int) -> None:
        super().__init__(max_pending)
        self.number = number
        self.subscription = subscription
        self.owned = True  # False after the revocation
        self.waiting: deque[Run] = deque()  # runs with messages never handed over
        self.buffered = 0  # the number of these messages
        self.retries: list[tuple[float, int, int, Any]] = []  # heap: when, order, offset, envelope
        self.lease: Lease | None = None
        self.queued = False  # whether it is in Buffer._ready
        self.paused = False
        self.stored: int | None = None  # the position last stored with librdkafka
        self.went_back = False  # the position is below `stored`, and may not be committed
        self.committed: int | None = None  # this position needs no commit
        self.committing = Turn()

    def see(self, offsets: Sequence[int], envelopes: list[Any]) -> Run | None:
        """Like `add`. The first offset seen needs no commit."""
        if self.committed is None:
            self.committed = offsets[0]
        return self.add(offsets, envelopes)

    def has_due(self) -> bool:
        """Whether a retry is due."""
        return bool(self.retries) and self.retries[0][0] <= time.monotonic()

    def pop_due(self) -> Taken | None:
        """Take the next retry that is due."""
        while self.has_due():
            _, _, offset, envelope = heapq.heappop(self.retries)
            found = self.find(offset)
            if found is not None and found[0].state[found[1]] == RETRY:
                run, index = found
                run.state[index] = HANDED
                return Taken(self, run, index, envelope)
        return None

    def retrying(self) -> int:
        """The number of messages that wait for a retry."""
        places = (self.find(offset) for _, _, offset, _ in self.retries)
        return sum(place is not None and place[0].state[place[1]] == RETRY for place in places)

    def next_offset(self) -> int | None:
        """The next offset to hand over; None if no message was seen."""
        lease = self.lease
        if lease is not None and not lease.retry:
            begun = lease.begun()
            if begun < len(lease.envelopes):
                return lease.run.offsets[lease.start + begun]
        if self.waiting:
            run = self.waiting[0]
            return run.offsets[run.next]
        return self.next


class Lease:
    """Messages that one worker hands over in order.

    If `stopped` is set, the worker ends after the current message.
    """

    __slots__ = ("envelopes", "iterator", "partition", "retry", "run", "start", "stopped")

    def __init__(
        self, partition: Partition, run: Run, start: int, envelopes: list[Any], retry: bool
    ) -> None:
        self.partition = partition
        self.run = run
        self.start = start
        self.envelopes = envelopes
        self.iterator: Iterator[Any] = iter(envelopes)
        self.retry = retry
        self.stopped = False

    def begun(self) -> int:
        """The number of messages that the worker has started; all but the last are done."""
        return len(self.envelopes) - length_hint(self.iterator)


class Taken(NamedTuple):
    """One message on its way to the application."""

    partition: Partition
    run: Run
    place: int
    envelope: Any
