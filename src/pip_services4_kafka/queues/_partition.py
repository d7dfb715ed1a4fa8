"""A partition in the local queue, and messages on their way out of it."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import length_hint
from typing import Any, NamedTuple

from ._progress import HANDED, RETRY, Progress, Run

# How often a thread that waits for a turn looks whether that waits for it, s.
_LOOK_S = 0.02


class Turn:
    """One commit at a time, so that none overtakes another; reentrant for signal handlers."""

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
        """Enter within `timeout` s: True. None: it has not; False: whose turn it is (a thread's
        ident) waits for this thread, so that it never would.
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
    """An assigned partition: its progress, and what of it waits to be handed over."""

    def __init__(self, number: int, subscription: Any, max_pending: int) -> None:
        super().__init__(max_pending)
        self.number = number
        self.subscription = subscription
        self.owned = True  # False from the moment it is revoked
        self.waiting: deque[Run] = deque()  # runs with messages never handed over
        self.buffered = 0  # how many those are
        self.retries: list[tuple[float, int, int, Any]] = []  # heap: when, order, offset, envelope
        self.lease: Lease | None = None
        self.queued = False  # it is in Buffer._ready
        self.paused = False
        self.stored: int | None = None  # the position librdkafka was told last
        self.went_back = False  # to before that, and the brokers may not know it
        self.committed: int | None = None  # the position that need not be committed (again)
        self.committing = Turn()

    def see(self, offsets: Sequence[int], envelopes: list[Any]) -> Run | None:
        """As `add`; where it begins, nothing has to be committed."""
        if self.committed is None:
            self.committed = offsets[0]
        return self.add(offsets, envelopes)

    def has_due(self) -> bool:
        """Whether a message that was given back is to come now."""
        return bool(self.retries) and self.retries[0][0] <= time.monotonic()

    def pop_due(self) -> Taken | None:
        """The next message that was given back and is due."""
        while self.has_due():
            _, _, offset, envelope = heapq.heappop(self.retries)
            found = self.find(offset)
            if found is not None and found[0].state[found[1]] == RETRY:
                run, index = found
                run.state[index] = HANDED
                return Taken(self, run, index, envelope)
        return None

    def retrying(self) -> int:
        """How many messages were given back and have not come again."""
        places = (self.find(offset) for _, _, offset, _ in self.retries)
        return sum(place is not None and place[0].state[place[1]] == RETRY for place in places)

    def next_offset(self) -> int | None:
        """The next offset to hand over; None: nothing was seen."""
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
    """Messages that one worker hands over, in order.

    `stopped` asks it to end after the present one.
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
        """How many messages the worker has taken up; of these all but the last are done."""
        return len(self.envelopes) - length_hint(self.iterator)


class Taken(NamedTuple):
    """One message on its way to the application."""

    partition: Partition
    run: Run
    place: int
    envelope: Any
