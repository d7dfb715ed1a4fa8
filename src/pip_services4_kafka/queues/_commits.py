"""Commits a queue's progress: offsets, and the finished ranges beyond them.

A queue commits the offset of the first unfinished message. The metadata lists the finished offsets
beyond it, so that the partition's next owner skips them. ``cykafka/1 100 3+5 2+1`` means: from
offset 100 on, 3 are not finished, the next 5 are, the next 2 are not, and 1 is. The metadata
repeats the offset, because tools such as MirrorMaker copy metadata to other offsets.
Brokers accept metadata of up to ``offset.metadata.max.bytes`` (4096 by default).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from pip_services4_commons.errors import ApplicationException

from cykafka import KafkaError, TopicPartition

from .._errors import words
from ..connect._session import Session
from ._local_queue import LocalQueue
from ._measures import Measures
from ._partition import PartitionState, Range

_MARK = "cykafka/1"
# Two offsets of 64 bits and a plus.
_ITEM_MAX = 39
# The longest metadata of a commit, below the brokers' default for offset.metadata.max.bytes.
METADATA_MAX = 4000
# The code of a broker with a lower limit.
_TOO_LARGE = "OFFSET_METADATA_TOO_LARGE"
# How often, in seconds, a thread that waits for the commit lock checks whether the lock's owner
# waits for that thread.
_CHECK_S = 0.02
# How often a failing periodic commit is logged, in seconds.
_QUIET_S = 60.0
# A commit fails with these codes while the consumer is not a member of the group. The group then
# redelivers the messages.
_REBALANCING = words(
    "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID "
    "STALE_MEMBER_EPOCH FENCED_MEMBER_EPOCH ASSIGNMENT_LOST NO_OFFSET STATE NOT_OPEN"
)


class Commits:
    """Commits the progress of partitions, one commit at a time. Thread-safe.

    Parameters
    ----------
    local : LocalQueue
    measures : Measures
    """

    def __init__(self, local: LocalQueue, measures: Measures) -> None:
        self._local = local
        self._measures = measures
        self._log = measures.log
        self._order = _CommitLock()
        self.metadata_max = METADATA_MAX
        self._logged = -_QUIET_S

    def commit(
        self, session: Session, partitions: Iterable[PartitionState], leaving: bool = False
    ) -> None:
        """Commit the partitions whose first unfinished offset has moved, and wait.

        With `leaving`, the session returns the partitions: this also commits the finished ranges,
        and the caller already holds the lock.

        Raises
        ------
        ApplicationException
            The commit failed, but not because of a rebalance.
        """
        with contextlib.nullcontext() if leaving else self._order:
            wanted = list(partitions)
            if leaving:
                for partition in wanted:
                    # A commit that `begin` started may still fail. This one repeats it.
                    if partition.confirmed != partition.committed[0] or partition.committed[1]:
                        partition.committed = None, ""
            else:
                wanted = [
                    p for p in wanted if p.owned and self._local.progress(p)[0] != p.committed[0]
                ]
            while places := self._uncommitted(session, wanted):
                try:
                    session.commit(places)
                    self._confirm(places)
                    return
                except ApplicationException as error:
                    for partition in wanted:
                        partition.committed = None, ""
                    if error.code == _TOO_LARGE and self.metadata_max:
                        self._shorten()
                        continue
                    if error.code not in _REBALANCING:
                        raise
                    self._log.debug("%s: not committed: %s", self._measures, error)
                    return

    def commit_revoked(self, session: Session, partitions: list[PartitionState]) -> None:
        """Commit before the session returns partitions, but after a running commit.

        Otherwise the lower offset could overwrite the higher one. Waits up to `request_timeout`,
        but never for a thread that waits for the session.
        """
        with self._order.within(session.request_timeout, session.is_awaited_by) as may_commit:
            if may_commit:  # else a commit timed out, and this one would time out too
                self.commit(session, partitions, leaving=True)

    def begin(self, session: Session) -> bool:
        """Start to commit the progress of all partitions. The session passes the outcome to
        `ended`.

        Returns False if another thread is committing.
        """
        with self._order.within(0) as may_commit:
            partitions = self._local.partitions() if may_commit else []
            places = self._uncommitted(session, partitions)
            try:
                if places:
                    session.begin_commit(places)
            except BaseException:
                for partition in partitions:
                    partition.committed = None, ""
                raise
            return may_commit

    def ended(
        self, session: Session | None, error: KafkaError | None, positions: list[TopicPartition]
    ) -> None:
        """Record the outcome of the commit that `begin` started. The next commit retries a failed
        one."""
        failures = [place.error for place in positions if place.error is not None]
        failure = error or (failures[0] if failures else None)
        if failure is None:
            self._confirm(positions)
            return
        for partition in self._local.partitions():
            partition.committed = None, ""
        code = failure.name().lstrip("_")
        text = f"{self._measures}: cannot commit offsets; retrying: {failure.str()}"
        now = time.monotonic()
        if code == _TOO_LARGE:
            self._shorten()
        elif code in _REBALANCING or session is None or session.outage.is_recent():
            self._log.debug("%s", text)
        elif now - self._logged >= _QUIET_S:
            self._logged = now
            self._log.warn(text)

    def _confirm(self, places: list[TopicPartition]) -> None:
        known = {partition.number: partition for partition in self._local.partitions()}
        for place in places:
            if place.partition in known:
                known[place.partition].confirmed = place.offset

    def _shorten(self) -> None:
        """List fewer ranges, because the broker accepts less metadata."""
        self.metadata_max = self.metadata_max // 2 if self.metadata_max > 50 else 0

    def _uncommitted(
        self, session: Session, partitions: Iterable[PartitionState]
    ) -> list[TopicPartition]:
        """Return the uncommitted offsets, and mark them as committed."""
        places = []
        for partition in partitions:
            offset, ranges, _ = self._local.progress(partition)
            if offset is None:
                continue
            metadata, _ = encode_ranges(offset, ranges, self.metadata_max)
            if partition.committed != (offset, metadata):
                partition.committed = offset, metadata
                place = TopicPartition(session.topic, partition.number, offset, metadata=metadata)
                places.append(place)
        return places


class _CommitLock:
    """Keeps commits in order. Reentrant for signal handlers."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextlib.contextmanager
    def within(
        self, timeout: float, waits_for_me: Callable[[int], bool] = lambda _: False
    ) -> Iterator[bool]:
        """Wait for the lock up to `timeout` seconds, but never for an owner that waits for this
        thread.

        Yields whether this thread may commit.
        """
        deadline = time.monotonic() + timeout
        mine = self._lock.acquire(blocking=False)
        free = mine
        while not free and time.monotonic() < deadline:
            free = waits_for_me(self._owner)
            if not free:
                free = mine = self._lock.acquire(timeout=_CHECK_S)
        try:
            if mine:
                self._owner = threading.get_ident()
            yield free
        finally:
            if mine:
                self._lock.release()


