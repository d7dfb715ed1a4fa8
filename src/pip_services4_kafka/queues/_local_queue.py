"""The local queue: messages between the session's thread, which fetches them, and the application.

One lock protects the queue. No thread holds the lock while it runs application code, waits for a
broker or calls librdkafka.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from pip_services4_messaging.queues import MessageEnvelope

from cykafka import Message

from ._partition import Lease, PartitionState, Range

# The longest wait, in seconds. A Condition rejects infinity.
_FOREVER_S = 1e9


class Backoff(NamedTuple):
    """The delays between attempts, in seconds. They double from the first to the longest."""

    first: float = 0.2
    longest: float = 10.0

    def delay(self, attempts: int) -> float:
        """The delay after this number of failed attempts."""
        return min(self.longest, self.first * 2.0 ** min(attempts - 1, 30))


BACKOFF = Backoff()


class LocalQueue:
    """The fetched messages and their outcomes, for all assigned partitions. Thread-safe.

    Parameters
    ----------
    max_pending : int
        The most unfinished messages per partition, and the most waiting messages in total.
    finish_on_take : bool
        Delivering a message finishes it (autocommit).
    backoff : Backoff
    """

    def __init__(self, max_pending: int, finish_on_take: bool, backoff: Backoff = BACKOFF) -> None:
        self._max_pending = max_pending
        self._finish_on_take = finish_on_take
        self._backoff = backoff
        # Reentrant: a signal handler may close the queue in the thread that holds the lock.
        self._lock = threading.RLock()
        self._filled = threading.Condition(self._lock)  # a message may be ready
        self._drained = threading.Condition(self._lock)  # there may be room
        self._partitions: dict[int, PartitionState] = {}
        self._earlier: dict[int, PartitionState] = {}  # the states at revocation
        self._ready: deque[PartitionState] = deque()  # served in rotation
        self._timers: list[tuple[float, int, PartitionState]] = []  # heap: when a retry is due
        self._order = itertools.count()  # breaks ties in the heap: partitions have no order
        self._room_wanted = False
        self._closed = False

    # The session's thread

    def assign(
        self, starts: Mapping[int, int | None], finished: Mapping[int, Iterable[Range]] = {}
    ) -> None:
        """Add partitions with their committed offsets. Drops their earlier messages."""
        with self._lock:
            for number, committed in starts.items():
                partition = PartitionState(number, committed, finished.get(number, ()))
                self._replace(number, partition)
                earlier = self._earlier.pop(number, None)
                if earlier is not None:
                    partition.continue_from(earlier)

    def reached(self, numbers: Iterable[int]) -> dict[int, int]:
        """How far the logs reached, for partitions that this queue had before a rebalance."""
        with self._lock:
            known = ((number, self._earlier.get(number)) for number in numbers)
            return {number: earlier.reached() for number, earlier in known if earlier is not None}

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget what this queue knew about partitions before a rebalance."""
        with self._lock:
            for number in numbers:
                self._earlier.pop(number, None)

    def _replace(self, number: int, new: PartitionState | None) -> PartitionState | None:
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

    def revoke(self, numbers: Iterable[int]) -> list[PartitionState]:
        """Remove partitions and drop their messages. Returns the partitions."""
        with self._lock:
            gone = (self._replace(number, None) for number in numbers)
            return [partition for partition in gone if partition is not None]

    def restart(self, number: int) -> None:
        """Forget a partition's messages after a seek. The partition stays assigned."""
        with self._lock:
            old = self._partitions.get(number)
            if old is not None:
                new = PartitionState(number)
                new.paused = old.paused
                self._replace(number, new)
                self._earlier.pop(number)

    def _fetched(self, number: int, offset: int) -> PartitionState | None:
        """Find the partition for a fetched message. Returns None if the queue is closed."""
        if self._closed:  # as if these messages were not fetched
            return None
        known = self._partitions.get(number)
        if known is not None and known.first_unfinished is not None:
            again = offset == known.first_unfinished and offset != known.position
            if offset < known.first_unfinished or again:
                # Below all unfinished offsets: the topic was recreated or its log truncated.
                self.restart(number)
        return self._partitions.setdefault(number, PartitionState(number))

    def add(self, number: int, offsets: Sequence[int], envelopes: list[Any]) -> None:
        """Add fetched messages from one partition."""
        with self._lock:
            partition = self._fetched(number, offsets[0])
            if partition is not None and partition.add(offsets, envelopes):
                self._make_ready(partition)
                self._filled.notify_all()

    def put(self, number: int, offset: int, envelope: Any) -> None:
        """Add a message from a subclass. Does nothing if the queue already knows the offset."""
        with self._lock:
            if not self._closed:
                partition = self._partitions.setdefault(number, PartitionState(number))
                if partition.add((offset,), [envelope]):
                    self._make_ready(partition)
                    self._filled.notify_all()

    def expect(self, number: int, offset: int) -> None:
        """Note that a message was fetched. `add` or `add_delivered` follows."""
        with self._lock:
            self._fetched(number, offset)

    def add_delivered(self, number: int, offset: int) -> PartitionState | None:
        """Add a message that the application already has, after `expect`.

        Returns None if the message is in the local queue, or the queue is closed.
        """
        with self._lock:
            partition = self._partitions.get(number)
            if self._closed or partition is None or not partition.add((offset,), [None]):
                return None
            partition.waiting.pop()
            partition.buffered -= 1
            return partition

    def wait_for_room(self, timeout: float) -> list[PartitionState]:
        """Wait up to `timeout` seconds until no partition is full.

        Returns the partitions that are still full, marked as paused. The wait avoids pauses,
        because a pause drops messages that librdkafka has prefetched.
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

    def resume_with_room(self) -> list[PartitionState]:
        """Find the paused partitions that have room again, and mark them as resumed."""
        with self._lock:
            paused = (partition for partition in self._partitions.values() if partition.paused)
            found = [partition for partition in paused if self._has_room(partition)]
            for partition in found:
                partition.paused = False
            return found

    def _share(self) -> int:
        return max(1, self._max_pending // max(1, len(self._partitions)))

    def _has_room(self, partition: PartitionState) -> bool:
        low = self._share() // 2
        room = max(1, low)
        behind = max(partition.pending, partition.uncovered)
        return partition.buffered <= low and behind <= self._max_pending - room

    def _note_room(self, partition: PartitionState) -> None:
        if self._room_wanted and self._has_room(partition):
            self._room_wanted = False
            self._drained.notify_all()

    # Delivery

    def take(self, timeout: float) -> Any:
        """Take the next envelope. Waits up to `timeout` seconds.

        Returns None if no message arrives or the queue closes.
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
        """Wait for messages from one partition and take up to `limit`.

        Until `release`, no other thread gets messages from this partition. Returns None if `stop`
        is set or the queue closes.
        """
        with self._lock:
            while not (self._closed or stop.is_set()):
                found = self._next(limit)
                if found is not None:
                    partition = found[0]
                    if partition.ready:
                        self._remove_first_ready(partition)
                    partition.lease = Lease(*found)
                    self._note_room(partition)
                    return partition.lease
                self._wait_filled(_FOREVER_S)
            return None

    def _next(self, limit: int) -> tuple[PartitionState, Sequence[int], list[Any], bool] | None:
        """Take messages from the first ready partition. The last item is True for a retry."""
        now = self._start_due_retries()
        while self._ready:
            partition = self._ready[0]
            due = partition.pop_due(now)
            if due is not None:
                self._remove_first_ready(partition)
                return partition, (due[0],), [due[1]], True
            if not partition.waiting:
                self._remove_first_ready(partition)
                continue
            run = partition.waiting[0]
            offsets, envelopes = partition.take(limit)
            if envelopes:  # else all were finished already
                if not partition.waiting or partition.waiting[0] is not run:
                    self._remove_first_ready(partition)
                return partition, offsets, envelopes, False
        return None

    def _start_due_retries(self) -> float:
        """Mark partitions as ready if a retry is due. Returns the time."""
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._make_ready(heapq.heappop(self._timers)[2])
        return now

    def _remove_first_ready(self, partition: PartitionState) -> None:
        partition.ready = False  # first, because Ctrl-C may interrupt here
        self._ready.popleft()

    def _make_ready(self, partition: PartitionState) -> None:
        if not partition.ready and partition.lease is None and partition.owned:
            partition.ready = True
            self._ready.append(partition)

    def _wait_filled(self, seconds: float) -> None:
        if self._timers:
            seconds = min(seconds, max(0.0, self._timers[0][0] - time.monotonic()))
        self._filled.wait(seconds)

    def release(self, lease: Lease, done: int) -> None:
        """End a lease. The worker handled only the first `done` messages."""
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
        """With autocommit, finish the messages in a lease that the worker has handled.

        After a revocation this does nothing, because it is unknown which messages failed.
        """
        done = max(0, lease.begun() - 1) if done is None else done
        if done and self._finish_on_take and lease.partition.owned:
            lease.partition.finish_handled(lease.offsets[0], lease.offsets[done - 1] + 1)

    # Outcomes

    def finish(self, number: int, offset: int) -> PartitionState | None:
        """Finish a delivered message, even during a rebalance.

        Returns the partition, which may be revoked. Returns None if the partition was never
        assigned, or the message is finished or was never fetched.
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
        """Count a failed attempt. Redeliver the message unless `limit` attempts have failed.

        Parameters
        ----------
        number, offset : int
        envelope : object
        limit : int
            0 means no limit. After the last attempt the application still holds the message.
        abandoned : bool
            Even a finished message becomes unfinished.

        Returns
        -------
        int
            How many attempts have failed. 0 if the application does not hold the message.
        """
        with self._lock:
            partition = self._partitions.get(number)
            reopen = abandoned and self._finish_on_take
            if partition is None or not partition.can_retry(offset, reopen):
                return 0
            attempts = partition.count_attempt(offset)
            if not limit or attempts < limit:
                self._retry(partition, offset, envelope, self._backoff.delay(attempts))
            else:  # unfinished until it becomes a dead letter
                partition.reopen(offset)
                partition.dying.add(offset)
            return attempts

    def _retry(self, partition: PartitionState, offset: int, envelope: Any, delay: float) -> None:
        due = time.monotonic() + delay
        partition.retry(offset, envelope, due)
        heapq.heappush(self._timers, (due, next(self._order), partition))
        self._filled.notify_all()

    def is_unfinished(self, number: int, offset: int) -> bool:
        """Whether a message of an assigned partition was fetched and is unfinished."""
        with self._lock:
            partition = self._partitions.get(number)
            return (
                partition is not None
                and offset < (partition.position or 0)
                and not partition.is_finished(offset)
            )

    def attempts(self, number: int, offset: int) -> int:
        """How many attempts have failed for a message."""
        with self._lock:
            partition = self._partitions.get(number)
            return partition.attempts.get(offset, 0) if partition is not None else 0

    def clear(self) -> list[PartitionState]:
        """Finish all messages that the application does not hold. Returns their partitions."""
        with self._lock:
            changed = []
            for partition in self._partitions.values():
                undelivered = [offsets for offsets in partition.undelivered() if offsets]
                if not undelivered and not partition.retries:
                    continue
                if partition.lease is not None:
                    partition.lease.stopped = True
                for offsets in (*undelivered, *([offset] for offset in partition.retries)):
                    partition.finish(offsets[0], offsets[-1] + 1)
                partition.retries.clear()
                partition.waiting.clear()
                partition.buffered = 0
                self._note_room(partition)
                changed.append(partition)
            return changed

    # Its state

    def partitions(self) -> list[PartitionState]:
        """All assigned partitions."""
        with self._lock:
            return list(self._partitions.values())

    def progress(self, partition: PartitionState) -> tuple[int | None, list[Range], int | None]:
        """A partition's first unfinished offset, the finished ranges above it, and the next offset
        to deliver. The partition may be revoked."""
        with self._lock:
            if partition.lease is not None:
                self._note_handled(partition.lease)
            return partition.first_unfinished, partition.ranges(), partition.next_offset()

    def peek(self, count: int) -> list[Any]:
        """Return messages that wait or are due, partition by partition, without taking them.

        `take` returns the first one next.
        """
        with self._lock:
            now = self._start_due_retries()
            messages = (partition.upcoming(now) for partition in self._ready)
            return list(itertools.islice(itertools.chain.from_iterable(messages), count))

    def in_flight(self) -> int:
        """How many unfinished messages the application holds."""
        with self._lock:
            return sum(
                max(0, p.pending - p.buffered - len(p.retries)) for p in self._partitions.values()
            )

    # The end

    def stop_leases(self, stop: threading.Event) -> None:
        """Set `stop` and let the workers end after their current messages."""
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
        """Reject new messages and deliver none: from now on `take` and `lease` return None."""
        with self._lock:
            self._closed = True
            self._stop_all()


class WaitingMessages(list[MessageEnvelope]):
    """The type of a queue's ``_messages``, for subclasses written for pip-services4-kafka.

    A snapshot of the messages that wait in the local queue. Appending puts an envelope into the
    local queue. The envelope's reference must be the record, as ``_to_message`` sets it. Methods
    that remove messages raise AttributeError, because the queue would not know that the
    application has these messages.

    Parameters
    ----------
    envelopes : iterable of MessageEnvelope
    put : callable
        Puts an envelope into the local queue: ``put(partition, offset, envelope)``.
    """

    def __init__(
        self,
        envelopes: Iterable[MessageEnvelope],
        put: Callable[[int, int | None, MessageEnvelope], None],
    ) -> None:
        super().__init__(envelopes)
        self._put = put

    def append(self, envelope: MessageEnvelope) -> None:
        """Put an envelope into the local queue."""
        record = envelope.get_reference()
        if not isinstance(record, Message) or record.partition() is None:
            raise AttributeError(
                "_messages.append: the envelope's reference is not a received record; append "
                "envelopes that _to_message() returned"
            )
        self._put(int(record.partition() or 0), record.offset(), envelope)
        super().append(envelope)

    def extend(self, envelopes: Iterable[MessageEnvelope]) -> None:
        """Put envelopes into the local queue."""
        for envelope in envelopes:
            self.append(envelope)

    def __iadd__(self, envelopes: Iterable[MessageEnvelope]) -> WaitingMessages:  # type: ignore[misc]
        self.extend(envelopes)
        return self

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise AttributeError(
            "_messages is a view of the local queue: take messages with receive(), drop them "
            "with clear()"
        )

    pop = remove = insert = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = _refuse
