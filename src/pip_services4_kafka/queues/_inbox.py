"""The open parts of a queue's receiving side: at most one subscription, listeners, dead letters.

The lock is held while a consumer is created, never while a receiver runs or a thread is joined.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from pip_services4_commons.errors import InvalidStateException

from .._errors import not_opened
from ..connect._reader import reader_of
from ..connect.KafkaConnection import KafkaConnection
from ..connect.KafkaSubscription import KafkaSubscription
from ._beginning import ensure_topic
from ._consuming import Consuming
from ._dead_letters import DeadLetters
from ._listening import Listening
from ._measures import Measures


class Inbox:
    """The receiving side of a queue. It lives as long as the queue, through open() and close().

    Parameters
    ----------
    queue : KafkaMessageQueue
        The listener of subscriptions, and the receivers' second argument.
    measures : Measures
    """

    def __init__(self, queue: Any, measures: Measures) -> None:
        self._queue = queue
        self._measures = measures
        self._lock = threading.RLock()
        self._connection: KafkaConnection | None = None
        self._parting: KafkaConnection | None = None  # while close() waits for receivers
        self._dead_letter_topic = ""
        self._consuming: Consuming | None = None
        self._ending: Consuming | None = None  # during close()
        self._known: list[Consuming] = []  # their readers may still call
        self._dead_letters: DeadLetters | None = None
        self._listenings: list[Listening] = []

    def open(self, connection: KafkaConnection, dead_letter_topic: str) -> None:
        """Set the connection. This does not subscribe."""
        with self._lock:
            self._connection = connection
            self._dead_letter_topic = dead_letter_topic

    # Subscriptions

    def subscribe(self, topic: str, group: str | None, options: dict[str, Any]) -> None:
        """Subscribe, unless there is a subscription.

        Raises
        ------
        ApplicationException
        """
        with self._lock:
            connection = self._connection
            if connection is None:
                raise self._not_opened()
            if self.subscribed():
                return
            reader = connection._subscribe(topic, group, options, self._queue)
            self._adopt(reader.subscription)

    def _adopt(self, subscription: KafkaSubscription) -> Consuming | None:
        consuming = self._consuming or self._queue._new_consuming()
        if consuming.subscription is not None:
            text = (
                f"Queue {self._queue.get_name()} receives from its first subscription only, and "
                f"ignores the one to topic {subscription.topic}"
            )
            self._measures.warn(None, text)
            return None
        consuming.subscription, consuming.reader = subscription, reader_of(subscription)
        self._known.append(consuming)
        self._consuming = consuming
        return consuming

    def subscribed(self) -> bool:
        """Whether there is a subscription."""
        consuming = self._consuming
        return consuming is not None and consuming.reader is not None

    def consuming(self) -> Consuming | None:
        """The current Consuming, or None."""
        return self._consuming

    def in_hand(self) -> Consuming | None:
        """The Consuming with the messages of running receivers, also while close() waits."""
        return self._consuming or self._ending

    def receiving(self) -> Consuming:
        """The current Consuming; creates one for a subclass that subscribes by itself.

        Raises
        ------
        InvalidStateException
            NOT_OPENED: the queue was closed meanwhile.
        """
        with self._lock:
            if self._connection is None:
                raise self._not_opened()
            if self._consuming is None:
                self._consuming = self._queue._new_consuming()
            return self._consuming

    def of(self, subscription: KafkaSubscription) -> Consuming | None:
        """The Consuming of a subscription, also while the subscription ends."""
        for consuming in list(self._known):
            if consuming.subscription is subscription:
                return consuming
        return None

    def begun(self, subscription: KafkaSubscription) -> None:
        """A subscription started, by subscribe() or by a subclass."""
        with self._lock:  # subscribe() may be running
            if self._connection is not None and self.of(subscription) is None:
                self._adopt(subscription)

    def ended(self, subscription: KafkaSubscription) -> bool:
        """The reader of a subscription has ended. True: this queue did not request that."""
        with self._lock:
            consuming = self.of(subscription)
            if consuming is None:
                return False
            self._known.remove(consuming)
        consuming.closed()
        if self._consuming is consuming:
            self._consuming = None
            return True
        return False

    # Listening

    def listening(self, consuming: Consuming, receiver: Any) -> Listening:
        """Create a Listening. The caller calls its `run`, or its `end` instead."""
        listening = Listening(
            consuming.buffer,
            self._queue,
            receiver,
            consuming.settings.read_partitions,
            consuming.failed,
            self._ended_listening,
        )
        with self._lock:
            self._listenings.append(listening)
            self._queue._receiver = receiver
        return listening

    def _ended_listening(self, listening: Listening) -> None:
        with self._lock:
            self._listenings.remove(listening)
            if not self._listenings:
                self._queue._receiver = None

    def end_listening(self) -> None:
        """End all listening and wait for running receivers, unless the caller is one of them."""
        with self._lock:
            listenings = list(self._listenings)
        for listening in listenings:
            listening.stop()
        # Two receivers that waited for each other would never return.
        if not any(listening.is_mine() for listening in listenings):
            for listening in listenings:
                listening.wait()

    # Dead letters

    def dead_letters(self) -> DeadLetters:
        """The dead letter topic. Running receivers can use it while close() waits for them."""
        with self._lock:
            connection = self._connection or self._parting
            if connection is None:
                raise self._not_opened()
            if self._dead_letters is None:
                self._dead_letters = DeadLetters(
                    connection,
                    self._dead_letter_topic,
                    lambda name: ensure_topic(connection, name),
                    self._not_opened,
                )
            return self._dead_letters

    def _not_opened(self) -> InvalidStateException:
        return not_opened(self._queue.get_name())

    # The end

    def close(self) -> None:
        """End listening and the subscription; commit finished messages. Idempotent."""
        with self._lock:
            if self._consuming is not None:
                # First of all: messages that the buffer refuses from now on count as not seen.
                self._consuming.buffer.close()
            connection, self._connection = self._connection, None
            consuming, self._consuming = self._consuming, None
            self._ending, self._parting = consuming, connection
            listenings = list(self._listenings)
        # Wait for the receivers even if the connection is already closed.
        timeout = connection._request_timeout / 1000 if connection is not None else 0
        deadline = time.monotonic() + timeout
        try:
            for listening in listenings:
                if not listening.wait(max(0, deadline - time.monotonic())):
                    told = (
                        f"Queue {self._queue.get_name()}: close() did not wait longer than "
                        f"{timeout:g} s for a receiver, which is still running"
                    )
                    self._measures.warn(None, told)
        finally:  # even if the wait was interrupted: a running reader would keep its partitions
            try:
                self._end(consuming, connection)
            finally:
                with self._lock:
                    self._ending = self._parting = None
                    dead_letters, self._dead_letters = self._dead_letters, None
                if dead_letters is not None:
                    dead_letters.close()

    def _end(self, consuming: Consuming | None, connection: KafkaConnection | None) -> None:
        # A subclass may have subscribed by itself.
        if connection is not None:
            for each in list(connection._subscriptions):
                if (listener := each.listener) is self._queue and listener is not None:
                    connection.unsubscribe(str(each.topic), each.group_id, listener)
        if consuming is not None:
            consuming.last_gauges()
