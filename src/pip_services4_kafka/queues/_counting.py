"""How many messages are left for a queue, by the brokers or by what the last fetches told."""

from __future__ import annotations

from collections.abc import Mapping

from cykafka import Consumer, KafkaException, TopicPartition

from ..connect._reader import Reader
from ._buffer import Buffer

# How long the brokers may take to tell it, s.
_COUNT_S = 10.0


def count_assigned(reader: Reader, buffer: Buffer) -> int:
    """What is left in the assigned partitions: up to the high watermarks, and not handed over."""
    marks = reader.watermarks(_COUNT_S)
    places = buffer.next_offsets()
    committed: Mapping[int, int] | None = None
    total = 0
    for number, (low, high) in marks.items():
        offset, again = places.get(number, (None, 0))
        if offset is None:  # nothing has come yet
            if committed is None:
                committed = reader.committed(_COUNT_S)
            offset = committed.get(number, low)
        total += max(0, high - max(low, offset)) + again
    return total


def count_all(reader: Reader) -> int:
    """What the group has left in all partitions, as long as it has not assigned any.

    Raises
    ------
    KafkaException
        The brokers do not answer for one of them.
    """
    consumer, topic = reader.consumer, str(reader.subscription.topic)
    known = consumer.list_topics(topic, timeout=_COUNT_S).topics[topic]
    places = [TopicPartition(topic, number) for number in known.partitions]
    if not places:
        return 0
    marks = consumer.watermarks(places, _COUNT_S)
    total = 0
    for place in (*marks, *(found := consumer.committed(places, _COUNT_S))):
        if place.error is not None:
            raise KafkaException(place.error)
    for place in found:
        low, high = marks[place]
        total += max(0, high - max(low, place.offset))
    return total


def known_lag(consumer: Consumer, topic: str, buffer: Buffer) -> int | None:
    """What is left as far as the last fetches told it; None: they told nothing."""
    lag = None
    for number, (offset, again) in buffer.next_offsets().items():
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True)
        if offset is not None and high >= 0:
            lag = (lag or 0) + max(0, high - offset) + again
    return lag
