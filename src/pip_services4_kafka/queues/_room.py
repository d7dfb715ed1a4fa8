"""How much of a partition may wait in the local queue, and when it is paused."""

from __future__ import annotations

import threading
import time

from ._partition import Partition


class Room:
    """The partitions of a local queue, and the room there is for them.

    The reader's thread pauses and resumes, since only it knows what is on its way.

    Parameters
    ----------
    max_pending : int
        How many messages of a partition may be unfinished; as many may wait of all partitions.
    """

    def __init__(self, max_pending: int) -> None:
        self._max_pending = max_pending
        # Reentrant: a signal handler may close the queue in the thread that holds it.
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
        """The reader waits for room, and there may be some now."""
        if self._room_wanted and self._has_room(partition, self._share()):
            self._room_wanted = False
            self._drained.notify_all()

    def wait_for_room(self, timeout: float) -> list[Partition]:
        """Wait up to `timeout` s until no partition is full; those that still are, and are now
        paused.

        A pause throws away what librdkafka has fetched ahead, so a short wait is the better one.
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
        """Paused partitions that have room again, and are now resumed."""
        with self._lock:
            share = self._share()
            found = [p for p in self._partitions.values() if p.paused and self._has_room(p, share)]
            for partition in found:
                partition.paused = False
            return found
