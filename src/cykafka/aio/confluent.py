"""AIOProducer and AIOConsumer: confluent_kafka's asynchronous clients, built on cykafka's."""

from __future__ import annotations

import asyncio
from asyncio import Future
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from cykafka import Message, MessageBatch, TopicPartition
from cykafka.admin import ClusterMetadata
from cykafka.aio._clients import AsyncWith
from cykafka.aio.consumer import AsyncConsumer, OnRebalance
from cykafka.aio.producer import AsyncProducer

if TYPE_CHECKING:
    from cykafka._core.produce.producer import _Data, _Headers


class _Client(AsyncWith):
    """The methods that both clients share."""

    executor: Executor | None = None
    _async: AsyncProducer | AsyncConsumer

    async def list_topics(
        self, topic: str | None = None, timeout: float | None = None
    ) -> ClusterMetadata:
        """Request the cluster's metadata."""
        return await self._async.list_topics(topic, -1 if timeout is None else timeout)

    async def cluster_id(self, timeout: float | None = None) -> str | None:
        """Request the cluster's id."""
        return (await self._async.list_topics(timeout=timeout)).cluster_id

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these credentials from the next connection on."""
        self._async.set_sasl_credentials(username, password)


class AIOProducer(_Client):
    """confluent_kafka's asynchronous producer: every method is a coroutine.

    Parameters
    ----------
    producer_conf : dict
        As for :class:`cykafka.aio.AsyncProducer`.
    max_workers, executor, batch_size, buffer_timeout
        Have no effect: cykafka uses no executor, and librdkafka builds batches (``linger.ms``).
    """

    _async: AsyncProducer

    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        self._loop = asyncio.get_running_loop()  # confluent_kafka also requires one
        self.executor = executor
        self._async = AsyncProducer(producer_conf)
        self._is_closed = False

    def __len__(self) -> int:
        """The number of records without an outcome."""
        return 0 if self._is_closed else len(self._async)

    def __bool__(self) -> bool:
        return True

    async def poll(self, timeout: float = 0) -> int:
        """Serve delivery reports and other events. The event loop also does so automatically.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the first event. A negative value waits forever.

        Returns
        -------
        int
            The number of served events.
        """
        return await self._async.serve(timeout)

    async def produce(
        self,
        topic: str,
        value: _Data | None = None,
        key: _Data | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: _Headers | None = None,
    ) -> Future[Message]:
        """Queue a record. Await the result for a Future, and the Future for the delivered Message.

        While the queue is full, the call waits for room.
        """
        future = self._async.produce(topic, value, key, partition, timestamp, headers)
        if self._async._futures.waiting:
            await self._async._queued()
        return future

    async def flush(self, timeout: float | None = None) -> int:
        """Wait for the records' outcomes; see :meth:`AsyncProducer.flush`."""
        return await self._async.flush(timeout)

    async def purge(
        self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True
    ) -> None:
        """Fail waiting records or records in flight; `blocking` has no effect."""
        self._async.purge(in_queue, in_flight)

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Register the ``transactional.id``."""
        await self._async.init_transactions(timeout)

    async def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._async.begin_transaction()

    async def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
        group_metadata: bytes | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's offsets with the transaction."""
        await self._async.send_offsets_to_transaction(positions, group_metadata, timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send the waiting records and commit."""
        await self._async.commit_transaction(timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction."""
        await self._async.abort_transaction(timeout)

    async def close(self) -> None:
        """Wait for the records' outcomes, and free the producer."""
        self._is_closed = True
        await self._async.close()


class AIOConsumer(_Client):
    """confluent_kafka's asynchronous consumer: every method is a coroutine.

    Parameters
    ----------
    consumer_conf : dict
        As for :class:`cykafka.aio.AsyncConsumer`.
    max_workers, executor
        Have no effect: cykafka uses no executor.
    """

    _async: AsyncConsumer

    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 2,
        executor: Executor | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.executor = executor
        self._async = AsyncConsumer(consumer_conf)

    async def poll(self, timeout: float | None = None) -> Message | None:
        """Wait for one message; see :meth:`AsyncConsumer.poll`."""
        return await self._async.poll(timeout)

    async def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Wait for `num_messages` messages, or fewer if the timeout, in s, expires. If you cancel
        the call, the next call returns the messages."""
        return await self._async._consume_all(num_messages, timeout)

    async def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Join the group. The callbacks may be coroutine functions; they get this consumer."""
        self._async._subscribe(self, topics, on_assign, on_revoke, on_lost)

    async def unsubscribe(self) -> None:
        """Leave the group's topics."""
        self._async.unsubscribe()

    async def commit(
        self,
        message: Message | MessageBatch | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
        **kwargs: bool,
    ) -> list[TopicPartition] | None:
        """Commit offsets; unless `asynchronous`, wait for the response and return it.

        The older name ``async`` also works, as in ``commit(**{"async": False})``.
        """
        asynchronous = kwargs.pop("async", asynchronous)
        if kwargs:
            name = next(iter(kwargs))
            raise TypeError(f"commit() got an unexpected keyword argument {name!r}")
        if asynchronous:
            self._async._consumer.commit(message, offsets, asynchronous=True)
            return None
        return await self._async.commit(message, offsets)

    async def seek(self, partition: TopicPartition) -> None:
        """Continue reading at another offset."""
        await self._async.seek(partition)

    async def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop returning messages from partitions."""
        self._async.pause(partitions)

    async def resume(self, partitions: list[TopicPartition]) -> None:
        """Return messages from these partitions again."""
        self._async.resume(partitions)

    async def store_offsets(
        self,
        message: Message | MessageBatch | None = None,
        offsets: list[TopicPartition] | None = None,
    ) -> None:
        """Mark offsets for the next commit."""
        self._async.store_offsets(message, offsets)

    async def committed(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Request the group's committed offsets."""
        return await self._async.committed(partitions, timeout)

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions."""
        self._async.assign(partitions)

    async def unassign(self) -> None:
        """Remove all partitions from the assignment."""
        self._async.unassign()

    async def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        self._async.incremental_assign(partitions)

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._async.incremental_unassign(partitions)

    async def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._async.assignment()

    async def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last messages."""
        return self._async.position(partitions)

    async def consumer_group_metadata(self) -> bytes:
        """Return the group's state, for ``send_offsets_to_transaction()``."""
        return self._async.consumer_group_metadata()

    async def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:
        """Return a partition's ends."""
        return await self._async.get_watermark_offsets(partition, timeout, cached)

    async def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Look up offsets by timestamp."""
        return await self._async.offsets_for_times(partitions, timeout)

    async def close(self) -> None:
        """Leave the group and free the consumer."""
        await self._async.close()
