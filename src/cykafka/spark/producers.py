"""Producers that stay open in a worker from task to task.

Spark keeps its Python workers, and their modules, for the tasks to come; connecting and asking for
metadata anew would cost each of them some 10 ms and more. Whoever borrows a producer has it alone.
It goes back when all went well, and is closed when anything went wrong: the next task begins anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cykafka import KafkaError, KafkaException, Producer

__all__ = ["Borrowed", "ProducerPool", "keeping", "take"]

# As many stay open in a worker; each has a connection and a thread for every broker it talks to.
MAX_OPEN = 8
# How long a transaction that has failed is tried to be aborted, s.
ABORT_S = 5.0


class Borrowed:
    """A producer, and what its connections complained of last.

    Attributes
    ----------
    producer : Producer
    complaint : KafkaError or None
        Of the connections, during this task.
    notes : object
        What whoever borrows it wants to know the next time; None at first.
    spent : bool
        It is to be closed, though all went well.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.complaint: KafkaError | None = None
        self.notes: object = None
        self.spent = False
        self._armed = False
        self.producer = Producer({**config, "error_cb": self._complain})

    def _complain(self, error: KafkaError) -> None:
        # That all brokers are down says less than why.
        if self.complaint is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
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

    def discard(self, wait: bool = True) -> None:
        """Close it without waiting for what is in flight.

        With a transaction open that cannot be aborted even this takes its time: do not wait then.
        """
        self._armed = False
        self.producer.purge()
        if wait:
            self.producer.close()
        else:
            threading.Thread(target=self.producer.close, daemon=True).start()


class ProducerPool:
    """The producers of this process, by their configuration."""

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._open: list[tuple[frozenset[tuple[str, str]], Borrowed]] = []

    def take(self, config: Mapping[str, str]) -> Borrowed:
        """A producer, which nobody else has until it was given back."""
        borrowed = self._take(frozenset(config.items())) or Borrowed(config)
        borrowed.arm()
        return borrowed

    @contextmanager
    def keeping(self, config: Mapping[str, str], borrowed: Borrowed) -> Iterator[None]:
        """Take it back when the block is over; one whose block raised is closed."""
        try:
            yield
        except BaseException:
            borrowed.discard(wait=_abort(borrowed, config))
            raise
        if borrowed.spent:
            borrowed.discard()
            return
        for old in self._give_back(frozenset(config.items()), borrowed):
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


def _abort(borrowed: Borrowed, config: Mapping[str, str]) -> bool:
    """End the transaction of a task that failed; False if that takes too long."""
    if "transactional.id" not in config:
        return True
    try:
        borrowed.producer.abort_transaction(ABORT_S)
    except KafkaException as exception:
        error = exception.args[0]
        # None was begun, or a younger producer has ended it.
        return bool(error.fatal() or error.code() == KafkaError._STATE)
    return True


_pool = ProducerPool()
take = _pool.take
keeping = _pool.keeping
