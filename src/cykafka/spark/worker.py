"""On the executors: ranges of offsets become Arrow record batches.

A consumer is assigned the ranges of a task and never joins a group. It stays open in the worker
process for the tasks to come, since Spark uses its workers again; when something goes wrong, it is
closed.
Rows are built in C; what is here happens once per batch.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from cykafka import Consumer, KafkaError, KafkaException, Message, MessageBatch, TopicPartition
from cykafka._ranges import Range, Ranges
from cykafka.spark.client import ClientConfig
from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import ReadOptions

__all__ = ["DataLossError", "close_consumers", "consumer_config", "read_ranges"]

_log = logging.getLogger("cykafka.spark")

# What one record batch holds at most: more gains nothing, less costs.
BATCH_ROWS = 10_000
BATCH_BYTES = 12 * 1024 * 1024

# Consumers kept open in one worker; a query has one.
KEPT = 2

# How long nothing comes before the brokers are asked what is left of the partitions, s, and again.
LOOK_AFTER_S = 2.0
LOOK_AGAIN_S = 2.0
WAIT_S = 0.5
REQUEST_S = 30.0

GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
# What waiting does not heal.
_LASTING = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._FATAL,
)

ADVICE = (
    "If these records may be missed, set the option failOnDataLoss to false; if not, let the "
    "topic keep its records for longer (retention.ms, retention.bytes) than the query falls behind"
)


class DataLossError(RuntimeError):
    """Records that were to be read are not there any more."""


def consumer_config(kafka: ClientConfig, group_id: str) -> ClientConfig:
    """Properties of a consumer that reads ranges; what a user says of ``kafka.*`` wins."""
    config = ClientConfig(kafka)
    config.setdefault("group.id", group_id)
    # An idle request holds up what comes next on its connection, such as the next task's.
    config.setdefault("fetch.wait.max.ms", "10")
    config.update(
        {
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
        }
    )
    return config


# -- consumers that stay open


@dataclass
class _Held:
    consumer: Consumer
    # How many partitions the topics have that its metadata knows.
    topics: dict[str, int] = field(default_factory=dict)


_kept: OrderedDict[tuple[int, frozenset[tuple[str, str]]], _Held] = OrderedDict()


@contextmanager
def _held(config: ClientConfig) -> Iterator[_Held]:
    """A consumer of this configuration, which nobody else has meanwhile."""
    key = (os.getpid(), frozenset(config.items()))
    held = _kept.pop(key, None)
    if held is None:
        held = _Held(Consumer(dict(config)))
    try:
        yield held
        _unassign(held.consumer)
    except GeneratorExit:  # nobody wants the rest
        _unassign(held.consumer)
    except BaseException:
        held.consumer.close()
        raise
    other = _kept.pop(key, None)
    if other is not None:
        other.consumer.close()
    _kept[key] = held
    while len(_kept) > KEPT:
        (pid, _), old = _kept.popitem(last=False)
        if pid == os.getpid():
            old.consumer.close()


def _unassign(consumer: Consumer) -> None:
    """Give up what is assigned; librdkafka would keep what is paused so for the next task."""
    consumer.resume(consumer.assignment())
    consumer.unassign()


def close_consumers() -> None:
    """Close what this process keeps open."""
    while _kept:
        (pid, _), held = _kept.popitem()
        if pid == os.getpid():
            held.consumer.close()


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
    with _held(config) as held:
        task = _Task(held, ranges, options)
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
        self, held: _Held, ranges: Sequence[PartitionRange], options: ReadOptions
    ) -> None:
        self.held = held
        self.consumer = held.consumer
        self.options = options
        self.wanted = Ranges((each.topic, each.partition, each.start, each.end) for each in ranges)
        self.running = len(self.wanted)
        self.last_error: KafkaError | None = None
        self.suspects: set[tuple[str, int]] = set()
        self.before: dict[tuple[str, int], int] = {}
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
        wait = max(min(WAIT_S, self.deadline - time.monotonic()), 0.0)
        batch = self.consumer._consume_ranges(self.wanted, BATCH_ROWS, BATCH_BYTES, wait)
        again = [self._heed(message) for message in batch.errors]
        if any(again) and len(self.wanted):
            self._assign()
        if len(batch):
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
        for topic, partition in most.items():
            if self.held.topics.get(topic, 0) <= partition:
                self.held.topics[topic] = self._partitions_of(topic)

    def _partitions_of(self, topic: str) -> int:
        found = self.consumer.list_topics(topic, self._request_s()).topics.get(topic)
        if found is None or found.error is not None:
            return 0
        return max(found.partitions, default=-1) + 1

    def _request_s(self) -> float:
        return min(REQUEST_S, self.options.poll_timeout_s)

    def _assign(self) -> None:
        left = self.wanted.left()
        self.running = len(left)
        _unassign(self.consumer)
        self.consumer.assign([TopicPartition(at.topic, at.partition, at.next) for at in left])

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

    def _heed(self, message: Message) -> bool:
        """What to do about an error; whether the partitions have to be assigned again."""
        error = message.error()
        assert error is not None
        code = error.code()
        at = self._range_of(message)
        if at is not None and code == KafkaError._AUTO_OFFSET_RESET:
            self._out_of_range(at)
            return True
        if at is not None and code in GONE:
            self.last_error = error
            self.held.topics.pop(at.topic, None)
            if self._partitions_of(at.topic) <= at.partition:
                self.look_at = 0.0
                return False
            return True
        if error.fatal() or code in _LASTING:
            raise KafkaException(error)
        self.last_error = error
        return False

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
        elif high < at.end:
            # A position behind the end: the topic was made anew, or its log was cut.
            self._lose(at, at.end, f"the partition ends at {high}")

    def _ends(
        self, ranges: Sequence[Range]
    ) -> dict[tuple[str, int], tuple[int | None, int | None]]:
        asked = [TopicPartition(at.topic, at.partition) for at in ranges]
        found: dict[tuple[str, int], tuple[int | None, int | None]] = {}
        for each, ends in self.consumer.watermarks(asked, self._request_s()).items():
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
            if high is None and self._partitions_of(at.topic) <= at.partition:
                why = "the partition does not exist (any more)"
            elif low is not None and low > at.next:
                why, until = f"the partition begins at {low}", min(low, at.end)
            elif high is not None and high < at.end:
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
        last = f"; the last error was: {self.last_error}" if self.last_error is not None else ""
        return (
            f"{at.topic} [{at.partition}]: nothing came from offset {at.next} on, of those up to "
            f"{at.end - 1}, for {self.options.poll_timeout_s:g} s{ended}{others}{last}. Are the "
            "brokers up and reachable from the executors? The time is the option "
            "kafkaConsumer.pollTimeoutMs"
        )
