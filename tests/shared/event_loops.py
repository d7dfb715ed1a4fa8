"""Event loops for tests of cykafka.aio: each test runs in asyncio's loop and in uvloop's.

A run fails if the loop reports anything: a lost exception, an unfinished task, a callback that
raised.
"""

from __future__ import annotations

import asyncio
import gc
import types
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from machine import WAIT_S

Loop = asyncio.AbstractEventLoop


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], Loop]:
    """Make event loops of one kind."""
    if request.param == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    made: Callable[[], Loop] = uvloop.new_event_loop
    return made


def run_in(
    new_loop: Callable[[], Loop],
    coroutine: Coroutine[Any, Any, Any],
    reports: list[dict[str, Any]] | None = None,
) -> Any:
    """Run a coroutine in a new loop, in debug mode; a hang fails.

    `reports` gets what the loop reports. Without it, a report fails.
    """
    seen: list[dict[str, Any]] = [] if reports is None else reports

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, report: seen.append(report))
        # Warnings of slow callbacks would depend on the machine. One test sets the usual 0.1 s.
        loop.slow_callback_duration = WAIT_S
        return await asyncio.wait_for(coroutine, WAIT_S)

    gc.freeze()  # so that the collection looks at the run's own objects only
    try:
        with asyncio.Runner(debug=True, loop_factory=new_loop) as runner:
            result = runner.run(main())
        gc.collect()  # futures report lost exceptions when they are freed
    finally:
        gc.unfreeze()
    assert reports is not None or seen == []
    return result


@pytest.fixture
def run(new_loop: Callable[[], Loop]) -> Callable[..., Any]:
    """Run a coroutine in a loop of its own; see run_in()."""

    def run(
        coroutine: Coroutine[Any, Any, Any], reports: list[dict[str, Any]] | None = None
    ) -> Any:
        return run_in(new_loop, coroutine, reports)

    return run


@pytest.fixture
def wait_for() -> Callable[..., Coroutine[Any, Any, None]]:
    """Wait in a loop until a condition is true; fail after the timeout."""

    async def wait_for(happened: Callable[[], Any]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not happened():
                await asyncio.sleep(0.01)

    return wait_for


def eager_task(
    loop: Loop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Future[Any]:
    """What asyncio.eager_task_factory of Python 3.12 does."""
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        done = loop.create_future()
        done.set_result(end.value)
        return done
    return asyncio.Task(_rest(awaited, coroutine), loop=loop, **options)


@types.coroutine
def _rest(awaited: Any, coroutine: Coroutine[Any, Any, Any]) -> Any:
    while True:
        try:
            sent = yield awaited
        except BaseException as error:
            step = partial(coroutine.throw, error)
        else:
            step = partial(coroutine.send, sent)
        try:
            awaited = step()
        except StopIteration as end:
            return end.value
