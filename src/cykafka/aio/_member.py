"""AsyncMember: how a consumer in an event loop leaves its group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from cykafka._core.client.event_loop import Watch
from cykafka._core.client.handle import Handle
from cykafka._core.client.leaving import Leaving
from cykafka.aio._clients import AsyncWith
from cykafka.aio._waiting import deadline, left_until, until

log = logging.getLogger("cykafka")

Found = TypeVar("Found")


class AsyncMember(AsyncWith):
    """A consumer that is a member of a group.

    Attributes
    ----------
    _consumer : Consumer or ShareConsumer
    _watch : Watch
        The consumer's watch, which stays.
    _poll_s : float
        The longest time between two polls, s.
    """

    _consumer: Handle
    _watch: Watch
    _poll_s: float
    _is_closing = False
    # The leave that close() started, and close()'s loop.
    _leaving: tuple[Leaving, asyncio.AbstractEventLoop] | None = None
    # Whether the consumer has left its group in time, once it is closed.
    _has_left: bool | None = None

    def _is_rebalancing(self) -> bool:
        """Whether the program's rebalance callbacks wait or run."""
        return False

    async def _follow(self) -> None:
        """Wait until the rebalance callbacks have ended."""

    async def _wait(
        self, take: Callable[[], Found], is_there: Callable[[Found], object], timeout: float | None
    ) -> Found:
        """Wait for something to read, and follow rebalances during the wait; see `until`."""
        end = deadline(timeout)
        while True:
            if self._is_rebalancing():
                await self._follow()
            left = left_until(end)
            found = await until(
                self._watch,
                take,
                lambda found: is_there(found) or self._is_rebalancing(),
                self._poll_s if left is None else min(left, self._poll_s),
            )
            if is_there(found):
                return found
            if left_until(end) == 0 and not self._is_rebalancing():
                return found

    def _end_leave(self, leaving: Leaving) -> bool:
        """Close the consumer at once. Return whether it has left its group in time."""
        return leaving.finish()

    async def close(self, timeout: float | None = None) -> bool:
        """Leave the group and free the consumer. Return whether it left in time."""
        if self._is_closing:
            self._end_abandoned_close()
            await until(
                self._watch,
                lambda: self._has_left is not None or not self._is_closing,
                bool,
                timeout,
            )
            return bool(self._has_left)
        loop = asyncio.get_running_loop()
        deadline(timeout)  # a timeout that is wrong must not close the consumer
        self._watch.add(loop)  # while the consumer is open
        self._is_closing = True
        has_left = False
        try:
            try:
                leaving = Leaving(self._consumer, self._watch)
            except BaseException:  # the consumer stays open
                self._is_closing = False
                raise
            self._leaving = leaving, loop
            self._watch.wake_all()
            has_left = await self._leave(leaving, timeout)
            return has_left
        finally:
            self._watch.remove(loop)
            if self._is_closing:
                self._has_left = has_left
            self._watch.wake_all()

    async def _leave(self, leaving: Leaving, timeout: float | None) -> bool:
        end = deadline(timeout)
        try:
            while True:
                try:
                    await self._wait(leaving.step, bool, left_until(end))
                    break
                except Exception as error:  # a callback raised; the leave continues
                    leaving.note(error)
        except BaseException:
            try:
                self._end_leave(leaving)
            except Exception as error:  # a cancellation takes precedence
                log.warning("%r: a callback raised in close(): %r", self, error)
            raise
        return self._end_leave(leaving)

    def _end_abandoned_close(self) -> None:
        """Close at once if the first close() never ends, because its loop was closed."""
        if self._has_left is None and self._leaving is not None and self._leaving[1].is_closed():
            self._has_left = False
            self._end_leave(self._leaving[0])
