"""Producers that stay open in a worker from task to task.

Spark reuses its Python workers and their modules for later tasks. A new producer costs a task
10 ms or more for connections and metadata. One task at a time borrows a producer. After a
successful task the producer returns to the pool; after an error the pool closes it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cykafka import KafkaError, KafkaException, Producer
from cykafka.spark.clients.properties import fit_to_memory

__all__ = ["Borrowed", "PartitionCounts", "ProducerPool", "borrow_producer", "return_producer"]

# Producers that stay open in a worker. Each has one connection and one thread per broker.
MAX_OPEN = 8
# Timeout for aborting a failed transaction, s.
ABORT_S = 5.0
# librdkafka's default of topic.metadata.refresh.interval.ms, s.
_REFRESH_S = 300.0
# Timeout for requesting a topic's partitions, s. Without a response, rows keep their order.
_METADATA_S = 5.0
_NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)


class PartitionCounts:
    """Partition counts per topic, as known to a producer."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._found: dict[str, tuple[int, float]] = {}

    def of(self, topic: str) -> int:
        """Return a topic's partition count, at most five minutes old, or 0 if it is unknown."""
        count, until = self._found.get(topic, (0, 0.0))
        if time.monotonic() < until:
            return count
        try:
            metadata = self._producer.list_topics(topic, _METADATA_S)
            count = len(metadata.topics[topic].partitions)
        except KafkaException as error:
            if error.args[0].code() not in _NO_ANSWER:
                raise
            count = 0
        self._found[topic] = count, time.monotonic() + _REFRESH_S
        return count


class Borrowed:
    """A producer and the last error of its connections.

    Attributes
    ----------
    producer : Producer
    complaint : KafkaError or None
        The connections' last error during this task.
    counts : PartitionCounts
    notes : object
        Anything that the borrower keeps for the next borrower; None at first.
    spent : bool
        Close the producer after this task, even if the task succeeds.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self.complaint: KafkaError | None = None
        self.notes: object = None
        self.spent = False
        self._armed = False
        config = fit_to_memory(config, "queue.buffering.max.kbytes")
        self.producer = Producer({**config, "error_cb": self._keep_error})
        self.counts = PartitionCounts(self.producer)

    def _keep_error(self, error: KafkaError) -> None:
        # "All brokers are down" must not replace the error that states the reason.
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

        Closing takes long if a transaction is open and cannot be aborted. With ``wait=False``
        a thread closes the producer.
        """
        self._armed = False
        self.producer.purge()
        if wait:
            self.producer.close()
        else:
            threading.Thread(target=self.producer.close, daemon=True).start()


class ProducerPool:
    """This process's producers, by configuration."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._open: list[tuple[frozenset[tuple[str, str]], Borrowed]] = []

    def borrow_producer(self, config: Mapping[str, str]) -> Borrowed:
        """Lend a producer with this configuration. Return it with `return_producer`."""
        key = frozenset(config.items())
        with self._lock:
            self._drop_inherited()
            found = next((pair for pair in self._open if pair[0] == key), None)
            if found is not None:
                self._open.remove(found)
        borrowed = Borrowed(config) if found is None else found[1]
        borrowed.arm()
        return borrowed

    @contextmanager
    def return_producer(self, config: Mapping[str, str], borrowed: Borrowed) -> Iterator[None]:
        """Take the producer back after the block. If the block raises, close the producer."""
        try:
            yield
        except BaseException:
            borrowed.discard(wait=_abort(borrowed, config))
            raise
        if borrowed.spent:
            borrowed.discard()
            return
        with self._lock:
            self._open.append((frozenset(config.items()), borrowed))
            old, self._open = self._open[:-MAX_OPEN], self._open[-MAX_OPEN:]
        for _, other in old:
            other.discard()

    def close(self) -> None:
        """Close the producers in the pool."""
        with self._lock:
            self._drop_inherited()
            left, self._open = self._open, []
        for _, borrowed in left:
            borrowed.discard()

    def __len__(self) -> int:
        return len(self._open)

    def _drop_inherited(self) -> None:
        # A forked child can neither use nor close the handles it inherits.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._open = []


def _abort(borrowed: Borrowed, config: Mapping[str, str]) -> bool:
    """Abort a failed task's transaction. Returns False if the transaction may still be open."""
    if "transactional.id" not in config:
        return True
    try:
        borrowed.producer.abort_transaction(ABORT_S)
    except KafkaException as exception:
        error = exception.args[0]
        # The task never began a transaction, or a newer producer has ended it.
        return bool(error.fatal() or error.code() == KafkaError._STATE)
    return True


_pool = ProducerPool()
borrow_producer = _pool.borrow_producer
return_producer = _pool.return_producer
