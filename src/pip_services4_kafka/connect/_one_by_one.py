"""Handles a batch message by message, in the session's thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection

from cykafka import KafkaError, KafkaException, Message, MessageBatch
from cykafka.internal import kafka_error

from ._session import Handler, Session
from .IKafkaMessageListener import IKafkaMessageListener

# After this many seconds the session polls the consumer between two messages.
SERVE_S = 0.5


class MessageLoop:
    """Passes messages to a function until the session stops.

    Every SERVE_S it polls the consumer between two messages. So the consumer of a slow function
    stays in the group, and rebalances do not wait for a whole batch.
    """

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()

    def run(
        self,
        session: Session,
        batch: MessageBatch,
        handle: Callable[[Message], object],
        polled: Callable[[], object] = lambda: None,
    ) -> None:
        """Call `handle` per message and `polled` per poll. If the session stops, drop the rest."""
        waiting = self._waiting
        waiting.extend(batch)
        served = time.monotonic()
        try:
            while waiting and session.continues() and waiting:
                handle(waiting.popleft())
                if time.monotonic() - served > SERVE_S:
                    waiting.extend(session.poll_once())
                    polled()
                    served = time.monotonic()
        finally:
            waiting.clear()

    def drop(self, partitions: Collection[int]) -> None:
        """Drop the waiting messages of these partitions."""
        if self._waiting:
            kept = [item for item in self._waiting if item.partition() not in partitions]
            self._waiting.clear()
            self._waiting.extend(kept)


class OneByOne(Handler):
    """Calls `on_message` once per message and stores the offset when the call returns.

    Parameters
    ----------
    listener : IKafkaMessageListener
    failed : callable
        Called with every exception that the listener raises.
    """

    def __init__(
        self, listener: IKafkaMessageListener, failed: Callable[[BaseException], object]
    ) -> None:
        self._listener = listener
        self._failed = failed
        self._session: Session | None = None
        self._loop = MessageLoop()
        self._sought: set[int] = set()  # partitions that were sought during the listener's call

    def started(self, session: Session) -> None:
        self._session = session

    def batch(self, batch: MessageBatch) -> None:
        """Pass a batch to the listener. If the session stops, the other messages stay unread."""
        assert self._session is not None
        self._loop.run(self._session, batch, self._handle)

    def _handle(self, message: Message) -> None:
        self._sought.clear()
        try:
            self._listener.on_message(str(message.topic()), int(message.partition() or 0), message)
        except BaseException as error:  # raised by the listener; the next message follows
            self._failed(error)
        else:
            if message.partition() not in self._sought and self._session is not None:
                _store(self._session, message)

    def sought(self, partition: int) -> None:
        """Drop the partition's waiting messages, and do not store the current one's offset."""
        self._sought.add(partition)
        self._loop.drop({partition})

    def revoked(self, partitions: list[int]) -> None:
        """Drop the waiting messages of these partitions."""
        self._loop.drop(partitions)

    lost = revoked


def _store(session: Session, message: Message) -> None:
    try:
        session.consumer.store_offsets(message=message)
    except KafkaException as error:
        known = kafka_error(error)
        if known is None or known.code() != KafkaError._STATE:  # _STATE: no longer assigned
            raise
