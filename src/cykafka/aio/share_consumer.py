"""AsyncShareConsumer: a member of a share group in an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, TypeVar

from cykafka import (
    AcknowledgeType,
    KafkaException,
    Message,
    MessageBatch,
    Messages,
    ShareConsumer,
    TopicPartition,
)
from cykafka._core.client.call import list_topics
from cykafka._core.client.event_loop import watch
from cykafka._core.share.consumer import commit, has_committed, next_message
from cykafka.admin import ClusterMetadata
from cykafka.aio._clients import adapt_callback, adapt_callbacks
from cykafka.aio._member import AsyncMember
from cykafka.aio._waiting import deadline, left_until, perform, until
from cykafka.error import ClosedError, ConcurrentModificationException

log = logging.getLogger("cykafka")

Found = TypeVar("Found")
OnAcknowledged = Callable[[dict[TopicPartition, set[int]], KafkaException | None], object]
Commit = asyncio.Task[dict[TopicPartition, KafkaException | None]]


class AsyncShareConsumer(AsyncMember):
    """Reads records as a member of a share group (KIP-932) in an event loop.

    A consumer belongs to one loop at a time: the loop of its first await. After that loop closes,
    another loop may use the consumer. One task at a time may be in a call, except for ``close()``:
    another raises ConcurrentModificationException. The consumer is an asynchronous context
    manager; leaving the block closes it.

    Use the methods' timeouts. If you cancel a call in the moment of its result, as
    :func:`asyncio.wait_for` may do, the program does not see the records: then close the consumer
    without another call, and the group delivers them again.

    Parameters
    ----------
    config : dict
        As for :class:`cykafka.ShareConsumer`. The callbacks run in the loop while a coroutine
        waits for records or closes the consumer. They may be coroutine functions.
    """

    _consumer: ShareConsumer
    # librdkafka runs a share consumer's callbacks only in its poll, and does not signal them.
    _poll_s = 0.1

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        self._consumer = ShareConsumer(adapt_callbacks(config, kwargs))
        self._watch = watch(self._consumer)
        self._watch.stays = True
        # The call in progress, and its loop.
        self._call: tuple[object, asyncio.AbstractEventLoop] | None = None
        # The last commit, which outlives a cancelled commit().
        self._commit: Commit | None = None

    def __repr__(self) -> str:
        return f"<AsyncShareConsumer of {self._consumer!r}>"

    # -- subscription

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to topics; see :meth:`cykafka.ShareConsumer.subscribe`."""
        self._check_idle()
        self._consumer.subscribe(list(topics))

    def subscription(self) -> list[str]:
        """Return the subscribed topics."""
        self._check_idle()
        return self._consumer.subscription()

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._check_idle()
        self._consumer.unsubscribe()

    # -- records

    async def poll(self, timeout: float | None = None) -> Messages:
        """Wait for records, and send earlier acknowledgements.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever; 0 does not wait. The call
            first waits for the end of a commit that you have cancelled.

        Returns
        -------
        Messages
            Empty if the timeout expires; see :meth:`cykafka.ShareConsumer.poll`.

        Raises
        ------
        IllegalStateException
            The consumer is closed or not subscribed. In explicit mode: some records of the last
            poll are not acknowledged.
        ConcurrentModificationException
            Another task is in a call.
        KafkaException
            The brokers refuse the member.
        """
        return await self._read(partial(self._consumer.poll, 0), bool, timeout)

    async def consume_batch(self, timeout: float | None = None) -> MessageBatch:
        """Wait for records, as ``poll()`` does, and return them as one object.

        Parameters
        ----------
        timeout : float, optional
            As for ``poll()``.

        Returns
        -------
        MessageBatch
            Empty if the timeout expires; see :meth:`cykafka.ShareConsumer.consume_batch`.

        Raises
        ------
        IllegalStateException, ConcurrentModificationException, KafkaException
            As for ``poll()``. Also while an iteration over the consumer has not returned all
            messages of the last poll.
        """
        return await self._read(partial(self._consumer.consume_batch, 0), bool, timeout)

    async def batches(self) -> AsyncIterator[MessageBatch]:
        """Iterate over batches with records or errors, until the consumer is closed."""
        while True:
            try:
                yield await self._read(partial(self._consumer.consume_batch, 0), bool, None)
            except ClosedError:
                if not self._is_closing:
                    raise
                return

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Wait for the next record; see :meth:`cykafka.ShareConsumer.__next__`."""
        try:
            message = await self._read(
                partial(next_message, self._consumer), lambda found: found is not None, None
            )
        except ClosedError:
            if not self._is_closing:
                raise
            raise StopAsyncIteration from None
        assert message is not None
        return message

    async def _read(
        self, take: Callable[[], Found], is_there: Callable[[Found], object], timeout: float | None
    ) -> Found:

        def take_open() -> Found:
            self._check_open()
            return take()

        with self._calling():
            await self._end_commit(None)
            # Let the other tasks run before the caller processes records. Do so before the take:
            # a cancellation after it would lose records.
            await asyncio.sleep(0)
            return await self._wait(take_open, is_there, timeout)

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Run a call, of which there is one at a time."""
        self._check_open()
        if self._call is not None and not self._call[1].is_closed():
            raise ConcurrentModificationException("another task uses this share consumer")
        call = self._call = object(), asyncio.get_running_loop()
        try:
            yield
        finally:
            if self._call is call:  # else its loop was closed, and another call has begun
                self._call = None

    async def _end_commit(self, timeout: float | None) -> None:
        """Wait for the end of a commit that was cancelled."""
        await until(self._watch, self._is_idle, bool, timeout)

    def _is_idle(self) -> bool:
        task = self._commit  # perhaps not started yet
        over = task is None or task.done() or task.get_loop().is_closed()
        return over and has_committed(self._consumer)

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClosedError("Share consumer closed")

    def _check_idle(self) -> None:
        if not self._is_idle():
            raise ConcurrentModificationException("a commit of this share consumer is in progress")

    # -- acknowledgements

    def acknowledge(
        self,
        message: Message | MessageBatch,
        ack_type: int = AcknowledgeType.ACCEPT,
        rows: Iterable[int] | None = None,
    ) -> None:
        """Acknowledge records in explicit mode; see :meth:`cykafka.ShareConsumer.acknowledge`."""
        self._check_idle()
        self._consumer.acknowledge(message, ack_type, rows)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, ack_type: int = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge the record at an offset in explicit mode; see
        :meth:`cykafka.ShareConsumer.acknowledge_offset`."""
        self._check_idle()
        self._consumer.acknowledge_offset(topic, partition, offset, ack_type)

    async def commit(self, timeout: float = 60) -> dict[TopicPartition, KafkaException | None]:
        """Send the acknowledgements, and wait for the brokers' responses.

        If you cancel the call, the commit continues, and the next call waits for it.

        Parameters
        ----------
        timeout : float
            As for :meth:`cykafka.ShareConsumer.commit_sync`.

        Returns
        -------
        dict of TopicPartition to (KafkaException or None)
            One item per partition with acknowledgements.

        Raises
        ------
        IllegalStateException, ConcurrentModificationException
            As for ``poll()``. Also while an iteration over the consumer has not returned all
            messages of the last poll, which implicit mode would accept.
        """
        with self._calling():
            await self._end_commit(None)
            self._check_open()
            self._commit = asyncio.Task(perform(commit(self._consumer, timeout)))
            self._commit.add_done_callback(lambda _: self._watch.wake_all())
            try:
                return await asyncio.shield(self._commit)
            except asyncio.CancelledError:
                self._commit.add_done_callback(_log_failures)
                raise

    def set_acknowledgement_commit_callback(self, callback: OnAcknowledged | None) -> None:
        """Set the callback for the brokers' responses to acknowledgements, or remove it.

        Parameters
        ----------
        callback : callable, coroutine function or None
            See :meth:`cykafka.ShareConsumer.set_acknowledgement_commit_callback`.
        """
        self._check_idle()
        self._consumer.set_acknowledgement_commit_callback(adapt_callback(callback))

    # -- the client

    async def list_topics(
        self, topic: str | None = None, timeout: float | None = None
    ) -> ClusterMetadata:
        """Request the cluster's brokers, topics and partitions; see
        :meth:`cykafka.Consumer.list_topics`."""
        return await perform(list_topics(self._consumer, topic, timeout))

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials for new connections."""
        self._consumer.set_sasl_credentials(username, password)

    async def close(self, timeout: float | None = None) -> bool:
        """Send the acknowledgements, leave the group and free the consumer; see
        :meth:`cykafka.ShareConsumer.close`.

        Closing again returns the first close's result. Coroutines that wait for records raise
        IllegalStateException, and iterations end. If you cancel ``close()``, the consumer closes
        at once.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None waits until the brokers have responded, or until
            ``socket.timeout.ms``.

        Returns
        -------
        bool
            Whether the consumer left its group in time.
        """
        end = deadline(timeout)
        try:
            await self._end_commit(timeout)
        except asyncio.CancelledError:
            try:
                await super().close(0)
            except Exception as error:  # the cancellation takes precedence
                log.warning("%r: a callback raised in close(): %r", self, error)
            raise
        return await super().close(left_until(end))


def _log_failures(task: Commit) -> None:
    """Log what failed in a commit whose caller was cancelled."""
    if task.cancelled():
        return
    error = task.exception()
    failures = [error] if error is not None else [*filter(None, task.result().values())]
    for failure in failures:
        log.warning("a cancelled commit of a share consumer has failed: %r", failure)
