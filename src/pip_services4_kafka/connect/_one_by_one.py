"""Batches for a listener that takes one message at a time, in the thread of its reader."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection

from cykafka import Consumer, KafkaError, KafkaException, Message, MessageBatch
from pip_services4_kafka._errors import kafka_error
from pip_services4_kafka.connect.IKafkaMessageListener import IKafkaMessageListener

# How long a listener may take until the group hears that the reader is alive, s.
SERVE_S = 0.5


class OneByOne:
    """Calls `on_message` and stores the offset when that has returned.

    Parameters
    ----------
    listener : IKafkaMessageListener
    failed : callable
        Hears of its exceptions.
    """

    def __init__(
        self, listener: IKafkaMessageListener, failed: Callable[[Exception], object]
    ) -> None:
        self._listener = listener
        self._failed = failed
        self._waiting: deque[Message] = deque()  # what the listener has not seen yet
        self._sought: set[int] = set()  # where it has asked for other messages

    def hand_over(
        self,
        consumer: Consumer,
        batch: MessageBatch,
        go_on: Callable[[], bool],
        serve: Callable[[], MessageBatch],
    ) -> None:
        """Hand over a batch; what is left when `go_on` says no does not count as read.

        A slow listener keeps its place in the group, and rebalances do not wait for it: `serve` is
        called now and then, and brings what came with it.
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
                except Exception as error:  # the listener's: the next message comes
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
        """The partition is read from somewhere else now."""
        self._sought.add(partition)
        self.drop({partition})

    def drop(self, partitions: Collection[int]) -> None:
        """Forget what waits of these partitions."""
        if self._waiting:
            kept = [each for each in self._waiting if each.partition() not in partitions]
            self._waiting.clear()
            self._waiting.extend(kept)


def _store(consumer: Consumer, message: Message) -> None:
    try:
        consumer.store_offsets(message=message)
    except KafkaException as error:
        known = kafka_error(error)
        if known is None or known.code() != KafkaError._STATE:  # not assigned any more
            raise
