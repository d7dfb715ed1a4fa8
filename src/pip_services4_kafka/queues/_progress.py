"""The outcome of a partition's messages, and the lowest unfinished offset.

A partition's messages come in runs: neighbors in one fetched batch. Whole ranges of a run are
handed over and finished at once, so the state of a message is a byte in a bytearray, written by
slices. Offsets have gaps (compaction, transactions), so a run and a place in it identify a
message. An offset is looked up only when an application finishes or abandons a message. The buffer
does the locking.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

# The states of a message, as bytes of Run.state.
BUFFERED = 0  # seen, not handed over
HANDED = 1  # the application has it
FINISHED = 2
RETRY = 3  # abandoned or failed, waits to be handed over again

_HANDED = bytes([HANDED])
_FINISHED = bytes([FINISHED])
# How many finished messages keep their count of failed attempts. With autocommit a finished
# message may be abandoned.
KEPT_ATTEMPTS = 10_000


class Run:
    """Neighboring messages of one partition, in the order of their offsets."""

    __slots__ = ("envelopes", "head", "left", "next", "offsets", "state")

    def __init__(self, offsets: Sequence[int], envelopes: list[Any]) -> None:
        self.offsets = offsets  # a range if they have no gaps
        self.envelopes = envelopes  # None for a message that was handed over
        self.state = bytearray(len(offsets))
        self.next = 0  # the place of the first message that was never handed over
        self.head = 0  # the place of the first unfinished message
        self.left = len(offsets)  # the number of unfinished messages

    def __len__(self) -> int:
        return len(self.offsets)

    def hand_over(self, count: int) -> list[Any]:
        """Remove and return at most the next `count` envelopes."""
        start = self.next
        envelopes = self.envelopes[start : start + count]
        count = len(envelopes)
        self.envelopes[start : start + count] = [None] * count
        self.state[start : start + count] = _HANDED * count
        self.next = start + count
        return envelopes

    def take_back(self, start: int, envelopes: list[Any]) -> bool:
        """Take back the envelopes handed over last, which the worker did not start.

        False: the state of one of them has changed, or others were handed over since.
        """
        stop = start + len(envelopes)
        if self.next != stop or self.state.count(_HANDED, start, stop) != len(envelopes):
            return False
        self.envelopes[start:stop] = envelopes
        self.state[start:stop] = bytes(len(envelopes))
        self.next = start
        return True


class Progress:
    """The progress of an assigned partition: a window [position, next) of unfinished messages.

    Parameters
    ----------
    max_pending : int
        The approximate maximum of unfinished messages.
    """

    def __init__(self, max_pending: int = 10_000) -> None:
        self.next: int | None = None  # the offset behind the last one seen
        self.pending = 0  # messages that are not finished
        self.attempts: dict[int, int] = {}  # offset -> failed attempts (at least one)
        # Large enough for the attempts of every unfinished message.
        self._kept_attempts = max_pending + KEPT_ATTEMPTS
        self._runs: deque[Run] = deque()  # by offset; the first one has an unfinished message

    @property
    def position(self) -> int | None:
        """The lowest unfinished offset, which is the offset to commit.

        None: no message was seen.
        """
        if self._runs:
            run = self._runs[0]
            return run.offsets[run.head]
        return self.next

    def add(self, offsets: Sequence[int], envelopes: list[Any]) -> Run | None:
        """Add fetched messages, without those below `next`. None if no message remains."""
        if self.next is not None and offsets[0] < self.next:  # fetched again
            known = bisect_left(offsets, self.next)
            offsets, envelopes = offsets[known:], envelopes[known:]
            if not offsets:
                return None
        run = Run(offsets, envelopes)
        self._runs.append(run)
        self.pending += len(run)
        self.next = offsets[-1] + 1
        return run

    def find(self, offset: int) -> tuple[Run, int] | None:
        """The run and place of a message. None: never seen, or finished and removed."""
        runs = self._runs
        # A binary search, as there may be thousands of runs.
        low, high = 0, len(runs)
        while low < high:
            middle = (low + high) // 2
            if runs[middle].offsets[-1] < offset:
                low = middle + 1
            else:
                high = middle
        if low == len(runs):
            return None
        run = runs[low]
        index = bisect_left(run.offsets, offset)
        return (run, index) if run.offsets[index] == offset else None

    def finish_handed(self, run: Run, start: int, stop: int) -> int:
        """Finish the messages of a range that are in the state HANDED. Returns their number."""
        state = run.state
        count = state.count(_HANDED, start, stop)
        if count:
            if count == stop - start:
                state[start:stop] = _FINISHED * count
            else:
                state[start:stop] = state[start:stop].replace(_HANDED, _FINISHED)
            self._drop(run, start, stop, count)
        return count

    def finish(self, run: Run, index: int) -> bool:
        """Finish one message in any state. False: it was already finished."""
        if run.state[index] == FINISHED:
            return False
        run.state[index] = FINISHED
        self.attempts.pop(run.offsets[index], None)
        self._drop(run, index, index + 1, 1)
        return True

    def _drop(self, run: Run, start: int, stop: int, count: int) -> None:
        run.left -= count
        self.pending -= count
        if count == stop - start and start <= run.head < stop:
            run.head = stop
        runs = self._runs
        if runs and runs[0] is run:
            while runs and not runs[0].left:
                runs.popleft()
            if runs:
                run = runs[0]
                head, state = run.head, run.state
                while state[head] == FINISHED:
                    head += 1
                run.head = head

    def give_back(self, offset: int, reopen: bool) -> tuple[Run, int] | None:
        """Set a message that was handed over to RETRY. None: not possible, or not necessary.

        With `reopen` this also works for a finished message, and the position goes back to it. If
        its run was removed, the message becomes a new run.
        """
        found = self.find(offset)
        if found is None:
            if not reopen or self.next is None or offset >= self.next or self._is_between(offset):
                return None
            found = self._reopen(offset), 0
        run, index = found
        state = run.state[index]
        if state in (BUFFERED, RETRY) or (state == FINISHED and not reopen):
            return None
        if state == FINISHED:
            run.left += 1
            run.head = min(run.head, index)
            self.pending += 1
        run.state[index] = RETRY
        return run, index

    def _is_between(self, offset: int) -> bool:
        """Whether an offset lies in a gap inside a run. Such an offset has no message."""
        return any(run.offsets[0] < offset < run.offsets[-1] for run in self._runs)

    def _reopen(self, offset: int) -> Run:
        run = Run((offset,), [None])
        run.state[0] = HANDED
        run.next = 1
        self.pending += 1
        place = 0
        while place < len(self._runs) and self._runs[place].offsets[0] < offset:
            place += 1
        self._runs.insert(place, run)
        return run

    def count_attempt(self, offset: int) -> int:
        """Count a failed attempt of a message. Returns the number of its failed attempts."""
        attempts = self.attempts
        count = attempts.pop(offset, 0) + 1
        if len(attempts) >= self._kept_attempts:  # drop the oldest count
            attempts.pop(next(iter(attempts)))
        attempts[offset] = count
        return count

    def unfinished(self) -> Iterator[tuple[int, int]]:
        """Offset and state of every unfinished message."""
        for run in self._runs:
            for offset, state in zip(run.offsets, run.state, strict=True):
                if state != FINISHED:
                    yield offset, state
