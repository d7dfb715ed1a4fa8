"""Answers fetch requests from records that one consumer prefetches."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, groupby, repeat
from operator import index
from typing import Any

from cykafka import KafkaError, MessageBatch, TopicPartition
from cykafka import Message as Record
from cykafka.compat.kafka_python._handles import BrokerOutage, Handles, open_meanwhile
from cykafka.compat.kafka_python._translation import (
    errno,
    failed_payload,
    is_unanswered,
    topic_name,
)
from cykafka.compat.kafka_python.common import (
    ConsumerFetchSizeTooSmall,
    FailedPayloadsError,
    FetchRequest,
    FetchResponse,
    Message,
    OffsetAndMessage,
)
from cykafka.compat.kafka_python.util import kafka_bytestring

# The bytes of a message around its key and value: offset, size, CRC, magic, attributes, lengths.
_OVERHEAD = 8 + 4 + 4 + 1 + 1 + 4 + 4
# The most records per read.
_BATCH = 10_000
# The most prefetched bytes: for all requested partitions, and for each other partition.
_AHEAD = 16 * 1024 * 1024
# How long a request waits for the brokers' first response, s, even if its own timeout is shorter.
_FIRST_ANSWER_S = 5.0
# How long a request waits for a sign of an outage, s, if one occurred since the last request.
_DOUBT_S = 2.0

_new_message = partial(tuple.__new__, Message)
_new_offset_and_message = partial(tuple.__new__, OffsetAndMessage)


class _Chunk:
    """Successive records of a partition, as columns."""

    __slots__ = ("begin", "ends", "keys", "offsets", "values")

    def __init__(self, batch: MessageBatch) -> None:
        self.offsets: list[int] = batch.offsets.tolist()
        self.keys = batch.keys()
        self.values = batch.values()
        # The cumulative bytes: of the first record, of the first two, and so on.
        self.ends = list(
            accumulate(
                _OVERHEAD + len(key or b"") + len(value or b"")
                for key, value in zip(self.keys, self.values, strict=True)
            )
        )
        self.begin = 0  # the records before it were dropped

    def size(self) -> int:
        """Return the bytes of the remaining records."""
        return self.ends[-1] - (self.ends[self.begin - 1] if self.begin else 0)

    def records(self, end: int) -> Iterator[OffsetAndMessage]:
        """Yield the remaining records before the index `end`."""
        begin = self.begin
        messages = map(
            _new_message,
            zip(repeat(0), repeat(0), self.keys[begin:end], self.values[begin:end], strict=False),
        )
        return map(_new_offset_and_message, zip(self.offsets[begin:end], messages, strict=True))


class _Partition:
    """A partition's records that were read, from the offset of the last request on."""

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.first = offset = place.offset
        self.next = offset  # the next record of the consumer has this offset or a higher one
        self.chunks: deque[_Chunk] = deque()
        self.size = 0
        self.at_end = False
        self.was_awaited = False  # in vain, until something arrives
        self.error: KafkaError | None = None

    def failed(self) -> bool:
        """Whether the error is next, because all records before it were returned."""
        return self.error is not None and not self.size

    def add(self, batch: MessageBatch) -> None:
        """Add the consumer's next records."""
        chunk = _Chunk(batch)
        self.chunks.append(chunk)
        self.size += chunk.size()
        self.next = chunk.offsets[-1] + 1
        self.at_end = self.was_awaited = False

    def move(self, offset: int) -> bool:
        """Drop the records before an offset. Returns False if the offset was not read."""
        if not self.first <= offset <= self.next:
            return False
        self.first = offset
        while self.chunks:
            chunk = self.chunks[0]
            self.size -= chunk.size()
            chunk.begin = bisect_left(chunk.offsets, offset, chunk.begin)
            if chunk.begin < len(chunk.offsets):
                self.size += chunk.size()
                break
            self.chunks.popleft()
        return True

    def messages(self, max_bytes: int) -> Iterator[OffsetAndMessage]:
        """Yield records from the offset on, up to `max_bytes`. They stay here until move()."""
        parts = []
        for chunk in self.chunks:
            before = chunk.ends[chunk.begin - 1] if chunk.begin else 0
            end = bisect_right(chunk.ends, before + max_bytes, chunk.begin)
            if end == chunk.begin:
                break
            parts.append(chunk.records(end))
            max_bytes -= chunk.ends[end - 1] - before
        if self.chunks and not parts:
            return _too_large()
        return parts[0] if len(parts) == 1 else chain.from_iterable(parts)


