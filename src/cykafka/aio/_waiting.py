"""Waits in an event loop for a client's queue, and for its calls to the brokers."""

from __future__ import annotations

import contextlib
from asyncio import AbstractEventLoop, CancelledError, Future, get_running_loop, sleep
from collections.abc import Callable, Generator
from typing import TypeVar

from cykafka._core.client.call import Call
from cykafka._core.client.event_loop import Watch

Found = TypeVar("Found")
Result = TypeVar("Result")


def deadline(timeout: float | None) -> float | None:
    """Return when a timeout from now ends, on the running loop's clock. None and negative values
    mean never.

    Raises
    ------
    ValueError
        The timeout is NaN.
    """
    if timeout is None or timeout < 0:
        return None
    if timeout != timeout:
        raise ValueError("timeout: nan is not a number of seconds")
    return get_running_loop().time() + timeout


def left_until(end: float | None) -> float | None:
    """Return the seconds until a deadline, or None without a deadline."""
    return None if end is None else max(0.0, end - get_running_loop().time())


class Waker:
    """Ends a coroutine's sleep, from any thread.

    Parameters
    ----------
    loop : AbstractEventLoop
        The coroutine's loop.
    """

    __slots__ = ("_called", "_future", "_loop")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._called = False
        self._future: Future[None] | None = None

    def __call__(self, loop: AbstractEventLoop | None = None) -> None:
        """End the sleep, or the next one. `loop` is the calling thread's loop, if any."""
        self._called = True
        if self._future is None:
            return
        if loop is self._loop:
            self._end()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the sleep has ended
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def sleep(self) -> None:
        """Sleep until this Waker is called; not at all if it was called since the last sleep."""
        self._future = self._loop.create_future()
        try:
            if not self._called:
                await self._future
        finally:
            self._future = None
            self._called = False


async def until(
    watch: Watch,
    take: Callable[[], Found],
    is_there: Callable[[Found], object],
    timeout: float | None,
) -> Found:
    """Call `take` whenever the client's queue has something new, until `is_there` accepts a
    result.

    Parameters
    ----------
    watch : Watch
        The client's watch.
    take : callable
        Gets a result, without waiting.
    is_there : callable
        Whether to return a result instead of waiting on.
    timeout : float, optional
        Seconds until the last result is returned anyway. None or a negative value waits forever.
    """
    loop = get_running_loop()
    waker = Waker(loop)
    over = timeout == 0

    def end() -> None:
        # Do not ask the clock: uvloop rounds timers to ms, so this may run too early.
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
    """Run a client's operation, and return its result.

    Parameters
    ----------
    steps : generator
        Yields each call to wait for. perform() raises a cancellation in the generator, so that it
        cleans up. If the current call must not be interrupted, the generator first gets its
        result, at the end of the call's slice.
    on_late : callable, optional
        Called if the operation has succeeded before perform() could raise the cancellation.
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
        if cancelled:  # it takes precedence over the failure
            raise cancelled[0] from error
        raise


async def _make(call: Call, cancelled: list[CancelledError]) -> None:
    """Start a call, and wait for it. If the call must not be interrupted, put a cancellation that
    arrives during the wait into the list."""
    if call.pause_s is not None:
        await sleep(call.pause_s)
        return
    watch = call.watch
    watch.claim(get_running_loop())  # before the start: another loop must not start the call
    call.start()
    while True:
        try:
            await until(watch, call.is_done, bool, call.wait_s)
            return
        except CancelledError as error:
            if not call.is_short:
                raise
            cancelled[:] = [error]
