"""Messages nobody can handle: to the dead letter topic, with where they come from and why."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from cykafka import DeliveryError, KafkaException, Message, Producer, TopicPartition

from .._errors import kafka_error, typed

_Headers = list[tuple[str, bytes | None]]


class DeadLetters:
    """The dead letter topic of a queue.

    Parameters
    ----------
    connection : KafkaConnection
    topic : str
    ensure : callable
        Creates a topic that is missing.
    not_opened : callable
        The exception for who comes when the queue is closed.
    """

    def __init__(
        self,
        connection: Any,
        topic: str,
        ensure: Callable[[str], None],
        not_opened: Callable[[], Exception],
    ) -> None:
        self._connection = connection
        self.topic = topic
        self._ensure = ensure
        self._not_opened = not_opened
        # One transaction at a time; reentrant: a signal handler may close the queue in its thread.
        self._lock = threading.RLock()
        self._exists = False
        self._producer: Producer | None = None
        self._closed = False

    def _prepare(self) -> None:
        if not self._exists:
            self._ensure(self.topic)
            self._exists = True

    def send(self, message: Message, error: str, attempts: int) -> None:
        """Send a message, and return when all replicas have it.

        Parameters
        ----------
        message : Message
            As it was consumed: key, value and headers are sent unchanged.
        error : str
            What was wrong with it.
        attempts : int
            How many attempts to handle it failed.
        """
        self._prepare()
        producer = self._connection._publisher(-1)
        began = time.monotonic()
        try:
            delivery = self._publish(producer, message, error, attempts)
        except RuntimeError as raised:  # the connection is being closed
            told = f"topic {self.topic}: moving a dead letter"
            raise typed(raised, told, topic=self.topic) from raised
        self._connection._settle(delivery, self.topic, began)

    def send_and_commit(
        self, message: Message, error: str, attempts: int, position: int, group: bytes
    ) -> None:
        """Send a message and commit `position` for its partition: both or nothing.

        Parameters
        ----------
        message, error, attempts
            As of `send`.
        position : int
            The offset of the next message to read.
        group : bytes
            What the consumer's consumer_group_metadata() gave.
        """
        self._prepare()
        timeout = self._connection._request_timeout / 1000
        place = TopicPartition(str(message.topic()), int(message.partition() or 0), position)
        try:
            with self._lock:
                try:
                    producer = self._transactional(timeout)
                    producer.begin_transaction()
                    try:
                        delivery = self._publish(producer, message, error, attempts)
                        delivery.wait(timeout)
                        producer.send_offsets_to_transaction([place], group, timeout)
                        producer.commit_transaction(timeout)
                    except BaseException:
                        self._abort(producer, timeout)
                        raise
                except (KafkaException, RuntimeError, TimeoutError) as raised:
                    raise typed(
                        raised, f"topic {self.topic}: moving a dead letter", topic=self.topic
                    ) from raised
        finally:
            if self._closed:  # close() has left the producer to this thread
                self.close()

    def _abort(self, producer: Producer, timeout: float) -> None:
        try:
            producer.abort_transaction(timeout)
        except (KafkaException, RuntimeError):
            self._drop()  # fatal: the next transaction begins with another producer

    def _transactional(self, timeout: float) -> Producer:
        if self._closed:
            raise self._not_opened()
        if self._producer is None:
            producer = self._connection._make_transactional(f"dead-letters-{uuid.uuid4()}")
            try:
                producer.init_transactions(timeout)
            except BaseException:
                producer.close()
                raise
            self._producer = producer
        return self._producer

    def _publish(self, producer: Producer, message: Message, error: str, attempts: int) -> Any:
        told: _Headers = [
            ("dlq_topic", str(message.topic()).encode()),
            ("dlq_partition", str(message.partition()).encode()),
            ("dlq_offset", str(message.offset()).encode()),
            ("dlq_error", error.encode(errors="replace")),
            ("dlq_attempts", str(attempts).encode()),
        ]
        headers = [*(message.headers() or []), *told]
        try:
            return producer.publish(
                self.topic, [message.value()], keys=[message.key()], headers=[headers]
            )
        except KafkaException as raised:
            if isinstance(raised, DeliveryError) or kafka_error(raised) is None:
                raise
            raise typed(raised, f"topic {self.topic}: publish", topic=self.topic) from raised

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def close(self) -> None:
        """Close the producer for transactions; of one at work, when that is through."""
        self._closed = True  # who was on the way to a transaction makes no other one
        if self._lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._lock.release()
