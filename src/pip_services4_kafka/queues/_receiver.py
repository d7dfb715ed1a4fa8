"""The receiving side of a queue: fetched messages and their outcome.

The session's thread adds batches, pauses and resumes. Any other thread takes messages and reports
their outcome. No lock is held while application code or librdkafka runs, except the one that keeps
commits in order.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import ne
from typing import Any

from pip_services4_commons.errors import ApplicationException, BadRequestException
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

from .._errors import described, typed
from ..connect._one_by_one import MessageLoop
from ..connect._session import Handler, Session
from ._commits import Commits
from ._dead_letters import DeadLetters
from ._local_queue import BACKOFF, Backoff, LocalQueue
from ._measures import Measures
from ._metadata import decode, encode
from ._partition import Lease, Partition

# How long the session's thread waits for room before it pauses a partition, s. Rebalances wait
# meanwhile.
_ROOM_S = 0.5
# The time limit for the brokers' answers to a question, s.
_ANSWER_S = 10.0
# How long a broker that has started may not know the ends of its logs, and how often to ask, s.
_KNOWN_S, _PAUSE_S = 2.0, 0.1
# A message that holds back its partition's offset for this long is logged, s.
_STUCK_S = 60.0


@dataclass(frozen=True)
class Settings:
    """The configuration of the receiving side."""

    auto_commit: bool = True
    from_beginning: bool = False
    max_pending: int = 10_000
    max_attempts: int = 10  # 0: no limit
    backoff: Backoff = BACKOFF


class Receiver(Handler):
    """The messages of one session, and their outcome.

    Parameters
    ----------
    settings : Settings
    ends : mapping
        The ends of the partitions at `open`, where a group without offsets begins. Partitions that
        are not in it begin at their beginning.
    read : callable
        Converts a batch to a list of envelopes, with an EnvelopeError for each unreadable record.
    each : callable or None
        A subclass's on_message(topic, partition, message), which gets every message instead.
    dead_letters : DeadLetters
    measures : Measures
    """

    def __init__(
        self,
        settings: Settings,
        ends: Mapping[int, int],
        read: Callable[[MessageBatch], list[Any]],
        each: Callable[[str, int, Message], object] | None,
        dead_letters: DeadLetters,
        measures: Measures,
    ) -> None:
        self.settings = settings
        self.local = LocalQueue(settings.max_pending, settings.auto_commit, settings.backoff)
        self.session: Session | None = None
        self._ends = ends
        self._read = read
        self._each = each
        self._dead_letters = dead_letters
        self._measures = measures
        self._log = measures.log
        self._joined = threading.Event()
        self._loop = MessageLoop()
        self._commits = Commits(self.local, measures)
        self._commit_interval = 5.0  # s
        self._ticked = time.monotonic()
        # Messages on their way to the dead letter topic, with the reason and the attempts.
        self._dead: deque[tuple[Message, str, int]] = deque()
        self._dead_due = 0.0  # when to try again

    # The session's thread

    def started(self, session: Session) -> None:
        """Bind to the session. The queue's threads may call from now on."""
        interval = session.subscription.options.get("auto.commit.interval.ms", 5000)
        self._commit_interval = float(interval) / 1000
        self.session = session

    def assigned(self, partitions: list[int]) -> Mapping[int, int]:
        """Find where the partitions begin, and what earlier owners have finished."""
        session = self.session
        assert session is not None
        known = self._ask_committed(partitions)
        positions = {number: place.offset for number, place in known.items() if place.offset >= 0}
        starts: dict[int, int] = {}
        if not self.settings.from_beginning:
            new = known.keys() - positions.keys()
            starts = {number: self._ends.get(number, OFFSET_BEGINNING) for number in new}
        finished = {
            number: ranges
            for number, offset in positions.items()
            if (ranges := decode(offset, known[number].metadata))
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
        # The stored metadata of a shorter log would hide new messages, so it is replaced as well.
        begun = [p for p in self.local.partitions() if p.number in ends or p.number in lost]
        for partition in begun:
            partition.committed = None, ""
        try:  # at once: after a crash the group begins there as well
            self._commits.commit(session, begun)
        except ApplicationException as error:
            self._log.warn(
                f"{self._measures}: cannot commit where the group begins. Until a message is "
                f"committed, a restart begins elsewhere: {error}"
            )
        self._joined.set()
        self._log.debug("%s reads partitions %s", self._measures, partitions)
        return starts

    def _ask_committed(self, partitions: list[int]) -> dict[int, TopicPartition]:
        """The committed offsets. Partitions that the brokers do not tell are missing."""
        session = self.session
        assert session is not None
        failure: object = None
        found: list[TopicPartition] = []
        try:
            found = session.ask(
                "reading the committed offsets",
                lambda consumer: consumer.committed(session.places(partitions), _ANSWER_S),
            )
        except ApplicationException as error:
            failure = error
        known = {place.partition: place for place in found if place.error is None}
        unknown = sorted(set(partitions) - known.keys())
        if unknown:
            failure = failure or next(place.error for place in found if place.error is not None)
            self._log.warn(
                f"{self._measures}: cannot read the committed offsets of partitions {unknown}. "
                "They begin at their committed offsets, or else at their first messages, and "
                f"finished messages may come again: {failure}"
            )
        return known

    def _find_shorter(self, reached: dict[int, int]) -> set[int]:
        """The partitions whose logs end before they had reached.

        A broker that lost the end of its log, in an unclean election, keeps the group's commits,
        and gives the same offsets to new messages. So does a topic that was created again.
        """
        session = self.session
        if not reached or session is None:
            return set()
        deadline = time.monotonic() + _KNOWN_S
        try:
            while shorter := self._shorter_now(session, reached):
                if time.monotonic() >= deadline:
                    break
                time.sleep(_PAUSE_S)
        except ApplicationException as error:
            text = f"{self._measures}: cannot read the ends of the log; finished messages may come"
            self._log.warn(f"{text} again: {error}")
            return set(reached)
        if shorter:
            self._log.warn(
                f"{self._measures}: the logs of partitions {sorted(shorter)} are shorter than "
                "they were, or cannot be read; finished messages may come again"
            )
        return shorter

    def _shorter_now(self, session: Session, reached: dict[int, int]) -> set[int]:
        marks = session.ask(
            "reading the ends of the log",
            lambda consumer: consumer.watermarks(session.places(reached), _ANSWER_S),
        )
        ends = {place.partition: mark.high for place, mark in marks.items() if place.error is None}
        return {number for number, end in reached.items() if end > ends.get(number, -1)}

    def revoked(self, partitions: list[int]) -> None:
        """Commit the finished messages, drop the waiting ones."""
        assert self.session is not None
        self._loop.drop(partitions)
        gone = self.local.revoke(partitions)
        try:
            self._commits.commit_revoked(self.session, gone)
        except ApplicationException as error:
            text = f"{self._measures}: committing partitions {partitions} failed, their messages"
            self._log.error(f"{text} may come again", error)
        self._log.debug("%s: partitions %s were revoked", self._measures, partitions)

    def lost(self, partitions: list[int]) -> None:
        """Drop the messages."""
        self._loop.drop(partitions)
        self.local.revoke(partitions)
        if not self.local.partitions():  # no member of the group, until the next assignment
            self._joined.clear()
        text = f"{self._measures} lost partitions {partitions}"
        if self.session is not None and self.session.was_cut_off():
            self._log.debug("%s", text)
        else:
            self._log.warn(text)

    def sought(self, partition: int) -> None:
        """Drop the messages and the progress of a partition."""
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
        """Take in a fetched batch and release it."""
        count = len(batch)
        if self._each is not None and self.session is not None:
            self._loop.run(self.session, batch, self._hand_to_subclass, self.polled)
        else:
            envelopes = self._read(batch)
            self._measures.each("Received", envelopes)
            healthy = EnvelopeError not in map(type, envelopes)
            numbers, offsets = batch.partitions, batch.offsets
            # The envelopes have copies, so the fetched data is freed before any wait.
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
                        f"{self._measures}, partition {partition.number}: reading is paused, "
                        f"because {partition.pending} received messages are neither completed nor "
                        "abandoned (options.max_pending)"
                    )

    def _hand_to_subclass(self, message: Message) -> None:
        assert self._each is not None
        number, offset = _place(message)
        error = None
        self.local.expect(number, offset)
        try:
            self._each(str(message.topic()), number, message)
        except BaseException as raised:  # raised by the subclass: this message failed
            error = raised
        if self.local.add_handed(number, offset) is None:  # it is in the local queue, or closed
            if error is not None and not self.local.is_closed():
                self._measures.failed()
                self._log.error(f"{self._at(number, offset)}: on_message failed", error)
        elif error is not None:
            text = f"on_message raised {described(error)}"
            self._note_unreadable([(message, text)], error)
        elif self.settings.auto_commit:
            # The subclass has handled the message itself; else the application completes it.
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
                    if self.local.add_handed(number, offsets[index]) is not None:
                        unreadable.append((message, str(envelope)))
        self._note_unreadable(unreadable)

    def _note_unreadable(
        self, found: list[tuple[Message, str]], raised: BaseException | None = None
    ) -> None:
        """Log messages that no application gets. They become dead letters."""
        if found:
            self._measures.failed(len(found))
            message, error = found[0]
            text = f"{self._at(*_place(message))}: the message cannot be read: {error}"
            if len(found) > 1:
                text += f" (nor can {len(found) - 1} others of this batch)"
            end = "a dead letter" if self.settings.max_attempts else "skipped"
            self._log.error(f"{text}; {end}", raised)
            self._dead.extend((message, error, 1) for message, error in found)

    def _send_dead_letters(self, session: Session) -> None:
        """Send dead letters for a short time, because rebalances wait meanwhile.

        With `max_attempts` 0 there are none: unreadable messages are skipped.
        """
        until = time.monotonic() + _ROOM_S
        ended: dict[int, Partition] = {}
        while self._dead and self._dead_due <= time.monotonic() < until:
            if session.is_cut_off():
                break
            message, reason, attempts = self._dead[0]
            number, offset = _place(message)
            if self.local.is_unfinished(number, offset):  # else it has another owner
                try:
                    if self.settings.max_attempts:
                        self._send_dead_letter(message, reason, attempts)
                except Exception as error:  # any error may be temporary
                    text = f"{self._at(number, offset)}: cannot send the dead letter; trying again"
                    self._log.error(text, error)
                    self._dead_due = time.monotonic() + self.settings.backoff.longest
                    self._dead.rotate(-1)  # another one may be sent
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

    def _complete_or_log(self, message: Message) -> None:
        try:
            self.complete(message)
        except ApplicationException as error:  # the next commit includes the message
            self._log.error(f"{self._measures}: the commit failed", error)

    def put(self, number: int, offset: int, envelope: Any) -> None:
        """Add one message from on_message of the queue's class."""
        self.local.put(number, offset, envelope)

    def polled(self) -> None:
        """Do the periodic work: resume partitions, commit, look for stuck messages."""
        session = self.session
        if session is None:
            return
        resumed = self.local.with_room()
        if resumed:
            session.resume([partition.number for partition in resumed])
        self._send_dead_letters(session)
        now = time.monotonic()
        if now - self._ticked >= self._commit_interval and self._commits.begin(session):
            self._ticked = now
        self._measures.gauges(lambda: self._gauges(session))

    def committed(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        """A commit that `polled` has begun has ended."""
        self._commits.ended(self.session, error, positions)

    # The application's threads

    def complete(self, message: Message) -> None:
        """Finish a message. Without autocommit, commit if it was the first unfinished one."""
        number, offset = _place(message)
        partition = self.local.finish(number, offset) if self._is_ours(message) else None
        if partition is None or not partition.owned:
            self._log.debug("complete: partition %s, offset %s is not in progress", number, offset)
        elif not self.settings.auto_commit and self.session is not None:
            self._commits.commit(self.session, [partition])

    def _is_ours(self, message: Message) -> bool:
        """Whether the message is from this topic; other topics have the same offsets."""
        return message.topic() in (None, self._topic)

    @property
    def _topic(self) -> str | None:
        return self.session.topic if self.session is not None else None

    def abandon(self, message: Message, envelope: Any) -> None:
        """Hand over a message again after a delay. The last attempt makes it a dead letter."""
        number, offset = _place(message)
        limit = self.settings.max_attempts
        attempts = 0
        if self._is_ours(message):
            attempts = self.local.fail(number, offset, envelope, limit, True)
        if not attempts:
            self._log.debug("abandon: partition %s, offset %s is not in progress", number, offset)
        elif limit and attempts >= limit:
            self._give_up(message, f"abandoned {attempts} times", attempts)

    def _give_up(self, message: Message, reason: str, attempts: int) -> None:
        """Make a dead letter; if it cannot be sent, the session's thread tries again."""
        at = self._at(*_place(message))
        try:
            self._send_dead_letter(message, reason, attempts)
        except BaseException as error:
            self._dead.append((message, reason, attempts))
            if not isinstance(error, Exception):
                raise
            text = f"{at}: cannot send the dead letter; trying again"
            self._log.error(text, error)
        else:
            self._log.warn(
                f"{at}: a dead letter after {attempts} attempts, sent to {self._dead_letters}: "
                f"{reason[:200]}"
            )
            self._complete_or_log(message)

    def receiver_failed(self, lease: Lease, index: int, error: Exception) -> None:
        """An application's receiver raised: retry the message or make it a dead letter."""
        number, offset = lease.partition.number, lease.offsets[index]
        envelope = lease.envelopes[index]
        at = self._at(number, offset)
        context = Context.from_trace_id(getattr(envelope, "trace_id", None) or "")
        self._measures.failed()
        limit = self.settings.max_attempts
        attempts = 0
        if lease.partition.owned:
            attempts = self.local.fail(number, offset, envelope, limit, False)
        text = f"{at}: the receiver failed"
        if attempts:
            text += f", attempt {attempts}" + (f" of {limit}" if limit else "")
        if attempts and (not limit or attempts < limit):
            text += f"; again in {self.settings.backoff.delay(attempts):g} s"
        self._log.error(text, error, context)
        if limit and attempts >= limit:
            self._give_up(envelope.get_reference(), described(error), attempts)

    def move_to_dead_letter(self, message: Message) -> None:
        """Send a message to the dead letter topic and complete it."""
        number, offset = _place(message)
        if not self._is_ours(message):
            raise BadRequestException(
                None,
                "NO_REFERENCE",
                f"{self._measures}: the message is one of topic {message.topic()}, not of the "
                "queue's topic",
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
        """The number of messages up to the high watermarks that were not handed over yet."""
        session = self.session
        if session is None:
            return 0
        topic = session.topic

        def ask(consumer: Any) -> Any:
            numbers: Iterable[int] = session.assigned()
            if not self._joined.is_set():
                found = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
                if found.error is not None:
                    raise KafkaException(found.error)
                numbers = found.partitions
            places = session.places(numbers)
            marks = consumer.watermarks(places, _ANSWER_S) if places else {}
            known = {partition.number: partition for partition in self.local.partitions()}
            unknown = [p for p in places if _next_offset(known.get(p.partition)) is None]
            committed = consumer.committed(unknown, _ANSWER_S) if unknown else []
            return marks, known, committed

        marks, known, committed = session.ask("counting its messages", ask)
        for place in (*marks, *committed):
            if place.error is not None:
                text = f"topic {topic}, partition {place.partition}: cannot count its messages"
                raise typed(place.error, text, topic=topic, partition=place.partition)
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
        """The lag behind the committed offsets, messages in flight, the oldest unfinished one."""
        now = time.monotonic()
        lag, oldest = None, None
        for partition in self.local.partitions():
            place = TopicPartition(session.topic, partition.number)
            low, high = session.consumer.get_watermark_offsets(place, cached=True)
            committed = partition.committed[0]
            begin = low if committed is None else committed
            if high >= 0 and begin >= 0:
                lag = (lag or 0) + max(0, high - begin)
            self._look_at(partition, now)
            if partition.stuck is not None and (oldest is None or partition.stuck[1] < oldest[1]):
                oldest = partition.stuck
        gauges: dict[str, float] = {"in_flight": self.local.in_flight()}
        if lag is not None:
            gauges["lag"] = lag
        gauges["oldest_unfinished_age"] = now - oldest[1] if oldest is not None else 0
        if oldest is not None:
            gauges["oldest_unfinished_offset"] = oldest[0]
        return gauges

    def _look_at(self, partition: Partition, now: float) -> None:
        """Note how long a partition's first unfinished message is out; log if it is stuck."""
        offset, ranges, next_offset = self.local.progress(partition)
        if offset is None or offset == next_offset:
            partition.stuck = None
            return
        if partition.stuck is None or partition.stuck[0] != offset:
            partition.stuck = offset, now, False
        _, since, logged = partition.stuck
        if not logged and now - since >= _STUCK_S:
            partition.stuck = offset, since, True
            _, left_out = encode(offset, ranges, self._commits.metadata_max)
            more = "after a restart, only unfinished messages come again"
            if left_out:
                more = (
                    f"after a restart, finished messages of {left_out} ranges come again as well, "
                    "because the commit's metadata has no room for them"
                )
            self._log.warn(
                f"{self._at(partition.number, offset)}: the message has been unfinished for "
                f"{_STUCK_S:g} s, so the committed offset stays there; {more}. Complete it, "
                "abandon it or move it to the dead letter topic"
            )

    def _at(self, number: int, offset: int) -> str:
        return f"{self._measures}, partition {number}, offset {offset}"


def _place(message: Message) -> tuple[int, int]:
    number, offset = message.partition(), message.offset()
    if number is None or offset is None:
        raise BadRequestException(
            None, "NO_REFERENCE", "the message has no partition or offset: no queue received it"
        )
    return number, offset


def _next_offset(partition: Partition | None) -> int | None:
    return partition.next_offset() if partition is not None else None


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


def _span(offsets: memoryview, start: int, stop: int) -> Sequence[int]:
    """The offsets of neighbors; a range if they have no gaps, which is the usual case."""
    first, last = offsets[start], offsets[stop - 1]
    if last - first == stop - 1 - start:
        return range(first, last + 1)
    return tuple(offsets[start:stop].tolist())
