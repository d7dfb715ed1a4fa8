"""Producers that stay open in a worker from task to task.

Spark keeps its Python workers, and their modules, for the tasks to come; connecting and asking for
metadata anew would cost each of them some 10 ms and more. Whoever borrows a producer has it alone.
It goes back when all went well, and is closed when anything went wrong: the next task begins anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from cykafka import KafkaError, KafkaException, Producer

__all__ = ["Borrowed", "ProducerPool", "borrowed_producer"]

# As many stay open in a worker; each has a connection and a thread for every broker it talks to.
MAX_OPEN = 4


class Borrowed:
    """A producer, and what its connections complained of last.

    Attributes
    ----------
    producer : Producer
    complaint : KafkaError or None
        Of the connections; None after a task that went well.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.complaint: KafkaError | None = None
        self._armed = False
        self.producer = Producer({**config, "error_cb": self._complain})

    def _complain(self, error: KafkaError) -> None:
        self.complaint = error
        # The JVM client gives up at once, too: waiting would end in a timeout that tells less.
        if self._armed and error.code() == KafkaError._AUTHENTICATION:
            raise KafkaException(error)

    def arm(self) -> None:
        """Forget what was said between two tasks; from now on it counts."""
        self._armed = False
        self.producer.poll(0)
        self.complaint = None
        self._armed = True

    def discard(self) -> None:
        """Close it without waiting for what is in flight."""
        self._armed = False
        self.producer.purge()
        self.producer.close()


class ProducerPool:
    """The producers of this process, by their configuration."""

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._open: list[tuple[frozenset[tuple[str, str]], Borrowed]] = []

    @contextmanager
    def borrowed(self, config: Mapping[str, str]) -> Iterator[Borrowed]:
        """A producer for the block, which nobody else has meanwhile."""
        key = frozenset(config.items())
        borrowed = self._take(key) or Borrowed(config)
        try:
            borrowed.arm()
            yield borrowed
        except BaseException:
            borrowed.discard()
            raise
        for old in self._give_back(key, borrowed):
            old.discard()

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            self._forget_the_parents()
            left, self._open = self._open, []
        for _, borrowed in left:
            borrowed.discard()

    def __len__(self) -> int:
        return len(self._open)

    def _take(self, key: frozenset[tuple[str, str]]) -> Borrowed | None:
        with self._lock:
            self._forget_the_parents()
            for place, (found, borrowed) in enumerate(self._open):
                if found == key:
                    del self._open[place]
                    return borrowed
        return None

    def _give_back(self, key: frozenset[tuple[str, str]], borrowed: Borrowed) -> list[Borrowed]:
        with self._lock:
            self._open.append((key, borrowed))
            old, self._open = self._open[: -self._limit], self._open[-self._limit :]
        return [each for _, each in old]

    def _forget_the_parents(self) -> None:
        # A forked child cannot use the handles it inherits, nor close them.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._open = []


_pool = ProducerPool()


def borrowed_producer(config: Mapping[str, str]) -> AbstractContextManager[Borrowed]:
    """A producer of this worker for a block; see `ProducerPool.borrowed`."""
    return _pool.borrowed(config)
