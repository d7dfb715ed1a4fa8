"""Sends record chunks to a topic. Each record gets an outcome, and failures name their lines."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from cykafka import Delivery, KafkaError, Producer
from cykafka.cli.cluster.connection import Brokers
from cykafka.cli.records.chunks import Chunk
from cykafka.cli.terminal.failures import Failed
from cykafka.cli.terminal.interrupts import Interrupts
from cykafka.cli.terminal.progress import Meter
from cykafka.cli.terminal.texts import counted
from cykafka.internal import publication

__all__ = ["ChunkSender", "Overrides", "await_topic"]

_TOPIC_WAIT_S = 3.0
_SLICE_S = 0.1
_SHOWN = 5


class Overrides(NamedTuple):
    """Values for all records, which override the lines' values."""

    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp: int | None = None
    null: bool = False
    """send empty values and keys as null"""
    any_partition: bool = False
    """ignore the partitions that the lines name"""
    keep_topic: bool = False
    """send records to the topics that their lines name"""


def await_topic(brokers: Brokers, producer: Producer, topic: str) -> list[int]:
    """Wait until a topic exists, and return its partition numbers.

    The request creates the topic if the brokers allow this.

    Raises
    ------
    Failed
        No broker responds, or the topic does not exist.
    """
    deadline = time.monotonic() + min(brokers.timeout, _TOPIC_WAIT_S)
    while True:
        found = brokers.metadata(producer, topic).topics[topic]
        if found.error is None and found.partitions:
            return sorted(found.partitions)
        if found.error is not None and found.error.code() not in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.LEADER_NOT_AVAILABLE,
        ):
            raise Failed(f"topic {topic!r}: {found.error.str()}")
        if time.monotonic() >= deadline:
            raise Failed(
                f"topic {topic!r} does not exist, and the brokers did not create it; "
                f"create it: cykafka topics create {topic}"
            )
        time.sleep(_SLICE_S)


class _InFlight(NamedTuple):
    """Sent records and their source."""

    delivery: Delivery
    source: str
    lines: Sequence[int]
    size: int


class ChunkSender:
    """Publishes chunks, and counts the outcomes."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        meter: Meter,
        interrupts: Interrupts,
        overrides: Overrides,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._overrides = overrides
        self.meter = meter
        self._interrupts = interrupts
        self._in_flight: deque[_InFlight] = deque()
        self._read = 0  # bytes
        self.shown = 0
        """the number of failed records reported"""
        self._announced = False
        self.last = ""
        """the last record's source"""

    @property
    def waiting(self) -> int:
        """The number of records without an outcome."""
        return sum(len(records.lines) for records in self._in_flight)

    def send(self, chunk: Chunk) -> None:
        """Queue records, waiting for room."""
        columns = self._columns(chunk)
        topics: Any = self._topic
        if self._overrides.keep_topic and chunk.topics is not None:
            topics = [topic or self._topic for topic in chunk.topics]
        sending = publication(self._producer, topics, **columns)
        self._in_flight.append(_InFlight(sending.delivery, chunk.source, chunk.lines, chunk.size))
        self.last = f"{chunk.source}, line {chunk.lines[-1]}"
        try:
            while not (done := sending.step()):
                if done is False:  # the queue is full
                    self._wait()
        finally:
            sending.end()
        self.settle()

    def settle(self) -> None:
        """Count outcomes that have arrived."""
        self._producer.poll(0)
        while self._in_flight and self._in_flight[0].delivery.done:
            self._settle_first()

    def pause(self, seconds: float) -> bool:
        """Wait and count outcomes; return False if a signal ended the wait."""
        return self._interrupts.pause(seconds, self.settle)

    def finish(self) -> None:
        """Wait for the outcomes of all records."""
        while self._in_flight:
            self._wait()

    def _wait(self) -> None:
        """Count outcomes, waiting for the next; after a signal, say what the command waits for."""
        self._producer.poll(_SLICE_S)
        self.settle()
        late = time.monotonic() > self._interrupts.since + _SLICE_S
        if self._in_flight and late and not self._announced:
            self._announced = True
            waiting = counted(self.waiting, "record")
            self.meter.warn(f"interrupted; waiting for {waiting}, Ctrl-C drops them")

    def _settle_first(self) -> None:
        delivery, source, lines, size = self._in_flight.popleft()
        failed = delivery.failed
        self.meter.errors += failed
        if failed and self.shown < _SHOWN:
            for index, error in islice(delivery.errors.items(), _SHOWN - self.shown):
                self.shown += 1
                self.meter.warn(f"{source}, line {lines[index]}: {error.str()}")
        self._read += size
        delivered = len(delivery) - failed
        # If the lines have different lengths, the bytes of failed lines are an estimate.
        self.meter.add(delivered, size * delivered // len(delivery), self._read)

    def _columns(self, chunk: Chunk) -> dict[str, Any]:
        key, headers, partition, timestamp, *_ = self._overrides
        keys, values = chunk.keys, chunk.values
        if self._overrides.null:
            values = [value or None for value in values]
            keys = keys and [item or None for item in keys]
        if key is not None:
            keys = [key] * len(values)
        columns: dict[str, Any] = {"values": values, "keys": keys}
        if chunk.headers is not None:
            columns["headers"] = [[*(own or ()), *headers] for own in chunk.headers]
        elif headers:
            mapping = dict(headers)
            unique = len(mapping) == len(headers)
            columns["headers"] = mapping if unique else [headers] * len(values)
        if partition is not None:
            columns["partitions"] = partition
        elif chunk.partitions is not None and not self._overrides.any_partition:
            columns["partitions"] = chunk.partitions
        columns["timestamps"] = chunk.timestamps if timestamp is None else timestamp
        return columns
