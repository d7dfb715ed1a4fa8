"""AsyncConsumer: reads records in an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

from cykafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    MessageBatch,
    TopicPartition,
    Watermarks,
)
from cykafka.admin import ClusterMetadata
from cykafka.aio._callbacks import adapted, is_coroutine
from cykafka.aio._waiting import perform, until
from cykafka.error import ClosedError
from cykafka.internal import (
    Commit,
    Later,
    Leaving,
    Rebalance,
    available,
    committed,
    lag_of,
    list_topics,
    offsets_for_times,
    seek_partition,
    watch,
    watermark_offsets,
    watermarks,
)

log = logging.getLogger("cykafka")

# After so many messages in a row that were there already, the other tasks of the loop run.
_IN_A_ROW = 64

Found = TypeVar("Found")
# A rebalance callback, a function or a coroutine function.
OnRebalance = Callable[["AsyncConsumer", list[TopicPartition]], object]


class AsyncConsumer:
    """Reads records in an event loop, which wakes the coroutines that wait for them.

    Use a consumer in one loop. It is an asynchronous context manager; leaving the block closes it.

    Parameters
    ----------
    config : dict
        As for :class:`cykafka.Consumer`. The callbacks run in the loop, while a coroutine waits
        for messages or closes the consumer; they may be coroutine functions.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._consumer = Consumer(adapted(args, kwargs))
        self._watch = watch(self._consumer)
        self._watch.stays = True
        self._poll: Callable[[], Message | None] = partial(self._consumer.poll, 0)
        self._in_a_row = 0
        # Rebalances whose callbacks are coroutines, and the task that runs them.
        self._rebalances: deque[tuple[Callable[..., Coroutine[Any, Any, Any]], Rebalance]] = (
            deque()
        )
        self._following: asyncio.Task[None] | None = None
        # The rebalance whose callback runs, and the exceptions that no call has raised yet.
        self._current: Rebalance | None = None
        self._failures: deque[Exception] = deque()
        # librdkafka leaves the group unless the queue is polled (max.poll.interval.ms).
        self._poll_s = int(self._consumer.configuration()["max.poll.interval.ms"] or 0) / 3e3
        # Set when the close() that is under way has ended.
        self._closed: asyncio.Event | None = None
        self._has_left = False

    def __repr__(self) -> str:
        return f"<AsyncConsumer of {self._consumer!r}>"

    # -- subscription and assignment

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Join the group and read its partitions.

        Parameters
        ----------
        topics : sequence of str
            Names, or regular expressions, which begin with ``^``.
        on_assign, on_revoke, on_lost : callable or coroutine function, optional
            ``callback(consumer, partitions)``, as for :meth:`cykafka.Consumer.subscribe`. The
            group waits until a coroutine has ended, so ``on_revoke`` may await a commit. No
            message is handed over meanwhile, and the callback cannot wait for one.
        """
        self._consumer.subscribe(
            list(topics),
            on_assign=self._listener(on_assign),
            on_revoke=self._listener(on_revoke),
            on_lost=self._listener(on_lost),
        )

    def _listener(self, callback: OnRebalance | None) -> Any:
        if not callable(callback):
            return callback  # Consumer refuses it
        if is_coroutine(callback):
            return Later(partial(self._take_rebalance, callback))
        return lambda _, partitions: callback(self, partitions)

    def _take_rebalance(
        self, callback: Callable[..., Coroutine[Any, Any, Any]], rebalance: Rebalance
    ) -> None:
        self._rebalances.append((callback, rebalance))

    async def _follow(self) -> None:
        """Wait until the rebalance callbacks have ended, also if a timeout is over before."""
        if self._following is None and self._rebalances:
            self._following = asyncio.create_task(self._run_rebalances())
        elif self._following is not None and self._following is asyncio.current_task():
            raise RuntimeError("a rebalance callback cannot wait for messages")
        if self._following is not None:
            # The task outlives this wait: the group waits for its end.
            await asyncio.wait([self._following])
        if self._failures:
            raise self._failures.popleft()

    async def _run_rebalances(self) -> None:
        try:
            while self._rebalances:
                callback, rebalance = self._rebalances.popleft()
                self._current = rebalance
                try:
                    try:
                        await callback(self, rebalance.partitions)
                    finally:
                        rebalance.finish()
                except Exception as error:
                    self._failures.append(error)
        finally:
            self._current = self._following = None
            self._watch.ring()

    def _is_rebalancing(self) -> bool:
        return bool(self._rebalances or self._following is not None or self._failures)

    def unsubscribe(self) -> None:
        """Leave the group's topics."""
        self._consumer.unsubscribe()

    def subscription(self) -> list[str]:
        """The subscribed topics."""
        return self._consumer.subscription()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions; see :meth:`cykafka.Consumer.assign`."""
        self._consumer.assign(list(partitions))

    def unassign(self) -> None:
        """Read no partition any more."""
        self._consumer.unassign()

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions, too."""
        self._consumer.incremental_assign(list(partitions))

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Do not read these partitions any more."""
        self._consumer.incremental_unassign(list(partitions))

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return self._consumer.assignment()

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Hold back the messages of partitions; see :meth:`cykafka.Consumer.pause`."""
        self._consumer.pause(list(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """The inverse of :meth:`pause`."""
        self._consumer.resume(list(partitions))
        self._watch.ring()

    # -- messages

    async def poll(self, timeout: float | None = None) -> Message | None:
        """Wait for one message.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None or less than 0: forever. 0: do not wait.

        Returns
        -------
        Message or None
            None if no message arrived in time. Check ``message.error()`` first. Rebalance
            callbacks are not interrupted by a timeout.

        Raises
        ------
        RuntimeError
            The consumer is closed, or was closed meanwhile.
        """
        if self._in_a_row >= _IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)  # before it takes a message, which a cancellation would lose
        if not self._is_rebalancing():
            message = self._poll()
            if message is not None:
                self._in_a_row += 1
                return message
        self._in_a_row = 0
        return await self._wait(lambda: self._poll(), _is_message, timeout)

    async def _wait(
        self, take: Callable[[], Found], is_there: Callable[[Found], object], timeout: float | None
    ) -> Found:
        """Wait for something to read. Follow rebalances meanwhile."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None or timeout < 0 else loop.time() + timeout
        while True:
            if self._is_rebalancing():
                await self._follow()
            left = self._poll_s if end is None else min(max(0.0, end - loop.time()), self._poll_s)
            found = await until(
                self._watch,
                take,
                lambda found: is_there(found) or self._is_rebalancing(),
                left,
            )
            if is_there(found):
                return found
            if end is not None and loop.time() >= end and not self._is_rebalancing():
                return found

    async def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Wait for messages, and return those that are there, at most `num_messages`.

        Parameters
        ----------
        num_messages : int
            At most 1,000,000.
        timeout : float, optional
            Seconds; None or less than 0: forever. 0: do not wait.

        Returns
        -------
        list of Message
            Empty if no message arrived in time.
        """
        if num_messages == 0:
            self._check_open()
            return []
        return await self._read(partial(self._consumer.consume, num_messages, 0), bool, timeout)

    async def _consume_all(self, num_messages: int, timeout: float | None) -> list[Message]:
        """As consume(), but wait until `num_messages` are there."""
        if num_messages:
            await self._read(
                partial(available, self._consumer, num_messages),
                lambda count: count == num_messages,
                timeout,
            )
        self._check_open()
        return self._consumer.consume(num_messages, 0)

    async def consume_batch(
        self, max_messages: int = 10_000, timeout: float | None = None
    ) -> MessageBatch:
        """Wait for records, and return those that are there.

        Unlike :meth:`cykafka.Consumer.consume_batch` it does not wait for more once there is one.

        Parameters
        ----------
        max_messages : int
            1 to 1,000,000.
        timeout : float, optional
            Seconds; None or less than 0: forever. 0: do not wait.

        Returns
        -------
        MessageBatch
            Empty if no record arrived in time. Events and errors are in ``batch.errors``.
        """
        return await self._read(
            partial(self._consumer.consume_batch, max_messages, 0), _has_any, timeout
        )

    async def _read(
        self, take: Callable[[], Found], is_there: Callable[[Found], object], timeout: float | None
    ) -> Found:
        # Messages are work, so let the other tasks go on before it. A cancellation after the take
        # would lose messages.
        await asyncio.sleep(0)
        if not self._is_rebalancing():
            self._check_open()
            found = take()
            if is_there(found) or timeout == 0:
                return found

        def take_open() -> Found:
            self._check_open()
            return take()

        return await self._wait(take_open, is_there, timeout)

    async def batches(self, max_messages: int = 10_000) -> AsyncIterator[MessageBatch]:
        """Iterate over batches until the consumer is closed.

        Parameters
        ----------
        max_messages : int
            The most records of a batch, 1 to 1,000,000.

        Raises
        ------
        KafkaException
            An event or error came, after the records before it. Ends of partitions are skipped.
        """
        while True:
            try:
                batch = await self.consume_batch(max_messages)
            except ClosedError:
                if self._closed is None:
                    raise
                return
            if batch:
                yield batch
            for message in batch.errors:
                _raise_error(message)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while True:
            try:
                message = await self.poll()
            except ClosedError:
                if self._closed is None:
                    raise
                raise StopAsyncIteration from None
            assert message is not None
            if message.error() is None:
                return message
            _raise_error(message)

    # -- offsets

    async def seek(self, partition: TopicPartition) -> None:
        """Read on at another offset; see :meth:`cykafka.Consumer.seek`."""
        try:
            await perform(seek_partition(self._consumer, partition))
        finally:
            self._watch.ring()  # after a failure, messages that were set aside are there again

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The offsets after the last messages; see :meth:`cykafka.Consumer.position`."""
        return self._consumer.position(list(partitions))

    def store_offsets(
        self,
        message: Message | MessageBatch | None = None,
        offsets: list[TopicPartition] | None = None,
    ) -> None:
        """Mark offsets for the next commit; see :meth:`cykafka.Consumer.store_offsets`."""
        self._consumer.store_offsets(message, offsets)

    async def commit(
        self,
        message: Message | MessageBatch | None = None,
        offsets: list[TopicPartition] | None = None,
    ) -> list[TopicPartition]:
        """Commit offsets, and wait for the answer.

        Parameters
        ----------
        message : Message or MessageBatch, optional
            Commit its offset + 1; for a batch, that of the last record of each partition.
        offsets : list of TopicPartition, optional
            Commit these offsets. Without message and offsets, commit the stored offsets.

        Returns
        -------
        list of TopicPartition
            The committed offsets, each with its ``error``. A cancelled commit goes on.

        Raises
        ------
        KafkaException
            ``_NO_OFFSET`` if no offset is stored.
        """
        commit = Commit(self._consumer, message, offsets, self._watch)
        try:
            await until(self._watch, commit.is_done, bool, None)
            return commit.result()
        finally:
            commit.end()

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Request the group's committed offsets; see :meth:`cykafka.Consumer.committed`."""
        return await perform(committed(self._consumer, list(partitions), timeout))

    async def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Look up offsets by timestamp; see :meth:`cykafka.Consumer.offsets_for_times`."""
        return await perform(offsets_for_times(self._consumer, list(partitions), timeout))

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """The ends of a partition; see :meth:`cykafka.Consumer.get_watermark_offsets`."""
        if cached:
            return self._consumer.get_watermark_offsets(partition, cached=True)
        return await perform(watermark_offsets(self._consumer, partition, timeout))

    async def watermarks(
        self, partitions: Sequence[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, Watermarks]:
        """The ends of many partitions; see :meth:`cykafka.Consumer.watermarks`."""
        return await perform(watermarks(self._consumer, _listed(partitions), timeout))

    async def lag(
        self, partitions: Sequence[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """The number of offsets until the end; see :meth:`cykafka.Consumer.lag`."""
        return await perform(lag_of(self._consumer, _listed(partitions), timeout))

    # -- the client

    async def list_topics(
        self, topic: str | None = None, timeout: float | None = None
    ) -> ClusterMetadata:
        """Request the cluster's brokers, topics and partitions; see
        :meth:`cykafka.Consumer.list_topics`."""
        return await perform(list_topics(self._consumer, topic, timeout))

    def memberid(self) -> str | None:
        """The member id from the group's coordinator; None before the join."""
        return self._consumer.memberid()

    def consumer_group_metadata(self) -> bytes:
        """The group's state, for ``send_offsets_to_transaction()``."""
        return self._consumer.consumer_group_metadata()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials from the next connection on."""
        self._consumer.set_sasl_credentials(username, password)

    async def close(self, timeout: float | None = None) -> bool:
        """Leave the group and free the consumer; see :meth:`cykafka.Consumer.close`.

        Closing again returns the first close's result. Coroutines that wait for messages raise
        RuntimeError, and iterations end. A cancellation closes the consumer at once.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the group; None: without limit.

        Returns
        -------
        bool
            Whether the consumer left its group in time.
        """
        if self._following is not None and self._following is asyncio.current_task():
            raise RuntimeError("a rebalance callback cannot close its consumer")
        if self._closed is not None:
            await self._closed.wait()
            return self._has_left
        self._closed = asyncio.Event()
        self._poll = self._refuse
        loop = asyncio.get_running_loop()
        self._watch.add(loop)  # while it is open
        try:
            try:
                leaving = Leaving(self._consumer, self._watch)
            except BaseException:  # it stays open
                self._closed.set()
                self._closed = None
                self._poll = partial(self._consumer.poll, 0)
                raise
            self._watch.ring()
            self._has_left = await self._leave(leaving, timeout)
            return self._has_left
        finally:
            self._watch.remove(loop)
            if self._closed is not None:
                self._closed.set()

    async def _leave(self, leaving: Leaving, timeout: float | None) -> bool:
        loop = asyncio.get_running_loop()
        end = None if timeout is None or timeout < 0 else loop.time() + timeout
        try:
            while True:
                left = None if end is None else max(0.0, end - loop.time())
                try:
                    has_left = await self._wait(leaving.step, bool, left)
                    break
                except Exception as error:  # a callback raised; the leave goes on
                    leaving.note(error)
        except BaseException:
            try:
                self._end_leave(leaving)
            except Exception as error:  # a cancellation counts more
                log.warning("%r: a callback raised in close(): %r", self, error)
            raise
        self._end_leave(leaving)
        return has_left

    def _end_leave(self, leaving: Leaving) -> None:
        # Without an answer to a rebalance, the thread that completes the leave never ends.
        for rebalance in (self._current, *[each for _, each in self._rebalances]):
            if rebalance is not None:
                rebalance.finish()
        self._rebalances.clear()
        for failure in self._failures:
            leaving.note(failure)
        leaving.finish()

    def _check_open(self) -> None:
        if self._closed is not None:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise ClosedError("the consumer is closed")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _listed(partitions: Sequence[TopicPartition] | None) -> list[TopicPartition] | None:
    return None if partitions is None else list(partitions)


def _is_message(found: object) -> bool:
    return found is not None  # an empty message counts


def _has_any(batch: MessageBatch) -> bool:
    return bool(batch) or bool(batch.errors)


def _raise_error(message: Message) -> None:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
