"""AsyncProducer: sends records from an event loop."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future, get_running_loop, sleep
from asyncio.events import _get_running_loop
from collections import deque
from types import TracebackType
from typing import Any, Self

from cykafka import Delivery, KafkaError, KafkaException, Message, Producer
from cykafka.aio._waiting import until
from cykafka.internal import Publication, publication, watch

log = logging.getLogger("cykafka")


class AsyncProducer:
    """Sends records from an event loop, which serves librdkafka meanwhile.

    There is no thread and no timer: librdkafka writes to a pipe that the loop reads.

    Parameters
    ----------
    config : dict
        As for :class:`cykafka.Producer`, without ``on_delivery``. The callbacks run in the loop.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._producer = Producer(*args, **kwargs)
        self._watch = watch(self._producer)
        self._watch.stays = True
        # Records that had no room in librdkafka's queue, in their order.
        self._waiting: deque[_Report] = deque()

    # -- records

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> Future[Message]:
        """Send a record; await the result for the delivered message.

        The record is in librdkafka's queue when the call returns, so records keep the order of the
        calls, and ``asyncio.gather()`` needs no task for each. While the queue is full, records
        wait for room, in their order. Await the results to bound them.

        Parameters
        ----------
        topic, value, key, partition, timestamp, headers
            As for :meth:`cykafka.Producer.produce`.

        Returns
        -------
        Future of Message
            Raises KafkaException if the record has finally failed. Cancelling it does not take
            the record back; a failure is then logged.

        Raises
        ------
        KafkaException
            The record cannot be queued: too large, no such partition, no open transaction, ...
        """
        loop = get_running_loop()
        report = _Report(self, loop, (topic, value, key, partition), timestamp, headers)
        if self._waiting or not self._queue(report):
            self._waiting.append(report)
        self._watch.add(loop)
        return report.future

    def _queue_waiting(self) -> None:
        """Queue the records that had no room."""
        while self._waiting:
            report = self._waiting[0]
            try:
                if not self._queue(report):
                    return
            except Exception as error:  # the record is refused
                report.refuse(error)
            self._waiting.popleft()

    def _queue(self, report: _Report) -> bool:
        """Queue a record; False if there is no room."""
        try:
            self._producer.produce(
                *report.record,
                on_delivery=report,
                timestamp=report.timestamp,
                headers=report.headers,
            )
        except BufferError:
            return False
        return True

    async def publish(self, topic: Any, values: Any, **columns: Any) -> Delivery:
        """Send a batch of records, given as columns, and wait until each has its outcome.

        Parameters
        ----------
        topic, values, **columns
            As for :meth:`cykafka.Producer.publish`.

        Returns
        -------
        Delivery

        Raises
        ------
        DeliveryError
            Records failed; its `delivery` has all outcomes.
        """
        begun = publication(self._producer, topic, values, **columns)
        try:
            await self._hand_over(begun)
        except BaseException as raised:
            begun.end(raised)
            raise
        begun.end()
        await begun.delivery
        return begun.delivery

    async def _hand_over(self, begun: Publication) -> None:
        while (done := begun.step()) is not True:
            if done is None:
                await sleep(0)
            else:
                await until(self._watch, begun.step, lambda done: done is not False, None)

    # -- life

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        await self.close()


class _Report:
    """The record of a produce(), and its delivery callback."""

    __slots__ = ("_loop", "_owner", "future", "headers", "record", "timestamp")

    def __init__(
        self,
        owner: AsyncProducer,
        loop: AbstractEventLoop,
        record: tuple[Any, ...],
        timestamp: int,
        headers: Any,
    ) -> None:
        self._owner = owner
        self._loop = loop
        self.record = record
        self.timestamp = timestamp
        self.headers = headers
        self.future: Future[Message] = loop.create_future()

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if _get_running_loop() is self._loop:
            self._settle(error, message)
        else:
            self._loop.call_soon_threadsafe(self._settle, error, message)

    def refuse(self, error: Exception) -> None:
        """Fail the record, which could not be queued."""
        self._owner._watch.remove(self._loop)
        if not self.future.done():
            self.future.set_exception(error)

    def _settle(self, error: KafkaError | None, message: Message) -> None:
        self._owner._watch.remove(self._loop)
        if self._owner._waiting:
            self._owner._queue_waiting()
        if self.future.cancelled():
            if error is not None:
                log.warning("a record to %s failed: %s", self.record[0], error.str())
        elif error is not None:
            self.future.set_exception(KafkaException(error))
        else:
            self.future.set_result(message)
