"""On the executors: ranges of offsets become Arrow record batches.

A consumer is assigned the ranges of a task and never joins a group. It stays open in the worker
process for the tasks to come (`consumers`). Rows are built in C; what is here happens once per
batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from cykafka import KafkaError, KafkaException, Message, MessageBatch, TopicPartition
from cykafka.internal import Range, Ranges, consume_ranges
from cykafka.spark.consumers import OpenConsumer, borrowed, consumer_config
from cykafka.spark.loss import ADVICE, GONE, DataLossError
from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import ReadOptions

__all__ = ["read_ranges"]

_log = logging.getLogger("cykafka.spark")

# What one record batch holds at most: more gains nothing, less costs.
BATCH_ROWS = 10_000
BATCH_BYTES = 12 * 1024 * 1024

# How long nothing comes before the brokers are asked what is left of the partitions, s, and again.
LOOK_AFTER_S = 2.0
LOOK_AGAIN_S = 2.0
WAIT_S = 0.5
REQUEST_S = 30.0
# A partition that errs again is assigned again only after a while, s, twice as long each time: to
# assign throws away what was fetched ahead, of all partitions.
AGAIN_S = 0.1
AGAIN_MOST_S = 5.0

# What waiting does not heal.
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
) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, all of them, or an error.

    Parameters
    ----------
    ranges : sequence of PartitionRange
        Of each partition one at most.
    options : ReadOptions
    columns : sequence of str
        Of the source's, in the order that is wanted.
    finish : callable
        What makes the query's batch of one with nullable columns.

    Yields
    ------
    pyarrow.RecordBatch
        At most 10,000 rows or about 12 MiB of keys and values.

    Raises
    ------
    DataLossError
        With failOnDataLoss: offsets are not there. Without, they are skipped with a warning.
    TimeoutError
        Nothing came for ``kafkaConsumer.pollTimeoutMs``.
    KafkaException
        What waiting does not heal.
    """
    config = consumer_config(options.kafka, f"{options.group_id_prefix}-executor")
    with borrowed(config) as mine:
        task = _Task(mine, ranges, options)
        while len(task.wanted):
            batch = task.next_batch()
            if batch:
                with batch:
                    made = pa.record_batch(batch.select(*columns))
                yield finish(made)
                task.moved()


