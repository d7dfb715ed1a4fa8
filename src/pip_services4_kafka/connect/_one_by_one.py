"""Delivery of batches to a listener message by message, in the reader's thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection

from cykafka import Consumer, KafkaError, KafkaException, Message, MessageBatch
from pip_services4_kafka._errors import kafka_error
from pip_services4_kafka.connect.IKafkaMessageListener import IKafkaMessageListener

# How long listener calls may take before the reader polls the consumer in between, s.
SERVE_S = 0.5


class OneByOne:
    """Calls `on_message` for each message and stores its offset when the call returns.

    Parameters
    ----------
    listener : IKafkaMessageListener
    failed : callable
        Called with each exception that the listener raises.
    """

    def __init__(
        self, listener: IKafkaMessageListener, failed: Callable[[Exception], object]
    ) -> None:
        self._listener = listener
        self._failed = failed
        self._waiting: deque[Message] = deque()  # not handed to the listener yet
        self._sought: set[int] = set()  # partitions that the listener's current call has sought

    def hand_over(
        self,
        consumer: Consumer,
        batch: MessageBatch,
        go_on: Callable[[], bool],
        serve: Callable[[], MessageBatch],
    ) -> None:
        """Hand over a batch until `go_on` returns False. The remaining messages count as unread.

        Between messages, `serve` polls the consumer every SERVE_S and returns the new messages.
        So a slow listener stays in the group, and rebalances do not wait for the whole batch.
        """
        waiting = self._waiting
        waiting.extend(batch)
        served = time.monotonic()
        try:
            while waiting and go_on():
                message = waiting.popleft()
                self._sought.clear()
                try:
                    self._listener.on_message(
                        str(message.topic()), int(message.partition() or 0), message
                    )
                except Exception as error:  # raised by the listener; the next message follows
                    self._failed(error)
                else:
                    if message.partition() not in self._sought:
                        _store(consumer, message)
                if time.monotonic() - served > SERVE_S:
                    waiting.extend(serve())
                    served = time.monotonic()
        finally:
            waiting.clear()

    def seek(self, partition: int) -> None:
        """Drop the partition's waiting messages, and do not store the current one's offset."""
        self._sought.add(partition)
        self.drop({partition})

    def drop(self, partitions: Collection[int]) -> None:
        """Drop the waiting messages of these partitions."""
        if self._waiting:
            kept = [each for each in self._waiting if each.partition() not in partitions]
            self._waiting.clear()
            self._waiting.extend(kept)


def _store(consumer: Consumer, message: Message) -> None:
    try:
        consumer.store_offsets(message=message)
    except KafkaException as error:
        known = kafka_error(error)
        if known is None or known.code() != KafkaError._STATE:  # _STATE: no longer assigned
            raise
