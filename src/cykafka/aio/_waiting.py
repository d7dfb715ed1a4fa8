"""Waiting in an event loop for a client's queue, and for its calls to the brokers."""

from __future__ import annotations

import contextlib
from asyncio import AbstractEventLoop, CancelledError, Future, get_running_loop, sleep
from collections.abc import Callable, Generator
from typing import TypeVar

from cykafka._core.client.call import Call
from cykafka._core.client.event_loop import Watch

Found = TypeVar("Found")
Result = TypeVar("Result")


class Waker:
    """Ends a coroutine's sleep, from any thread.

    Parameters
    ----------
    loop : AbstractEventLoop
        The coroutine's.
    """

    __slots__ = ("_future", "_loop", "_rung")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._rung = False
        self._future: Future[None] | None = None

    def __call__(self, loop: AbstractEventLoop | None = None) -> None:
        """End the sleep, or the next one. `loop` is the one whose thread calls, if any."""
        self._rung = True
        if self._future is None:
            return
        if loop is self._loop:
            self._end()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and so is the sleeper
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def sleep(self) -> None:
        """Wait for a call, unless there was one since the last sleep."""
        self._future = self._loop.create_future()
        try:
            if not self._rung:
                await self._future
        finally:
            self._future = None
            self._rung = False


async def until(
    watch: Watch,
    take: Callable[[], Found],
    is_there: Callable[[Found], object],
    timeout: float | None,
) -> Found:
    """Call `take` whenever the client's queue has something new, until its result counts.

    Parameters
    ----------
    watch : Watch
        The client's.
    take : callable
        Must not wait.
    is_there : callable
        Whether a result counts.
    timeout : float, optional
        Seconds; None or less than 0: no limit. Then the last result is returned.
    """
    loop = get_running_loop()
    waker = Waker(loop)
    over = timeout == 0

    def end() -> None:
        # The clock may say that it is too early: uvloop rounds timers to ms.
        nonlocal over
        over = True
        waker(loop)

    timer = None
    watch.join(waker)
    try:
        watch.add(loop)
    except BaseException:
        watch.part(waker)
        raise
    try:
        if timeout is not None and timeout > 0:
            timer = loop.call_later(timeout, end)
        while True:
            found = take()
            if over or is_there(found):
                return found
            await waker.sleep()
    finally:
        if timer is not None:
            timer.cancel()
        watch.remove(loop)
        watch.part(waker)


async def perform(
    steps: Generator[Call, None, Result], on_late: Callable[[], object] = lambda: None
) -> Result:
    """Run an operation of a client, and return its result.

    Parameters
    ----------
    steps : generator
        It yields each call to wait for. A cancellation is raised in it, so that it cleans up; but
        first it gets the result of a call that must not be left, which ends with its slice.
    on_late : callable, optional
        Called if the operation has succeeded before the cancellation could be raised in it.
    """
    cancelled: list[CancelledError] = []
    try:
        call = next(steps)
        while True:
            if cancelled:
                call = steps.throw(cancelled.pop())
                continue
            try:
                await _make(call, cancelled)
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = next(steps)
    except StopIteration as end:
        if cancelled:
            on_late()
            raise cancelled[0] from None
        result: Result = end.value
        return result
    except Exception as error:
        if cancelled:  # it counts more than a failure that came meanwhile
            raise cancelled[0] from error
        raise


async def _make(call: Call, cancelled: list[CancelledError]) -> None:
    """Make a call, and wait for it. A cancellation that comes meanwhile is added to the list, if
    the call must not be left."""
    if call.pause_s is not None:
        await sleep(call.pause_s)
        return
    watch = call.watch
    watch.claim(get_running_loop())  # before the call is made: another loop must not make it
    call.start()
    while True:
        try:
            await until(watch, call.is_done, bool, call.wait_s)
            return
        except CancelledError as error:
            if not call.is_short:
                raise
            cancelled[:] = [error]
