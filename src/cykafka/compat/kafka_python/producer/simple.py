"""SimpleProducer: sends to the partitions of a topic in turn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from cykafka.compat.kafka_python.producer.base import Producer
from cykafka.compat.kafka_python.util import kafka_bytestring


class SimpleProducer(Producer):
    """Sends the messages of each call to the next partition of their topic.

    Parameters
    ----------
    *args, **kwargs
        See :class:`Producer`.
    random_start : bool, default True
        Start with a random partition. If false, start with the first one.
    """

    def __init__(self, *args: Any, random_start: bool = True, **kwargs: Any) -> None:
        self.partition_cycles: dict[bytes, Iterator[int]] = {}
        self.random_start = random_start
        super().__init__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<SimpleProducer batch={self.is_async}>"

    def _next_partition(self, topic: bytes) -> int:
        if topic not in self.partition_cycles:
            if not self.client.has_metadata_for_topic(topic):
                self.client.load_metadata_for_topics(topic)
            partitions = list(self.client.get_partition_ids_for_topic(topic))
            if self.random_start and partitions:
                first = random.randrange(len(partitions))
                partitions = partitions[first:] + partitions[:first]
            self.partition_cycles[topic] = cycle(partitions)
        return next(self.partition_cycles[topic])

    def send_messages(self, topic: str | bytes, *msg: bytes) -> list[Any]:  # type: ignore[override]
        """Send messages to the next partition; see :meth:`Producer.send_messages`.

        Parameters
        ----------
        topic : str or bytes
        *msg : bytes
        """
        topic = kafka_bytestring(topic)
        return super().send_messages(topic, self._next_partition(topic), *msg)
