"""The number of messages left for a queue, from the brokers or from the last fetches."""

from __future__ import annotations

from collections.abc import Mapping

from cykafka import Consumer, KafkaException, TopicPartition

from ..connect._reader import Reader
from ._buffer import Buffer

# The time limit for the brokers' answers, s.
_COUNT_S = 10.0


def count_assigned(reader: Reader, buffer: Buffer) -> int:
    """Count the messages of assigned partitions that were not handed over yet."""
    marks = reader.watermarks(_COUNT_S)
    places = buffer.next_offsets()
    committed: Mapping[int, int] | None = None
    total = 0
    for number, (low, high) in marks.items():
        offset, again = places.get(number, (None, 0))
        if offset is None:  # no message was fetched yet
            if committed is None:
                committed = reader.committed(_COUNT_S)
            offset = committed.get(number, low)
        total += max(0, high - max(low, offset)) + again
    return total


def count_all(reader: Reader) -> int:
    """Count uncommitted messages of all partitions, for a queue without an assignment.

    Raises
    ------
    KafkaException
        The brokers do not answer for a partition.
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
    """The lag according to the last fetches; None if there were none."""
    lag = None
    for number, (offset, again) in buffer.next_offsets().items():
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True)
        if offset is not None and high >= 0:
            lag = (lag or 0) + max(0, high - offset) + again
    return lag
