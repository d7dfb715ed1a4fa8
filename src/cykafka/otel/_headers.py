"""Contexts of traces in the headers of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import SpanContext

__all__ = [
    "Header",
    "context_names",
    "copied",
    "creation_context",
    "extracted",
    "injected",
    "merged",
]

Header: TypeAlias = tuple[Any, Any]
"""Name and value; a producer's are checked by the producer, after this package has seen them."""


class _Getter(Getter[Sequence[Header]]):
    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        found = [_text(each[1]) for each in carrier if _name(each) == key and each[1] is not None]
        return found or None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [_name(each) for each in carrier]


class _Setter(Setter[list[Header]]):
    def set(self, carrier: list[Header], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_getter, _setter = _Getter(), _Setter()


def _name(header: Any) -> str:
    """The header's name; empty if the producer will refuse it."""
    return _text(header[0]) if isinstance(header, (tuple, list)) and len(header) == 2 else ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    is_text = isinstance(value, (bytes, bytearray, memoryview))
    return bytes(value).decode("utf-8", "replace") if is_text else ""


def copied(headers: Any) -> list[Header]:
    """The headers of one record as a new list."""
    if headers is None:
        return []
    if isinstance(headers, Mapping):
        return list(headers.items())
    if not isinstance(headers, Iterable):
        raise TypeError(
            f"headers: expected a dict or a list of (name, value), got {type(headers).__name__}"
        )
    return list(headers)


def context_names() -> set[str]:
    """The names of headers that the configured propagator writes."""
    return propagate.get_global_textmap().fields


def extracted(headers: Sequence[Header]) -> Context:
    """The context in the headers, without that of the caller."""
    return propagate.extract(headers, Context(), _getter)


def creation_context(headers: Sequence[Header]) -> SpanContext | None:
    """The context in which a record was created; None if its headers have none."""
    if not headers:
        return None
    context = trace.get_current_span(extracted(headers)).get_span_context()
    return context if context.is_valid else None


def injected(context: Context) -> list[Header]:
    """The headers that carry the context."""
    headers: list[Header] = []
    propagate.inject(headers, context, _setter)
    return headers


def merged(headers: list[Header], carried: list[Header]) -> list[Header]:
    """The headers and those that carry a context, which replace others of the same name.

    The first ``traceparent`` counts for a consumer, so one that is not valid must not stay.
    """
    names = {name for name, _ in carried}
    return [*(each for each in headers if _name(each) not in names), *carried]