def _too_large() -> Iterator[OffsetAndMessage]:
    """Raise like the partial message that a request for too few bytes gets."""
    raise ConsumerFetchSizeTooSmall("the next message is larger than max_bytes")
    yield


class Fetcher:
    """Answers fetch requests. Thread-safe; requests run one at a time.

    One consumer stays assigned to all requested partitions. It keeps reading between requests. It
    seeks only if a request names an offset that it has not read.
    """

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._begins_anew = False
        self._pid = os.getpid()
        self._outage = BrokerOutage()

    def fetch(
        self, requests: Sequence[FetchRequest], max_wait_time: int, min_bytes: int
    ) -> list[FetchResponse | FailedPayloadsError]:
        """Answer each request with the records from its offset on.

        Parameters
        ----------
        requests : sequence of FetchRequest
        max_wait_time : int
            How long to wait for `min_bytes`, ms; at most the client's timeout.
        min_bytes : int
            0: return the messages that the brokers have now.
        """
        if self._pid != os.getpid():  # another thread of the parent may have held the lock
            self._pid, self._lock = os.getpid(), threading.Lock()
        with self._lock, open_meanwhile():
            try:
                wanted = self._position(requests)
                seconds = min(max_wait_time / 1000, self._handles.timeout)
                self._wait(list(wanted.values()), seconds, min_bytes)
                answers = [
                    self._answer(request, part)
                    for request, part in zip(requests, wanted.values(), strict=True)
                ]
                self._drop_idle(wanted)
                return answers
            except BaseException:  # even Ctrl-C: records may be lost on their way
                self._partitions.clear()
                self._begins_anew = True
                raise

    def _position(self, requests: Sequence[FetchRequest]) -> dict[tuple[str, int], _Partition]:
        """Return the requested partitions, each at the offset in its request."""
        consumer = self._handles.consumer(self._outage)
        if consumer is not self._consumer:  # the client was closed in between
            self._consumer = consumer
            self._partitions.clear()
            self._begins_anew = False
            self._outage.end()
        if self._begins_anew:
            consumer.unassign()
            self._begins_anew = False
        wanted, moved, left = {}, [], []
        for topic, number, offset, _ in requests:
            offset, number = index(offset), index(number)
            key = (topic_name(topic), number)
            part = self._partitions.get(key)
            if part is None or part.failed() or not part.move(offset):
                if part is not None:
                    left.append(part.place)
                    del self._partitions[key]
                place = TopicPartition(*key, offset)
                part = _Partition(place)
                if offset < 0:
                    part.error = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)
                else:
                    self._partitions[key] = part
                    moved.append(place)
            wanted[key] = part
        if left:
            consumer.incremental_unassign(left)
        if moved:
            consumer.incremental_assign(moved)
        return wanted

    def _wait(self, wanted: list[_Partition], seconds: float, min_bytes: int) -> None:
        """Read until the partitions have `min_bytes`, or the timeout expires."""
        began = time.monotonic()
        doubt = False
        if sum(part.size for part in wanted) < _AHEAD and not all(part.size for part in wanted):
            doubt = self._outage.look(lambda: self._read(0))
        while True:
            silent = [part for part in wanted if not self._is_known(part)]
            size = sum(part.size for part in wanted)
            if size >= _AHEAD or (not silent and 0 < min_bytes <= size):
                return
            wait = seconds
            if silent or min_bytes <= 0:
                wait = max(wait, _FIRST_ANSWER_S)
            elif doubt and not size:
                wait = max(wait, _DOUBT_S)
            left = began + wait - time.monotonic()
            if left <= 0 or (self._outage.error() and began + seconds <= time.monotonic()):
                for part in silent:
                    part.was_awaited = True
                return
            # Return what the brokers have now, even if an offset does not exist.
            is_now = min_bytes <= 0 or any(part.error for part in wanted)
            if is_now and not silent:
                return
            self._read(left)

    def _is_known(self, part: _Partition) -> bool:
        """Whether the brokers have responded for the partition, or have had enough time."""
        # The end may be known a moment before the records, which librdkafka queues afterwards.
        is_known = part.size or part.error or part.was_awaited or part.at_end
        return bool(is_known or part.next >= self._highwater(part) >= 0)

    def _highwater(self, part: _Partition) -> int:
        """Return the partition's end in its leader's last response; negative before the first."""
        high: int = self._consumer.get_watermark_offsets(part.place, cached=True)[1]
        return high

    def _read(self, seconds: float) -> None:
        """Read all available records, or wait up to `seconds` for the first record or event."""
        consumer = self._consumer
        if not self._take(consumer.consume_batch(_BATCH, 0)) and seconds > 0:
            self._take(consumer.consume_batch(1, seconds))
            self._take(consumer.consume_batch(_BATCH, 0))

    def _take(self, batch: MessageBatch) -> bool:
        """Keep records and note events. Returns False if there are none."""
        if batch:
            self._outage.end()
            for key, part in _by_partition(batch):
                if key in self._partitions:
                    self._partitions[key].add(part)
        for record in batch.errors:
            self._note(record)
        return bool(batch or batch.errors)

    def _note(self, record: Record) -> None:
        """Note an error or the end of a partition."""
        error = record.error()
        assert error is not None
        topic = record.topic()
        part = self._partitions.get((topic or "", record.partition() or 0))
        if error.code() == KafkaError._PARTITION_EOF:
            self._outage.end()
            if part is not None:
                part.at_end = True
                part.was_awaited = False
        elif part is not None:
            part.error = error
        elif topic:  # an error of the topic
            for (name, _), affected in self._partitions.items():
                if name == topic:
                    affected.error = error

    def _answer(
        self, request: FetchRequest, part: _Partition
    ) -> FetchResponse | FailedPayloadsError:
        error = part.error if part.failed() else None
        if error is None and not part.size:
            error = self._outage.error()
        if error is not None and is_unanswered(error):
            return failed_payload(request, error)
        topic = kafka_bytestring(request.topic)
        highwater = max(self._highwater(part), part.next if part.size else -1)
        messages = part.messages(request.max_bytes) if error is None else iter(())
        return FetchResponse(topic, request.partition, errno(error), highwater, messages)

    def _drop_idle(self, wanted: dict[tuple[str, int], _Partition]) -> None:
        """Stop reading partitions that no request names and that have many prefetched bytes."""
        idle = [
            key
            for key, part in self._partitions.items()
            if key not in wanted and part.size > _AHEAD
        ]
        if idle:
            self._consumer.incremental_unassign([TopicPartition(*key) for key in idle])
            for key in idle:
                del self._partitions[key]


def _by_partition(batch: MessageBatch) -> Iterator[tuple[tuple[str, int], MessageBatch]]:
    """Split a batch by partition. A partition's records are mostly adjacent."""
    positions = batch.positions()
    if len(positions) == 1:
        yield (positions[0].topic, positions[0].partition), batch
        return
    begin = 0
    for key, run in groupby(zip(batch.topics, batch.partitions.tolist(), strict=True)):
        end = begin + sum(1 for _ in run)
        yield key, batch[begin:end]
        begin = end
