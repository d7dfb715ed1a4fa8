"""The capacity of the local queue for each partition, and when to pause a partition."""

from __future__ import annotations

import threading
import time

from ._partition import Partition


class Room:
    """The partitions of a local queue, and the room for their messages.

    Only the reader's thread pauses and resumes, because it alone fetches.

    Parameters
    ----------
    max_pending : int
        The most unfinished messages of a partition, and the most waiting messages of all
        partitions together.
    """

    def __init__(self, max_pending: int) -> None:
        self._max_pending = max_pending
        # Reentrant, because a signal handler may close the queue in the thread that holds it.
        self._lock = threading.RLock()
        self._drained = threading.Condition(self._lock)  # there may be room
        self._partitions: dict[int, Partition] = {}
        self._room_wanted = False
        self._closed = False

    def _share(self) -> int:
        return max(1, self._max_pending // max(1, len(self._partitions)))

    def _is_full(self, partition: Partition, share: int) -> bool:
        return partition.buffered >= share or partition.pending >= self._max_pending

    def _has_room(self, partition: Partition, share: int) -> bool:
        low = share // 2
        return partition.buffered <= low and partition.pending <= self._max_pending - share + low

    def _note_room(self, partition: Partition) -> None:
        """Wake the reader if it waits for room and this partition has some."""
        if self._room_wanted and self._has_room(partition, self._share()):
            self._room_wanted = False
            self._drained.notify_all()

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
                    p
                    for p in self._partitions.values()
                    if not p.paused and self._is_full(p, share)
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
            share = self._share()
            found = [p for p in self._partitions.values() if p.paused and self._has_room(p, share)]
            for partition in found:
                partition.paused = False
            return found
