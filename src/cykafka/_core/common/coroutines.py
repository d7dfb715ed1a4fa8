"""Coroutine functions among the callables that a program passes."""

from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, TypeGuard

__all__ = ["is_coroutine"]


def is_coroutine(callback: object) -> TypeGuard[Callable[..., Coroutine[Any, Any, Any]]]:
    """Whether `callback` is a coroutine function, or an object whose ``__call__`` is one."""
    return iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__)
