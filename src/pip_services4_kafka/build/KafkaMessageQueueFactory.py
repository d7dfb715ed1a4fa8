"""A factory for queues that share a configuration."""

from __future__ import annotations

from typing import Any

from pip_services4_components.refer import Descriptor
from pip_services4_messaging.build import MessageQueueFactory

from pip_services4_kafka.queues.KafkaMessageQueue import KafkaMessageQueue


class KafkaMessageQueueFactory(MessageQueueFactory):
    """Creates queues from the descriptor ``pip-services:message-queue:kafka:*:1.0``.

    A queue gets the descriptor's name and the factory's configuration and references.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register(
            Descriptor("pip-services", "message-queue", "kafka", "*", "1.0"),
            lambda locator: self.create_queue(find_name(locator)),
        )

    def create_queue(self, name: str | None) -> KafkaMessageQueue:
        """Create a queue.

        Parameters
        ----------
        name : str
            The queue's name. It is also the topic, unless the configuration sets ``topic``.

        Returns
        -------
        KafkaMessageQueue
            Configured and with references, but not open.
        """
        queue = KafkaMessageQueue(name)
        if self._config is not None:
            queue.configure(self._config)
        if self._references is not None:
            queue.set_references(self._references)
        return queue


def find_name(locator: Any) -> str | None:
    """Return the name in a descriptor, or None for another kind of locator or the name ``*``."""
    get_name = getattr(locator, "get_name", None)
    name = get_name() if callable(get_name) else None
    return str(name) if name and name != "*" else None
