"""Yields record batches: from offset ranges, from partitions without end, or as a group member."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from cykafka import (
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    MessageBatch,
    ShareConsumer,
    TopicPartition,
)
from cykafka.cli.records.places import Span
from cykafka.cli.terminal.failures import Failed, reason
from cykafka.cli.terminal.texts import name_of
from cykafka.internal import Ranges, commit_within, consume_ranges

__all__ = ["Member", "ShareMember", "follow", "read_to_end"]

_BATCH = 10_000
_BATCH_BYTES = 16 << 20
# The longest time that a record waits for others.
_WAIT_S = 0.1
_COMMIT_EVERY_S = 1.0
# Connection errors, after which librdkafka reconnects, and partition ends.
_PASSING = (
    KafkaError._PARTITION_EOF,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._MAX_POLL_EXCEEDED,
)
# librdkafka looks up the group's coordinator even if the consumer assigns its partitions itself.
_WITHOUT_GROUP = (*_PASSING, KafkaError.GROUP_AUTHORIZATION_FAILED)


def read_to_end(consumer: Consumer, parts: Sequence[Span]) -> Iterator[MessageBatch]:
    """Yield the records in parts of partitions; a batch, maybe empty, at least every 0.1 s.

    The consumer has ``enable.partition.eof``.

    Raises
    ------
    Failed
        An error that persists, so that waiting does not help.
    """
    parts = [part for part in parts if part.start < part.end]
    ranges = Ranges((part.topic, part.partition, part.start, part.end) for part in parts)
    _assign(consumer, parts)
    while len(ranges):
        batch = consume_ranges(consumer, ranges, _BATCH, _BATCH_BYTES, _WAIT_S)
        _check(batch, _WITHOUT_GROUP)
        yield batch


def follow(consumer: Consumer, parts: Sequence[Span]) -> Iterator[MessageBatch]:
    """Yield all records from each part's beginning on; a batch at least every 0.1 s.

    Raises
    ------
    Failed
        An error that persists, so that waiting does not help.
    """
    _assign(consumer, parts)
    while True:
        batch = consumer.consume_batch(_BATCH, _WAIT_S)
        _check(batch, _WITHOUT_GROUP)
        yield batch


class Member:
    """A group member, which commits the records that the command has printed.

    Parameters
    ----------
    consumer : Consumer
        Configured with ``enable.partition.eof`` and without automatic commits.
    topics : list of str
        Names, or regular expressions that begin with ``^``.
    to_end : bool
        Whether to end when the member has read all assigned partitions to their ends.
    timeout : float
        Longest time for a commit in s.
    """

    def __init__(
        self, consumer: Consumer, topics: list[str], to_end: bool, timeout: float
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._to_end = to_end
        self._timeout = timeout
        self._assigned: set[tuple[str, int]] | None = None
        self._ended: set[tuple[str, int]] = set()
        self._printed: dict[tuple[str, int], TopicPartition] = {}
        self._uncommitted = False
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S

    def batches(self) -> Iterator[MessageBatch]:
        """Yield records; a batch, maybe empty, at least every 0.1 s.

        Raises
        ------
        Failed
            An error that persists, so that waiting does not help.
        """
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        while not self._at_end():
            self._commit_now_and_then()
            batch = self._consumer.consume_batch(_BATCH, _WAIT_S)
            self._ended.update(_check(batch, _PASSING))
            yield batch

    def note_printed(self, batch: MessageBatch) -> None:
        """Note that the command printed records; `batches` and `finish` commit them."""
        for partition in batch.positions():
            self._printed[partition.topic, partition.partition] = partition
        self._uncommitted = True

    def finish(self) -> None:
        """Commit all printed records.

        Raises
        ------
        Failed
            The commit failed.
        """
        self._commit(list(self._printed))

    def _at_end(self) -> bool:
        return self._to_end and self._assigned is not None and self._assigned <= self._ended

    def _commit_now_and_then(self) -> None:
        if self._uncommitted and time.monotonic() >= self._commit_at:
            if self._printed:
                self._consumer.commit(offsets=list(self._printed.values()))
            self._uncommitted = False
            self._commit_at = time.monotonic() + _COMMIT_EVERY_S

    def _commit(self, keys: Iterable[tuple[str, int]]) -> None:
        offsets = [self._printed.pop(key) for key in keys if key in self._printed]
        if not offsets:
            return
        try:
            answer = commit_within(self._consumer, offsets, self._timeout)
        except KafkaException as error:
            raise Failed(f"cannot commit the group's offsets: {error.args[0].str()}") from error
        for partition in answer or ():
            if partition.error is not None:
                place = name_of(partition)
                raise Failed(
                    f"cannot commit the group's offset of {place}: {partition.error.str()}"
                )

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        added = _keys(partitions)
        self._assigned = (self._assigned or set()) | added
        self._ended -= added

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit(_keys(partitions))
        self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        lost = _keys(partitions)
        # Without partitions the next assignment is unknown, so this is not the end.
        self._assigned = (self._assigned or set()) - lost or None
        for key in lost:
            self._printed.pop(key, None)


class ShareMember:
    """A member of a share group. Its group delivers records again that it has not printed.

    Parameters
    ----------
    consumer : ShareConsumer
        In explicit mode.
    topics : list of str
    timeout : float
        Longest time for a commit in s.
    warn : callable
        Gets a line about each record that librdkafka cannot read.
    """

    def __init__(
        self,
        consumer: ShareConsumer,
        topics: list[str],
        timeout: float,
        warn: Callable[[str], None],
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._timeout = timeout
        self._warn = warn

    def batches(self) -> Iterator[MessageBatch]:
        """Yield records; a batch, maybe empty, at least every 0.1 s.

        Raises
        ------
        Failed
            The group does not accept the member.
        """
        self._consumer.subscribe(self._topics)
        while True:
            try:
                batch = self._consumer.consume_batch(_WAIT_S)
            except KafkaException as error:
                if error.args[0].retriable():
                    self._warn(reason(error))
                    continue
                raise Failed(reason(error)) from error
            for message in batch.errors:
                place = f"{message.topic()}[{message.partition()}] at {message.offset()}"
                self._warn(f"skipped {place}: {message.error()}")
            # Of a batch that is not printed to its end, the rest goes to another member.
            self._consumer.acknowledge(batch, AcknowledgeType.RELEASE)
            yield batch

    def note_printed(self, batch: MessageBatch) -> None:
        """Accept records that the command has printed. The next poll sends it."""
        self._consumer.acknowledge(batch)

    def finish(self) -> None:
        """Send the last acknowledgements.

        Raises
        ------
        Failed
            The commit failed: the group delivers the records again.
        """
        for partition, error in self._consumer.commit_sync(self._timeout).items():
            if error is not None:
                raise Failed(
                    f"cannot accept the records of {name_of(partition)}, which the group delivers "
                    f"again: {reason(error)}"
                )


def _keys(partitions: Iterable[TopicPartition]) -> set[tuple[str, int]]:
    return {(partition.topic, partition.partition) for partition in partitions}


def _assign(consumer: Consumer, parts: Iterable[Span]) -> None:
    consumer.assign([TopicPartition(part.topic, part.partition, part.start) for part in parts])


def _check(batch: MessageBatch, passing: Container[int]) -> set[tuple[str, int]]:
    """Return the partitions that the batch has read to their ends.

    Raises
    ------
    Failed
        An error that persists, so that waiting does not help.
    """
    ended = set()
    for message in batch.errors:
        error, topic, partition = message.error(), message.topic(), message.partition()
        assert error is not None
        if error.code() not in passing:
            place = f"{topic}[{partition}]: " if topic else ""
            raise Failed(f"{place}{error.str()}") from KafkaException(error)
        if error.code() == KafkaError._PARTITION_EOF:
            assert topic is not None
            assert partition is not None
            ended.add((topic, partition))
    return ended
