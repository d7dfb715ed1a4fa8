"""What callers say about themselves: None, an IContext, or a trace id as a str."""

from __future__ import annotations

from typing import Any, TypeAlias

from pip_services4_components.context import Context, ContextResolver, IContext

AnyContext: TypeAlias = IContext | str | None


def to_context(context: AnyContext) -> IContext | None:
    """Make the context that loggers and others of pip-services expect.

    Parameters
    ----------
    context : IContext or str, optional
        A str is a trace id; None and the empty str are no context.

    Returns
    -------
    IContext or None

    Raises
    ------
    TypeError
        It is neither.
    """
    if context is None or isinstance(context, IContext):
        return context
    if isinstance(context, str):
        return Context.from_trace_id(str(context)) if context else None
    given: Any = context
    if callable(getattr(given, "get", None)):  # what takes IContext's place, such as Parameters
        return context
    raise TypeError(f"context: expected None, an IContext or a str, got {type(context).__name__}")


def trace_id_of(context: AnyContext) -> str | None:
    """The trace id, for exceptions and headers; None if there is none."""
    return ContextResolver.get_trace_id(to_context(context)) or None
