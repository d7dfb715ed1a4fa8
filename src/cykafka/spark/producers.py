"""Producers that stay open in a worker from task to task.

Spark reuses its Python workers and their modules for later tasks. Each new producer would cost a
task 10 ms or more for connections and metadata. One task at a time borrows a producer. After a
success the producer returns to the pool; after an error it is closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cykafka import KafkaError, KafkaException, Producer
from cykafka.spark.row_order import PartitionCounts

__all__ = ["Borrowed", "ProducerPool", "keeping", "take"]

# Producers that stay open in a worker. Each has a connection and a thread for every broker.
MAX_OPEN = 8
# Timeout for the abort of a failed transaction, s.
ABORT_S = 5.0


class Borrowed:
    """A producer and the last error of its connections.

    Attributes
    ----------
    producer : Producer
    complaint : KafkaError or None
        The connections' last error during this task.
    counts : PartitionCounts
    notes : object
        Anything that the borrower keeps for the next one; None at first.
    spent : bool
        Close the producer after this task, even after a success.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.complaint: KafkaError | None = None
        self.notes: object = None
        self.spent = False
        self._armed = False
        self.producer = Producer({**config, "error_cb": self._complain})
        self.counts = PartitionCounts(self.producer)

    def _complain(self, error: KafkaError) -> None:
        # "All brokers are down" must not replace the error that says why.
        if self.complaint is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.complaint = error
        # Fail at once, like the JVM client: a later timeout would not name the cause.
        if self._armed and error.code() == KafkaError._AUTHENTICATION:
            raise KafkaException(error)

    def arm(self) -> None:
        """Drop the errors since the last task. Later errors belong to this task."""
        self._armed = False
        self.producer.poll(0)
        self.complaint = None
        self._armed = True

    def discard(self, wait: bool = True) -> None:
        """Purge the records in flight and close the producer.

        If a transaction is open and cannot be aborted, `close` takes long. With ``wait=False`` it
        runs in a thread.
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
        """Lend a producer of this configuration; end the loan with `keeping`."""
        borrowed = self._take(frozenset(config.items())) or Borrowed(config)
        borrowed.arm()
        return borrowed

    @contextmanager
    def keeping(self, config: Mapping[str, str], borrowed: Borrowed) -> Iterator[None]:
        """Take the producer back after the block. If the block raises, close the producer."""
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
        """Close the producers in the pool."""
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
        # A forked child can neither use nor close the handles it inherits.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._open = []


def _abort(borrowed: Borrowed, config: Mapping[str, str]) -> bool:
    """Abort the transaction of a failed task. False: it may still be open."""
    if "transactional.id" not in config:
        return True
    try:
        borrowed.producer.abort_transaction(ABORT_S)
    except KafkaException as exception:
        error = exception.args[0]
        # No transaction was begun, or a newer producer has ended it.
        return bool(error.fatal() or error.code() == KafkaError._STATE)
    return True


_pool = ProducerPool()
take = _pool.take
keeping = _pool.keeping
