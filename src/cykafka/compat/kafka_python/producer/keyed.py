"""KeyedProducer: sends messages with the same key to the same partition."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

from cykafka.compat.kafka_python.partitioner import HashedPartitioner
from cykafka.compat.kafka_python.partitioner.base import Partitioner
from cykafka.compat.kafka_python.producer.base import Producer
from cykafka.compat.kafka_python.util import kafka_bytestring

log = logging.getLogger("kafka.producer")


class KeyedProducer(Producer):
    """Sends each message to the partition for its key.

    The default partitioner uses Python's ``hash()``, which differs between processes since
    Python 3.3. If several processes send the same keys, use Murmur2Partitioner (the Java client's
    hash).

    Parameters
    ----------
    *args, **kwargs
        See :class:`Producer`.
    partitioner : type of Partitioner, default HashedPartitioner
    """

    def __init__(
        self, *args: Any, partitioner: type[Partitioner] = HashedPartitioner, **kwargs: Any
    ) -> None:
        self.partitioner_class = partitioner
        self.partitioners: dict[bytes, Partitioner] = {}
        super().__init__(*args, **kwargs)
        seed = os.environ.get("PYTHONHASHSEED", "random")
        if partitioner is HashedPartitioner and seed == "random":
            log.warning(
                "The partitions of HashedPartitioner differ from process to process; "
                "use partitioner=Murmur2Partitioner, or set PYTHONHASHSEED"
            )

    def __repr__(self) -> str:
        return f"<KeyedProducer batch={self.is_async}>"

    def _next_partition(self, topic: bytes, key: bytes | None) -> int:
        partitioner = self.partitioners.get(topic)
        if partitioner is None:
            if not self.client.has_metadata_for_topic(topic):
                self.client.load_metadata_for_topics(topic)
            partitioner = self.partitioners[topic] = self.partitioner_class(
                self.client.get_partition_ids_for_topic(topic)
            )
        return partitioner.partition(key)

    def send_messages(self, topic: str | bytes, key: Any, *msg: bytes | None) -> list[Any]:
        """Send messages with a key; see :meth:`Producer.send_messages`.

        Parameters
        ----------
        topic : str or bytes
        key : bytes
        *msg : bytes or None
            None deletes the key in a compacted topic.
        """
        topic = kafka_bytestring(topic)
        return self._send_messages(topic, self._next_partition(topic, key), *msg, key=key)

    def send(self, topic: str | bytes, key: bytes, msg: bytes | None) -> list[Any]:
        """Send one message. Deprecated: use :meth:`send_messages`."""
        warnings.warn(
            "KeyedProducer.send is deprecated in favor of send_messages",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.send_messages(topic, key, msg)
