"""AsyncConsumer: reads records in an event loop."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import AsyncIterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from cykafka import Consumer, KafkaError, KafkaException, Message, MessageBatch, TopicPartition
from cykafka.aio._waiting import until
from cykafka.internal import watch

# After so many messages in a row that were there already, the other tasks of the loop run.
_IN_A_ROW = 64


class AsyncConsumer:
    """Reads records in an event loop, which wakes the coroutines that wait for them.

    There is no thread and no timer: librdkafka writes to a pipe that the loop reads.

    Parameters
    ----------
    config : dict
        As for :class:`cykafka.Consumer`. The callbacks run in the coroutines that read.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._consumer = Consumer(*args, **kwargs)
        self._watch = watch(self._consumer)
        self._watch.stays = True
        self._poll = partial(self._consumer.poll, 0)
        self._in_a_row = 0

    # -- subscription and assignment, without a wait

    def subscribe(self, topics: Sequence[str], **callbacks: Any) -> None:
        """Join the group and read its partitions; see :meth:`cykafka.Consumer.subscribe`."""
        self._consumer.subscribe(topics, **callbacks)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions; see :meth:`cykafka.Consumer.assign`."""
        self._consumer.assign(list(partitions))

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
            None if no message arrived in time. Check ``message.error()`` first.
        """
        message = self._poll()
        if message is None and timeout != 0:
            self._in_a_row = 0
            return await until(self._watch, self._poll, bool_of, timeout)
        self._in_a_row += 1
        if self._in_a_row >= _IN_A_ROW:
            self._in_a_row = 0
            await sleep(0)
        return message

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
        take = partial(self._consumer.consume_batch, max_messages, 0)
        batch = take()
        if batch or batch.errors or timeout == 0:
            await sleep(0)  # a batch is work; let the other tasks go on before it
            return batch
        return await until(self._watch, take, lambda found: found or found.errors, timeout)

    async def batches(self, max_messages: int = 10_000) -> AsyncIterator[MessageBatch]:
        """Iterate over batches until the consumer is closed.

        Raises KafkaException for an event or error, after the records before it. Ends of partitions
        are skipped.
        """
        while True:
            batch = await self.consume_batch(max_messages)
            for message in batch.errors:
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
            if batch:
                yield batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while True:
            message = await self.poll()
            assert message is not None
            error = message.error()
            if error is None:
                return message
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self._consumer.close()  # next: without blocking the loop


def bool_of(found: object) -> bool:
    """Whether a message was found; an empty message counts."""
    return found is not None
