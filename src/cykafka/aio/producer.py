"""AsyncProducer: sends records from an event loop."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Task,
    get_running_loop,
    sleep,
    wait,
    wrap_future,
)
from collections.abc import Generator
from threading import Lock
from types import TracebackType
from typing import Any, Self

from cykafka import Delivery, KafkaError, KafkaException, Producer, TopicPartition
from cykafka.admin import ClusterMetadata
from cykafka.aio._callbacks import adapted
from cykafka.aio._waiting import perform, until
from cykafka.aio.consumer import AsyncConsumer
from cykafka.error import ClosedError
from cykafka.internal import (
    Call,
    Futures,
    Publication,
    RecordSender,
    arrow_publication,
    close_now,
    end_transaction,
    flush,
    is_inherited,
    list_topics,
    publication,
    transactions_of,
    undelivered,
    watch,
)

# The longest wait for the reports of purged records, s.
_PURGED_S = 1.0


class AsyncProducer(RecordSender):
    """Sends records from an event loop, which serves librdkafka meanwhile.

    Coroutines of several loops, each in its own thread, may use one producer. It is an
    asynchronous context manager; leaving the block closes it.

    Parameters
    ----------
    config : dict
        As for :class:`cykafka.Producer`, without ``on_delivery``. The callbacks run in a loop;
        they may be coroutine functions.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._producer = Producer(adapted(args, kwargs))
        self._transactions = transactions_of(self._producer)
        self._watch = watch(self._producer)
        self._watch.stays = True
        self._futures = Futures(self._producer)
        self._ends_now = False  # a close() was cancelled
        # Taken by the first close(), and by the call that frees the producer.
        self._unclosed, self._unfreed = Lock(), Lock()
        self._closing: Task[None] | None = None
        self._closed: concurrent.futures.Future[bool] = concurrent.futures.Future()
        self._closed.set_running_or_notify_cancel()  # who waits for it cannot cancel it
        # The transaction call that was cancelled after it had succeeded.
        self._succeeded: str | None = None

    def __repr__(self) -> str:
        return f"<AsyncProducer of {self._producer!r}>"

    def __len__(self) -> int:
        """The number of records that have no outcome yet, and of waiting events."""
        return len(self._producer) + len(self._futures.waiting)

    def __bool__(self) -> bool:
        return True

    # -- records

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClosedError("the producer is closed")

    async def publish(self, topic: Any, values: Any, **columns: Any) -> Delivery:
        """Send a batch of records, given as columns, and wait until each has its outcome.

        While the queue is full, the call waits for room. The loop's other tasks run meanwhile,
        also between parts of a large batch.

        Parameters
        ----------
        topic, values, **columns
            As for :meth:`cykafka.Producer.publish`: ``keys``, ``headers``, ``timestamps``,
            ``partitions``.

        Returns
        -------
        Delivery

        Raises
        ------
        DeliveryError
            Records failed; its `delivery` has all outcomes. A cancellation fails the records that
            are not queued yet. Its exception also has the attribute ``delivery``.
        """
        self._check_open()
        return await self._publish(publication(self._producer, topic, values, **columns))

    async def publish_arrow(self, topic: str | None, data: Any, **columns: Any) -> Delivery:
        """Send the rows of Arrow data as records; see :meth:`publish`.

        Parameters
        ----------
        topic, data, **columns
            As for :meth:`cykafka.Producer.publish_arrow`.
        """
        self._check_open()
        return await self._publish(arrow_publication(self._producer, topic, data, **columns))

    async def _publish(self, begun: Publication) -> Delivery:
        try:
            while (done := begun.step()) is not True:
                if done is None:
                    await sleep(0)
                else:
                    await until(self._watch, begun.step, lambda done: done is not False, None)
        except BaseException as raised:
            begun.end(raised)
            raise
        begun.end()
        try:
            await begun.delivery
        except CancelledError as cancelled:
            cancelled.delivery = begun.delivery  # type: ignore[attr-defined]
            raise
        return begun.delivery

    async def flush(self, timeout: float | None = None) -> int:
        """Send the records that wait for ``linger.ms``, and wait for all outcomes.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None or less than 0: ``delivery.timeout.ms`` limits the wait.

        Returns
        -------
        int
            The number of records that have no outcome yet.
        """
        was_closed = self._closed.done()
        try:
            return await self._flush(timeout)
        except ClosedError:
            if was_closed or not self._is_closing:
                raise
        await wait([wrap_future(self._closed)])  # close() has flushed meanwhile
        return 0

    async def _flush(self, timeout: float | None) -> int:
        loop = get_running_loop()
        end = None if timeout is None or timeout < 0 else loop.time() + timeout
        while True:
            left = None if end is None else max(0.0, end - loop.time())
            await perform(flush(self._producer, left))
            self._futures.queue_waiting()  # the call has made room
            left = None if end is None else max(0.0, end - loop.time())
            if len(self) == 0 and self._futures.unsettled():
                # Another loop has taken the last reports, and hands the outcomes over.
                await until(
                    self._watch, self._futures.unsettled, lambda cnt: not cnt or len(self), left
                )
            if self._unsettled() == 0 or left == 0:
                return self._unsettled()

    def _unsettled(self) -> int:
        return len(self) or self._futures.unsettled()

    async def serve(self, timeout: float | None = None) -> int:
        """Run the waiting callbacks. The loop does so by itself while something is awaited.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for one; None or less than 0: forever. 0: do not wait.

        Returns
        -------
        int
            The number of events that were served.
        """
        before = self._watch.served

        def take() -> int:
            served = self._producer.poll(0)
            if served:
                self._watch.ring()  # there may be room now
            return served + self._watch.served - before

        return await until(self._watch, take, bool, timeout)

    def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
        """Fail records that wait or are in flight; see :meth:`cykafka.Producer.purge`."""
        if in_queue:
            self._futures.refuse_waiting(KafkaError._PURGE_QUEUE)
        self._producer.purge(in_queue, in_flight, blocking=False)
        self._watch.ring()

    # -- transactions

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Register the ``transactional.id``; see :meth:`cykafka.Producer.init_transactions`."""
        await self._repeatable(
            "init", self._transactions.init(self._producer, _ms(timeout), False)
        )

    async def _repeatable(self, name: str, steps: Generator[Call, None, None]) -> None:
        """Make a transaction call. If it has succeeded when a cancellation is raised, its
        repetition succeeds."""
        if self._succeeded == name:
            self._succeeded = None
            return

        def note() -> None:
            self._succeeded = name

        await perform(steps, note)

    def begin_transaction(self) -> None:
        """Begin a transaction. Does not talk to the broker."""
        self._succeeded = None
        self._producer.begin_transaction()
        self._futures.expect_abort(False)

    async def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
        group_metadata: bytes | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's offsets with the transaction; see
        :meth:`cykafka.Producer.send_offsets_to_transaction`."""
        error = await perform(
            self._transactions.send_offsets(
                self._producer, positions, group_metadata, _ms(timeout)
            ),
        )
        if error is not None:
            raise KafkaException(error)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send the waiting records and commit; see :meth:`cykafka.Producer.commit_transaction`.

        A cancelled commit may go on: repeat the call to resume it.
        """
        end = _deadline_of(timeout)
        await self._queued(timeout)
        await self._repeatable(
            "commit", self._transactions.commit(self._producer, _ms(_left_of(end)), False)
        )

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction; see :meth:`cykafka.Producer.abort_transaction`."""
        self._futures.expect_abort(True)
        self._futures.refuse_waiting(KafkaError._PURGE_QUEUE)
        await self._repeatable(
            "abort", self._transactions.abort(self._producer, _ms(timeout), False)
        )

    def transaction(
        self, consumer: AsyncConsumer | None = None, timeout: float | None = None
    ) -> Transaction:
        """A block whose records are committed together at its end, or aborted if it raises.

        ``async with producer.transaction():`` does what ``with producer.transaction():`` of
        :meth:`cykafka.Producer.transaction` does. A cancellation in the block aborts it.

        Parameters
        ----------
        consumer : AsyncConsumer, optional
            Commit the offsets that it has read with the records.
        timeout : float, optional
            Seconds for each step.
        """
        return Transaction(self, consumer, timeout)

    async def _queued(self, timeout: float | None = None) -> None:
        """Wait until the records that had no room are queued."""
        waiting = self._futures.waiting
        if not waiting:
            return
        left = await until(self._watch, lambda: len(waiting), lambda left: left == 0, timeout)
        if left:
            raise KafkaException(
                KafkaError(
                    KafkaError._TIMED_OUT,
                    f"{left} records still wait for room in the queue",
                    retriable=True,
                )
            )

    # -- the client

    async def list_topics(
        self, topic: str | None = None, timeout: float | None = None
    ) -> ClusterMetadata:
        """Request the cluster's brokers, topics and partitions; see
        :meth:`cykafka.Producer.list_topics`."""
        return await perform(list_topics(self._producer, topic, timeout))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials from the next connection on."""
        self._producer.set_sasl_credentials(username, password)

    async def close(self, timeout: float | None = None) -> bool:
        """Abort an open transaction, wait for the outcomes of the records, and free the producer.

        Records that are sent meanwhile raise RuntimeError. Closing again does nothing. A
        cancellation closes it at once: records that have no outcome yet fail.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the transaction and the records; the rest fails then. By default
            ``transaction.timeout.ms`` and ``delivery.timeout.ms`` limit the wait.

        Returns
        -------
        bool
            Whether all records had their outcomes in time.
        """
        if is_inherited(self._producer):
            return close_now(self._producer)  # the parent closes it
        loop = get_running_loop()
        if self._unclosed.acquire(blocking=False):  # the first call
            self._is_closing = True
            self._closing = loop.create_task(self._close(loop, timeout))
            # Also if it is cancelled before its first step.
            self._closing.add_done_callback(lambda _: self._close_now(loop, False, None))
            if self._ends_now:  # by another thread meanwhile
                self._end_closing()
        elif self._closing is not None and self._closing.get_loop().is_closed():
            self._end_closing()
        try:
            return await wrap_future(self._closed)
        except CancelledError:
            self._end_closing()
            await wait([wrap_future(self._closed)])
            raise

    def _end_closing(self) -> None:
        """Close at once. Any thread may call it."""
        self._ends_now = True
        closing = self._closing
        if closing is None:  # another thread is just beginning it, and looks afterwards
            return
        loop = closing.get_loop()
        try:
            loop.call_soon_threadsafe(closing.cancel)
        except RuntimeError:  # the loop is closed
            self._close_now(loop, False, None)

    async def _close(self, loop: AbstractEventLoop, timeout: float | None) -> None:
        """Close the producer. Coroutines of all loops await the outcome, `_closed`."""
        done = False
        failure: Exception | None = None
        try:
            done = await self._end(timeout)
            if not done:
                await self._fail_remaining()
        except CancelledError:
            await self._fail_remaining()
            raise
        except Exception as error:  # no descriptor, no thread
            failure = error
        finally:
            self._close_now(loop, done, failure)

    async def _end(self, timeout: float | None) -> bool:
        """End an open transaction, and wait for the outcomes. Returns whether all are there."""
        end = _deadline_of(timeout)
        self._futures.expect_abort(True)
        if not await perform(end_transaction(self._producer, timeout)):
            self._futures.expect_abort(False)
        await self._flush(_left_of(end))
        return not self._futures.waiting and undelivered(self._producer) == 0

    async def _fail_remaining(self) -> None:
        self.purge()
        with contextlib.suppress(Exception):  # close_now() waits for the reports then
            await perform(flush(self._producer, _PURGED_S))

    def _close_now(self, loop: AbstractEventLoop, done: bool, failure: Exception | None) -> None:
        """Free the producer, and set the outcome of close(). Does nothing if it was called before.

        Parameters
        ----------
        loop : AbstractEventLoop
            Its exception handler gets the exceptions of callbacks.
        done : bool
            Whether all records have their outcomes.
        failure : Exception, optional
            What close() raises.
        """
        if not self._unfreed.acquire(blocking=False):
            return
        self._futures.refuse_waiting(KafkaError._PURGE_QUEUE)
        try:
            try:
                done = close_now(self._producer) and done
            except Exception as raised:
                done = close_now(self._producer) and done
                report = {"message": "a callback raised in close()", "exception": raised}
                loop.call_exception_handler(report)
        except Exception as error:  # a call in another thread has not ended
            failure = error
        finally:
            if failure is None:
                self._closed.set_result(done)
            else:
                self._closed.set_exception(failure)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        await self.close()


class Transaction:
    """The block of ``async with producer.transaction():``."""

    def __init__(
        self, producer: AsyncProducer, consumer: AsyncConsumer | None, timeout: float | None
    ) -> None:
        self._owner = producer
        # Its begin() and end() are operations.
        self._block: Any = producer._producer.transaction(
            None if consumer is None else consumer._consumer, timeout
        )

    async def __aenter__(self) -> AsyncProducer:
        self._owner._succeeded = None
        await perform(self._block.begin(False))
        self._owner._futures.expect_abort(False)
        return self._owner

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self._owner._futures.expect_abort(True)  # also if the commit fails
        if exc_value is None:
            try:
                await self._owner._queued()
            except BaseException as error:
                self._owner._futures.refuse_waiting(KafkaError._PURGE_QUEUE)
                await perform(self._block.end(error, False))
                raise
        else:
            self._owner._futures.refuse_waiting(KafkaError._PURGE_QUEUE)
        await perform(self._block.end(exc_value, False))


def _deadline_of(timeout: float | None) -> float | None:
    """The end of a timeout; None: there is none."""
    return None if timeout is None or timeout < 0 else time.monotonic() + timeout


def _left_of(end: float | None) -> float | None:
    """The seconds until a deadline; None: there is none."""
    return None if end is None else max(0.0, end - time.monotonic())


def _ms(timeout: float | None) -> int:
    """Seconds as ms; -1: the default."""
    return -1 if timeout is None or timeout < 0 else int(timeout * 1000)
