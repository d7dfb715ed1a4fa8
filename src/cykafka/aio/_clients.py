"""What all asyncio clients share: callbacks in a configuration, and ``async with``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from cykafka._core.common.coroutines import is_coroutine

_NAMES = ("error_cb", "throttle_cb", "stats_cb", "on_commit")

# Loops keep only weak references to tasks.
_running: set[asyncio.Task[Any]] = set()


def _begin(callback: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
    task = asyncio.get_running_loop().create_task(callback(*args))
    _running.add(task)
    task.add_done_callback(_running.discard)


def _run(callback: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
    return asyncio.run(callback(*args))


def adapt_callback(callback: Any) -> Any:
    """Return a function that starts the callback if it is a coroutine function."""
    return partial(_begin, callback) if is_coroutine(callback) else callback


def adapt_callbacks(given: dict[str, Any] | None, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's configuration, with callbacks that start its coroutine functions.

    ``oauth_cb`` runs in its own loop, because librdkafka's thread waits for the token.
    """
    if given is None and kwargs:
        given = {}
    if not isinstance(given, dict):
        raise TypeError(f"expected configuration dict, got {type(given).__name__}")
    config = {**given, **kwargs}
    for name in _NAMES:
        if name in config:
            config[name] = adapt_callback(config[name])
    if is_coroutine(config.get("oauth_cb")):
        config["oauth_cb"] = partial(_run, config["oauth_cb"])
    return config


class AsyncWith:
    """An asynchronous context manager that closes the client when the block ends."""

    async def close(self) -> object:
        """Close the client."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        await self.close()
