"""One implementation of rules for programs with and without an event loop.

The rules are a generator. It yields the result of each call that may be a coroutine, and gets back
the awaited result.
"""

from __future__ import annotations

from collections.abc import Generator
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

__all__ = ["Steps", "arun", "run"]

T = TypeVar("T")

Steps: TypeAlias = Generator[Any, Any, T]


def run(steps: Steps[T]) -> T:
    """Run steps whose calls return their results."""
    try:
        result = next(steps)
        while True:
            result = steps.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


async def arun(steps: Steps[T]) -> T:
    """Run steps whose calls may return coroutines."""
    try:
        result = next(steps)
        while True:
            try:
                result = await result if isawaitable(result) else result
            except BaseException as error:
                result = steps.throw(error)
            else:
                result = steps.send(result)
    except StopIteration as end:
        found: T = end.value
        return found
