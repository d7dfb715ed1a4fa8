"""The subscriptions of a connection. The connection's lock protects them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cykafka import Consumer, KafkaError
from pip_services4_kafka.connect._logs import RareLog
from pip_services4_kafka.connect._reader import Reader, reader_of
from pip_services4_kafka.connect._settings import DEFAULT_GROUP
from pip_services4_kafka.connect.IKafkaMessageListener import IKafkaMessageListener
from pip_services4_kafka.connect.KafkaSubscription import KafkaSubscription


class Subscriptions:
    """Begins, finds and ends subscriptions.

    Parameters
    ----------
    known : list of KafkaSubscription
        The connection's list, kept up to date.
    log : RareLog
    """

    def __init__(self, known: list[KafkaSubscription], log: RareLog) -> None:
        self._known = known
        self._log = log

    def begin(
        self,
        subscription: KafkaSubscription,
        make_consumer: Callable[[Callable[[KafkaError], object]], Consumer],
        partitions: list[int],
        commit_timeout: float,
    ) -> Reader:
        """Start a reader and add the subscription. Errors of creating the consumer propagate."""
        reader = Reader(subscription, make_consumer, partitions, self._log, commit_timeout)
        subscription._reader = reader
        reader.start()
        self._known.append(subscription)
        return reader

    def find(
        self, topic: str, group_id: str | None, listener: IKafkaMessageListener
    ) -> KafkaSubscription | None:
        """The first subscription with these arguments, or None."""
        group = group_id or DEFAULT_GROUP
        for subscription in list(self._known):
            if (
                subscription.topic == topic
                and (subscription.group_id or DEFAULT_GROUP) == group
                and subscription.listener is listener
            ):
                return subscription
        return None

    def take(self, *subscription: Any) -> list[KafkaSubscription]:
        """Remove and return the subscription with the arguments of `find`; without any, all."""
        if not subscription:
            taken, self._known[:] = list(self._known), []
            return taken
        found = self.find(*subscription)
        if found is None:
            return []
        self._known.remove(found)
        return [found]

    def end(self, subscriptions: list[KafkaSubscription], timeout: float) -> None:
        """Stop the readers and wait at most `timeout` s for all of them. Call without the lock."""
        deadline = time.monotonic() + timeout
        readers = [reader for reader in map(reader_of, subscriptions) if reader is not None]
        for reader in readers:
            reader.stop(0)
        for reader in readers:
            if not reader.stop(max(0, deadline - time.monotonic())) and reader.is_busy():
                told = (
                    f"The subscription to topic {reader.subscription.topic} does not end within "
                    f"{timeout:g} s: its listener is still running, or brokers do not answer. "
                    "Its thread will close its consumer"
                )
                self._log.error(reader, None, told)
