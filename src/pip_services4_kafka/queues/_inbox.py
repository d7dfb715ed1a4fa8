"""What a queue has open for receiving: a subscription at most, those who listen, the dead letters.

Its lock is held while a consumer is made, never while a receiver runs or a thread is joined.
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
    """The receiving side of a queue through its lives.

    Parameters
    ----------
    queue : KafkaMessageQueue
        The listener of subscriptions, and what receivers get.
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
        self._ending: Consuming | None = None  # while it is being closed
        self._known: list[Consuming] = []  # those whose reader may still call
        self._dead_letters: DeadLetters | None = None
        self._listenings: list[Listening] = []

    def open(self, connection: KafkaConnection, dead_letter_topic: str) -> None:
        """Nothing is received yet."""
        with self._lock:
            self._connection = connection
            self._dead_letter_topic = dead_letter_topic

    # Subscriptions

    def subscribe(self, topic: str, group: str | None, options: dict[str, Any]) -> None:
        """Subscribe, unless that was done.

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
            text = f"Queue {self._queue.get_name()} receives from its first subscription only"
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
        """What receives now."""
        return self._consuming

    def in_hand(self) -> Consuming | None:
        """What has the messages that receivers are at: also while close() waits for them."""
        return self._consuming or self._ending

    def receiving(self) -> Consuming:
        """What receives now; made if it is missing, for a subclass that subscribes on its own.

        Raises
        ------
        InvalidStateException
            NOT_OPENED: the queue has been closed meanwhile.
        """
        with self._lock:
            if self._connection is None:
                raise self._not_opened()
            if self._consuming is None:
                self._consuming = self._queue._new_consuming()
            return self._consuming

    def of(self, subscription: KafkaSubscription) -> Consuming | None:
        """What receives from a subscription, also from one that is being ended."""
        for consuming in list(self._known):
            if consuming.subscription is subscription:
                return consuming
        return None

    def begun(self, subscription: KafkaSubscription) -> None:
        """A subscription reads: one of subscribe(), or of a subclass that has its own way."""
        with self._lock:  # subscribe() may be at work
            if self._connection is not None and self.of(subscription) is None:
                self._adopt(subscription)

    def ended(self, subscription: KafkaSubscription) -> bool:
        """The reader of a subscription has ended; True: nobody asked it to."""
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
        """Begin to listen; its `run` is to be called, or its `end`."""
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
        """End all listening, and wait for receivers at work unless this is one."""
        with self._lock:
            listenings = list(self._listenings)
        for listening in listenings:
            listening.stop()
        # A receiver that waited for another's would wait for ever if that did the same.
        if not any(listening.is_mine() for listening in listenings):
            for listening in listenings:
                listening.wait()

    # Dead letters

    def dead_letters(self) -> DeadLetters:
        """The dead letter topic; of receivers at work, also while close() waits for them."""
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
        """End everything; what is finished is committed. Does nothing the second time."""
        with self._lock:
            if self._consuming is not None:
                # Before on_message knows of it: what it refuses then does not count as seen.
                self._consuming.buffer.close()
            connection, self._connection = self._connection, None
            consuming, self._consuming = self._consuming, None
            self._ending, self._parting = consuming, connection
            listenings = list(self._listenings)
        # Also if somebody has closed the connection before: they are at work all the same.
        timeout = connection._request_timeout / 1000 if connection is not None else 0
        deadline = time.monotonic() + timeout
        try:
            for listening in listenings:
                if not listening.wait(max(0, deadline - time.monotonic())):
                    told = f"Queue {self._queue.get_name()} is closed while a receiver is at work"
                    self._measures.warn(None, told)
        finally:  # the wait may be interrupted; a reader that went on would keep its partitions
            try:
                self._end(consuming, connection)
            finally:
                with self._lock:
                    self._ending = self._parting = None
                    dead_letters, self._dead_letters = self._dead_letters, None
                if dead_letters is not None:
                    dead_letters.close()

    def _end(self, consuming: Consuming | None, connection: KafkaConnection | None) -> None:
        # A subclass may have subscribed on its own.
        if connection is not None:
            for each in list(connection._subscriptions):
                if (listener := each.listener) is self._queue and listener is not None:
                    connection.unsubscribe(str(each.topic), each.group_id, listener)
        if consuming is not None:
            consuming.last_gauges()