class _Task:
    """Ranges on their way from the broker."""

    def __init__(
        self, mine: OpenConsumer, ranges: Sequence[PartitionRange], options: ReadOptions
    ) -> None:
        self.mine = mine
        self.consumer = mine.consumer
        self.options = options
        self.wanted = Ranges((each.topic, each.partition, each.start, each.end) for each in ranges)
        self.running = len(self.wanted)
        self.last_error: KafkaError | None = None
        self.suspects: set[tuple[str, int]] = set()
        self.before: dict[tuple[str, int], int] = {}
        # When all is assigned anew, for whom, and how long the next error of each puts it off.
        self.assign_at: float | None = None
        self.stopped: set[tuple[str, int]] = set()
        self.waits: dict[tuple[str, int], float] = {}
        self.moved()
        self._know(ranges)
        self._assign()

    def moved(self) -> None:
        """Something has come: from now on the time counts anew."""
        now = time.monotonic()
        self.deadline = now + self.options.poll_timeout_s
        self.look_at = now + min(LOOK_AFTER_S, self.options.poll_timeout_s)
        self.suspects.clear()

    def next_batch(self) -> MessageBatch:
        """The next records: none if errors came, or nothing did."""
        until = self.deadline if self.assign_at is None else min(self.deadline, self.assign_at)
        wait = max(min(WAIT_S, until - time.monotonic()), 0.0)
        batch = consume_ranges(self.consumer, self.wanted, BATCH_ROWS, BATCH_BYTES, wait)
        for message in batch.errors:
            self._heed(message)
        if self.assign_at is not None and self.assign_at <= time.monotonic() and len(self.wanted):
            self._assign()
        if len(batch):
            self.mine.complaint = None
            self._pause_done()
        elif len(self.wanted):
            self._while_nothing_comes()
        return batch

    # -- what is assigned

    def _know(self, ranges: Iterable[PartitionRange]) -> None:
        """Have the metadata of the topics at hand: to assign an unknown one takes a second."""
        most: dict[str, int] = {}
        for each in ranges:
            most[each.topic] = max(most.get(each.topic, 0), each.partition)
        known = self.mine.known
        asked = [topic for topic, number in most.items() if known.get(topic, 0) <= number]
        found = self.mine.topics(asked, self._request_s())
        for topic in asked:
            known[topic] = _partitions(topic, found.get(topic)) or 0

    def _is_gone(self, at: Range) -> bool:
        """Whether brokers say that there is no such partition; that they say nothing is another
        matter."""
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
        """On behalf of a partition that has stopped with an error."""
        place = (at.topic, at.partition)
        if place in self.stopped:
            return
        self.stopped.add(place)
        wait = self.waits.get(place, 0.0)
        self.waits[place] = min(max(2 * wait, AGAIN_S), AGAIN_MOST_S)
        due = time.monotonic() + wait
        self.assign_at = due if self.assign_at is None else min(self.assign_at, due)

    def _pause_done(self) -> None:
        """No more of what is done; the last one ends with the assignment."""
        if 0 < len(self.wanted) < self.running:
            self.running = len(self.wanted)
            left = {(at.topic, at.partition) for at in self.wanted.left()}
            self.consumer.pause(
                [
                    each
                    for each in self.consumer.assignment()
                    if (each.topic, each.partition) not in left
                ]
            )

    # -- errors

    def _heed(self, message: Message) -> None:
        """Raise, have it assigned again, or wait."""
        error = message.error()
        assert error is not None
        code = error.code()
        at = self._range_of(message)
        if at is not None and code == KafkaError._AUTO_OFFSET_RESET:
            self._out_of_range(at)
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
        topic, partition = message.topic(), message.partition()
        for at in self.wanted.left():
            if (at.topic, at.partition) == (topic, partition):
                return at
        return None

    def _out_of_range(self, at: Range) -> None:
        low, high = self._ends([at])[at.topic, at.partition]
        if low is None or high is None:
            return
        if low > at.next:
            self._lose(at, min(low, at.end), f"the partition begins at {low}")
        elif high < at.next:
            # A position behind the end: the topic was made anew, or its log was cut. With an end
            # that lies further on by now, what is there can be read.
            self._lose(at, at.end, f"the partition ends at {high}")

    def _ends(
        self, ranges: Sequence[Range]
    ) -> dict[tuple[str, int], tuple[int | None, int | None]]:
        asked = [TopicPartition(at.topic, at.partition) for at in ranges]
        found: dict[tuple[str, int], tuple[int | None, int | None]] = {}
        for each, ends in self.mine.watermarks(asked, self._request_s()):
            known = each.error is None
            found[each.topic, each.partition] = (ends.low, ends.high) if known else (None, None)
        return found

    def _lose(self, at: Range, until: int, why: str) -> None:
        """The offsets from `next` to before `until` cannot be had."""
        what = f"{at.topic} [{at.partition}]: offsets {at.next} to {until - 1} are gone: {why}"
        if self.options.fail_on_data_loss:
            raise DataLossError(f"{what}. {ADVICE}")
        _log.warning("%s; they are skipped, since failOnDataLoss is false", what)
        self.wanted.skip(at.topic, at.partition, until)

    # -- silence

    def _while_nothing_comes(self) -> None:
        left = self.wanted.left()
        after = {(at.topic, at.partition): at.next for at in left}
        if after != self.before:  # positions move where markers or aborted records are
            self.before = after
            self.moved()
            return
        now = time.monotonic()
        if now >= self.deadline:
            raise TimeoutError(self._silence(left))
        hopeless = self.mine.hopeless()
        if now >= self.look_at and hopeless is not None:
            raise KafkaException(hopeless)
        if now >= self.look_at:
            self.look_at = now + LOOK_AGAIN_S
            self._look(left)

    def _look(self, left: Sequence[Range]) -> None:
        """Whether what is waited for can still come. Found twice, since leaders change."""
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
                # All that is there has come; what has not come yet may be late.
                why = f"the partition ends at {high}"
            if why is None:
                continue
            if (at.topic, at.partition) in self.suspects:
                self._lose(at, until, why)
            else:
                suspects.add((at.topic, at.partition))
        if self.suspects and len(self.wanted):
            self._assign()
        self.suspects = suspects

    def _silence(self, left: Sequence[Range]) -> str:
        at = left[0]
        others = f", nor from {len(left) - 1} more partitions" if len(left) > 1 else ""
        ended = f" (the partition ended at {at.eof})" if at.eof >= 0 else ""
        error = self.last_error or self.mine.complaint
        last = f"; the last error was: {error}" if error is not None else ""
        return (
            f"{at.topic} [{at.partition}]: nothing came from offset {at.next} on, of those up to "
            f"{at.end - 1}, for {self.options.poll_timeout_s:g} s{ended}{others}{last}. Are the "
            "brokers up and reachable from the executors? The time is the option "
            "kafkaConsumer.pollTimeoutMs"
        )


def _partitions(name: str, topic: Any) -> int | None:
    """How many partitions a topic has, by its metadata; None if that is not known yet."""
    if topic is None:
        return 0
    if topic.error is None:
        return max(topic.partitions, default=-1) + 1
    code = topic.error.code()
    if code in _LASTING:
        raise KafkaException(KafkaError(code, f"{name}: {topic.error.str()}"))
    return 0 if code in GONE else None
