"""Reads offset ranges as Arrow record batches, on the executors.

A task assigns its ranges to a consumer that never joins a group. The consumer stays open in the
worker process for later tasks (`consumers`). C code builds the rows; this module runs once per
batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import pyarrow as pa

from cykafka import KafkaError, KafkaException, Message, MessageBatch, TopicPartition
from cykafka.internal import Range, Ranges, consume_ranges
from cykafka.spark.clients.consumers import GONE, OpenConsumer, borrow_consumer, consumer_config
from cykafka.spark.source.far_times import add_time_header, find_far_times, warn_of_far_times
from cykafka.spark.source.offsets import PartitionRange
from cykafka.spark.source.read_options import ReadOptions

__all__ = ["read_ranges"]

_log = logging.getLogger("cykafka.spark")

# The most rows in a record batch. Larger batches are not faster; smaller ones are slower.
BATCH_ROWS = 10_000
BATCH_BYTES = 12 * 1024 * 1024

# After this time without records, s, the task requests the partitions' first and last offsets;
# then again every LOOK_AGAIN_S.
LOOK_AFTER_S = 2.0
LOOK_AGAIN_S = 2.0
WAIT_S = 0.5
REQUEST_S = 30.0
# Backoff, s, before the task reassigns a partition that fails again; it doubles each time. An
# assign() drops the prefetched records of all partitions.
AGAIN_S = 0.1
AGAIN_MOST_S = 5.0

# Errors that persist, so that waiting does not help.
_LASTING = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._FATAL,
)

# -- a task


def read_ranges(
    ranges: Sequence[PartitionRange],
    options: ReadOptions,
    columns: Sequence[str],
    finish: Callable[[pa.RecordBatch], pa.RecordBatch],
    *,
    keep_times: bool = False,
) -> Generator[pa.RecordBatch]:
    """Yield all records in the ranges, or raise an error.

    Parameters
    ----------
    ranges : sequence of PartitionRange
        At most one range per partition.
    options : ReadOptions
    columns : sequence of str
        The source's columns, in the order of the result.
    finish : callable
        Converts a batch with nullable columns to the query's schema. It may drop rows.
    keep_times : bool
        Keep timestamps that Spark cannot represent in a header; see `far_times`.

    Yields
    ------
    pyarrow.RecordBatch
        At most 10,000 rows or about 12 MiB of keys and values.

    Raises
    ------
    DataLossError
        Offsets do not exist. With failOnDataLoss=false the task skips them and logs a warning.
    TimeoutError
        No record arrived for ``kafkaConsumer.pollTimeoutMs``.
    KafkaException
        An error that persists, so that waiting does not help.
    """
    config = consumer_config(options.kafka, f"{options.group_id_prefix}-executor")
    with borrow_consumer(config) as mine:
        task = _RangesTask(mine, ranges, options)
        while len(task.wanted):
            batch = task.next_batch()
            if batch:
                with batch:
                    made = pa.record_batch(batch.select(*columns))
                    if far := find_far_times(batch, made):
                        warn_of_far_times(batch, far)
                        if keep_times and "headers" in columns:
                            made = add_time_header(made, far)
                finished = finish(made)
                if finished.num_rows:
                    yield finished
                task.restart_timeout()


class _RangesTask:
    """A task's ranges, and how far the task has read them."""

    def __init__(
        self, mine: OpenConsumer, ranges: Sequence[PartitionRange], options: ReadOptions
    ) -> None:
        self.mine = mine
        self.consumer = mine.consumer
        self.options = options
        self.wanted = Ranges((part.topic, part.partition, part.start, part.end) for part in ranges)
        self.running = len(self.wanted)
        self.last_error: KafkaError | None = None
        self.suspects: set[tuple[str, int]] = set()
        self.before: dict[tuple[str, int], int] = {}
        # When to reassign all ranges, the partitions that need it, and the backoff per partition.
        self.assign_at: float | None = None
        self.stopped: set[tuple[str, int]] = set()
        self.waits: dict[tuple[str, int], float] = {}
        self.restart_timeout()
        self._request_metadata(ranges)
        self._assign()

    def restart_timeout(self) -> None:
        """Restart the timeout, because records arrived."""
        now = time.monotonic()
        self.deadline = now + self.options.poll_timeout_s
        self.look_at = now + min(LOOK_AFTER_S, self.options.poll_timeout_s)
        self.suspects.clear()

    def next_batch(self) -> MessageBatch:
        """Return the next records. The batch is empty after errors or a wait without records."""
        until = self.deadline if self.assign_at is None else min(self.deadline, self.assign_at)
        wait = max(min(WAIT_S, until - time.monotonic()), 0.0)
        batch = consume_ranges(self.consumer, self.wanted, BATCH_ROWS, BATCH_BYTES, wait)
        for message in batch.errors:
            self._handle_error(message)
        if self.assign_at is not None and self.assign_at <= time.monotonic() and len(self.wanted):
            self._assign()
        if len(batch):
            self.mine.complaint = None
            self._pause_done()
        elif len(self.wanted):
            self._handle_silence()
        return batch

    # -- assignment

    def _request_metadata(self, ranges: Iterable[PartitionRange]) -> None:
        """Request the topics' metadata: assign() takes a second for a topic without it."""
        most: dict[str, int] = {}
        for part in ranges:
            most[part.topic] = max(most.get(part.topic, 0), part.partition)
        known = self.mine.known
        asked = [topic for topic, number in most.items() if known.get(topic, 0) <= number]
        found = self.mine.topics(asked, self._request_s())
        for topic in asked:
            known[topic] = _partitions(topic, found.get(topic)) or 0

    def _is_gone(self, at: Range) -> bool:
        """Whether brokers report that the partition does not exist. False without a response."""
        count = _partitions(
            at.topic, self.mine.topics([at.topic], self._request_s()).get(at.topic)
        )
        return count is not None and count <= at.partition

    def _request_s(self) -> float:
        return min(REQUEST_S, self.options.poll_timeout_s)

    def _assign(self) -> None:
        left = self.wanted.left()
        self.running = len(left)
        self.assign_at = None
        self.stopped.clear()
        self.mine.assign([TopicPartition(at.topic, at.partition, at.next) for at in left])

    def _assign_again(self, at: Range) -> None:
        """Schedule an assign() for a partition that stopped after an error."""
        place = (at.topic, at.partition)
        if place in self.stopped:
            return
        self.stopped.add(place)
        wait = self.waits.get(place, 0.0)
        self.waits[place] = min(max(2 * wait, AGAIN_S), AGAIN_MOST_S)
        due = time.monotonic() + wait
        self.assign_at = due if self.assign_at is None else min(self.assign_at, due)

    def _pause_done(self) -> None:
        """Pause partitions whose ranges are complete. The last one ends with the assignment."""
        if 0 < len(self.wanted) < self.running:
            self.running = len(self.wanted)
            left = {(at.topic, at.partition) for at in self.wanted.left()}
            assigned = self.consumer.assignment()
            done = [place for place in assigned if (place.topic, place.partition) not in left]
            self.consumer.pause(done)

    # -- errors

    def _handle_error(self, message: Message) -> None:
        """React to an error: raise it, schedule an assign(), or wait."""
        error = message.error()
        assert error is not None
        code = error.code()
        at = self._range_of(message)
        if at is not None and code == KafkaError._AUTO_OFFSET_RESET:
            self._handle_out_of_range(at)
            self._assign_again(at)
        elif at is not None and code in GONE:
            self.last_error = error
            self.mine.known.pop(at.topic, None)
            if self._is_gone(at):
                self.look_at = 0.0
            else:
                self._assign_again(at)
        elif error.fatal() or code in _LASTING:
            raise KafkaException(error)
        else:
            self.last_error = error

    def _range_of(self, message: Message) -> Range | None:
        place = (message.topic(), message.partition())
        return next((at for at in self.wanted.left() if (at.topic, at.partition) == place), None)

    def _handle_out_of_range(self, at: Range) -> None:
        low, high = self._ends([at])[at.topic, at.partition]
        if low is None or high is None:
            return
        if low > at.next:
            self._skip_lost(at, min(low, at.end), f"the partition begins at {low}")
        elif high < at.next:
            # The position is after the end: the topic was recreated, or its log truncated. If the
            # end has since passed the position, the task can read the range.
            self._skip_lost(at, at.end, f"the partition ends at {high}")

    def _ends(
        self, ranges: Sequence[Range]
    ) -> dict[tuple[str, int], tuple[int | None, int | None]]:
        asked = [TopicPartition(at.topic, at.partition) for at in ranges]
        found: dict[tuple[str, int], tuple[int | None, int | None]] = {}
        for place, ends in self.mine.watermarks(asked, self._request_s()):
            known = place.error is None
            found[place.topic, place.partition] = (ends.low, ends.high) if known else (None, None)
        return found

    def _skip_lost(self, at: Range, until: int, why: str) -> None:
        """Raise or warn because the offsets from `next` up to, not including, `until` are lost."""
        what = f"{at.topic} [{at.partition}]: offsets {at.next} to {until - 1} are gone: {why}"
        self.options.report_loss(what)
        _log.warning("%s; they are skipped, since failOnDataLoss is false", what)
        self.wanted.skip(at.topic, at.partition, until)

    # -- silence

    def _handle_silence(self) -> None:
        left = self.wanted.left()
        after = {(at.topic, at.partition): at.next for at in left}
        if after != self.before:  # transaction markers and aborted records also move positions
            self.before = after
            self.restart_timeout()
            return
        now = time.monotonic()
        if now >= self.deadline:
            raise TimeoutError(self._describe_timeout(left))
        persistent = self.mine.persistent_error()
        if now >= self.look_at and persistent is not None:
            raise KafkaException(persistent)
        if now >= self.look_at:
            self.look_at = now + LOOK_AGAIN_S
            self._find_losses(left)

    def _find_losses(self, left: Sequence[Range]) -> None:
        """Look for lost offsets. A loss must appear twice in a row, because leaders change."""
        try:
            ends = self._ends(left)
        except KafkaException as error:
            self.last_error = error.args[0]
            return
        suspects = set()
        for at in left:
            low, high = ends[at.topic, at.partition]
            why, until = None, at.end
            if high is None and self._is_gone(at):
                why = "the partition does not exist (any more)"
            elif low is not None and low > at.next:
                why, until = f"the partition begins at {low}", min(low, at.end)
            elif high is not None and high < at.end and high <= max(at.next, at.eof):
                # All existing records have arrived.
                why = f"the partition ends at {high}"
            if why is None:
                continue
            if (at.topic, at.partition) in self.suspects:
                self._skip_lost(at, until, why)
            else:
                suspects.add((at.topic, at.partition))
        if self.suspects and len(self.wanted):
            self._assign()
        self.suspects = suspects

    def _describe_timeout(self, left: Sequence[Range]) -> str:
        at = left[0]
        others = f", nor of {len(left) - 1} more partitions" if len(left) > 1 else ""
        ended = f" (the partition ended at {at.eof})" if at.eof >= 0 else ""
        error = self.last_error or self.mine.complaint
        last = f"; the last error was: {error}" if error is not None else ""
        return (
            f"{at.topic} [{at.partition}]: no record of the offsets {at.next} to {at.end - 1} "
            f"arrived within {self.options.poll_timeout_s:g} s{ended}{others}{last}. Check that "
            "the brokers are up and reachable from the executors. The option "
            "kafkaConsumer.pollTimeoutMs sets this timeout"
        )


def _partitions(name: str, topic: Any) -> int | None:
    """Return a topic's partition count from its metadata, or None if it is not known yet."""
    if topic is None:
        return 0
    if topic.error is None:
        return max(topic.partitions, default=-1) + 1
    code = topic.error.code()
    if code in _LASTING:
        raise KafkaException(KafkaError(code, f"{name}: {topic.error.str()}"))
    return 0 if code in GONE else None
