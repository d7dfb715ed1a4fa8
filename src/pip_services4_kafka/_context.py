"""The context argument that public methods accept: None, an IContext or a trace id (str)."""

from __future__ import annotations

from typing import Any, TypeAlias

from pip_services4_components.context import Context, ContextResolver, IContext

AnyContext: TypeAlias = IContext | str | None


def to_context(context: AnyContext) -> IContext | None:
    """Convert a context argument to the type that pip-services expects.

    Parameters
    ----------
    context : IContext or str, optional
        A str is a trace id. None and the empty str mean no context.

    Returns
    -------
    IContext or None

    Raises
    ------
    TypeError
        The argument has another type.
    """
    if context is None or isinstance(context, IContext):
        return context
    if isinstance(context, str):
        return Context.from_trace_id(str(context)) if context else None
    given: Any = context
    if callable(getattr(given, "get", None)):  # a stand-in for IContext, such as Parameters
        return context
    raise TypeError(f"context: expected None, an IContext or a str, got {type(context).__name__}")


def get_trace_id(context: AnyContext) -> str | None:
    """Return a context's trace id, for exceptions and headers, or None."""
    return ContextResolver.get_trace_id(to_context(context)) or None