# -- metadata


def encode_ranges(committed: int, ranges: Iterable[Range], limit: int) -> tuple[str, int]:
    """Encode ranges as metadata of at most `limit` characters.

    Returns
    -------
    tuple
        The metadata, which is empty without ranges, and how many ranges were left out.
    """
    text, last, left_out = f"{_MARK} {committed}", committed, 0
    for start, stop in ranges:
        item = f" {start - last}+{stop - start}"
        if left_out or len(text) + len(item) > limit:
            left_out += 1
        else:
            text += item
            last = stop
    return (text if last != committed else ""), left_out


def decode_ranges(committed: int, metadata: str | None) -> list[Range]:
    """Decode finished ranges. Returns no ranges if the metadata is for another offset or tool."""
    mark = f"{_MARK} {committed} "
    ranges: list[Range] = []
    if metadata is not None and metadata.startswith(mark) and metadata.isascii():
        last, items = committed, metadata[len(mark) :].split(" ")
        for item in items:
            gap, plus, length = item.partition("+")
            numbers = gap.isdecimal() and length.isdecimal() and len(item) <= _ITEM_MAX
            if not (plus and numbers and int(length)):
                return []  # damaged: redelivered messages are better than lost ones
            start = last + int(gap)
            last = start + int(length)
            ranges.append((start, last))
    return ranges
