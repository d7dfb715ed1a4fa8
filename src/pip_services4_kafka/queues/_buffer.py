"""The local queue: fetched and decoded messages of all partitions that wait to be handed over.

One lock protects the buffer, its partitions (`_incoming`) and their progress. It is held only
while lists change, never while application code or librdkafka runs.

Messages leave one by one (`take`) or as a lease: a slice of one run for one worker of `listen`.
During a lease no other worker gets messages of that partition. The worker's position is read off
the iterator that it walks over, so it need not report each message.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from typing import Any

from ._incoming import Incoming
from ._partition import Lease, Partition, Taken
from ._progress import BUFFERED, HANDED, RETRY

# The longest wait, s; a Condition refuses infinity.
_FOREVER_S = 1e9


class Buffer(Incoming):
    """The local queue of one KafkaMessageQueue."""

    def __init__(self, max_pending: int, finish_on_take: bool) -> None:
        super().__init__(max_pending, finish_on_take)
        self._timers: list[tuple[float, int, Partition]] = []  # when a partition becomes ready
        self._numbers = itertools.count()

    # Handing over

    def _next_partition(self) -> Partition | None:
        """The partition whose turn it is."""
        timers = self._timers
        if timers:
            now = time.monotonic()
            while timers and timers[0][0] <= now:
                partition = heapq.heappop(timers)[2]
                if partition.retries:
                    self._make_ready(partition, first=True)
        while self._ready:
            partition = self._ready[0]
            if partition.waiting or partition.has_due():
                return partition
            self._ready.popleft()
            partition.queued = False
        return None

    def _requeue(self, partition: Partition) -> None:
        """Give the next partition its turn after a run of this one was handed over."""
        if self._ready and self._ready[0] is partition:
            self._ready.popleft()
            partition.queued = False
        if partition.waiting or partition.has_due():
            self._make_ready(partition)

    def take(self, timeout: float) -> Taken | None:
        """Take the next message; wait for it up to `timeout` s.

        None: no message came, or the queue was closed.
        """
        deadline = time.monotonic() + min(timeout, _FOREVER_S)
        with self._lock:
            while not self._closed:
                partition = self._next_partition()
                if partition is not None:
                    taken = self._take_from(partition)
                    if taken is not None:
                        return taken
                    continue
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._wait_filled(left)
            return None

    def _take_from(self, partition: Partition) -> Taken | None:
        taken = partition.pop_due()
        if taken is None and partition.waiting:
            run = partition.waiting[0]
            index = run.next
            taken = Taken(partition, run, index, run.hand_over(1)[0])
            partition.buffered -= 1
            if run.next == len(run):
                partition.waiting.popleft()
                self._requeue(partition)
            self._note_room(partition)
        if taken is not None and self._finish_on_take:
            partition.finish_handed(taken.run, taken.place, taken.place + 1)
        return taken

    def _wait_filled(self, seconds: float | None) -> None:
        if self._timers:
            due = max(0.0, self._timers[0][0] - time.monotonic())
            seconds = due if seconds is None else min(seconds, due)
        self._filled.wait(seconds)

    def lease(self, limit: int, stop: threading.Event) -> Lease | None:
        """Wait for messages of one partition; take at most `limit`.

        None: `stop` is set, or the queue was closed.
        """
        with self._lock:
            while not (self._closed or stop.is_set()):
                partition = self._next_partition()
                if partition is None:
                    self._wait_filled(None)
                    continue
                taken = partition.pop_due()
                if taken is not None:
                    lease = Lease(partition, taken.run, taken.place, [taken.envelope], True)
                elif partition.waiting:
                    run = partition.waiting[0]
                    lease = Lease(partition, run, run.next, run.hand_over(limit), False)
                    partition.buffered -= len(lease.envelopes)
                    if run.next == len(run):
                        partition.waiting.popleft()
                    self._note_room(partition)
                else:
                    continue
                partition.lease = lease
                if partition.queued:
                    self._ready.remove(partition)
                    partition.queued = False
                return lease
            return None

    def release(self, lease: Lease, done: int) -> None:
        """End a lease. The worker handled the first `done` messages and none of the others."""
        with self._lock:
            partition = lease.partition
            self._note_progress(lease, done)
            partition.lease = None
            rest = lease.envelopes[done:]
            if rest and partition.owned:
                self._return(lease, done, rest)
            if partition.owned and (partition.waiting or partition.retries):
                if partition.waiting or partition.has_due():
                    self._make_ready(partition)
                self._filled.notify_all()
            self._note_room(partition)
            self._drained.notify_all()

    def _return(self, lease: Lease, done: int, rest: list[Any]) -> None:
        partition, run, start = lease.partition, lease.run, lease.start + done
        if not lease.retry and run.take_back(start, rest):
            partition.buffered += len(rest)
            if not partition.waiting or partition.waiting[0] is not run:
                partition.waiting.appendleft(run)
            return
        for index, envelope in enumerate(rest, start):
            if run.state[index] == HANDED:
                run.state[index] = RETRY
                self._push_retry(partition, run.offsets[index], envelope, time.monotonic())

    def count_failure(self, lease: Lease, index: int) -> int:
        """Count a failed attempt of a leased message, whose receiver raised.

        Returns the number of its failed attempts. 0: the receiver itself has finished or abandoned
        the message, or the partition was revoked.
        """
        with self._lock:
            partition, run, place = lease.partition, lease.run, lease.start + index
            if not partition.owned or run.state[place] != HANDED:
                return 0
            return partition.count_attempt(run.offsets[place])

    def retry(self, lease: Lease, index: int, envelope: Any, delay: float) -> None:
        """Hand over a leased message again in `delay` s."""
        with self._lock:
            partition, run, place = lease.partition, lease.run, lease.start + index
            if partition.owned and run.state[place] == HANDED:
                run.state[place] = RETRY
                self._push_retry(partition, run.offsets[place], envelope, time.monotonic() + delay)

    # Outcomes of messages

    def settle(self, number: int, offset: int) -> Partition | None:
        """Finish a message, given its partition and offset.

        Returns the partition. None: it is not assigned, or the message was already finished.
        """
        with self._lock:
            partition = self._partitions.get(number)
            found = partition.find(offset) if partition is not None else None
            if partition is None or found is None:
                return None
            run, index = found
            # A message that is still buffered: the application has it from an earlier assignment,
            # so it comes again.
            if run.state[index] == BUFFERED or not partition.finish(run, index):
                return None
            self._note_room(partition)
            return partition

    def finish(self, taken: Taken) -> bool:
        """Finish a taken message. False: it was already finished."""
        with self._lock:
            finished = taken.partition.finish(taken.run, taken.place)
            self._note_room(taken.partition)
            return finished

    def attempts(self, number: int, offset: int) -> int:
        """The number of failed attempts of a message."""
        with self._lock:
            partition = self._partitions.get(number)
            return partition.attempts.get(offset, 0) if partition is not None else 0

    def abandon(self, number: int, offset: int, envelope: Any, limit: int = 0) -> int:
        """Hand over a message again at once, unless `limit` (if not 0) attempts have failed.

        Returns the number of its failed attempts. 0: the application does not hold the message.
        """
        with self._lock:
            partition = self._partitions.get(number)
            place = partition.give_back(offset, self._finish_on_take) if partition else None
            if partition is None or place is None:
                return 0
            attempts = partition.count_attempt(offset)
            if limit and attempts >= limit:
                place[0].state[place[1]] = HANDED  # the caller makes it a dead letter
            else:
                self._push_retry(partition, offset, envelope, time.monotonic())
            return attempts

    def _push_retry(self, partition: Partition, offset: int, envelope: Any, due: float) -> None:
        order = next(self._numbers)
        heapq.heappush(partition.retries, (due, order, offset, envelope))
        heapq.heappush(self._timers, (due, order, partition))
        self._filled.notify_all()

    def position(self, partition: Partition) -> int | None:
        """The lowest unfinished offset of a partition."""
        with self._lock:
            return partition.position

    def of(self, number: int) -> Partition | None:
        """An assigned partition, or None."""
        with self._lock:
            return self._partitions.get(number)

    def position_behind(self, partition: Partition, offset: int) -> int | None:
        """The partition's position after this message is finished.

        None: it is not the first unfinished message, or the partition was revoked.
        """
        with self._lock:
            if not partition.owned:
                return None
            if partition.lease is not None:
                self._note_progress(partition.lease)
            if partition.position != offset or not partition.pending:
                return None
            for other, _ in itertools.islice(partition.unfinished(), 1, 2):
                return other
            return partition.next

    # Reading the state

    def peek(self, count: int) -> list[Any]:
        """The next messages in the order of `take`, without taking them."""
        with self._lock:
            self._next_partition()  # makes partitions with due retries ready
            found: list[Any] = []
            now = time.monotonic()
            # In its turn a partition hands over its due retries and its first run.
            turns = [
                (p, sorted(r for r in p.retries if r[0] <= now), deque(p.waiting))
                for p in self._ready
            ]
            queue = deque(turns)
            while queue and len(found) < count:
                partition, due, runs = queue.popleft()
                for _, _, offset, envelope in due:
                    place = partition.find(offset)
                    if place is not None and place[0].state[place[1]] == RETRY:
                        found.append(envelope)
                due.clear()
                if runs:
                    run = runs.popleft()
                    found.extend(run.envelopes[run.next : run.next + count - len(found)])
                if runs:
                    queue.append((partition, due, runs))
            return found[:count]

    def clear(self) -> list[Partition]:
        """Finish all waiting messages. Returns the partitions that had some."""
        with self._lock:
            changed = []
            for partition in self._partitions.values():
                if not (partition.waiting or partition.retries):
                    continue
                for run in partition.waiting:
                    start, stop = run.next, len(run)
                    run.hand_over(stop - start)
                    partition.finish_handed(run, start, stop)
                for _, _, offset, _ in partition.retries:
                    found = partition.find(offset)
                    if found is not None and found[0].state[found[1]] == RETRY:
                        partition.finish(*found)
                partition.waiting.clear()
                partition.retries.clear()
                partition.buffered = 0
                self._note_room(partition)
                changed.append(partition)
            return changed

    def partitions(self) -> list[Partition]:
        """All assigned partitions."""
        with self._lock:
            return list(self._partitions.values())

    def positions(self) -> list[tuple[Partition, int]]:
        """The new positions to store: partitions whose position differs from the stored one."""
        with self._lock:
            found = []
            for partition in self._partitions.values():
                if partition.lease is not None:
                    self._note_progress(partition.lease)
                position = partition.position
                if position is not None and position != partition.stored:
                    partition.went_back |= position < (partition.stored or 0)
                    partition.stored = position
                    found.append((partition, position))
            return found

    def next_offsets(self) -> dict[int, tuple[int | None, int]]:
        """By partition: the next offset to hand over (None: unknown), the number of retries."""
        with self._lock:
            return {p.number: (p.next_offset(), p.retrying()) for p in self._partitions.values()}

    def in_flight(self) -> int:
        """The number of messages that the application holds and has not finished."""
        with self._lock:
            return sum(p.pending - p.buffered - p.retrying() for p in self._partitions.values())

    # The end

    def stop_leases(self, stop: threading.Event) -> None:
        """Set `stop`, and let the workers end after their current messages."""
        with self._lock:
            stop.set()
            for partition in self._partitions.values():
                if partition.lease is not None:
                    partition.lease.stopped = True
            self._filled.notify_all()

    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Refuse new messages and hand over none: `take` and `lease` return None from now on."""
        with self._lock:
            self._closed = True
            for partition in self._partitions.values():
                if partition.lease is not None:
                    partition.lease.stopped = True
            self._filled.notify_all()
            self._drained.notify_all()
