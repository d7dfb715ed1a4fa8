"""AsyncConsumer."""

from __future__ import annotations

from asyncio import get_running_loop, sleep
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from cykafka import Consumer, Message, MessageBatch
from cykafka._core.client.event_loop import watch
from cykafka.aio._waiting import Waker

Found = TypeVar("Found", Message | None, MessageBatch, list[Message])

# After so many calls that did not have to wait, other tasks run.
_IN_A_ROW = 64


class AsyncConsumer:
    """Reads records in an event loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._consumer = Consumer(*args, **kwargs)
        self._watch = watch(self._consumer)
        self._watch.stays = True
        self._poll = partial(self._consumer.poll, 0)
        self._in_a_row = 0

    async def poll(self, timeout: float | None = None) -> Message | None:
        message = self._poll()
        if message is None:
            if timeout == 0:
                return None
            return await self._wait_for(self._poll, timeout)
        self._in_a_row += 1
        if self._in_a_row == _IN_A_ROW:
            await self._give_way()
        return message

    async def consume_batch(
        self, max_messages: int = 10_000, timeout: float | None = None
    ) -> MessageBatch:
        take = partial(self._consumer.consume_batch, max_messages, 0)
        batch = take()
        if batch or batch.errors or timeout == 0:
            return batch
        return await self._wait_for(take, timeout)

    async def _give_way(self) -> None:
        self._in_a_row = 0
        await sleep(0)

    async def _wait_for(self, take: Callable[[], Found], timeout: float | None) -> Found:
        loop = get_running_loop()
        waker = Waker(loop)
        over = None if timeout is None or timeout < 0 else loop.time() + timeout
        timer = None if over is None else loop.call_at(over, waker, loop)
        self._in_a_row = 0
        self._watch.join(waker)
        self._watch.add(loop)
        try:
            while True:
                found = take()
                if found is not None and (found or found.errors):
                    return found
                if over is not None and loop.time() >= over:
                    return found
                await waker.sleep()
        finally:
            if timer is not None:
                timer.cancel()
            self._watch.remove(loop)
            self._watch.part(waker)
