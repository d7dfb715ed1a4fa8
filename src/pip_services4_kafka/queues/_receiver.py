"""A queue's receiving side: fetched messages and their outcomes.

The session's thread adds batches, and pauses and resumes partitions. Other threads take messages
and report their outcome. No thread holds a lock while application code or librdkafka runs, except
the lock that keeps commits in order.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pip_services4_commons.errors import (
    ApplicationException,
    BadRequestException,
    NotFoundException,
)
from pip_services4_components.context import Context

from cykafka import (
    OFFSET_BEGINNING,
    KafkaError,
    KafkaException,
    Message,
    MessageBatch,
    TopicPartition,
)
from cykafka.internal import EnvelopeError

from .._errors import convert, describe
from ..connect._session import Handler, MessageLoop, Session
from ..connect.KafkaConnection import KafkaConnection
from ._commits import Commits, decode_ranges, encode_ranges
from ._local_queue import BACKOFF, Backoff, LocalQueue
from ._measures import Measures
from ._partition import Lease, PartitionState

# How long the session's thread waits for room before it pauses a partition, in seconds. Rebalances
# wait until then.
_ROOM_S = 0.5
# The time limit for broker requests, in seconds.
_REQUEST_S = 10.0
# How long a new leader may not know its end offsets, and how often to retry, in seconds.
_KNOWN_S, _PAUSE_S = 2.0, 0.1
# The log names a message that holds back its partition's offset for this long, in seconds.
_STUCK_S = 60.0
# The longest reason in a header. A dead letter must not exceed the brokers' size limit.
_ERROR_MAX = 1000


@dataclass(frozen=True)
class ReceiverSettings:
    """The options for the receiving side."""

    auto_commit: bool = True
    from_beginning: bool = False
    max_pending: int = 10_000
    max_attempts: int = 10  # 0 means no limit
    backoff: Backoff = BACKOFF


class DeadLetters:
    """The dead letter topic of a queue: failed messages, with their origin and their error.

    Parameters
    ----------
    connection : KafkaConnection
    topic : str
        Created with the first dead letter if it is missing.
    """

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._exists = False

    def __str__(self) -> str:
        return self._topic

    def send(self, message: Message, error: str, attempts: int) -> None:
        """Send a message, and return when all in-sync replicas have stored it.

        Parameters
        ----------
        message : Message
            The consumed message. Its key, value and headers are sent unchanged.
        error : str
            Why the message failed. Only the first 1000 characters are sent.
        attempts : int
            The number of failed attempts.
        """
        headers = [
            *(message.headers() or []),
            ("dlq_topic", str(message.topic()).encode()),
            ("dlq_partition", str(message.partition()).encode()),
            ("dlq_offset", str(message.offset()).encode()),
            ("dlq_timestamp", str(message.timestamp()[1]).encode()),
            ("dlq_error", error[:_ERROR_MAX].encode(errors="replace")),
            ("dlq_attempts", str(attempts).encode()),
        ]
        try:
            self._publish(message.value(), message.key(), headers)
        except BadRequestException as refused:
            if refused.code != "MSG_SIZE_TOO_LARGE":
                raise
            # The headers exceed the brokers' size limit. The value is still in its topic.
            self._publish(None, message.key(), [*headers, ("dlq_without_value", b"true")])

    def _publish(
        self, value: bytes | None, key: bytes | None, headers: list[tuple[str, Any]]
    ) -> None:
        if not self._exists:
            self._connection.ensure_queue(self._topic)
            self._exists = True
        letter = {
            "value": value,
            "key": key,
            "headers": headers,
            "partition": -1,  # any; options.write_partition is for the queue's topic
        }
        try:
            self._connection.publish(self._topic, [letter], {"acks": -1})
        except NotFoundException:  # somebody deleted the topic
            self._exists = False
            raise


class Receiver(Handler):
    """One session's messages and their outcomes.

    Parameters
    ----------
    settings : Settings
    ends : mapping
        The end offsets at `open`, where a group without commits begins. Other partitions begin at
        their first message.
    read : callable
        Converts a batch to a list of envelopes, with an EnvelopeError per unreadable record.
    on_message : callable or None
        A subclass's on_message(topic, partition, message), which gets every message instead.
    dead_letters : DeadLetters
    measures : Measures
    """

    def __init__(
        self,
        settings: ReceiverSettings,
        ends: Mapping[int, int],
        read: Callable[[MessageBatch], list[Any]],
        on_message: Callable[[str, int, Message], object] | None,
        dead_letters: DeadLetters,
        measures: Measures,
    ) -> None:
        self.settings = settings
        self.local = LocalQueue(settings.max_pending, settings.auto_commit, settings.backoff)
        self.session: Session | None = None
        self._ends = ends
        self._read = read
        self._on_message = on_message
        self._dead_letters = dead_letters
        self._measures = measures
        self._log = measures.log
        self._joined = threading.Event()
        self._loop = MessageLoop()
        self._commits = Commits(self.local, measures)
        self._commit_interval = 5.0  # s
        self._ticked = time.monotonic()
        # Messages that become dead letters, with the reason and the number of attempts.
        self._dead: deque[tuple[Message, str, int]] = deque()
        self._dead_due = 0.0  # when to retry

    # The session's thread

    def started(self, session: Session) -> None:
        """Store the session. From now on the queue's threads may call this object."""
        interval = session.subscription.options.get("auto.commit.interval.ms", 5000)
        self._commit_interval = float(interval) / 1000
        self.session = session

    def assigned(self, partitions: list[int]) -> Mapping[int, int]:
        """Find where the partitions begin and what earlier owners finished."""
        session = self.session
        assert session is not None
        known = self._read_committed(partitions)
        positions = {number: place.offset for number, place in known.items() if place.offset >= 0}
        starts: dict[int, int] = {}
        if not self.settings.from_beginning:
            new = known.keys() - positions.keys()
            starts = {number: self._ends.get(number, OFFSET_BEGINNING) for number in new}
        finished = {
            number: ranges
            for number, offset in positions.items()
            if (ranges := decode_ranges(offset, known[number].metadata))
        }
        ends = {number: offset for number, offset in starts.items() if offset >= 0}
        reached = self.local.reached(partitions)
        for number, ranges in finished.items():
            reached[number] = max(reached.get(number, 0), ranges[-1][1])
        lost = self._find_shorter(reached)
        self.local.forget(lost)
        self.local.assign(
            {number: positions.get(number, ends.get(number)) for number in partitions},
            {number: ranges for number, ranges in finished.items() if number not in lost},
        )
        # Also replaces the metadata of a log that is shorter now: old metadata would hide new
        # messages.
        begun = [p for p in self.local.partitions() if p.number in ends or p.number in lost]
        for partition in begun:
            partition.committed = None, ""
        try:  # at once, so that the group begins there even after a crash
            self._commits.commit(session, begun)
        except ApplicationException as error:
            self._log.warn(
                f"{self._measures}: cannot commit where the group begins; until the first commit, "
                f"a restart begins elsewhere: {error}"
            )
        self._joined.set()
        self._log.debug("%s reads partitions %s", self._measures, partitions)
        return starts

    def _read_committed(self, partitions: list[int]) -> dict[int, TopicPartition]:
        """Read the committed offsets. Partitions with errors are missing."""
        session = self.session
        assert session is not None
        failure: object = None
        found: list[TopicPartition] = []
        try:
            found = session.request(
                "reading the committed offsets",
                lambda consumer: consumer.committed(session.places(partitions), _REQUEST_S),
            )
        except ApplicationException as error:
            failure = error
        known = {place.partition: place for place in found if place.error is None}
        unknown = sorted(set(partitions) - known.keys())
        if unknown:
            failure = failure or next(place.error for place in found if place.error is not None)
            self._log.warn(
                f"{self._measures}: cannot read the committed offsets for partitions {unknown}; "
                "reading begins at the committed offset or else at the first message, and the "
                f"queue may redeliver finished messages: {failure}"
            )
        return known

    def _find_shorter(self, reached: dict[int, int]) -> set[int]:
        """Find the partitions whose logs end before an offset that they once reached.

        A broker that lost the end of its log in an unclean election keeps the group's commits, but
        new messages get the same offsets again. A recreated topic does the same.
        """
        session = self.session
        if not reached or session is None:
            return set()
        deadline = time.monotonic() + _KNOWN_S
        try:
            while shorter := self._read_shorter(session, reached):
                if time.monotonic() >= deadline:
                    break
                time.sleep(_PAUSE_S)
        except ApplicationException as error:
            text = f"{self._measures}: cannot read the end offsets"
            self._log.warn(f"{text}; the queue may redeliver finished messages: {error}")
            return set(reached)
        if shorter:
            self._log.warn(
                f"{self._measures}: partitions {sorted(shorter)} are shorter than before, or "
                "cannot be read; the queue may redeliver finished messages"
            )
        return shorter

    def _read_shorter(self, session: Session, reached: dict[int, int]) -> set[int]:
        marks = session.request(
            "reading the end offsets",
            lambda consumer: consumer.watermarks(session.places(reached), _REQUEST_S),
        )
        ends = {place.partition: mark.high for place, mark in marks.items() if place.error is None}
        return {number for number, end in reached.items() if end > ends.get(number, -1)}

    def revoked(self, partitions: list[int]) -> None:
        """Drop waiting messages and commit finished ones."""
        assert self.session is not None
        self._loop.drop(partitions)
        gone = self.local.revoke(partitions)
        try:
            self._commits.commit_revoked(self.session, gone)
        except ApplicationException as error:
            text = f"{self._measures}: cannot commit partitions {partitions}"
            self._log.error(f"{text}; the group may redeliver their messages", error)
        self._log.debug("%s: partitions %s were revoked", self._measures, partitions)

    def lost(self, partitions: list[int]) -> None:
        """Drop waiting messages."""
        self._loop.drop(partitions)
        self.local.revoke(partitions)
        if not self.local.partitions():  # not a group member until the next assignment
            self._joined.clear()
        text = f"{self._measures} lost partitions {partitions}"
        if self.session is not None and self.session.outage.is_recent():
            self._log.debug("%s", text)
        else:
            self._log.warn(text)

    def sought(self, partition: int) -> None:
        """Forget a partition's messages and progress."""
        self._loop.drop({partition})
        self.local.restart(partition)

    def failed(self, error: KafkaError) -> None:
        self._measures.error()

    def closed(self) -> None:
        self.local.close()
        self.session = None
        zero: dict[str, float] = {"in_flight": 0, "lag": 0, "oldest_unfinished_age": 0}
        self._measures.gauges(lambda: zero, now=True)

    def batch(self, batch: MessageBatch) -> None:
        """Add a fetched batch to the local queue and release it."""
        count = len(batch)
        if self._on_message is not None and self.session is not None:
            self._loop.run(self.session, batch, self._call_subclass, self.polled)
        else:
            envelopes = self._read(batch)
            self._measures.log_messages("Received", envelopes)
            healthy = EnvelopeError not in map(type, envelopes)
            numbers, offsets = batch.partitions, batch.offsets
            # The envelopes contain copies, so this frees the fetched data before any wait.
            batch.release()
            for number, start, stop in _runs(numbers):
                if healthy:
                    self.local.add(number, _span(offsets, start, stop), envelopes[start:stop])
                else:
                    self._add_apart(number, offsets[start:stop].tolist(), envelopes[start:stop])
        self._measures.count("received_messages", count)
        self._make_room()

    def _make_room(self) -> None:
        full = self.local.wait_for_room(_ROOM_S)
        if full and self.session is not None:
            self.session.pause([partition.number for partition in full])
            for partition in full:
                if not partition.buffered:
                    self._log.warn(
                        f"{self._measures}, partition {partition.number}: paused, because the "
                        f"application has neither completed nor abandoned {partition.pending} "
                        "messages (options.max_pending)"
                    )

    def _call_subclass(self, message: Message) -> None:
        assert self._on_message is not None
        number, offset = _place(message)
        error = None
        self.local.expect(number, offset)
        try:
            self._on_message(str(message.topic()), number, message)
        except BaseException as raised:  # raised by the subclass: this message failed
            error = raised
        if self.local.add_delivered(number, offset) is None:  # in the local queue, or closed
            if error is not None and not self.local.is_closed():
                self._measures.failed()
                self._log.error(f"{self._at(number, offset)}: on_message raised", error)
        elif error is not None:
            text = f"on_message raised {describe(error)}"
            self._note_unreadable([(message, text)], error)
        elif self.settings.auto_commit:
            # The subclass has handled the message.
            self.local.finish(number, offset)

    def _add_apart(self, number: int, offsets: list[int], envelopes: list[Any]) -> None:
        """Add the messages between unreadable ones."""
        start, unreadable = 0, []
        for index, envelope in enumerate((*envelopes, EnvelopeError("", None))):
            if type(envelope) is EnvelopeError:
                if start < index:
                    self.local.add(number, offsets[start:index], envelopes[start:index])
                start = index + 1
                message = envelope.message
                if message is not None:
                    self.local.expect(number, offsets[index])
                    if self.local.add_delivered(number, offsets[index]) is not None:
                        unreadable.append((message, str(envelope)))
        self._note_unreadable(unreadable)

    def _note_unreadable(
        self, found: list[tuple[Message, str]], raised: BaseException | None = None
    ) -> None:
        """Log unreadable messages, which become dead letters."""
        if found:
            self._measures.failed(len(found))
            message, error = found[0]
            text = f"{self._at(*_place(message))}: cannot read the message: {error}"
            if len(found) > 1:
                text += f" (and {len(found) - 1} other messages of this batch)"
            action = "sending a dead letter" if self.settings.max_attempts else "skipping"
            self._log.error(f"{text}; {action}", raised)
            self._dead.extend((message, error, 1) for message, error in found)

    def _send_dead_letters(self, session: Session) -> None:
        """Send dead letters, but only for a short time, because rebalances wait.

        With `max_attempts` 0 this skips unreadable messages instead.
        """
        until = time.monotonic() + _ROOM_S
        ended: dict[int, PartitionState] = {}
        while self._dead and self._dead_due <= time.monotonic() < until:
            if session.outage:
                break
            message, reason, attempts = self._dead[0]
            number, offset = _place(message)
            if self.local.is_unfinished(number, offset):  # else another member owns the partition
                try:
                    if self.settings.max_attempts:
                        self._send_dead_letter(message, reason, attempts)
                except Exception as error:  # any error may be temporary
                    text = f"{self._at(number, offset)}: cannot send the dead letter; retrying"
                    self._log.error(text, error)
                    self._dead_due = time.monotonic() + self.settings.backoff.longest
                    self._dead.rotate(-1)  # another dead letter may succeed
                    break
                partition = self.local.finish(number, offset)
                if partition is not None:
                    ended[number] = partition
            self._dead.popleft()
        if ended and not self.settings.auto_commit:
            self._commits.commit(session, ended.values())

    def _send_dead_letter(self, message: Message, reason: str, attempts: int) -> None:
        self._dead_letters.send(message, reason, attempts)
        self._measures.count("dead_letter_messages")

    def polled(self) -> None:
        """Resume partitions, send dead letters, commit and write gauges."""
        session = self.session
        if session is None:
            return
        resumed = self.local.resume_with_room()
        if resumed:
            session.resume([partition.number for partition in resumed])
        self._send_dead_letters(session)
        now = time.monotonic()
        if now - self._ticked >= self._commit_interval and self._commits.begin(session):
            self._ticked = now
        self._measures.gauges(lambda: self._gauges(session))

    def committed(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        """Take the outcome of a commit that `polled` started."""
        self._commits.ended(self.session, error, positions)

    # The application's threads

    def complete(self, message: Message) -> None:
        """Finish a message. Without autocommit, commit if it was the first unfinished message."""
        number, offset = _place(message)
        partition = self.local.finish(number, offset) if self._is_from_topic(message) else None
        if partition is None or not partition.owned:
            self._log.debug("complete: partition %s, offset %s is not in progress", number, offset)
        elif not self.settings.auto_commit and self.session is not None:
            self._commits.commit(self.session, [partition])

    def _is_from_topic(self, message: Message) -> bool:
        """Whether the message is from this topic. Other topics use the same offsets."""
        session = self.session
        return message.topic() in (None, session.topic if session is not None else None)

    def abandon(self, message: Message, envelope: Any) -> None:
        """Redeliver a message after a delay. After the last attempt it becomes a dead letter."""
        number, offset = _place(message)
        limit = self.settings.max_attempts
        attempts = 0
        if self._is_from_topic(message):
            attempts = self.local.fail(number, offset, envelope, limit, True)
        if not attempts:
            self._log.debug("abandon: partition %s, offset %s is not in progress", number, offset)
        elif limit and attempts >= limit:
            self._give_up(message, f"abandoned {attempts} times", attempts)

    def _give_up(self, message: Message, reason: str, attempts: int) -> None:
        """Send a dead letter. If that fails, the session's thread retries."""
        at = self._at(*_place(message))
        try:
            self._send_dead_letter(message, reason, attempts)
        except BaseException as error:
            self._dead.append((message, reason, attempts))
            if not isinstance(error, Exception):
                raise
            text = f"{at}: cannot send the dead letter; retrying"
            self._log.error(text, error)
        else:
            self._log.warn(
                f"{at}: sent a dead letter to {self._dead_letters} after {attempts} attempts: "
                f"{reason[:200]}"
            )
            try:
                self.complete(message)
            except ApplicationException as error:  # the next commit includes the message
                self._log.error(f"{self._measures}: cannot commit", error)

    def receiver_failed(self, lease: Lease, index: int, error: Exception) -> None:
        """Retry a message whose receiver raised, or send a dead letter."""
        number, offset = lease.partition.number, lease.offsets[index]
        envelope = lease.envelopes[index]
        at = self._at(number, offset)
        context = Context.from_trace_id(getattr(envelope, "trace_id", None) or "")
        self._measures.failed()
        limit = self.settings.max_attempts
        attempts = 0
        if lease.partition.owned:
            attempts = self.local.fail(number, offset, envelope, limit, False)
        text = f"{at}: the receiver raised"
        if attempts:
            text += f", attempt {attempts}" + (f" of {limit}" if limit else "")
        if attempts and (not limit or attempts < limit):
            text += f"; retrying in {self.settings.backoff.delay(attempts):g} s"
        self._log.error(text, error, context)
        if limit and attempts >= limit:
            self._give_up(envelope.get_reference(), describe(error), attempts)

    def move_to_dead_letter(self, message: Message) -> None:
        """Send a message to the dead letter topic and complete it."""
        number, offset = _place(message)
        if not self._is_from_topic(message):
            raise BadRequestException(
                None,
                "NO_REFERENCE",
                f"{self._measures}: expected a message from the queue's topic, got one from topic "
                f"{message.topic()}",
            )
        attempts = self.local.attempts(number, offset) + 1
        self._send_dead_letter(message, "moved by the application", attempts)
        self.complete(message)

    def clear(self) -> None:
        """Finish all waiting messages."""
        partitions = self.local.clear()
        if not self.settings.auto_commit and self.session is not None:
            self._commits.commit(self.session, partitions)

    # Numbers

    def count(self) -> int:
        """How many messages up to the high watermarks are not delivered yet."""
        session = self.session
        if session is None:
            return 0
        topic = session.topic

        def read_offsets(consumer: Any) -> Any:
            numbers: Iterable[int] = session.assigned()
            if not self._joined.is_set():
                found = consumer.list_topics(topic, timeout=_REQUEST_S).topics[topic]
                if found.error is not None:
                    raise KafkaException(found.error)
                numbers = found.partitions
            places = session.places(numbers)
            marks = consumer.watermarks(places, _REQUEST_S) if places else {}
            known = {partition.number: partition for partition in self.local.partitions()}
            unknown = [p for p in places if _next_offset(known.get(p.partition)) is None]
            committed = consumer.committed(unknown, _REQUEST_S) if unknown else []
            return marks, known, committed

        marks, known, committed = session.request("counting messages", read_offsets)
        for place in (*marks, *committed):
            if place.error is not None:
                text = f"topic {topic}, partition {place.partition}: cannot count messages"
                raise convert(place.error, text, topic=topic, partition=place.partition)
        offsets = {place.partition: place.offset for place in committed}
        total = 0
        for place, mark in marks.items():
            partition = known.get(place.partition)
            offset = _next_offset(partition)
            if offset is None:
                offset = offsets.get(place.partition, 0)
            total += max(0, mark.high - max(mark.low, offset))
            total += len(partition.retries) if partition is not None else 0
        return total

    def _gauges(self, session: Session) -> dict[str, float]:
        """The lag behind the commits, in-flight messages and the oldest unfinished message."""
        now = time.monotonic()
        lag, oldest = None, None
        for partition in self.local.partitions():
            place = TopicPartition(session.topic, partition.number)
            low, high = session.consumer.get_watermark_offsets(place, cached=True)
            committed = partition.committed[0]
            begin = low if committed is None else committed
            if high >= 0 and begin >= 0:
                lag = (lag or 0) + max(0, high - begin)
            self._check_for_stuck(partition, now)
            if partition.stuck is not None and (oldest is None or partition.stuck[1] < oldest[1]):
                oldest = partition.stuck
        gauges: dict[str, float] = {"in_flight": self.local.in_flight()}
        if lag is not None:
            gauges["lag"] = lag
        gauges["oldest_unfinished_age"] = now - oldest[1] if oldest is not None else 0
        if oldest is not None:
            gauges["oldest_unfinished_offset"] = oldest[0]
        return gauges

    def _check_for_stuck(self, partition: PartitionState, now: float) -> None:
        """Note how long the application holds the first unfinished message. Log a stuck one."""
        offset, ranges, next_offset = self.local.progress(partition)
        if offset is None or offset == next_offset:
            partition.stuck = None
            return
        if partition.stuck is None or partition.stuck[0] != offset:
            partition.stuck = offset, now, False
        _, since, logged = partition.stuck
        if not logged and now - since >= _STUCK_S:
            partition.stuck = offset, since, True
            _, left_out = encode_ranges(offset, ranges, self._commits.metadata_max)
            more = "after a restart, the queue redelivers only unfinished messages"
            if left_out:
                more = (
                    f"after a restart, the queue also redelivers {left_out} finished ranges, "
                    "because they exceed the commit's metadata"
                )
            self._log.warn(
                f"{self._at(partition.number, offset)}: the message has been unfinished for "
                f"{_STUCK_S:g} s and holds back the committed offset; {more}. Complete it, "
                "abandon it or move it to the dead letter topic"
            )

    def _at(self, number: int, offset: int) -> str:
        return f"{self._measures}, partition {number}, offset {offset}"


def _place(message: Message) -> tuple[int, int]:
    number, offset = message.partition(), message.offset()
    if number is None or offset is None:
        raise BadRequestException(
            None, "NO_REFERENCE", "no queue received the message: it has no partition or offset"
        )
    return number, offset


def _next_offset(partition: PartitionState | None) -> int | None:
    return partition.next_offset() if partition is not None else None


def _runs(partitions: memoryview) -> Iterator[tuple[int, int, int]]:
    """Split a batch into runs of one partition's messages: partition, start and stop."""
    start = 0
    for number, run in groupby(partitions.tolist()):
        stop = start + len(list(run))
        yield number, start, stop
        start = stop


def _span(offsets: memoryview, start: int, stop: int) -> Sequence[int]:
    """Return the neighbors' offsets: a range if they have no gaps, as is usual."""
    first, last = offsets[start], offsets[stop - 1]
    if last - first == stop - 1 - start:
        return range(first, last + 1)
    return tuple(offsets[start:stop].tolist())
