"""AsyncProducer: sends records from an event loop."""

from __future__ import annotations

import contextlib
from asyncio import (
    AbstractEventLoop,
    CancelledError,
    Task,
    get_running_loop,
    sleep,
    to_thread,
)
from collections.abc import Generator, Sequence
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cykafka import Delivery, KafkaError, KafkaException, Producer, TopicPartition
from cykafka._core.client.call import Call, list_topics
from cykafka._core.client.event_loop import watch
from cykafka._core.common.registry_arguments import check_encoding
from cykafka._core.produce.futures import Futures, RecordSender
from cykafka._core.produce.producer import (
    Publication,
    arrow_publication,
    close_now,
    end_transaction,
    flush,
    is_inherited,
    publication,
    transactions_of,
    undelivered,
)
from cykafka.admin import ClusterMetadata
from cykafka.aio._clients import AsyncWith, adapt_callbacks
from cykafka.aio._waiting import deadline, left_until, perform, until
from cykafka.aio.consumer import AsyncConsumer
from cykafka.error import ClosedError

if TYPE_CHECKING:
    from cykafka._core.arrow.read import _ArrowData
    from cykafka._core.produce.producer import _Column, _ColumnOfHeaders, _Numbers

# The longest wait for the reports of purged records, s.
_PURGED_S = 1.0


