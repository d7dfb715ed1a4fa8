"""Spans that follow OpenTelemetry's semantic conventions for Kafka (1.44, in development).

Records carry trace contexts in their headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import (
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
)
from opentelemetry.util.types import AttributeValue

from cykafka._core.client.handle import Handle
from cykafka._core.common.errors import KafkaError
from cykafka._core.common.library import __version__
from cykafka._core.common.message import Message
from cykafka.internal import kafka_error

_Attributes: TypeAlias = dict[str, AttributeValue]
Header: TypeAlias = tuple[Any, Any]
"""Name and value. The producer checks its headers only after this package has read them."""

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
# Operations whose type differs from their name.
_TYPES = {"poll": "receive", "commit": "settle"}


class Spans:
    """Creates a client's spans.

    Raises
    ------
    TypeError
        The client is not of the expected class; :mod:`cykafka.aio` clients cannot be traced.
    """

    def __init__(
        self, client: Handle, expected: type[Handle], tracer_provider: TracerProvider | None
    ) -> None:
        if not isinstance(client, expected):
            raise TypeError(
                f"expected a {expected.__name__}, got {type(client).__name__}; "
                "asynchronous and wrapped clients cannot be traced"
            )
        self._tracer = trace.get_tracer(
            "cykafka", __version__, tracer_provider, schema_url=_SCHEMA
        )
        config = client.configuration()
        self._base: _Attributes = {"messaging.system": "kafka"}
        if config["client.id"]:
            self._base["messaging.client.id"] = config["client.id"]
        self._base |= _server(config["bootstrap.servers"] or "")
        if config["group.id"]:
            self._base["messaging.consumer.group.name"] = config["group.id"]

    def start(
        self,
        kind: SpanKind,
        operation: str,
        topic: str | None,
        attributes: Mapping[str, Any] = {},
        **options: Any,
    ) -> Span:
        """Start a span.

        Parameters
        ----------
        kind : SpanKind
        operation : str
            Such as ``poll``.
        topic : str or None
            None for several topics.
        attributes : mapping
            Further attributes, without the prefix ``messaging.``; None values are omitted.
        **options
            Further arguments for ``Tracer.start_span()``.
        """
        chosen = {
            "operation.name": operation,
            "operation.type": _TYPES.get(operation, operation),
            "destination.name": topic,
            **attributes,
        }
        return self._tracer.start_span(
            operation if topic is None else f"{operation} {topic}",
            kind=kind,
            attributes=self._base
            | {f"messaging.{key}": value for key, value in chosen.items() if value is not None},
            **options,
        )

    @contextmanager
    def current(self, *arguments: Any, **options: Any) -> Iterator[Span]:
        """Run a block with a span from `start` as the current span.

        An exception sets the span's status and propagates.
        """
        with trace.use_span(
            self.start(*arguments, **options),
            end_on_exit=True,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                fail_with(span, error)
                raise


def message_attributes(message: Message) -> dict[str, Any]:
    """Return the attributes of a consumed message, for `Spans.start`."""
    partition, offset = message.partition(), message.offset()
    return {
        "destination.partition.id": None if partition is None else str(partition),
        "kafka.offset": offset if offset is not None and offset >= 0 else None,
        "kafka.message.key": key_text(message.key()),
        "kafka.message.tombstone": True if message.value() is None else None,
    }


def _server(bootstrap_servers: str) -> _Attributes:
    """Return the broker's address, if only one is configured."""
    server = bootstrap_servers.strip().rpartition("://")[2]
    host, separator, port = server.rpartition(":")
    if not server or "," in server:
        return {}
    if not separator or not port.isdecimal():
        return {"server.address": server.strip("[]")}
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def key_text(key: Any) -> str | None:
    """Return the key as text, or None if it is missing or not text."""
    if isinstance(key, str):
        return key
    try:
        return bytes(key).decode() if isinstance(key, (bytes, bytearray, memoryview)) else None
    except UnicodeDecodeError:
        return None


def fail(span: Span, error: KafkaError, description: str | None = None) -> None:
    """Set the span's status to error, and ``error.type`` to the Kafka error's name."""
    span.set_attribute("error.type", error.name())
    span.set_status(Status(StatusCode.ERROR, description or error.str()))


def fail_with(span: Span, error: BaseException) -> None:
    """Set the span's status to an exception, and record the exception."""
    cause = kafka_error(error)
    if cause is not None:
        fail(span, cause)
    else:
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        span.set_attribute("error.type", f"{module}{kind.__qualname__}")
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.record_exception(error)


# -- contexts in record headers


class _Getter(Getter[Sequence[Header]]):
    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        found = [
            _text(header[1])
            for header in carrier
            if _header_name(header) == key and header[1] is not None
        ]
        return found or None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [_header_name(header) for header in carrier]


class _Setter(Setter[list[Header]]):
    def set(self, carrier: list[Header], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_getter, _setter = _Getter(), _Setter()


def _header_name(header: Any) -> str:
    """Return the header's name; empty if the producer will reject the header."""
    return _text(header[0]) if isinstance(header, (tuple, list)) and len(header) == 2 else ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    is_text = isinstance(value, (bytes, bytearray, memoryview))
    return bytes(value).decode("utf-8", "replace") if is_text else ""


def copied(headers: Any) -> list[Header]:
    """Return one record's headers as a new list."""
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
    """Return the names of the headers that the configured propagator writes."""
    return propagate.get_global_textmap().fields


def extracted(headers: Sequence[Header]) -> Context:
    """Return the context in the headers, without the caller's context."""
    return propagate.extract(headers, Context(), _getter)


def creation_context(headers: Sequence[Header]) -> SpanContext | None:
    """Return a record's creation context, or None if its headers lack one."""
    if not headers:
        return None
    context = trace.get_current_span(extracted(headers)).get_span_context()
    return context if context.is_valid else None


def injected(context: Context) -> list[Header]:
    """Return the headers that carry the context."""
    headers: list[Header] = []
    propagate.inject(headers, context, _setter)
    return headers


def merged(headers: list[Header], carried: list[Header]) -> list[Header]:
    """Return the headers and the `carried` ones, which replace headers with the same names.

    A consumer reads the first ``traceparent``, so an invalid one must not stay.
    """
    names = {name for name, _ in carried}
    return [*(header for header in headers if _header_name(header) not in names), *carried]
