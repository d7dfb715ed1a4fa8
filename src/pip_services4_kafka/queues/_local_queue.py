"""The local queue: messages between the session's thread, which fetches them, and the application.

One lock protects all of it. It is never held while application code, a broker or librdkafka runs.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ._partition import Lease, Partition, Range

# The longest wait, s; a Condition refuses infinity.
_FOREVER_S = 1e9


class Backoff(NamedTuple):
    """The delays between the attempts of a message, s. Each is twice as long as the last one."""

    first: float = 0.2
    longest: float = 10.0

    def delay(self, attempts: int) -> float:
        """The delay after this number of failed attempts."""
        return min(self.longest, self.first * 2.0 ** min(attempts - 1, 30))


BACKOFF = Backoff()


class LocalQueue:
    """The fetched messages of the assigned partitions, and their outcome. Thread-safe.

    Parameters
    ----------
    max_pending : int
        The most unfinished messages of a partition, and the most waiting messages of all
        partitions together.
    finish_on_take : bool
        Handing a message over finishes it (autocommit).
    backoff : Backoff
    """

    def __init__(self, max_pending: int, finish_on_take: bool, backoff: Backoff = BACKOFF) -> None:
        self._max_pending = max_pending
        self._finish_on_take = finish_on_take
        self._backoff = backoff
        # Reentrant, because a signal handler may close the queue in the thread that holds it.
        self._lock = threading.RLock()
        self._filled = threading.Condition(self._lock)  # a message may be ready
        self._drained = threading.Condition(self._lock)  # there may be room
        self._partitions: dict[int, Partition] = {}
        self._earlier: dict[int, Partition] = {}  # as they were at their revocation
        self._ready: deque[Partition] = deque()  # partitions take turns
        self._timers: list[tuple[float, int, Partition]] = []  # heap: when a retry is due
        self._order = itertools.count()  # equal times: the timers' partitions have no order
        self._room_wanted = False
        self._closed = False

    # The session's thread

    def assign(
        self, starts: Mapping[int, int | None], finished: Mapping[int, Iterable[Range]] = {}
    ) -> None:
        """Add partitions with their committed offsets. Drops their messages from before."""
        with self._lock:
            for number, committed in starts.items():
                partition = Partition(number, committed, finished.get(number, ()))
                self._replace(number, partition)
                earlier = self._earlier.pop(number, None)
                if earlier is not None:
                    partition.continue_from(earlier)

    def reached(self, numbers: Iterable[int]) -> dict[int, int]:
        """How far the logs of partitions reached that this queue had before a rebalance."""
        with self._lock:
            known = ((number, self._earlier.get(number)) for number in numbers)
            return {number: earlier.reached() for number, earlier in known if earlier is not None}

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget what is known of partitions from before a rebalance."""
        with self._lock:
            for number in numbers:
                self._earlier.pop(number, None)

    def _replace(self, number: int, new: Partition | None) -> Partition | None:
        old = self._partitions.pop(number, None)
        if old is not None:
            if old.lease is not None:
                self._note_handled(old.lease)
                old.lease.stopped = True
            old.end()
            if old.ready:
                self._ready.remove(old)
                old.ready = False
            self._earlier[number] = old
        if new is not None:
            self._partitions[number] = new
        self._drained.notify_all()
        return old

    def revoke(self, numbers: Iterable[int]) -> list[Partition]:
        """Remove partitions and drop their messages. Returns them, as they were at the end."""
        with self._lock:
            gone = (self._replace(number, None) for number in numbers)
            return [partition for partition in gone if partition is not None]

    def restart(self, number: int) -> None:
        """Forget the messages of a partition, after a seek. It stays assigned."""
        with self._lock:
            old = self._partitions.get(number)
            if old is not None:
                new = Partition(number)
                new.paused = old.paused
                self._replace(number, new)
                self._earlier.pop(number)

    def _fetched(self, number: int, offset: int) -> Partition | None:
        """The partition of a fetched message. None: the queue is closed."""
        if self._closed:  # these messages count as not fetched
            return None
        known = self._partitions.get(number)
        if known is not None and known.first_unfinished is not None:
            again = offset == known.first_unfinished and offset != known.position
            if offset < known.first_unfinished or again:
                # Below all unfinished ones: the topic was recreated or its log truncated.
                self.restart(number)
        return self._partitions.setdefault(number, Partition(number))

    def add(self, number: int, offsets: Sequence[int], envelopes: list[Any]) -> None:
        """Add fetched messages of one partition."""
        with self._lock:
            partition = self._fetched(number, offsets[0])
            if partition is not None and partition.add(offsets, envelopes):
                self._make_ready(partition)
                self._filled.notify_all()

    def put(self, number: int, offset: int, envelope: Any) -> None:
        """Add a message that a subclass has fetched. Nothing if the queue knows its offset."""
        with self._lock:
            if not self._closed:
                partition = self._partitions.setdefault(number, Partition(number))
                if partition.add((offset,), [envelope]):
                    self._make_ready(partition)
                    self._filled.notify_all()

    def expect(self, number: int, offset: int) -> None:
        """A message was fetched; `add` or `add_handed` follow."""
        with self._lock:
            self._fetched(number, offset)

    def add_handed(self, number: int, offset: int) -> Partition | None:
        """Add a message that the application has already, after `expect`.

        None: the local queue has it, or is closed.
        """
        with self._lock:
            partition = self._partitions.get(number)
            if self._closed or partition is None or not partition.add((offset,), [None]):
                return None
            partition.waiting.pop()
            partition.buffered -= 1
            return partition

    def wait_for_room(self, timeout: float) -> list[Partition]:
        """Wait up to `timeout` s until no partition is full.

        Returns the partitions that are still full, marked as paused. The short wait avoids pauses,
        because a pause drops the messages that librdkafka has fetched ahead.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            while not self._closed:
                share = self._share()
                full = [
                    partition
                    for partition in self._partitions.values()
                    if not partition.paused
                    and (
                        partition.buffered >= share
                        or max(partition.pending, partition.uncovered) >= self._max_pending
                    )
                ]
                left = deadline - time.monotonic()
                if not full or left <= 0:
                    for partition in full:
                        partition.paused = True
                    return full
                self._room_wanted = True
                self._drained.wait(left)
            return []

    def with_room(self) -> list[Partition]:
        """The paused partitions that have room again, marked as resumed."""
        with self._lock:
            paused = (partition for partition in self._partitions.values() if partition.paused)
            found = [partition for partition in paused if self._has_room(partition)]
            for partition in found:
                partition.paused = False
            return found

    def _share(self) -> int:
        return max(1, self._max_pending // max(1, len(self._partitions)))

    def _has_room(self, partition: Partition) -> bool:
        low = self._share() // 2
        room = max(1, low)
        behind = max(partition.pending, partition.uncovered)
        return partition.buffered <= low and behind <= self._max_pending - room

    def _note_room(self, partition: Partition) -> None:
        if self._room_wanted and self._has_room(partition):
            self._room_wanted = False
            self._drained.notify_all()

    # Handing over

    def take(self, timeout: float) -> Any:
        """Take the next envelope; wait for one up to `timeout` s.

        None: no message came, or the queue was closed.
        """
        deadline = time.monotonic() + min(timeout, _FOREVER_S)
        with self._lock:
            while not self._closed:
                found = self._next(1)
                if found is not None:
                    partition, offsets, (envelope,), _ = found
                    if self._finish_on_take:
                        partition.finish(offsets[0], offsets[0] + 1)
                    self._note_room(partition)
                    self._make_ready(partition)
                    return envelope
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._wait_filled(left)
            return None

    def lease(self, limit: int, stop: threading.Event) -> Lease | None:
        """Wait for messages of one partition; take at most `limit`.

        No other thread gets messages of the partition until `release`. None: `stop` is set, or the
        queue was closed.
        """
        with self._lock:
            while not (self._closed or stop.is_set()):
                found = self._next(limit)
                if found is not None:
                    partition = found[0]
                    if partition.ready:
                        self._leave_turn(partition)
                    partition.lease = Lease(*found)
                    self._note_room(partition)
                    return partition.lease
                self._wait_filled(_FOREVER_S)
            return None

    def _next(self, limit: int) -> tuple[Partition, Sequence[int], list[Any], bool] | None:
        """Take messages of the partition whose turn it is. The last item: another attempt."""
        now = self._end_waits()
        while self._ready:
            partition = self._ready[0]
            due = partition.pop_due(now)
            if due is not None:
                self._leave_turn(partition)
                return partition, (due[0],), [due[1]], True
            if not partition.waiting:
                self._leave_turn(partition)
                continue
            run = partition.waiting[0]
            offsets, envelopes = partition.hand_over(limit)
            if envelopes:  # else all were finished already
                if not partition.waiting or partition.waiting[0] is not run:
                    self._leave_turn(partition)
                return partition, offsets, envelopes, False
        return None

    def _end_waits(self) -> float:
        """Make the partitions ready whose retries are due. Returns the time."""
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._make_ready(heapq.heappop(self._timers)[2])
        return now

    def _leave_turn(self, partition: Partition) -> None:
        partition.ready = False  # first: Ctrl-C may come in between
        self._ready.popleft()

    def _make_ready(self, partition: Partition) -> None:
        if not partition.ready and partition.lease is None and partition.owned:
            partition.ready = True
            self._ready.append(partition)

    def _wait_filled(self, seconds: float) -> None:
        if self._timers:
            seconds = min(seconds, max(0.0, self._timers[0][0] - time.monotonic()))
        self._filled.wait(seconds)

    def release(self, lease: Lease, done: int) -> None:
        """End a lease. The worker has handled the first `done` messages and none of the others."""
        with self._lock:
            partition = lease.partition
            self._note_handled(lease, done)
            partition.lease = None
            if partition.owned:
                offsets, rest = lease.offsets[done:], lease.envelopes[done:]
                if rest and not partition.is_finished(offsets[-1]):  # else clear() was called
                    if lease.again:
                        self._retry(partition, offsets[0], rest[0], 0)
                    else:
                        partition.take_back(offsets, rest)
                if partition.waiting or partition.retries:
                    self._make_ready(partition)
                    self._filled.notify_all()
            self._note_room(partition)
            self._drained.notify_all()

    def _note_handled(self, lease: Lease, done: int | None = None) -> None:
        """With autocommit, finish the messages of a lease that the worker has handled.

        Not after a revocation: then it is unknown which messages failed.
        """
        done = max(0, lease.begun() - 1) if done is None else done
        if done and self._finish_on_take and lease.partition.owned:
            lease.partition.finish_handled(lease.offsets[0], lease.offsets[done - 1] + 1)

    # Outcomes

    def finish(self, number: int, offset: int) -> Partition | None:
        """Finish a message that was handed over, in a rebalance too.

        Returns the partition, which may be revoked. None: it was never assigned, or the message is
        finished or was never fetched.
        """
        with self._lock:
            partition = self._partitions.get(number) or self._earlier.get(number)
            if partition is None:
                return None
            if not partition.can_finish(offset):
                return partition if partition.skip(offset) else None
            partition.finish(offset, offset + 1)
            partition.forget(offset)
            self._note_room(partition)
            return partition

    def fail(self, number: int, offset: int, envelope: Any, limit: int, abandoned: bool) -> int:
        """Count a failed attempt, and hand the message over again, unless `limit` have failed.

        Parameters
        ----------
        number, offset : int
        envelope : object
        limit : int
            0: no limit. After the last attempt the application still holds the message.
        abandoned : bool
            Also a finished message becomes unfinished.

        Returns
        -------
        int
            How many attempts have failed. 0: the application does not hold the message.
        """
        with self._lock:
            partition = self._partitions.get(number)
            reopen = abandoned and self._finish_on_take
            if partition is None or not partition.can_retry(offset, reopen):
                return 0
            attempts = partition.count_attempt(offset)
            if not limit or attempts < limit:
                self._retry(partition, offset, envelope, self._backoff.delay(attempts))
            else:  # it is unfinished until it is a dead letter
                partition.reopen(offset)
                partition.dying.add(offset)
            return attempts

    def _retry(self, partition: Partition, offset: int, envelope: Any, delay: float) -> None:
        due = time.monotonic() + delay
        partition.retry(offset, envelope, due)
        heapq.heappush(self._timers, (due, next(self._order), partition))
        self._filled.notify_all()

    def is_unfinished(self, number: int, offset: int) -> bool:
        """Whether a message was fetched and is not finished. False: not assigned."""
        with self._lock:
            partition = self._partitions.get(number)
            return (
                partition is not None
                and offset < (partition.position or 0)
                and not partition.is_finished(offset)
            )

    def attempts(self, number: int, offset: int) -> int:
        """The number of failed attempts of a message."""
        with self._lock:
            partition = self._partitions.get(number)
            return partition.attempts.get(offset, 0) if partition is not None else 0

    def clear(self) -> list[Partition]:
        """Finish all messages that the application does not hold. Returns their partitions."""
        with self._lock:
            changed = []
            for partition in self._partitions.values():
                left = [offsets for offsets in partition.left() if offsets]
                if not left and not partition.retries:
                    continue
                if partition.lease is not None:
                    partition.lease.stopped = True
                for offsets in (*left, *([offset] for offset in partition.retries)):
                    partition.finish(offsets[0], offsets[-1] + 1)
                partition.retries.clear()
                partition.waiting.clear()
                partition.buffered = 0
                self._note_room(partition)
                changed.append(partition)
            return changed

    # Its state

    def partitions(self) -> list[Partition]:
        """All assigned partitions."""
        with self._lock:
            return list(self._partitions.values())

    def progress(self, partition: Partition) -> tuple[int | None, list[Range], int | None]:
        """The first unfinished offset of a partition, the finished ranges above it, and the next
        offset to hand over. The partition is assigned or revoked."""
        with self._lock:
            if partition.lease is not None:
                self._note_handled(partition.lease)
            return partition.first_unfinished, partition.ranges(), partition.next_offset()

    def peek(self, count: int) -> list[Any]:
        """The messages that wait or are due, partition by partition, without taking them.

        The first is the next one to take.
        """
        with self._lock:
            now = self._end_waits()
            messages = (partition.upcoming(now) for partition in self._ready)
            return list(itertools.islice(itertools.chain.from_iterable(messages), count))

    def in_flight(self) -> int:
        """The number of messages that the application holds and has not finished."""
        with self._lock:
            return sum(
                max(0, p.pending - p.buffered - len(p.retries)) for p in self._partitions.values()
            )

    # The end

    def stop_leases(self, stop: threading.Event) -> None:
        """Set `stop`, and let the workers end after their current messages."""
        with self._lock:
            stop.set()
            self._stop_all()

    def _stop_all(self) -> None:
        for partition in self._partitions.values():
            if partition.lease is not None:
                partition.lease.stopped = True
        self._filled.notify_all()
        self._drained.notify_all()

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Refuse new messages and hand over none: `take` and `lease` return None from now on."""
        with self._lock:
            self._closed = True
            self._stop_all()
