"""The input side of the local queue: assigned and revoked partitions, and fetched messages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from ._partition import Lease, Partition, Taken
from ._progress import HANDED
from ._room import Room


class Incoming(Room):
    """The side of a local queue that the reader's thread uses.

    Parameters
    ----------
    max_pending : int
    finish_on_take : bool
        Hand-over finishes a message.
    """

    def __init__(self, max_pending: int, finish_on_take: bool) -> None:
        super().__init__(max_pending)
        self._finish_on_take = finish_on_take
        self._filled = threading.Condition(self._lock)  # a message may be ready
        self._ready: deque[Partition] = deque()  # partitions with messages to hand over now

    # Partitions

    def assign(self, subscription: Any, numbers: Iterable[int]) -> None:
        """Add assigned partitions. Drops their messages from an earlier assignment."""
        with self._lock:
            for number in numbers:
                old = self._partitions.get(number)
                if old is not None:
                    self._disown(old)
                self._partitions[number] = Partition(number, subscription, self._max_pending)

    def forget(self, subscription: Any, number: int) -> None:
        """Reset a partition after a seek. It stays assigned, and paused if it was."""
        with self._lock:
            old = self._partitions.get(number)
            if old is not None and old.subscription is subscription:
                self._begin_anew(old)

    def _begin_anew(self, old: Partition) -> Partition:
        self._disown(old)
        new = self._partitions[old.number] = Partition(
            old.number, old.subscription, self._max_pending
        )
        new.paused = old.paused
        return new

    def _known(self, subscription: Any, number: int, offset: int) -> Partition | None:
        """The partition of a fetched message. None: not assigned, or the buffer is closed."""
        partition = self._partitions.get(number)
        if self._closed or partition is None or partition.subscription is not subscription:
            return None
        position = partition.position
        if position is None or offset > position or offset == partition.next:
            return partition
        # An offset below all unfinished ones: the topic was recreated or its log truncated.
        return self._begin_anew(partition)

    def revoke(self, subscription: Any, numbers: Iterable[int] | None = None) -> list[Partition]:
        """Remove partitions (None: all) and drop their messages. Their positions stay readable."""
        with self._lock:
            gone = []
            for number in list(self._partitions) if numbers is None else numbers:
                partition = self._partitions.get(number)
                if partition is not None and partition.subscription is subscription:
                    del self._partitions[number]
                    self._disown(partition)
                    gone.append(partition)
            self._drained.notify_all()
            return gone

    def _disown(self, partition: Partition) -> None:
        partition.owned = False
        lease = partition.lease
        if lease is not None:
            self._note_progress(lease)
            lease.stopped = True
        partition.waiting.clear()
        partition.retries.clear()
        partition.buffered = 0
        if partition.queued:
            self._ready.remove(partition)
            partition.queued = False

    # Messages

    def add(
        self, subscription: Any, number: int, offsets: Sequence[int], envelopes: list[Any]
    ) -> None:
        """Add fetched messages of one partition."""
        with self._lock:
            if self._closed:  # these messages count as not seen
                return
            partition = self._known(subscription, number, offsets[0])
            if partition is None:
                # A message from on_message; its partition is not assigned.
                partition = self._partitions[number] = Partition(
                    number, subscription, self._max_pending
                )
            run = partition.see(offsets, envelopes)
            if run is not None:
                partition.waiting.append(run)
                partition.buffered += len(run)
                self._make_ready(partition)
                self._filled.notify_all()

    def look_back(self, subscription: Any, number: int, offset: int) -> None:
        """Check the offset of a message before the `add` or `skip` for it."""
        with self._lock:
            self._known(subscription, number, offset)

    def skip(self, subscription: Any, number: int, offset: int, *, finished: bool) -> Taken | None:
        """Record a message that a subclass handled, unless it is in the local queue already.

        If it is not finished, it counts as handed over and is returned.
        """
        with self._lock:
            partition = self._partitions.get(number)
            if self._closed or partition is None or partition.subscription is not subscription:
                return None
            run = partition.see((offset,), [None])
            if run is None:
                return None
            run.next = 1
            if finished:
                partition.finish(run, 0)
                return None
            run.state[0] = HANDED
            return Taken(partition, run, 0, None)

    def hold(self, subscription: Any, number: int, offset: int) -> Taken | None:
        """Record an unreadable message: it is never handed over, but not finished yet."""
        with self._lock:
            partition = self._known(subscription, number, offset)
            if partition is None:
                return None
            run = partition.see((offset,), [None])
            if run is None:
                return None
            run.next = 1
            run.state[0] = HANDED
            return Taken(partition, run, 0, None)

    # Both sides

    def _make_ready(self, partition: Partition, first: bool = False) -> None:
        if not partition.queued and partition.lease is None and partition.owned:
            partition.queued = True
            if first:
                self._ready.appendleft(partition)
            else:
                self._ready.append(partition)

    def _note_progress(self, lease: Lease, begun: int | None = None) -> None:
        """With autocommit, finish the messages of a lease that the worker has handled."""
        begun = max(0, lease.begun() - 1) if begun is None else begun
        if begun and self._finish_on_take:
            partition, start = lease.partition, lease.start
            if lease.retry:
                if lease.run.state[start] == HANDED:
                    partition.finish(lease.run, start)
            else:
                partition.finish_handed(lease.run, start, start + begun)
