"""One partition of the local queue: its waiting messages, and which messages are finished.

Offsets have gaps (compaction, transactions), and messages finish in any order. So this module
keeps finished offsets as ranges and treats a gap as finished. The local queue holds the lock.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf
from operator import itemgetter, length_hint
from typing import Any

_START, _STOP = itemgetter(0), itemgetter(1)
# How many attempt counts of finished messages to keep: with autocommit the application may still
# abandon a finished message.
_KEPT_ATTEMPTS = 10_000

# A number of ranges that usually have room in a commit's metadata.
_COVERED = 300

Range = tuple[int, int]  # the first offset, and the offset after the last one


class Run:
    """Waiting messages from one fetched batch, in offset order."""

    __slots__ = ("envelopes", "next", "offsets")

    def __init__(self, offsets: Sequence[int], envelopes: list[Any]) -> None:
        self.offsets = offsets  # a range if they have no gaps
        self.envelopes = envelopes  # None for a delivered message
        self.next = 0  # the index of the first message that waits


class PartitionState:
    """A partition's state since its assignment. The application may still finish messages after
    the revocation.

    A message from `first_unfinished` on that is not in `finished` has one of three states: it
    waits for delivery (in `waiting`, or in `lease` behind the current message), it waits for
    another attempt (in `retries`), or the application holds it.

    Parameters
    ----------
    number : int
    committed : int, optional
        The committed offset. None: the group has none.
    finished : iterable of pairs
        Ranges above `committed` that an earlier owner finished.
    """

    def __init__(
        self, number: int, committed: int | None = None, finished: Iterable[Range] = ()
    ) -> None:
        self.number = number
        self.first_unfinished = committed  # None before the first message
        self.position = committed  # Kafka's position: the next offset to fetch
        # Before the last rebalance, if the log has not changed since: the position, and the offset
        # after the last delivered message.
        self._position_before = self._delivered_before = 0
        self.finished: list[Range] = []  # below position, in order, with gaps in between
        self._finished_count = 0  # the offsets in `finished`
        self._skipped = list(finished)  # not fetched again yet
        self.waiting: deque[Run] = deque()
        self.buffered = 0  # the messages in `waiting`
        self._early = False  # whether messages in `waiting` were finished
        self.retries: dict[int, tuple[float, Any]] = {}  # offset -> when due, envelope
        self.dying: set[int] = set()  # failed for the last time, not yet dead letters
        self._due: list[tuple[float, int]] = []  # heap of times and offsets; some are outdated
        self._after_retry = False  # whether the last delivered message was a retry
        self.attempts: dict[int, int] = {}  # offset -> failed attempts, at least one
        self.lease: Lease | None = None
        self.owned = True  # False after the revocation
        self.ready = False  # whether it is in the local queue's list of ready partitions
        self.paused = False
        self.committed: tuple[int | None, str] = committed, ""  # offset and metadata
        self.confirmed: int | None = committed  # the last offset that a broker confirmed
        self.stuck: tuple[int, float, bool] | None = None  # offset, since when, whether logged

    # Progress

    @property
    def pending(self) -> int:
        """The number of unfinished messages."""
        if self.position is None or self.first_unfinished is None:
            return 0
        return self.position - self.first_unfinished - self._finished_count

    @property
    def uncovered(self) -> int:
        """About how many finished offsets do not fit into a commit's metadata."""
        if len(self.finished) <= _COVERED:  # the usual case
            return 0
        return sum(stop - start for start, stop in self.finished[_COVERED:])

    def is_finished(self, offset: int) -> bool:
        """Whether a fetched message is finished."""
        if self.first_unfinished is None or offset < self.first_unfinished:
            return self.first_unfinished is not None
        return _contains(self.finished, offset)

    def finish(self, start: int, stop: int) -> None:
        """Finish the fetched offsets from `start` up to, but not including, `stop`."""
        if self.first_unfinished is None or (start := max(start, self.first_unfinished)) >= stop:
            return
        ranges = self.finished
        low, high, start, stop = _touching(ranges, start, stop)
        if low < high:
            self._finished_count -= sum(last - first for first, last in ranges[low:high])
        if start == self.first_unfinished:
            self.first_unfinished = stop
            del ranges[low:high]
        else:
            ranges[low:high] = ((start, stop),)
            self._finished_count += stop - start

    def finish_handled(self, start: int, stop: int) -> None:
        """Finish a range, except for messages that failed."""
        if self.retries or self.dying:
            failed = (*self.retries, *self.dying)
            for offset in sorted(offset for offset in failed if start <= offset < stop):
                self.finish(start, offset)
                start = offset + 1
        self.finish(start, stop)

    def forget(self, offset: int) -> None:
        """Forget the attempts for a finished message."""
        self.retries.pop(offset, None)
        self.attempts.pop(offset, None)
        self.dying.discard(offset)

    def reopen(self, offset: int) -> None:
        """Mark a finished message as unfinished."""
        if self.first_unfinished is None or not self.is_finished(offset):
            return
        ranges = self.finished
        if offset < self.first_unfinished:
            around = (offset, self.first_unfinished)
            index = 0
            self.first_unfinished = offset
            self._finished_count += around[1] - offset
            ranges.insert(0, around)
        else:
            index = bisect_right(ranges, offset, key=_START) - 1
            around = ranges[index]
        parts = (around[0], offset), (offset + 1, around[1])
        ranges[index : index + 1] = [part for part in parts if part[0] < part[1]]
        self._finished_count -= 1

    def continue_from(self, earlier: PartitionState) -> None:
        """Continue with this process's state before a rebalance, unless the commit changed.

        A group without a commit starts over: somebody may have recreated the topic.
        """
        begin, end = self.first_unfinished, earlier.first_unfinished
        if begin is None or begin not in (earlier.committed[0], earlier.confirmed):
            return
        self.attempts = earlier.attempts
        self._position_before = earlier.reached()
        self._delivered_before = earlier._delivered_before
        if end is not None:
            for start, stop in ((begin, end), *earlier.ranges()):
                self._skip(start, stop)

    def end(self) -> None:
        """Note the revocation. The application may still finish messages."""
        self._delivered_before = max(self._delivered_before, self.next_offset() or 0)
        self.owned = False
        self.waiting.clear()
        self.retries.clear()
        self.buffered = 0

    def reached(self) -> int:
        """The offset up to which the log contained messages, as far as this process knows."""
        return max(self.position or 0, self._position_before)

    def ranges(self) -> list[Range]:
        """All finished ranges above `first_unfinished`, even those not yet refetched."""
        return [*self.finished, *self._skipped]

    # Messages

    def add(self, offsets: Sequence[int], envelopes: list[Any]) -> bool:
        """Add fetched messages, except those fetched or finished before.

        Returns whether it added any.
        """
        end = offsets[-1] + 1
        if self.first_unfinished is None or self.position is None:
            self.first_unfinished = self.position = offsets[0]
        elif offsets[0] < self.position:
            known = bisect_left(offsets, self.position)
            offsets, envelopes = offsets[known:], envelopes[known:]
        offsets, envelopes = self._without_skipped(offsets, envelopes, end)
        begin, self.position = self.position, max(self.position, end)
        if isinstance(offsets, range):
            if offsets:
                if begin < offsets[0]:
                    self.finish(begin, offsets[0])
                begin = offsets[-1] + 1
        else:
            for offset in offsets:
                if offset > begin:
                    self.finish(begin, offset)
                begin = offset + 1
        if begin < end:
            self.finish(begin, end)
        if not offsets:
            return False
        self.waiting.append(Run(offsets, envelopes))
        self.buffered += len(envelopes)
        return True

    def _without_skipped(
        self, offsets: Sequence[int], envelopes: list[Any], end: int
    ) -> tuple[Sequence[int], list[Any]]:
        skipped = self._skipped
        if not skipped or not offsets or end <= skipped[0][0]:
            return offsets, envelopes
        # The part after this batch is not refetched yet.
        self._skipped = [(max(start, end), stop) for start, stop in skipped if stop > end]
        kept = [index for index, offset in enumerate(offsets) if not _contains(skipped, offset)]
        return tuple(offsets[index] for index in kept), [envelopes[index] for index in kept]

    def take(self, limit: int) -> tuple[Sequence[int], list[Any]]:
        """Take up to `limit` waiting neighbors. Returns the unfinished offsets and envelopes."""
        run = self.waiting[0]
        start, stop = run.next, min(run.next + limit, len(run.offsets))
        envelopes = run.envelopes[start:stop]
        run.envelopes[start:stop] = [None] * (stop - start)
        run.next = stop
        if stop == len(run.offsets):
            self.waiting.popleft()
        self.buffered -= stop - start
        offsets = run.offsets[start:stop]
        if self._early:
            kept = [i for i, offset in enumerate(offsets) if not self.is_finished(offset)]
            offsets, envelopes = [offsets[i] for i in kept], [envelopes[i] for i in kept]
            self._early = bool(self.waiting)
        self._after_retry = self._after_retry and not envelopes
        return offsets, envelopes

    def take_back(self, offsets: Sequence[int], envelopes: list[Any]) -> None:
        """Take back the messages at the end of a lease that the worker did not handle."""
        self._early = True  # the worker may have completed the first one
        self.waiting.appendleft(Run(offsets, envelopes))
        self.buffered += len(envelopes)

    def next_offset(self) -> int | None:
        """The next offset to deliver for the first time. None before the first message."""
        lease = self.lease
        if lease is not None and not lease.again and (begun := lease.begun()) < len(lease.offsets):
            return lease.offsets[begun]
        if self.waiting:
            run = self.waiting[0]
            return run.offsets[run.next]
        return self.position

    def _is_waiting(self, offset: int) -> bool:
        """Whether a message was never delivered."""
        limit = self.next_offset()
        if limit is None or self.position is None or offset >= self.position:
            return True
        if offset < limit:
            return False
        # A message that was delivered alone may lie behind waiting messages.
        return any(offset in offsets for offsets in self.undelivered())

    def undelivered(self) -> Iterator[Sequence[int]]:
        """The offsets of messages that were never delivered."""
        if self.lease is not None and not self.lease.again:
            yield self.lease.offsets[self.lease.begun() :]
        for run in self.waiting:
            yield run.offsets[run.next :]

    def count_attempt(self, offset: int) -> int:
        """Count a failed attempt. Returns how many attempts have failed."""
        count = self.attempts.pop(offset, 0) + 1
        if len(self.attempts) >= self.pending + _KEPT_ATTEMPTS:
            self.attempts.pop(next(iter(self.attempts)))  # the oldest
        self.attempts[offset] = count
        return count

    # Other attempts

    def can_finish(self, offset: int) -> bool:
        """Whether the application may hold an unfinished message.

        It may also hold one from before a rebalance, unless the log has changed since.
        """
        if self.position is None or offset >= self.position or self.is_finished(offset):
            return False
        if self._is_waiting(offset) or not self.owned:
            self._early = self._early or offset < self._delivered_before
            return offset < self._delivered_before
        return True

    def skip(self, offset: int) -> bool:
        """Finish a message from before a rebalance that is not refetched yet."""
        again = (self.position or 0) <= offset < self._delivered_before
        if not again or _contains(self._skipped, offset):
            return False
        self._skip(offset, offset + 1)
        return True

    def _skip(self, start: int, stop: int) -> None:
        if start < stop:
            low, high, start, stop = _touching(self._skipped, start, stop)
            self._skipped[low:high] = ((start, stop),)

    def can_retry(self, offset: int, reopen: bool) -> bool:
        """Whether the application holds a message. With `reopen`, even a finished one."""
        if self._is_waiting(offset) or offset in self.retries:
            return False
        return reopen or not self.is_finished(offset)

    def retry(self, offset: int, envelope: Any, due: float) -> None:
        """Redeliver a message at the time `due` (monotonic)."""
        self.reopen(offset)
        self.retries[offset] = due, envelope
        heapq.heappush(self._due, (due, offset))

    def next_due(self) -> float:
        """When the next retry is due (monotonic). Returns infinity without retries."""
        heap, retries = self._due, self.retries
        while heap and (heap[0][1] not in retries or retries[heap[0][1]][0] != heap[0][0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else inf

    def pop_due(self, now: float) -> tuple[int, Any] | None:
        """Take a retry that is due. Retries alternate with waiting messages."""
        if self.next_due() > now or (self._after_retry and self.waiting):
            return None
        self._after_retry = True
        offset = heapq.heappop(self._due)[1]
        return offset, self.retries.pop(offset)[1]

    def upcoming(self, now: float) -> Iterator[Any]:
        """The messages that wait or are due. The first is the next one to deliver."""
        dues = sorted((due, offset) for offset, (due, _) in self.retries.items() if due <= now)
        again = (self.retries[offset][1] for _, offset in dues)
        new = (
            run.envelopes[index]
            for run in tuple(self.waiting)
            for index in range(run.next, len(run.envelopes))
            if not (self._early and self.is_finished(run.offsets[index]))
        )
        return chain(new, again) if self._after_retry else chain(again, new)


class Lease:
    """Messages that one worker delivers in order.

    The worker ends after the current message if `stopped` is set.
    """

    __slots__ = ("again", "envelopes", "iterator", "offsets", "partition", "stopped")

    def __init__(
        self, partition: PartitionState, offsets: Sequence[int], envelopes: list[Any], again: bool
    ) -> None:
        self.partition = partition
        self.offsets = offsets
        self.envelopes = envelopes
        self.iterator = iter(envelopes)
        self.again = again  # a retry
        self.stopped = False

    def begun(self) -> int:
        """How many messages the worker has started. All but the last are handled."""
        return len(self.envelopes) - length_hint(self.iterator)


def _touching(ranges: list[Range], start: int, stop: int) -> tuple[int, int, int, int]:
    """Find the ranges that touch a range. Returns their slice and their union with the range."""
    low = bisect_left(ranges, start, key=_STOP)
    high = bisect_right(ranges, stop, key=_START)
    if low < high:
        start, stop = min(start, ranges[low][0]), max(stop, ranges[high - 1][1])
    return low, high, start, stop


def _contains(ranges: list[Range], offset: int) -> bool:
    index = bisect_right(ranges, offset, key=_START)
    return index > 0 and offset < ranges[index - 1][1]
