"""One subscription: its consumer, its thread and its rebalances.

A listener may have these methods beside `on_message`. The reader's thread calls all of them:

- `_on_batch(subscription, batch)`: gets every MessageBatch. The reader then never calls
  `on_message`, and the listener stores or commits offsets itself.
- `_on_assigned(subscription, partitions)`, `_on_revoked(...)`, `_on_lost(...)`: rebalances, with a
  list of the partition numbers added or removed. The listener may still commit revoked partitions
  in the call; lost ones may already belong to another member. Every assignment ends with a
  revocation or a loss, at the latest when the reader stops. All batches of a partition come
  between these calls.
- `_on_seek(subscription, partition, offset)`: the connection has sought a partition. No message
  fetched before the seek follows.
- `_on_error(subscription, error)`: a KafkaError of the consumer, already logged.
- `_on_poll(subscription)`: after every batch, and without batches 20 times a second, or 500 times
  while partitions are paused.
- `_on_closed(subscription)`: the reader has ended.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, cast

from pip_services4_commons.errors import ConnectionException, InvalidStateException

from cykafka import (
    OFFSET_STORED,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    MessageBatch,
    TopicPartition,
)
from cykafka.internal import commit_within
from pip_services4_kafka._errors import kafka_error, typed, with_cause
from pip_services4_kafka.connect._logs import RareLog
from pip_services4_kafka.connect._one_by_one import OneByOne
from pip_services4_kafka.connect.IKafkaMessageListener import IKafkaMessageListener
from pip_services4_kafka.connect.KafkaSubscription import KafkaSubscription

# The most messages in a batch.
MAX_BATCH = 2_000
# How long the thread waits for a message before it checks for stop() and calls _on_poll, s. The
# second value applies while partitions are paused, because the listener may have room again.
IDLE_S, PAUSED_S = 0.05, 0.002
# Pauses after errors, s: the first one, the longest one with the same consumer, and the longest
# one before a new consumer.
FIRST_PAUSE_S, SHORT_PAUSE_S, LONG_PAUSE_S = 0.1, 1.0, 5.0

_Error = Callable[[KafkaError], object]

# After these errors a consumer stops reading.
_DEADLY = frozenset((KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID))


def reader_of(subscription: KafkaSubscription) -> Reader | None:
    """The reader of a subscription, or None before it starts."""
    return cast("Reader | None", subscription._reader)


class _Dead(Exception):
    """The consumer has stopped reading; the argument gives the reason."""


class Reader:
    """Reads a subscription in a daemon thread and hands batches to its listener. Thread-safe.

    Parameters
    ----------
    subscription : KafkaSubscription
        Its ``handler`` is always the reader's current consumer.
    make_consumer : callable
        Creates a consumer. The argument is the callback for errors that come without a message.
    partitions : list of int
        Read exactly these partitions, without group rebalances. If empty, the group assigns them.
    log : RareLog
    commit_timeout : float, optional
        The longest time for a commit, s.
    """

    def __init__(
        self,
        subscription: KafkaSubscription,
        make_consumer: Callable[[_Error], Consumer],
        partitions: Iterable[int],
        log: RareLog,
        commit_timeout: float = 30.0,
    ) -> None:
        self.subscription = subscription
        self._make_consumer = make_consumer
        self._partitions = tuple(partitions)
        self._log = log
        self.commit_timeout = commit_timeout
        self._topic = str(subscription.topic)
        self._consumer: Consumer | None = None
        self._assigned: tuple[int, ...] = ()
        self._paused: frozenset[int] = frozenset()
        self._tasks: deque[tuple[Callable[[], object], Future[None]]] = deque()
        self._wanted = threading.Event()  # ends a pause after an error
        self._stopping = self._ended = False
        self._waiting: list[int] = []  # threads in stop()
        self._failed = 0  # consecutive rounds with errors only
        self._thread = threading.Thread(
            target=self._run, name=f"kafka-reader-{self._topic}", daemon=True
        )
        self._each = OneByOne(
            cast(IKafkaMessageListener, subscription.listener),
            lambda error: self._tell("on_message", error, "its listener failed"),
        )
        self._on_poll = getattr(subscription.listener, "_on_poll", None)
        on_batch = getattr(subscription.listener, "_on_batch", None)
        self._on_batch: Callable[[KafkaSubscription, MessageBatch], object] | None = (
            on_batch if callable(on_batch) else None
        )

    # -- for the connection

    def start(self) -> None:
        """Create the consumer and start the thread. Errors of creating the consumer propagate."""
        self._open_consumer()
        try:
            self._thread.start()
        except BaseException:  # too many threads: the consumer must be closed here
            self._close_consumer()
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the thread, which returns its partitions and closes the consumer.

        Waits up to `timeout` s for the thread, and so for its listener, unless the thread itself
        is the caller. Returns whether the thread has ended.
        """
        self._stopping = True
        self._wanted.set()
        if self.is_mine():
            return False
        if self._thread.ident is not None:
            self._waiting.append(threading.get_ident())
            try:
                self._thread.join(timeout)
            finally:
                self._waiting.remove(threading.get_ident())
        return not self._thread.is_alive()

    def is_busy(self) -> bool:
        """Whether the reader's thread still runs and is not the calling thread."""
        return self._thread.is_alive() and not self.is_mine()

    def is_mine(self) -> bool:
        """Whether the calling thread is the reader's."""
        return self._thread is threading.current_thread()

    # -- for the queue

    def is_awaited_by(self, thread: int) -> bool:
        """Whether this thread waits in `stop`."""
        return thread in self._waiting

    @property
    def consumer(self) -> Consumer:
        """The current consumer. InvalidStateException if there is none, as after a fatal error."""
        consumer = self._consumer
        if consumer is None:
            raise InvalidStateException(
                None,
                "NOT_OPEN",
                f"topic {self._topic}: the subscription has no consumer: it is closed or replaces "
                "a failed one",
            )
        return consumer

    def assigned(self) -> list[int]:
        """The partitions that are assigned to this reader."""
        return list(self._assigned)

    def pause(self, partitions: Iterable[int]) -> None:
        """Stop fetching these partitions. A batch that was already fetched may still come.

        A new assignment ends the pause.
        """
        numbers = tuple(partitions)
        self._ask("pause", lambda consumer: consumer.pause(self._numbered(numbers)))
        self._paused |= frozenset(numbers)

    def resume(self, partitions: Iterable[int]) -> None:
        """Fetch these partitions again."""
        numbers = tuple(partitions)
        self._ask("resume", lambda consumer: consumer.resume(self._numbered(numbers)))
        self._paused -= frozenset(numbers)

    def store(self, offsets: Mapping[int, int]) -> None:
        """Store offsets (of the next message to read, by partition) for the automatic commit.

        An offset may be lower than before. Partitions that are not assigned are skipped.
        """
        try:
            self.consumer.store_offsets(offsets=self._positions(offsets))
        except KafkaException as error:
            known = kafka_error(error)
            if known is None or known.code() != KafkaError._STATE:
                told = f"topic {self._topic}: storing offsets failed"
                raise typed(error, told, topic=self._topic) from error

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets (of the next message to read, by partition) and wait for the answer.

        Raises
        ------
        ApplicationException
            Typed by the broker's error, for example that another member owns the partition.
            ConnectionException TIMED_OUT: the offset may be committed or not.
        """
        positions = self._positions(offsets)
        if not positions:
            return
        done = self._ask(
            "commit", lambda consumer: commit_within(consumer, positions, self.commit_timeout)
        )
        for position in done or ():
            if position.error is not None:
                raise typed(
                    position.error,
                    f"topic {self._topic}, partition {position.partition}: commit failed",
                    topic=self._topic,
                    partition=position.partition,
                )

    def seek(self, partition: int, offset: int) -> None:
        """Seek an assigned partition. A batch that was already fetched may still come."""
        position = TopicPartition(self._topic, partition, offset)
        self._ask("seek", lambda consumer: consumer.seek(position), partition=partition)
        if self.is_mine():
            self._each.seek(partition)

    def seek_and_tell(self, partition: int, offset: int, timeout: float) -> None:
        """Seek between two batches, then call `_on_seek`. This is the connection's seek().

        Runs in the reader's thread; another thread waits up to `timeout` s for it.
        """

        def seek() -> None:
            self.seek(partition, offset)
            self._call("_on_seek", partition, offset)

        if self.is_mine():
            seek()
            return
        done: Future[None] = Future()
        self._tasks.append((seek, done))
        if self._ended:
            self._fail_tasks()
        try:
            done.result(timeout)
        except TimeoutError as error:
            done.cancel()
            told = (
                f"topic {self._topic}, partition {partition}: cannot seek to offset {offset}: the "
                f"listener did not return within {timeout:g} s"
            )
            raise with_cause(ConnectionException(None, "TIMED_OUT", told), error) from error

    def watermarks(self, timeout: float | None = None) -> dict[int, tuple[int, int]]:
        """Request the first and the next offset of each assigned partition from the brokers.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Raises
        ------
        ApplicationException
            ConnectionException: a leader does not answer; NOT_OPEN: there is no consumer.
        """
        partitions = self._numbered(self._assigned)
        found = self._ask(
            "reading the watermarks",
            lambda consumer: consumer.watermarks(partitions, timeout) if partitions else {},
        )
        for place in found:
            if place.error is not None:
                told = f"topic {self._topic}, partition {place.partition}: no watermarks"
                raise typed(place.error, told, topic=self._topic, partition=place.partition)
        return {place.partition: (marks.low, marks.high) for place, marks in found.items()}

    def committed(self, timeout: float | None = None) -> dict[int, int]:
        """The group's committed offset of each assigned partition that has one."""
        partitions = self._numbered(self._assigned)
        if not partitions:
            return {}
        found = self._ask(
            "reading the committed offsets",
            lambda consumer: consumer.committed(partitions, timeout),
        )
        return {place.partition: place.offset for place in found if place.offset >= 0}

    def consumer_group_metadata(self) -> bytes:
        """The argument for ``Producer.send_offsets_to_transaction()``."""
        metadata = self._ask(
            "reading the group metadata", lambda consumer: consumer.consumer_group_metadata()
        )
        return bytes(metadata)

    def _numbered(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in partitions]

    def _positions(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number, offset) for number, offset in offsets.items()]

    def _ask(self, doing: str, call: Callable[[Consumer], Any], **details: Any) -> Any:
        try:
            return call(self.consumer)
        except (KafkaException, RuntimeError) as error:
            told = f"topic {self._topic}: {doing} failed"
            raise typed(error, told, topic=self._topic, **details) from error

    # -- the consumer

    def _open_consumer(self) -> None:
        consumer = self._make_consumer(self._on_error)
        try:
            if self._partitions:
                consumer.assign(
                    [
                        TopicPartition(self._topic, number, OFFSET_STORED)
                        for number in self._partitions
                    ]
                )
            else:
                consumer.subscribe(
                    [self._topic],
                    on_assign=self._on_assign,
                    on_revoke=self._on_revoke,
                    on_lost=self._on_lose,
                )
        except BaseException:
            consumer.close()
            raise
        self._consumer = self.subscription.handler = consumer

    def _close_consumer(self) -> None:
        """Return the partitions and close the consumer. After errors too, none stay assigned."""
        consumer = self._consumer
        try:
            if consumer is not None:
                if self._partitions and self._assigned:
                    self._give_back("_on_revoked", list(self._assigned))
                consumer.close()  # runs on_revoke or on_lost
        except Exception as error:  # the partitions count as lost then
            self._tell("close", error, "closing its consumer failed")
        finally:
            self._consumer = None
            if self._assigned:
                self._give_back("_on_lost", list(self._assigned))

    # -- rebalances

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._take([place.partition for place in partitions])

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_back("_on_revoked", [place.partition for place in partitions])

    def _on_lose(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_back("_on_lost", [place.partition for place in partitions])

    def _take(self, numbers: list[int]) -> None:
        self._assigned = tuple(sorted({*self._assigned, *numbers}))
        self._call("_on_assigned", numbers)

    def _give_back(self, hook: str, numbers: list[int]) -> None:
        # The partitions stay assigned during the call, because the listener commits there.
        try:
            self._call(hook, numbers)
        finally:
            self._assigned = tuple(sorted({*self._assigned}.difference(numbers)))
            self._each.drop(numbers)
            self._unpause(self._paused.intersection(numbers))

    def _unpause(self, numbers: frozenset[int]) -> None:
        """Resume partitions, because librdkafka keeps the pause through reassignments."""
        self._paused -= numbers
        if numbers and self._consumer is not None:
            with contextlib.suppress(RuntimeError):  # a closed consumer gets no new assignment
                self._consumer.resume(self._numbered(numbers))

    def _call(self, hook: str, *arguments: Any) -> None:
        function = getattr(self.subscription.listener, hook, None)
        if function is None:
            return
        try:
            function(self.subscription, *arguments)
        except Exception as error:  # raised by the listener; the reader continues
            self._tell(hook, error, f"the listener's {hook} failed")

    # -- the thread

    def _run(self) -> None:
        try:
            if self._partitions:
                self._take(list(self._partitions))
            while not self._stopping:
                try:
                    if self._consumer is None:
                        self._open_consumer()
                        if self._partitions:
                            self._take(list(self._partitions))
                    self._read(self.consumer)
                except Exception as error:  # raised by the consumer; a new one may work
                    if self._stopping:
                        break
                    self._tell(_kind(error), error, "its consumer failed and is replaced")
                    self._close_consumer()
                    self._pause(LONG_PAUSE_S)
        finally:
            self._close_consumer()
            self._ended = True
            self._fail_tasks()
            self._call("_on_closed")

    def _read(self, consumer: Consumer) -> None:
        """Hand over batches until the reader stops. Raises if the consumer stops reading."""
        while not self._stopping:
            # Take all fetched messages; if there are none, wait for the next one.
            batch = consumer.consume_batch(MAX_BATCH, 0)
            if not batch:  # no errors either
                batch = consumer.consume_batch(1, PAUSED_S if self._paused else IDLE_S)
            count, errors = len(batch), batch.errors
            if count:
                self._failed = 0
                if self._on_batch is not None:
                    self._hand_over(batch)
                else:
                    self._each.hand_over(consumer, batch, self._go_on, self._serve)
            if errors and self._note(errors) and not count:
                self._pause(SHORT_PAUSE_S)
            if self._tasks:
                self._do_tasks()
            if self._on_poll is not None:
                self._call("_on_poll")

    def _hand_over(self, batch: MessageBatch) -> None:
        assert self._on_batch is not None
        try:
            self._on_batch(self.subscription, batch)
        except Exception as error:  # raised by the listener; the reader continues
            self._tell("_on_batch", error, "its listener failed")

    def _go_on(self) -> bool:
        if self._tasks:
            self._do_tasks()
        return not self._stopping

    def _serve(self) -> MessageBatch:
        """Poll the consumer during a slow listener's batch; this may return a message."""
        more = self.consumer.consume_batch(1, 0)
        self._note(more.errors)
        return more

    def _do_tasks(self) -> None:
        while self._tasks:
            task, done = self._tasks.popleft()
            if not done.set_running_or_notify_cancel():
                continue
            try:
                task()
            except Exception as error:  # raised in the waiting thread
                done.set_exception(error)
            else:
                done.set_result(None)

    def _fail_tasks(self) -> None:
        told = f"topic {self._topic}: the subscription has ended"
        with contextlib.suppress(IndexError):  # two threads may run this loop
            while True:
                _, done = self._tasks.popleft()
                if done.set_running_or_notify_cancel():
                    done.set_exception(InvalidStateException(None, "NOT_OPEN", told))

    # -- errors

    def _note(self, errors: Iterable[Message]) -> bool:
        """Report errors that came instead of messages. Returns whether any was reported."""
        noted = False
        for message in errors:
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                continue
            noted = True
            self._on_error(error)
            if error.fatal() or error.code() in _DEADLY:
                raise _Dead(error.str())
        return noted

    def _on_error(self, error: KafkaError) -> None:
        self._tell(error.code(), typed(error, "Kafka"), "its consumer met an error and continues")
        self._call("_on_error", error)

    def _tell(self, kind: Any, error: Exception, text: str) -> None:
        told = f"Subscription to topic {self._topic}, group {self.subscription.group_id}: {text}"
        self._log.error((self._topic, kind), error, told)

    def _pause(self, longest: float) -> None:
        self._wanted.wait(min(FIRST_PAUSE_S * 2 ** min(self._failed, 10), longest))
        self._failed += 1
        if not self._stopping:
            self._wanted.clear()


def _kind(error: Exception) -> Any:
    known = kafka_error(error)
    return known.code() if known is not None else type(error)
