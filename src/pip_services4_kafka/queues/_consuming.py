"""The receiving side of a queue during one subscription.

The reader's thread adds batches. It alone pauses, resumes and stores offsets. Any other thread
takes messages and reports their outcome. No lock is held while application code, a broker or
librdkafka runs, except one per partition during its own commit.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import ne
from typing import Any

from pip_services4_commons.errors import ApplicationException, BadRequestException
from pip_services4_components.context import Context

from cykafka import Message, MessageBatch
from cykafka.internal import EnvelopeError

from ..connect._reader import Reader, reader_of
from ..connect.KafkaSubscription import KafkaSubscription
from ._buffer import Buffer
from ._counting import count_all, count_assigned, known_lag
from ._dead_letters import DeadLetters
from ._measures import Measures
from ._partition import Lease, Partition, Taken
from ._unreadable import Unreadable

# How long the reader's thread waits for room before it pauses a partition, s. Rebalances wait
# meanwhile.
_ROOM_S = 0.5
# Delays of a message whose receiver raised, s.
_FIRST_DELAY_S, _LAST_DELAY_S = 0.1, 10.0
# A commit fails with these codes if the consumer is not a member of the group at the moment. The
# messages then come again.
_REBALANCING = frozenset(
    (
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "ASSIGNMENT_LOST",
        "NO_OFFSET",
        "STATE",
        "NOT_OPEN",
    )
)


@dataclass(frozen=True)
class Settings:
    """The configuration of the receiving side."""

    auto_commit: bool = True
    read_partitions: int = 1
    max_pending: int = 10_000
    max_attempts: int = 0  # 0: no limit
    bury_unreadable: bool = False  # send to the dead letter topic; else skip
    transactional: bool = False


class Consuming:
    """The messages of a subscription and their outcome.

    Parameters
    ----------
    settings : Settings
    name : callable
        The queue's name, for logs.
    read : callable
        Converts a batch to a list of envelopes, with an EnvelopeError for each unreadable record.
    each : callable or None
        A subclass's on_message(topic, partition, message), which gets every message instead.
    dead_letters : callable
        Returns the DeadLetters.
    measures : Measures
    """

    def __init__(
        self,
        settings: Settings,
        name: Callable[[], str],
        read: Callable[[MessageBatch], list[Any]],
        each: Callable[[str, int, Message], object] | None,
        dead_letters: Callable[[], DeadLetters],
        measures: Measures,
    ) -> None:
        self.settings = settings
        self.buffer = Buffer(settings.max_pending, settings.auto_commit)
        self.subscription: KafkaSubscription | None = None
        self.reader: Reader | None = None
        self._name = name
        self._read = read
        self._each = each
        self._dead_letters = dead_letters
        self._measures = measures
        self._joined = threading.Event()
        self._unreadable = Unreadable(
            name, dead_letters if settings.bury_unreadable else None, self._pass_over, measures
        )

    # The reader's thread

    def assigned(self, subscription: KafkaSubscription, numbers: list[int]) -> None:
        """Partitions were assigned."""
        self.buffer.assign(subscription, numbers)
        self._joined.set()
        self._measures.debug(None, "Queue %s reads partitions %s", self._name(), numbers)

    def revoked(self, subscription: KafkaSubscription, numbers: list[int]) -> None:
        """Partitions are revoked: commit their finished messages, drop the waiting ones."""
        self._commit_last(self.buffer.revoke(subscription, numbers))
        self._measures.debug(None, "Queue %s: partitions %s were revoked", self._name(), numbers)

    def lost(self, subscription: KafkaSubscription, numbers: list[int]) -> None:
        """Partitions were lost, and may already have other owners."""
        self.buffer.revoke(subscription, numbers)
        if not self.buffer.partitions():  # no member of the group, until the next assignment
            self._joined.clear()
        self._measures.warn(None, f"Queue {self._name()} lost partitions {numbers}")

    def seek(self, subscription: KafkaSubscription, number: int) -> None:
        """A partition was sought: drop its messages and progress."""
        self.buffer.forget(subscription, number)

    def closed(self) -> None:
        """The reader has ended."""
        self.buffer.close()
        self._unreadable.close()

    def poll(self, subscription: KafkaSubscription) -> None:
        """Do the periodic work: store offsets, resume partitions, write gauges."""
        reader = reader_of(subscription)
        if reader is None:
            return
        self._store(reader)
        resumed = self.buffer.with_room()
        if resumed:
            reader.resume([partition.number for partition in resumed])
        self._unreadable.settle()
        self._measures.gauges(self._gauges)

    def batch(self, subscription: KafkaSubscription, batch: MessageBatch) -> None:
        """Take in a fetched batch and release it."""
        count = len(batch)
        if self._each is not None:
            for message in batch:
                if self.buffer.is_closed():  # the next reader gets the rest
                    break
                self._hand_to_subclass(subscription, message)
        else:
            try:
                envelopes = self._read(batch)
            except Exception:  # a bug in cykafka, or no memory
                # Fetch the batch again, so that no message is skipped.
                self._seek_back(subscription, batch)
                raise
            healthy = EnvelopeError not in map(type, envelopes)
            numbers, view = batch.partitions, batch.offsets
            # The envelopes have copies, so the fetched data is freed before any wait.
            batch.release()
            for number, start, stop in _runs(numbers):
                offsets = _offsets(view, start, stop)
                if healthy:
                    self.buffer.add(subscription, number, offsets, envelopes[start:stop])
                else:
                    self._add_apart(subscription, number, offsets, envelopes[start:stop])
        self._measures.received(count)
        self._measures.debug(None, "Received %s messages via %s", count, self._name())
        self._unreadable.settle()
        self._make_room(subscription)

    def _make_room(self, subscription: KafkaSubscription) -> None:
        full = self.buffer.wait_for_room(_ROOM_S)
        reader = reader_of(subscription)
        if full and reader is not None:
            reader.pause([partition.number for partition in full])
            for partition in full:
                if not partition.buffered:
                    self._measures.warn(
                        None,
                        f"Queue {self._name()}, partition {partition.number}: reading is paused, "
                        f"because {partition.pending} received messages are neither completed nor "
                        "abandoned (options.max_pending)",
                    )

    def _seek_back(self, subscription: KafkaSubscription, batch: MessageBatch) -> None:
        first: dict[int, int] = {}
        for number, offset in zip(batch.partitions, batch.offsets, strict=True):
            first.setdefault(number, offset)
        reader = reader_of(subscription)
        if reader is not None:
            for number, offset in first.items():
                reader.seek(number, offset)

    def _hand_to_subclass(self, subscription: KafkaSubscription, message: Message) -> None:
        assert self._each is not None
        number, offset = _place(message)
        self.buffer.look_back(subscription, number, offset)
        try:
            self._each(str(message.topic()), number, message)
        except Exception as error:  # raised by the subclass: this message failed
            if self.buffer.is_closed():  # perhaps the reason; skip() does nothing now
                return
            self._measures.fail(
                None,
                error,
                f"Queue {self._name()}, partition {number}, offset {offset}: on_message failed",
            )
            taken = self.buffer.skip(subscription, number, offset, finished=False)
            if taken is None:  # the message is in the local queue
                self._measures.failed()
            else:
                told = f"on_message raised {type(error).__name__}: {error}"
                self._unreadable.add(taken, EnvelopeError(told, message))
            return
        # If the subclass did not call on_message of the base class, it handled the message itself.
        # Without autocommit the application completes the message.
        self.buffer.skip(subscription, number, offset, finished=self.settings.auto_commit)

    def put(self, number: int, offset: int | None, envelope: Any) -> None:
        """Add one message from on_message of the base class."""
        if offset is None:
            offset = self.buffer.next_offsets().get(number, (0, 0))[0] or 0
        self.buffer.add(self.subscription, number, (offset,), [envelope])

    def _add_apart(
        self,
        subscription: KafkaSubscription,
        number: int,
        offsets: Sequence[int],
        envelopes: list[Any],
    ) -> None:
        """Add messages, and hold back the unreadable ones among them."""
        start = 0
        for index, envelope in enumerate(envelopes):
            if type(envelope) is EnvelopeError:
                if start < index:
                    part = offsets[start:index]
                    self.buffer.add(subscription, number, part, envelopes[start:index])
                taken = self.buffer.hold(subscription, number, offsets[index])
                if taken is not None:
                    self._unreadable.add(taken, envelope)
                start = index + 1
        if start < len(envelopes):
            self.buffer.add(subscription, number, offsets[start:], envelopes[start:])

    def _store(self, reader: Reader) -> None:
        if not self.settings.auto_commit:
            return
        positions = self.buffer.positions()
        if positions:
            back = {
                partition.number: position
                for partition, position in positions
                if partition.went_back
            }
            try:
                reader.store({partition.number: position for partition, position in positions})
                if back:  # librdkafka commits a stored offset only if it is higher than before
                    reader.commit(back)
                    for partition, _ in positions:
                        partition.went_back = False
            except ApplicationException as error:
                for partition, _ in positions:
                    partition.stored = None
                self._measures.debug(None, "Storing offsets failed: %s", error)

    def _pass_over(self, messages: Sequence[Taken]) -> None:
        """Finish messages of one partition that were never handed over."""
        for taken in messages:
            self.buffer.finish(taken)
        if not self.settings.auto_commit:
            self._commit(messages[0].partition)

    # Commits

    def _commit_last(self, partitions: list[Partition]) -> None:
        """Commit the finished messages of revoked partitions."""
        reader = self.reader
        if reader is None:
            return
        deadline = time.monotonic() + reader.commit_timeout
        with contextlib.ExitStack() as turns:
            these = []
            for partition in partitions:
                # Wait for a running commit or transaction of the partition: otherwise the lower of
                # the two offsets could win. If it does not end in time, this commit would not
                # get an answer either.
                left = deadline - time.monotonic()
                mine = partition.committing.wait(left, reader.is_awaited_by)
                if mine:
                    turns.callback(partition.committing.__exit__)
                if mine is not None:
                    these.append(partition)
            self._commit_these(reader, these)

    def _commit_these(self, reader: Reader, partitions: list[Partition]) -> None:
        offsets, stored = {}, {}
        for partition in partitions:
            position = self.buffer.position(partition)
            if position is not None:
                went_back = partition.went_back or position < (partition.stored or 0)
                if position != partition.committed or went_back:
                    offsets[partition.number] = position
                if position != partition.stored and self.settings.auto_commit:
                    stored[partition.number] = position
        try:
            if stored:  # otherwise librdkafka would commit the previously stored offset
                reader.store(stored)
            if offsets:
                reader.commit(offsets)
        except ApplicationException as error:
            text = (
                f"Queue {self._name()}: committing {offsets} failed, these messages may come again"
            )
            if error.code in _REBALANCING:
                self._measures.debug(None, "%s: %s", text, error)
            else:
                self._measures.fail(None, error, text)

    def _commit(self, partition: Partition) -> None:
        """Commit the position of a partition, unless it is already committed."""
        reader = self.reader
        if reader is None:
            return
        with partition.committing:
            position = self.buffer.position(partition)
            if position is None or position == partition.committed or not partition.owned:
                return
            try:
                reader.commit({partition.number: position})
            except ApplicationException as error:
                if partition.owned and error.code not in _REBALANCING:
                    raise
                self._measures.debug(
                    None, "Partition %s is reassigned: no commit (%s)", partition.number, error
                )
            else:
                partition.committed = position

    # The application's threads

    def take(self, timeout: float) -> Any:
        """Take the next envelope; wait for it up to `timeout` s. None: no message came."""
        taken = self.buffer.take(timeout)
        return None if taken is None else taken.envelope

    def complete(self, message: Message) -> None:
        """Finish a message."""
        number, offset = _place(message)
        partition = self.buffer.settle(number, offset) if self._is_ours(message) else None
        if partition is None:
            self._measures.debug(
                None, "complete: partition %s, offset %s is not in progress", number, offset
            )
        elif not self.settings.auto_commit:
            self._commit(partition)

    def _is_ours(self, message: Message) -> bool:
        """Whether the message is from this topic; other topics have the same offsets."""
        return self.subscription is None or message.topic() in (None, self.subscription.topic)

    def abandon(self, message: Message, envelope: Any) -> None:
        """Hand over a message again at once. After its last attempt it becomes a dead letter."""
        number, offset = _place(message)
        limit = self.settings.max_attempts
        attempts = 0
        if self._is_ours(message):
            attempts = self.buffer.abandon(number, offset, envelope, limit)
        if not attempts:
            self._measures.debug(
                None, "abandon: partition %s, offset %s is not in progress", number, offset
            )
        elif limit and attempts >= limit:
            self.bury(message, f"abandoned {attempts} times", attempts)
            told = f"Queue {self._name()}, partition {number}, offset {offset}"
            self._measures.warn(None, f"{told}: a dead letter, abandoned {attempts} times")

    def failed(self, lease: Lease, index: int, envelope: Any, error: Exception) -> None:
        """The receiver raised an exception: retry the message or make it a dead letter."""
        self._measures.failed()
        number, offset = lease.partition.number, lease.run.offsets[lease.start + index]
        told = f"Queue {self._name()}, partition {number}, offset {offset}"
        context = Context.from_trace_id(getattr(envelope, "trace_id", None) or "")
        self._measures.fail(context, error, f"{told}: the receiver failed")
        attempts = self.buffer.count_failure(lease, index)
        if not attempts:
            return
        limit = self.settings.max_attempts
        message = _reference(envelope)
        if limit and attempts >= limit and message is not None:
            try:
                self.bury(message, f"{type(error).__name__}: {error}", attempts)
                self._measures.warn(context, f"{told}: a dead letter after {attempts} attempts")
                return
            except Exception as raised:  # any error: listening continues
                self._measures.fail(
                    context, raised, f"{told}: cannot move it to the dead letter topic"
                )
        delay = min(_LAST_DELAY_S, _FIRST_DELAY_S * 2 ** min(attempts - 1, 20))
        self.buffer.retry(lease, index, envelope, delay)

    def bury(self, message: Message, error: str, attempts: int | None = None) -> None:
        """Move a message to the dead letter topic."""
        number, offset = _place(message)
        if not self._is_ours(message):
            raise BadRequestException(
                None,
                "NO_REFERENCE",
                f"queue {self._name()}: the message is one of topic {message.topic()}, not of the "
                "queue's topic",
            )
        if attempts is None:
            attempts = self.buffer.attempts(number, offset) + 1
        if not self._bury_in_transaction(message, error, attempts):
            self._dead_letters().send(message, error, attempts)
            self.complete(message)
        self._measures.dead()

    def _bury_in_transaction(self, message: Message, error: str, attempts: int) -> bool:
        number, offset = _place(message)
        reader = self.reader
        partition = self.buffer.of(number)
        if not self.settings.transactional or reader is None or partition is None:
            return False
        with partition.committing:  # otherwise a running commit could overwrite the transaction's
            position = self.buffer.position_behind(partition, offset)
            if position is None:
                return False
            group = reader.consumer_group_metadata()
            self._dead_letters().send_and_commit(message, error, attempts, position, group)
            self.buffer.settle(number, offset)
            partition.committed = position
        return True

    def clear(self) -> None:
        """Finish all waiting messages."""
        for partition in self.buffer.clear():
            if not self.settings.auto_commit:
                self._commit(partition)

    # Numbers

    def count(self) -> int:
        """The number of messages up to the high watermarks that were not handed over yet."""
        reader = self.reader
        if reader is None:
            return 0
        return count_assigned(reader, self.buffer) if self._joined.is_set() else count_all(reader)

    def _gauges(self) -> tuple[int | None, int]:
        """Lag, from the high watermarks of the last fetches, and messages in flight."""
        lag = None
        subscription = self.subscription
        consumer = subscription.handler if subscription is not None else None
        if consumer is not None and subscription is not None:
            lag = known_lag(consumer, str(subscription.topic), self.buffer)
        return lag, self.buffer.in_flight()

    def last_gauges(self) -> None:
        """Write the final gauges."""
        self._measures.gauges(lambda: (None, 0), now=True)


def _place(message: Message) -> tuple[int, int]:
    number, offset = message.partition(), message.offset()
    if number is None or offset is None:
        raise BadRequestException(
            None, "NO_REFERENCE", "the message has no partition or offset: no queue received it"
        )
    return number, offset


def _reference(envelope: Any) -> Message | None:
    reference = envelope.get_reference()
    return reference if isinstance(reference, Message) else None


def _runs(partitions: memoryview) -> Iterator[tuple[int, int, int]]:
    """The runs of neighbors of one partition in a batch: partition, start and end of each run."""
    numbers = partitions.tolist()
    if numbers.count(numbers[0]) == len(numbers):
        yield numbers[0], 0, len(numbers)
        return
    start = 0
    # This loop runs in C, because every message of a batch may be of another partition.
    changes = compress(range(1, len(numbers)), map(ne, numbers, numbers[1:]))
    for stop in (*changes, len(numbers)):
        yield numbers[start], start, stop
        start = stop


def _offsets(view: memoryview, start: int, stop: int) -> Sequence[int]:
    """The offsets of neighbors; a range if they have no gaps, which is the usual case."""
    first, last = view[start], view[stop - 1]
    if last - first == stop - 1 - start:
        return range(first, last + 1)
    return tuple(view[start:stop].tolist())
