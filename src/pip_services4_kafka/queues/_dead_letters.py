"""The dead letter topic: failed messages, with their origin and their error."""

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
        Creates a topic if it is missing.
    not_opened : callable
        Makes the exception for calls on a closed queue.
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
        # One transaction at a time. Reentrant, because a signal handler in the same thread may
        # close the queue.
        self._lock = threading.RLock()
        self._exists = False
        self._producer: Producer | None = None
        self._closed = False

    def _prepare(self) -> None:
        if not self._exists:
            self._ensure(self.topic)
            self._exists = True

    def send(self, message: Message, error: str, attempts: int) -> None:
        """Send a message, and return when all in-sync replicas have stored it.

        Parameters
        ----------
        message : Message
            The consumed message. Its key, value and headers are sent unchanged.
        error : str
            The reason of the failure.
        attempts : int
            The number of failed attempts.
        """
        self._prepare()
        producer = self._connection._publisher(-1)
        began = time.monotonic()
        try:
            delivery = self._publish(producer, message, error, attempts)
        except RuntimeError as raised:  # another thread closes the connection
            told = f"topic {self.topic}: cannot send a dead letter"
            raise typed(raised, told, topic=self.topic) from raised
        self._connection._settle(delivery, self.topic, began)

    def send_and_commit(
        self, message: Message, error: str, attempts: int, position: int, group: bytes
    ) -> None:
        """Send a message and commit `position` for its partition, in one transaction.

        Parameters
        ----------
        message, error, attempts
            See `send`.
        position : int
            The offset of the next message to read.
        group : bytes
            The result of the consumer's consumer_group_metadata().
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
                        raised, f"topic {self.topic}: cannot send a dead letter", topic=self.topic
                    ) from raised
        finally:
            if self._closed:  # close() left the producer to this thread
                self.close()

    def _abort(self, producer: Producer, timeout: float) -> None:
        try:
            producer.abort_transaction(timeout)
        except (KafkaException, RuntimeError):
            self._drop()  # a fatal error: the next transaction uses a new producer

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
            raise typed(
                raised, f"topic {self.topic}: publish failed", topic=self.topic
            ) from raised

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def close(self) -> None:
        """Close the transactional producer. If a transaction runs, its thread closes it later."""
        self._closed = True  # no thread begins another transaction
        if self._lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._lock.release()
