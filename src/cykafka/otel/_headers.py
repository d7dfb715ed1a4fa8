"""Contexts of traces in the headers of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import SpanContext

__all__ = ["Header", "context_names", "copied", "creation_context", "extracted", "injected"]

Header: TypeAlias = tuple[str, Any]


class _Getter(Getter[Sequence[Header]]):
    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        found = [_text(value) for name, value in carrier if name == key and value is not None]
        return found or None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]


class _Setter(Setter[list[Header]]):
    def set(self, carrier: list[Header], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_getter, _setter = _Getter(), _Setter()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def copied(headers: Mapping[str, Any] | Iterable[Header] | None) -> list[Header]:
    """The headers of one record as a new list."""
    if headers is None:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def context_names() -> set[str]:
    """The names of headers that the configured propagator writes."""
    return propagate.get_global_textmap().fields


def extracted(headers: Sequence[Header]) -> Context:
    """The context in the headers, without that of the caller."""
    return propagate.extract(headers, Context(), _getter)


def creation_context(headers: Sequence[Header]) -> SpanContext | None:
    """The context in which a record was created; None if its headers have none."""
    context = trace.get_current_span(extracted(headers)).get_span_context()
    return context if context.is_valid else None


def injected(context: Context) -> list[Header]:
    """The headers that carry the context."""
    headers: list[Header] = []
    propagate.inject(headers, context, _setter)
    return headers
