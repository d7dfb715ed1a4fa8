"""AsyncConsumer: reads records in an event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
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
from cykafka._core.client.call import list_topics
from cykafka._core.client.event_loop import watch
from cykafka._core.client.leaving import Leaving
from cykafka._core.common.coroutines import is_coroutine
from cykafka._core.consume.consumer import BatchIterator, available, lag_of, seek_partition
from cykafka._core.consume.lag import watermarks
from cykafka._core.consume.membership import Later, Rebalance
from cykafka._core.consume.offsets import Commit, committed, offsets_for_times, watermark_offsets
from cykafka.admin import ClusterMetadata
from cykafka.aio._clients import adapt_callbacks
from cykafka.aio._member import AsyncMember
from cykafka.aio._waiting import perform, until
from cykafka.error import ClosedError

# After this many immediately available messages in a row, let the loop's other tasks run.
_IN_A_ROW = 64

Found = TypeVar("Found")
# A rebalance callback, a function or a coroutine function.
OnRebalance = Callable[["AsyncConsumer", list[TopicPartition]], object]


class AsyncConsumer(AsyncMember):
    """Reads records in an event loop, which wakes the coroutines that wait for them.

    A consumer belongs to one loop at a time: the loop of its first await. After that loop closes,
    another loop may use the consumer. The consumer is an asynchronous context manager; leaving the
    block closes it.

    Parameters
    ----------
    config : dict
        As for :class:`cykafka.Consumer`. The callbacks run in the loop while a coroutine waits for
        messages or closes the consumer. They may be coroutine functions.
    """

    _consumer: Consumer

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        self._consumer = Consumer(adapt_callbacks(config, kwargs))
        self._watch = watch(self._consumer)
        self._watch.stays = True
        self._poll: Callable[[], Message | None] = partial(self._consumer.poll, 0)
        self._in_a_row = 0
        # Rebalances whose callbacks are coroutines, and the task that runs them.
        self._rebalances: deque[tuple[Callable[..., Coroutine[Any, Any, Any]], Rebalance]] = (
            deque()
        )
        self._following: asyncio.Task[None] | None = None
        # The loop, and its tasks that wait for messages, in FIFO order.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._line: deque[object] = deque()
        # The rebalance whose callback runs, and exceptions that a later call must raise.
        self._current: Rebalance | None = None
        self._failures: deque[Exception] = deque()
        # librdkafka leaves the group if the consumer does not poll within max.poll.interval.ms.
        self._poll_s = int(self._consumer.configuration()["max.poll.interval.ms"] or 0) / 3e3

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
            Names, or regular expressions that begin with ``^``.
        on_assign, on_revoke, on_lost : callable or coroutine function, optional
            ``callback(consumer, partitions)``, as for :meth:`cykafka.Consumer.subscribe`. The
            group waits for a coroutine to end, so ``on_revoke`` may await a commit. Until then the
            consumer returns no messages, and the callback cannot wait for messages.
        """
        self._subscribe(self, topics, on_assign, on_revoke, on_lost)

    def _subscribe(self, owner: object, topics: Sequence[str], *callbacks: Any) -> None:
        """Join the group. The callbacks get `owner`."""
        assigned, revoked, lost = (self._listener(callback, owner) for callback in callbacks)
        self._consumer.subscribe(list(topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def _listener(self, callback: Any, owner: object) -> Any:
        if not callable(callback):
            return callback  # Consumer refuses it
        if is_coroutine(callback):
            return Later(partial(self._take_rebalance, partial(callback, owner)))
        return lambda _, partitions: callback(owner, partitions)

    def _take_rebalance(
        self, callback: Callable[..., Coroutine[Any, Any, Any]], rebalance: Rebalance
    ) -> None:
        self._rebalances.append((callback, rebalance))
        self._watch.wake_all()  # the task that must follow the rebalance may wait in another call

    async def _follow(self) -> None:
        if self._following is not None and self._following.get_loop().is_closed():
            # The callback never ends, so complete the rebalance without it.
            self._following = None
            if self._current is not None:
                self._current.finish()
        if self._following is None and self._rebalances:
            # Not create_task(): an eager task would run before `_following` names it.
            self._following = asyncio.Task(self._run_rebalances())
            self._following.add_done_callback(self._end_following)
        elif self._following is not None and self._following is asyncio.current_task():
            raise RuntimeError("a rebalance callback cannot wait for messages")
        task = self._following
        if task is not None:
            # The task outlives this wait: the group waits for its end.
            await until(self._watch, lambda: self._following is not task, bool, None)
        if self._failures:
            raise self._failures.popleft()

    async def _run_rebalances(self) -> None:
        task = asyncio.current_task()
        while self._rebalances and self._following is task:
            callback, rebalance = self._rebalances.popleft()
            self._current = rebalance
            try:
                try:
                    await callback(rebalance.partitions)
                finally:
                    rebalance.finish()
            except Exception as error:
                self._failures.append(error)

    def _end_following(self, task: asyncio.Task[None]) -> None:
        # In a callback, because the program may cancel the task before its first step.
        if self._following is task:  # else its loop was closed, and another task has taken over
            self._current = self._following = None
        self._watch.wake_all()

    def _is_rebalancing(self) -> bool:
        return bool(self._rebalances or self._following is not None or self._failures)

    def unsubscribe(self) -> None:
        """Leave the group's topics."""
        self._consumer.unsubscribe()

    def subscription(self) -> list[str]:
        """Return the subscribed topics."""
        return self._consumer.subscription()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions; see :meth:`cykafka.Consumer.assign`."""
        self._consumer.assign(list(partitions))

    def unassign(self) -> None:
        """Remove all partitions from the assignment."""
        self._consumer.unassign()

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        self._consumer.incremental_assign(list(partitions))

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._consumer.incremental_unassign(list(partitions))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._consumer.assignment()

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop returning messages from partitions; see :meth:`cykafka.Consumer.pause`."""
        self._consumer.pause(list(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Return messages from partitions again; see :meth:`cykafka.Consumer.resume`."""
        self._consumer.resume(list(partitions))
        self._watch.wake_all()

    # -- messages

    async def poll(self, timeout: float | None = None) -> Message | None:
        """Wait for one message.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever; 0 does not wait. The timeout
            does not interrupt rebalance callbacks.

        Returns
        -------
        Message or None
            None if the timeout expires. Check ``message.error()`` first.

        Raises
        ------
        RuntimeError
            The consumer is closed, or was closed during the call.
        """
        if self._in_a_row >= _IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)  # not after the poll: a cancellation would lose the message
        if not self._line and not self._is_rebalancing():
            message = self._poll()
            if message is not None:
                self._in_a_row += 1
                return message
        self._in_a_row = 0
        return await self._wait_in_line(lambda: self._poll(), lambda _: True, timeout)

    async def _wait_in_line(
        self, take: Callable[[], Found], is_there: Callable[[Found], object], timeout: float | None
    ) -> Found:
        """Wait for messages, behind the tasks that already wait."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._watch.claim(loop)
            # Tasks of a closed loop never leave their line.
            self._loop, self._line = loop, deque()
        line = self._line
        place = object()
        line.append(place)
        try:
            found = await self._wait(
                lambda: take() if line[0] is place else None,
                lambda found: found is not None and is_there(found),
                timeout,
            )
        finally:
            line.remove(place)
            if line:
                self._watch.wake_all()
        return take() if found is None else found

    async def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Wait for a message, and return the available messages, at most `num_messages`.

        Parameters
        ----------
        num_messages : int
            At most 1,000,000.
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever; 0 does not wait.

        Returns
        -------
        list of Message
            Empty if the timeout expires.
        """
        if num_messages == 0:
            self._check_open()
            return []
        return await self._read(partial(self._consumer.consume, num_messages, 0), bool, timeout)

    async def _consume_all(self, num_messages: int, timeout: float | None) -> list[Message]:
        """Like consume(), but wait for all `num_messages`."""
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
        """Wait for a record, and return the available records.

        Unlike :meth:`cykafka.Consumer.consume_batch`, this method does not wait for a full batch.

        Parameters
        ----------
        max_messages : int
            1 to 1,000,000.
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever; 0 does not wait.

        Returns
        -------
        MessageBatch
            Empty if the timeout expires. Events and errors are in ``batch.errors``.
        """
        return await self._read(
            partial(self._consumer.consume_batch, max_messages, 0),
            lambda batch: bool(batch or batch.errors),
            timeout,
        )

    async def _read(
        self, take: Callable[[], Found], is_there: Callable[[Found], object], timeout: float | None
    ) -> Found:
        # Let the other tasks run before the caller processes messages. Do so before the take: a
        # cancellation after it would lose messages.
        await asyncio.sleep(0)
        if not self._line and not self._is_rebalancing():
            self._check_open()
            found = take()
            if is_there(found) or timeout == 0:
                return found

        def take_open() -> Found:
            self._check_open()
            return take()

        return await self._wait_in_line(take_open, is_there, timeout)

    def batches(self, max_messages: int = 10_000) -> AsyncIterator[MessageBatch]:
        """Iterate over batches until the consumer is closed; see :meth:`cykafka.Consumer.batches`.

        Unlike that iterator, this one does not wait for a full batch.

        Parameters
        ----------
        max_messages : int
            The maximum number of records per batch, 1 to 1,000,000.

        Returns
        -------
        asynchronous iterator of MessageBatch
            Batches always contain records and never contain errors. For an event or error, the
            iterator first returns the records before it, then raises KafkaException. You can
            continue the iteration after the exception. The iterator skips ends of partitions.

        Raises
        ------
        ValueError
            ``max_messages`` is out of range.
        RuntimeError
            The consumer is closed.
        """
        self._check_open()
        batches = self._consumer.batches(max_messages)
        assert isinstance(batches, BatchIterator)
        return _Batches(self, batches.take)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while True:
            try:
                message = await self.poll()
            except ClosedError:
                if not self._is_closing:
                    raise
                raise StopAsyncIteration from None
            assert message is not None
            error = message.error()
            if error is None:
                return message
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)

    # -- offsets

    async def seek(self, partition: TopicPartition) -> None:
        """Continue reading at another offset; see :meth:`cykafka.Consumer.seek`."""
        try:
            await perform(seek_partition(self._consumer, partition))
        finally:
            self._watch.wake_all()  # after a failed seek, readers can get the kept messages again

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last messages; see :meth:`cykafka.Consumer.position`."""
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
        """Commit offsets, and wait for the response.

        If you cancel the call, the commit continues.

        Parameters
        ----------
        message : Message or MessageBatch, optional
            Commit its offset + 1; for a batch, the last record's offset + 1 in each partition.
        offsets : list of TopicPartition, optional
            Commit these offsets. Without message and offsets, commit the stored offsets.

        Returns
        -------
        list of TopicPartition
            The committed offsets, each with its ``error``.

        Raises
        ------
        KafkaException
            ``_NO_OFFSET`` if no offset is stored.
        """
        self._watch.claim(asyncio.get_running_loop())
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
        """Return a partition's ends; see :meth:`cykafka.Consumer.get_watermark_offsets`."""
        if cached:
            return self._consumer.get_watermark_offsets(partition, cached=True)
        return await perform(watermark_offsets(self._consumer, partition, timeout))

    async def watermarks(
        self, partitions: Sequence[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, Watermarks]:
        """Return each partition's ends; see :meth:`cykafka.Consumer.watermarks`."""
        return await perform(watermarks(self._consumer, _listed(partitions), timeout))

    async def lag(
        self, partitions: Sequence[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the number of offsets until the end; see :meth:`cykafka.Consumer.lag`."""
        return await perform(lag_of(self._consumer, _listed(partitions), timeout))

    # -- the client

    async def list_topics(
        self, topic: str | None = None, timeout: float | None = None
    ) -> ClusterMetadata:
        """Request the cluster's brokers, topics and partitions; see
        :meth:`cykafka.Consumer.list_topics`."""
        return await perform(list_topics(self._consumer, topic, timeout))

    def memberid(self) -> str | None:
        """Return the member id from the group's coordinator, or None before the join."""
        return self._consumer.memberid()

    def consumer_group_metadata(self) -> bytes:
        """Return the group's state, for ``send_offsets_to_transaction()``."""
        return self._consumer.consumer_group_metadata()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials for new connections."""
        self._consumer.set_sasl_credentials(username, password)

    async def close(self, timeout: float | None = None) -> bool:
        """Leave the group and free the consumer; see :meth:`cykafka.Consumer.close`.

        Closing again returns the first close's result. Coroutines that wait for messages raise
        RuntimeError, and iterations end. If you cancel ``close()``, the consumer closes at once.
        If the first call's loop was closed, the next call also closes the consumer at once.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the group. None waits without limit.

        Returns
        -------
        bool
            Whether the consumer left its group in time.
        """
        if self._following is not None and self._following is asyncio.current_task():
            raise RuntimeError("a rebalance callback cannot close its consumer")
        if self._is_closing:
            return await super().close(timeout)
        self._poll = self._refuse
        try:
            return await super().close(timeout)
        finally:
            if not self._is_closing:  # the consumer stays open
                self._poll = partial(self._consumer.poll, 0)

    def _end_leave(self, leaving: Leaving) -> bool:
        # Finish each rebalance, or the thread that completes the leave never ends.
        for rebalance in (self._current, *[waiting for _, waiting in self._rebalances]):
            if rebalance is not None:
                rebalance.finish()
        self._rebalances.clear()
        for failure in self._failures:
            leaving.note(failure)
        return super()._end_leave(leaving)

    def _check_open(self) -> None:
        if self._is_closing:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise ClosedError("Consumer closed")


class _Batches:
    """The iterator of ``AsyncConsumer.batches()``."""

    def __init__(self, consumer: AsyncConsumer, take: Callable[[], MessageBatch]) -> None:
        self._consumer = consumer
        self._take = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageBatch:
        consumer = self._consumer
        try:
            return await consumer._read(self._take, bool, None)
        except ClosedError:
            if not consumer._is_closing:
                raise
            raise StopAsyncIteration from None


def _listed(partitions: Sequence[TopicPartition] | None) -> list[TopicPartition] | None:
    return None if partitions is None else list(partitions)
