"""The factory for every component of this package."""

from __future__ import annotations

from pip_services4_components.build import Factory
from pip_services4_components.refer import Descriptor

from pip_services4_kafka.build.KafkaMessageQueueFactory import KafkaMessageQueueFactory, find_name
from pip_services4_kafka.connect.KafkaConnection import KafkaConnection
from pip_services4_kafka.queues.KafkaMessageQueue import KafkaMessageQueue


class DefaultKafkaFactory(Factory):
    """Creates the components of this package from descriptors.

    All descriptors have the group ``pip-services`` and the version ``1.0``.

    - ``message-queue:kafka:*``: :class:`KafkaMessageQueue`, named like its descriptor
    - ``connection:kafka:*``: :class:`KafkaConnection`
    - ``queue-factory:kafka:*``: :class:`KafkaMessageQueueFactory`
    """

    def __init__(self) -> None:
        super().__init__()
        self.register(_descriptor("message-queue"), lambda of: KafkaMessageQueue(find_name(of)))
        self.register_as_type(_descriptor("connection"), KafkaConnection)
        self.register_as_type(_descriptor("queue-factory"), KafkaMessageQueueFactory)


def _descriptor(kind: str) -> Descriptor:
    return Descriptor("pip-services", kind, "kafka", "*", "1.0")
