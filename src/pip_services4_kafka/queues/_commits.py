"""Commits of a queue's progress: offsets, and what is finished beyond them."""

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
from ._metadata import encode
from ._partition import Partition

# The longest metadata of a commit, below the brokers' default for offset.metadata.max.bytes.
METADATA_MAX = 4000
# The code of a broker with a lower limit.
_TOO_LARGE = "OFFSET_METADATA_TOO_LARGE"
# How often a thread that waits for its turn to commit checks whether the owner waits for it, s.
_LOOK_S = 0.02
# How often a failing periodic commit is logged, s.
_QUIET_S = 60.0
# A commit fails with these codes if the consumer is not a member of the group at the moment. The
# messages then come again.
_REBALANCING = words(
    "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID "
    "STALE_MEMBER_EPOCH FENCED_MEMBER_EPOCH ASSIGNMENT_LOST NO_OFFSET STATE NOT_OPEN"
)


class Commits:
    """Commits the progress of partitions, one commit after the other. Thread-safe.

    Parameters
    ----------
    local : LocalQueue
    measures : Measures
    """

    def __init__(self, local: LocalQueue, measures: Measures) -> None:
        self._local = local
        self._measures = measures
        self._log = measures.log
        self._turn = _Turn()
        self.metadata_max = METADATA_MAX
        self._logged = -_QUIET_S

    def commit(
        self, session: Session, partitions: Iterable[Partition], leaving: bool = False
    ) -> None:
        """Commit the partitions whose first unfinished offset has moved, and wait for it.

        With `leaving`, the session is giving them back: also the finished ranges are committed,
        and the caller has waited for its turn.

        Raises
        ------
        ApplicationException
            The commit failed, and not because of a rebalance.
        """
        with contextlib.nullcontext() if leaving else self._turn:
            wanted = list(partitions)
            if leaving:
                for partition in wanted:
                    # The commit that `begin` has started may still fail. This one repeats it.
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

    def commit_revoked(self, session: Session, partitions: list[Partition]) -> None:
        """Commit before partitions are given back, after a commit that runs.

        Otherwise the lower of the two offsets could win. Waits up to `request_timeout`, but not
        for a thread that waits for the session.
        """
        with self._turn.within(session.request_timeout, session.is_awaited_by) as mine:
            if mine:  # else a commit has not ended in time, and this one would not either
                self.commit(session, partitions, leaving=True)

    def begin(self, session: Session) -> bool:
        """Begin to commit the progress of all partitions; `ended` gets the outcome.

        False: another thread is committing.
        """
        with self._turn.within(0) as mine:
            partitions = self._local.partitions() if mine else []
            places = self._uncommitted(session, partitions)
            try:
                if places:
                    session.begin_commit(places)
            except BaseException:
                for partition in partitions:
                    partition.committed = None, ""
                raise
            return mine

    def ended(
        self, session: Session | None, error: KafkaError | None, positions: list[TopicPartition]
    ) -> None:
        """A commit of `begin` has ended. If it failed, the next one repeats it."""
        failures = [place.error for place in positions if place.error is not None]
        failure = error or (failures[0] if failures else None)
        if failure is None:
            self._confirm(positions)
            return
        for partition in self._local.partitions():
            partition.committed = None, ""
        code = failure.name().lstrip("_")
        text = f"{self._measures}: committing offsets failed, trying again: {failure.str()}"
        now = time.monotonic()
        if code == _TOO_LARGE:
            self._shorten()
        elif code in _REBALANCING or session is None or session.was_cut_off():
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
        """The broker accepts less metadata: list fewer ranges."""
        self.metadata_max = self.metadata_max // 2 if self.metadata_max > 50 else 0

    def _uncommitted(
        self, session: Session, partitions: Iterable[Partition]
    ) -> list[TopicPartition]:
        """The offsets that are not committed yet; they count as committed from now on."""
        places = []
        for partition in partitions:
            offset, ranges, _ = self._local.progress(partition)
            if offset is None:
                continue
            metadata, _ = encode(offset, ranges, self.metadata_max)
            if partition.committed != (offset, metadata):
                partition.committed = offset, metadata
                place = TopicPartition(session.topic, partition.number, offset, metadata=metadata)
                places.append(place)
        return places


class _Turn:
    """A lock that keeps commits in order. Reentrant for signal handlers."""

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
        """Wait up to `timeout` s for the turn, but not for a thread that waits for this one.

        Yields whether this thread may commit.
        """
        deadline = time.monotonic() + timeout
        mine = self._lock.acquire(blocking=False)
        free = mine
        while not free and time.monotonic() < deadline:
            free = waits_for_me(self._owner)
            if not free:
                free = mine = self._lock.acquire(timeout=_LOOK_S)
        try:
            if mine:
                self._owner = threading.get_ident()
            yield free
        finally:
            if mine:
                self._lock.release()