class AsyncProducer(RecordSender, AsyncWith):
    """Sends records from an event loop, which serves librdkafka.

    A producer belongs to one loop at a time: the loop of its first await. After that loop closes,
    another loop may use the producer. The producer is an asynchronous context manager; leaving the
    block closes it.

    Parameters
    ----------
    config : dict
        As for :class:`cykafka.Producer`, without ``on_delivery``. The callbacks run in an event
        loop and may be coroutine functions.
    """

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        self._producer = Producer(adapt_callbacks(config, kwargs))
        self._transactions = transactions_of(self._producer)
        self._watch = watch(self._producer)
        self._futures = Futures(self._producer)
        self._closing: Task[None] | None = None
        # Whether the producer is freed, and close()'s outcome: a result or an exception.
        self._is_freed = False
        self._closed: bool | Exception | None = None
        # The transaction call that was canceled after it had succeeded.
        self._succeeded: str | None = None

    def __repr__(self) -> str:
        return f"<AsyncProducer of {self._producer!r}>"

    def __len__(self) -> int:
        """The number of records without an outcome, plus waiting events."""
        return len(self._producer) + len(self._futures.waiting)

    def __bool__(self) -> bool:
        return True

    # -- records

    def _check_usable(self) -> None:
        """Check that the producer is open, and let the running loop serve it."""
        if self._is_closing:
            raise ClosedError("Producer has been closed")
        self._watch.claim(get_running_loop())

    async def publish(
        self,
        topic: str | Sequence[str],
        values: _Column | None,
        *,
        keys: _Column | None = None,
        headers: _ColumnOfHeaders | None = None,
        timestamps: _Numbers | None = None,
        partitions: _Numbers | None = None,
    ) -> Delivery:
        """Send a batch of records, given as columns, and wait until each has its outcome.

        While the queue is full, the call waits for room. The loop's other tasks run during this
        wait and between the parts of a large batch.

        Parameters
        ----------
        topic, values, keys, headers, timestamps, partitions
            As for :meth:`cykafka.Producer.publish`.

        Returns
        -------
        Delivery

        Raises
        ------
        DeliveryError
            Records failed; the exception's ``delivery`` has all outcomes. If you cancel the call,
            records that are not queued yet fail, and the CancelledError also has the attribute
            ``delivery``.
        """
        self._check_usable()
        return await self._publish(
            publication(
                self._producer,
                topic,
                values,
                keys=keys,
                headers=headers,
                timestamps=timestamps,
                partitions=partitions,
            )
        )

    async def publish_arrow(
        self,
        topic: str | None,
        data: _ArrowData,
        *,
        key: str | None = None,
        value: str | None = "value",
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | None = None,
        registry: Any = None,
        schema: Any = None,
        subject: str | None = None,
    ) -> Delivery:
        """Send Arrow rows as records; see :meth:`publish`.

        Parameters
        ----------
        topic, data, key, value, headers, timestamp, partition, registry, schema, subject
            As for :meth:`cykafka.Producer.publish_arrow`. The registry's client, with or without
            await, encodes the values in a thread.
        """
        self._check_usable()
        check_encoding(registry, value, schema, subject, awaits=True)
        if registry is not None:
            names = (key, headers, timestamp, partition, "topic" if topic is None else None)
            encode = registry.encode_table
            if not iscoroutinefunction(encode):
                encode = partial(to_thread, encode)
            data = await encode(topic, data, schema=schema, subject=subject, apart=names)
        return await self._publish(
            arrow_publication(
                self._producer,
                topic,
                data,
                key=key,
                value=value,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
            )
        )

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
            Seconds to wait. None or a negative value waits for all outcomes, which takes at most
            ``delivery.timeout.ms``.

        Returns
        -------
        int
            The number of records without an outcome.
        """
        was_closed = self._closed is not None
        try:
            return await self._flush(timeout)
        except ClosedError:
            if was_closed or not self._is_closing:
                raise
        await self._end_of_close()  # close() has flushed
        return 0

    async def _flush(self, timeout: float | None) -> int:
        end = deadline(timeout)
        while True:
            await perform(flush(self._producer, left_until(end)))
            self._futures.queue_waiting()  # the call has made room
            if len(self) == 0 or left_until(end) == 0:
                return len(self)

    async def serve(self, timeout: float | None = None) -> int:
        """Run the waiting callbacks. While a coroutine awaits the producer, the loop runs them
        automatically.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for an event. None or a negative value waits forever; 0 does not wait.

        Returns
        -------
        int
            The number of served events.
        """
        before = self._watch.served

        def take() -> int:
            served = self._producer.poll(0)
            if served:
                self._watch.wake_all()  # there may be room now
            return served + self._watch.served - before

        return await until(self._watch, take, bool, timeout)

    def purge(self, in_queue: bool = True, in_flight: bool = True) -> None:
        """Fail waiting records or records in flight; see :meth:`cykafka.Producer.purge`."""
        if in_queue:
            self._futures.refuse_waiting(KafkaError._PURGE_QUEUE)
        self._producer.purge(in_queue, in_flight, blocking=False)
        self._watch.wake_all()

    # -- transactions

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Register the ``transactional.id``; see :meth:`cykafka.Producer.init_transactions`."""
        await self._repeatable(
            "init", self._transactions.init(self._producer, _ms(timeout), False)
        )

    async def _repeatable(self, name: str, steps: Generator[Call, None, None]) -> None:
        """Run a transaction call. If the call succeeds but is canceled, repeating it succeeds."""
        if self._succeeded == name:
            self._succeeded = None
            return

        def note() -> None:
            self._succeeded = name

        await perform(steps, note)

    def begin_transaction(self) -> None:
        """Begin a transaction, without a request to the broker."""
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

        A canceled commit may continue: repeat the call to resume it.
        """
        end = deadline(timeout)
        await self._queued(timeout)
        await self._repeatable(
            "commit", self._transactions.commit(self._producer, _ms(left_until(end)), False)
        )

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction; see :meth:`cykafka.Producer.abort_transaction`."""
        self._watch.claim(get_running_loop())
        self._futures.expect_abort(True)
        self._futures.refuse_waiting(KafkaError._PURGE_QUEUE)
        await self._repeatable(
            "abort", self._transactions.abort(self._producer, _ms(timeout), False)
        )

    def transaction(
        self, consumer: AsyncConsumer | None = None, timeout: float | None = None
    ) -> Transaction:
        """Return a block that commits its records together, or aborts them if it raises.

        ``async with producer.transaction():`` works like ``with`` and
        :meth:`cykafka.Producer.transaction`. Canceling the task inside the block aborts the
        transaction.

        Parameters
        ----------
        consumer : AsyncConsumer, optional
            Commit this consumer's read offsets together with the records.
        timeout : float, optional
            Seconds per step.
        """
        return Transaction(self, consumer, timeout)

    async def _queued(self, timeout: float | None = None) -> None:
        """Wait until librdkafka has queued the records that wait for room."""
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
        """Use these credentials for new connections."""
        self._producer.set_sasl_credentials(username, password)

    async def close(self, timeout: float | None = None) -> bool:
        """Abort an open transaction, wait for the records' outcomes, and free the producer.

        Sending during ``close()`` raises RuntimeError. Closing again does nothing. If you cancel
        ``close()``, the producer closes at once, and records without an outcome fail.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the transaction and the records; the remaining records then fail.
            By default ``transaction.timeout.ms`` and ``delivery.timeout.ms`` limit the wait.

        Returns
        -------
        bool
            Whether all records had their outcomes in time.
        """
        if is_inherited(self._producer):
            return close_now(self._producer)  # the parent closes it
        loop = get_running_loop()
        if not self._is_closing:
            self._watch.claim(loop)
            self._is_closing = True
            # Not create_task(): the program's task factory may raise.
            self._closing = Task(self._close(loop, timeout), loop=loop)
            # This also runs if the task is canceled before its first step.
            self._closing.add_done_callback(lambda _: self._close_now(loop, False, None))
        elif self._closing is not None and self._closing.get_loop().is_closed():
            self._close_now(loop, False, None)
        try:
            closed = await self._end_of_close()
        except CancelledError:
            self._close_now(loop, False, None)
            raise
        if isinstance(closed, Exception):
            raise closed
        return closed

    async def _end_of_close(self) -> bool | Exception:
        closed = await until(
            self._watch, lambda: self._closed, lambda closed: closed is not None, None
        )
        assert closed is not None
        return closed

    async def _close(self, loop: AbstractEventLoop, timeout: float | None) -> None:
        done = False
        failure: Exception | None = None
        try:
            done = await self._end(timeout)
            if not done:
                await self._fail_remaining()
        except Exception as error:  # out of descriptors or threads
            failure = error
        finally:
            self._close_now(loop, done, failure)

    async def _end(self, timeout: float | None) -> bool:
        """End an open transaction and wait. Return whether all records have an outcome."""
        end = deadline(timeout)
        self._futures.expect_abort(True)
        if not await perform(end_transaction(self._producer, timeout)):
            self._futures.expect_abort(False)
        await self._flush(left_until(end))
        return not self._futures.waiting and undelivered(self._producer) == 0

    async def _fail_remaining(self) -> None:
        self.purge()
        with contextlib.suppress(Exception):  # close_now() then waits for the reports
            await perform(flush(self._producer, _PURGED_S))

    def _close_now(self, loop: AbstractEventLoop, done: bool, failure: Exception | None) -> None:
        """Free the producer and set close()'s outcome. Further calls do nothing.

        Parameters
        ----------
        loop : AbstractEventLoop
            The loop whose exception handler gets the callbacks' exceptions.
        done : bool
            Whether all records have their outcomes.
        failure : Exception, optional
            The exception that close() raises.
        """
        if self._is_freed:
            return
        self._is_freed = True
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
            self._closed = done if failure is None else failure
            self._watch.wake_all()


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
        self._owner._watch.claim(get_running_loop())
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


def _ms(timeout: float | None) -> int:
    """Convert seconds to ms; -1 means the default."""
    return -1 if timeout is None or timeout < 0 else int(timeout * 1000)
