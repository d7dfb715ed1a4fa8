"""A session: a consumer, its thread and its rebalances."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

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
from cykafka.internal import commit_within, kafka_error

from .._errors import convert, set_cause
from .._log import Log
from ._outage import Outage
from .IKafkaMessageListener import IKafkaMessageListener
from .KafkaSubscription import KafkaSubscription

# The most messages in a batch.
MAX_BATCH = 2_000
# How long the thread waits for a message before it checks for stop() and calls `polled`, in
# seconds. The second value applies while partitions are paused: the handler may have room again.
IDLE_S, PAUSED_S = 0.05, 0.002
# Pauses after errors, in seconds: the first one, the longest one with the same consumer, and the
# longest one before a new consumer.
FIRST_PAUSE_S, SHORT_PAUSE_S, LONG_PAUSE_S = 0.1, 1.0, 5.0

# After this many seconds the session polls the consumer between two messages.
SERVE_S = 0.5

# After these errors a consumer stops reading.
_DEADLY = frozenset((KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID))


class Handler:
    """The methods that a session calls in its own thread. Here they do nothing.

    Every assignment ends with `revoked` or `lost`, at the latest when the session stops. In
    between, `batch` gets the partition's messages.
    """

    def started(self, session: Session) -> None:
        """Take the session, which has a consumer. Called first, in the subscriber's thread."""

    def batch(self, batch: MessageBatch) -> None:
        """Handle messages. The handler stores or commits their offsets."""

    def assigned(self, partitions: list[int]) -> Mapping[int, int]:
        """Take partitions that the session is about to assign.

        Returns the offsets to begin at. Other partitions begin at their committed offsets.
        """
        return {}

    def revoked(self, partitions: list[int]) -> None:
        """Drop partitions that the group revokes. The handler may still commit them here."""

    def lost(self, partitions: list[int]) -> None:
        """Drop partitions that the consumer lost. They may already have other owners."""

    def sought(self, partition: int) -> None:
        """Note that a seek moved a partition. `batch` gets no message from before the seek."""

    def committed(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        """Take the outcome of an automatic commit or one that `begin_commit` started."""

    def failed(self, error: KafkaError) -> None:
        """Note a consumer error. The session logs it."""

    def polled(self) -> None:
        """Do periodic work. Called after every batch and at least 20 times a second."""

    def closed(self) -> None:
        """Note that the session ended."""


class Session:
    """Reads a topic in a daemon thread and passes batches to a handler. Thread-safe.

    Parameters
    ----------
    subscription : KafkaSubscription
        Its ``handler`` is the session's current consumer.
    handler : Handler
    make_consumer : callable
        Creates a consumer with additional properties (callbacks).
    partitions : iterable of int
        If not empty, read exactly these partitions, without group rebalances.
    log : Log
    outage : Outage
        Gets the consumer's errors.
    request_timeout : float
        How long a commit may take, in seconds.
    """

    def __init__(
        self,
        subscription: KafkaSubscription,
        handler: Handler,
        make_consumer: Callable[[dict[str, Any]], Consumer],
        partitions: Iterable[int],
        log: Log,
        outage: Outage,
        request_timeout: float = 30.0,
    ) -> None:
        self.subscription = subscription
        self.topic = str(subscription.topic)
        self.request_timeout = request_timeout
        self._handler = handler
        self._make_consumer = make_consumer
        self._partitions = tuple(partitions)
        self._log = log
        self.outage = outage
        self._consumer: Consumer | None = None
        self._assigned: frozenset[int] = frozenset()
        self._paused: frozenset[int] = frozenset()
        self._tasks: deque[tuple[Callable[[], object], Future[None]]] = deque()
        self._wanted = threading.Event()  # ends a pause after an error
        self._stopping = self._ended = False
        self._ending = threading.Lock()  # held by the thread that ends the session
        self._waiting: list[int] = []  # threads in stop()
        self._failed = 0  # consecutive passes with errors only
        self._thread = threading.Thread(
            target=self._run, name=f"kafka-session-{self.topic}", daemon=True
        )

    # -- for the connection

    def start(self) -> None:
        """Create the consumer and start the thread. Raises if the consumer cannot be created."""
        self._open_consumer()
        try:
            self._handler.started(self)
            self._thread.start()
        except BaseException:  # too many threads, or an interrupt: then the thread may run
            self._stopping = True
            if self._ending.acquire(blocking=False):
                self._end()
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the thread, which returns its partitions and closes the consumer.

        Waits up to `timeout` seconds for the thread, and so for its handler, unless the thread is
        the caller. Returns whether the thread has ended.
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

    def is_mine(self) -> bool:
        """Whether the calling thread is the session's."""
        return self._thread is threading.current_thread()

    def seek_between_batches(self, partition: int, offset: int) -> None:
        """Seek between two batches, then call `sought`. This is the connection's seek().

        Runs in the session's thread; another thread waits up to `request_timeout` for it.
        """

        def seek() -> None:
            self.seek(partition, offset)
            self._call(self._handler.sought, partition)

        if self.is_mine():
            seek()
            return
        done: Future[None] = Future()
        self._tasks.append((seek, done))
        if self._ended:
            self._fail_tasks()
        try:
            done.result(self.request_timeout)
        except TimeoutError as error:
            done.cancel()
            text = (
                f"topic {self.topic}, partition {partition}: cannot seek to offset {offset}: the "
                f"listener did not return within {self.request_timeout:g} s"
            )
            raise set_cause(ConnectionException(None, "TIMED_OUT", text), error) from error

    # -- for the handler

    def continues(self) -> bool:
        """Whether the session continues. Called between two messages; runs waiting seeks."""
        self._do_tasks()
        return not self._stopping

    def is_awaited_by(self, thread: int) -> bool:
        """Whether a thread waits in `stop`."""
        return thread in self._waiting

    def assigned(self) -> frozenset[int]:
        """The partitions that are assigned to this session."""
        return self._assigned

    @property
    def consumer(self) -> Consumer:
        """The current consumer. Raises InvalidStateException if there is none."""
        consumer = self._consumer
        if consumer is None:
            raise InvalidStateException(
                None,
                "NOT_OPEN",
                f"topic {self.topic}: the subscription has no consumer: it is closed, or it is "
                "replacing a failed consumer",
            )
        return consumer

    def request(self, doing: str, send: Callable[[Consumer], Any], **details: Any) -> Any:
        """Call a function with the consumer. Converts errors to typed exceptions."""
        try:
            return send(self.consumer)
        except (KafkaException, RuntimeError) as error:
            text = f"topic {self.topic}: {doing} failed"
            raise convert(error, text, topic=self.topic, **details) from error

    def places(self, partitions: Iterable[int]) -> list[TopicPartition]:
        """Return partitions of the topic as TopicPartitions."""
        return [TopicPartition(self.topic, number) for number in partitions]

    def pause(self, partitions: Iterable[int]) -> None:
        """Stop fetching these partitions, until `resume` or a new assignment.

        The handler may still get a batch that was already fetched.
        """
        numbers = frozenset(partitions)
        self.request("pause", lambda consumer: consumer.pause(self.places(numbers)))
        self._paused |= numbers

    def resume(self, partitions: Iterable[int]) -> None:
        """Fetch these partitions again."""
        numbers = frozenset(partitions)
        self.request("resume", lambda consumer: consumer.resume(self.places(numbers)))
        self._paused -= numbers

    def seek(self, partition: int, offset: int) -> None:
        """Seek an assigned partition. The handler may still get a fetched batch."""
        position = TopicPartition(self.topic, partition, offset)
        self.request("seek", lambda consumer: consumer.seek(position), partition=partition)

    def commit(self, positions: list[TopicPartition]) -> None:
        """Commit the offsets of the next messages to read, and wait for the response.

        Raises
        ------
        ApplicationException
            The broker's error sets its type, for example if another member owns the partition.
            ConnectionException TIMED_OUT: the broker may or may not have committed the offsets.
        """
        timeout = self.request_timeout
        done = self.request("commit", lambda consumer: commit_within(consumer, positions, timeout))
        for place in done or ():
            if place.error is not None:
                text = f"topic {self.topic}, partition {place.partition}: commit failed"
                raise convert(place.error, text, topic=self.topic, partition=place.partition)

    def begin_commit(self, positions: list[TopicPartition]) -> None:
        """Start a commit. The handler's `committed` gets its outcome."""
        self.request("commit", lambda consumer: consumer.commit(offsets=positions))

    # -- the consumer

    def _open_consumer(self) -> None:
        consumer = self._make_consumer({"error_cb": self._on_error, "on_commit": self._on_commit})
        try:
            if not self._partitions:
                consumer.subscribe(
                    [self.topic],
                    on_assign=self._on_assign,
                    on_revoke=lambda _, places: self._unassign(self._handler.revoked, places),
                    on_lost=lambda _, places: self._unassign(self._handler.lost, places),
                )
        except BaseException:
            consumer.close()
            raise
        self._consumer = self.subscription.handler = consumer

    def _close_consumer(self) -> None:
        """Return the partitions and close the consumer. Even after errors, none stay assigned."""
        consumer = self._consumer
        try:
            if consumer is not None:
                if self._partitions and self._assigned:
                    self._unassign(self._handler.revoked, self.places(self._assigned))
                consumer.close()  # runs on_revoke or on_lost
        except Exception as error:  # then the partitions are lost
            self._log_error("close", error, "cannot close its consumer")
        finally:
            self._consumer = None
            if self._assigned:
                self._unassign(self._handler.lost, self.places(self._assigned))

    # -- rebalances

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        starts = self._accept_partitions(place.partition for place in places)
        for place in places:
            place.offset = starts.get(place.partition, place.offset)
        try:
            consumer.incremental_assign(places)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:  # the group's protocol is eager
                raise
            consumer.assign(places)

    def _accept_partitions(self, numbers: Iterable[int]) -> Mapping[int, int]:
        begun = sorted(numbers)
        self._assigned |= frozenset(begun)
        starts: Mapping[int, int] | None = self._call(self._handler.assigned, begun)
        return starts or {}

    def _assign_own(self) -> None:
        """Assign the configured partitions."""
        starts = self._accept_partitions(self._partitions)
        places = self.places(self._partitions)
        for place in places:
            place.offset = starts.get(place.partition, OFFSET_STORED)
        self.consumer.assign(places)

    def _unassign(self, hook: Callable[[list[int]], object], places: list[TopicPartition]) -> None:
        # The partitions stay assigned during the call, because the handler may commit them.
        numbers = [place.partition for place in places]
        try:
            self._call(hook, numbers)
        finally:
            self._assigned -= frozenset(numbers)
            paused = self._paused.intersection(numbers)
            self._paused -= paused
            if paused and self._consumer is not None:
                # librdkafka keeps reassigned partitions paused. A closed consumer raises.
                with contextlib.suppress(RuntimeError):
                    self._consumer.resume(self.places(paused))

    def _call(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return hook(*arguments)
        except Exception as error:  # raised by the handler; the session continues
            self._log_error(hook.__name__, error, f"its listener failed ({hook.__name__})")

    # -- the thread

    def _run(self) -> None:
        if not self._ending.acquire(blocking=False):  # start() has failed
            return
        try:
            while not self._stopping:
                try:
                    if self._consumer is None:
                        self._open_consumer()
                    if self._partitions and not self._assigned:
                        self._assign_own()
                    batch, count, errors = self._fetch()
                    if count:
                        self._failed = 0
                        self._handler.batch(batch)  # may release it
                    if errors and self._report_errors(errors) and not count:
                        self._pause(SHORT_PAUSE_S)
                    self._do_tasks()
                    self._call(self._handler.polled)
                except BaseException as error:  # a new consumer may work, and refetches the batch
                    if not self._stopping:
                        self._replace(error)
        finally:
            self._end()

    def _end(self) -> None:
        self._close_consumer()
        self._ended = True
        self._fail_tasks()
        self._call(self._handler.closed)

    def _fetch(self) -> tuple[MessageBatch, int, list[Message]]:
        """Take all fetched messages, or wait for one. Returns batch, size and errors."""
        batch = self.consumer.consume_batch(MAX_BATCH, 0)
        if not batch:  # it contains no errors either
            batch = self.consumer.consume_batch(1, PAUSED_S if self._paused else IDLE_S)
        return batch, len(batch), batch.errors

    def _replace(self, error: BaseException) -> None:
        known = kafka_error(error)
        kind = known.code() if known is not None else type(error)
        self._log_error(kind, error, "its consumer failed; replacing it")
        self._close_consumer()
        self._pause(LONG_PAUSE_S)

    def poll_once(self) -> MessageBatch:
        """Poll the consumer while a slow handler runs. The batch may contain a message."""
        more = self.consumer.consume_batch(1, 0)
        self._report_errors(more.errors)
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
        text = f"topic {self.topic}: the subscription has ended"
        with contextlib.suppress(IndexError):  # two threads may run this loop
            while True:
                _, done = self._tasks.popleft()
                if done.set_running_or_notify_cancel():
                    done.set_exception(InvalidStateException(None, "NOT_OPEN", text))

    # -- errors

    def _report_errors(self, errors: Iterable[Message]) -> bool:
        """Report errors that librdkafka returned as messages. Returns whether it reported any."""
        noted = False
        for message in errors:
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                continue
            noted = True
            self._on_error(error)
            if error.fatal() or error.code() in _DEADLY:
                raise KafkaException(error)
        return noted

    def _on_error(self, error: KafkaError) -> None:
        text = f"Subscription to topic {self.topic}: consumer error; the subscription continues"
        self.outage.report(error, text)
        self._call(self._handler.failed, error)

    def _on_commit(self, error: KafkaError | None, positions: list[TopicPartition]) -> None:
        self._call(self._handler.committed, error, positions)

    def _log_error(self, kind: Any, error: BaseException, text: str) -> None:
        group = self.subscription.group_id or "default"
        message = f"Subscription to topic {self.topic}, group {group}: {text}"
        self._log.rare_error((self.topic, group, kind), message, error)

    def _pause(self, longest: float) -> None:
        self._wanted.wait(min(FIRST_PAUSE_S * 2 ** min(self._failed, 10), longest))
        self._failed += 1
        if not self._stopping:
            self._wanted.clear()


# -- handlers with one message at a time


class MessageLoop:
    """Passes messages to a function until the session stops.

    Every SERVE_S it polls the consumer between two messages. So the consumer of a slow function
    stays in the group, and rebalances do not wait for a whole batch.
    """

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()

    def run(
        self,
        session: Session,
        batch: MessageBatch,
        handle: Callable[[Message], object],
        polled: Callable[[], object] = lambda: None,
    ) -> None:
        """Call `handle` per message and `polled` per poll. If the session stops, drop the rest."""
        waiting = self._waiting
        waiting.extend(batch)
        served = time.monotonic()
        try:
            while waiting and session.continues() and waiting:
                handle(waiting.popleft())
                if time.monotonic() - served > SERVE_S:
                    waiting.extend(session.poll_once())
                    polled()
                    served = time.monotonic()
        finally:
            waiting.clear()

    def drop(self, partitions: Collection[int]) -> None:
        """Drop the waiting messages of these partitions."""
        if self._waiting:
            kept = [item for item in self._waiting if item.partition() not in partitions]
            self._waiting.clear()
            self._waiting.extend(kept)


class OneByOne(Handler):
    """Calls `on_message` once per message and stores the offset when the call returns.

    Parameters
    ----------
    listener : IKafkaMessageListener
    failed : callable
        Called with every exception that the listener raises.
    """

    def __init__(
        self, listener: IKafkaMessageListener, failed: Callable[[BaseException], object]
    ) -> None:
        self._listener = listener
        self._failed = failed
        self._session: Session | None = None
        self._loop = MessageLoop()
        self._sought: set[int] = set()  # partitions that were sought during the listener's call

    def started(self, session: Session) -> None:
        self._session = session

    def batch(self, batch: MessageBatch) -> None:
        """Pass a batch to the listener. If the session stops, the other messages stay unread."""
        assert self._session is not None
        self._loop.run(self._session, batch, self._handle)

    def _handle(self, message: Message) -> None:
        self._sought.clear()
        try:
            self._listener.on_message(str(message.topic()), int(message.partition() or 0), message)
        except BaseException as error:  # raised by the listener; the next message follows
            self._failed(error)
        else:
            if message.partition() not in self._sought and self._session is not None:
                _store(self._session, message)

    def sought(self, partition: int) -> None:
        """Drop the partition's waiting messages, and do not store the current one's offset."""
        self._sought.add(partition)
        self._loop.drop({partition})

    def revoked(self, partitions: list[int]) -> None:
        """Drop the waiting messages of these partitions."""
        self._loop.drop(partitions)

    lost = revoked


def _store(session: Session, message: Message) -> None:
    try:
        session.consumer.store_offsets(message=message)
    except KafkaException as error:
        known = kafka_error(error)
        if known is None or known.code() != KafkaError._STATE:  # _STATE: no longer assigned
            raise
