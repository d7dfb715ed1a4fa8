"""Traced: what traced consumers share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind

from cykafka._core.batch import MessageBatch
from cykafka._core.common.errors import KafkaError
from cykafka._core.common.message import Message
from cykafka.otel._spans import (
    Spans,
    cause,
    context_names,
    creation_context,
    extracted,
    fail,
    fail_with,
    message_attributes,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")

# OpenTelemetry's SDK keeps 128 links per span.
_MAX_LINKS = 128


class Traced:
    """A consumer with spans. All attributes and methods that it lacks come from the consumer."""

    consumer: Any
    _spans: Spans

    @contextmanager
    def processing(
        self, messages: Message | MessageBatch | Sequence[Message], *, as_child: bool = False
    ) -> Iterator[Span]:
        """Run a block with a span ``process <topic>`` as the current span.

        The span links to the messages' creation contexts. An exception sets the span's status and
        propagates.

        Parameters
        ----------
        messages : Message or MessageBatch or sequence of Message
        as_child : bool
            Make the span a child of the message's creation context, so that both share one trace.
            That context's baggage is then current, and the span also links to the caller's span.
            Has no effect if the message lacks a context. Only for one message.

        Yields
        ------
        Span

        Raises
        ------
        ValueError
            `as_child` was used with several messages; a span has one parent.
        """
        parent = None
        if isinstance(messages, Message):
            topic, links = messages.topic(), _links_of([messages])
            attributes = message_attributes(messages)
            if as_child and links:
                caller = trace.get_current_span().get_span_context()
                links += [Link(caller)] if caller.is_valid else []
                parent = extracted(messages.headers() or ())
        elif as_child:
            raise ValueError("as_child: expected one Message, because a span has one parent")
        else:
            topic, links = _only_topic(messages), _links_of(messages)
            attributes = {"batch.message_count": len(messages)}
        with self._spans.current(
            SpanKind.CONSUMER, "process", topic, attributes, context=parent, links=links
        ) as span:
            yield span

    def _read(self, read: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> tuple[_T, int]:
        """Return a call's result and its start time in ns. A failure creates a span."""
        begun = time.time_ns()
        try:
            return read(*args, **kwargs), begun
        except Exception as error:
            if not isinstance(error, StopIteration) and not _is_end(cause(error)):
                span = self._spans.start(SpanKind.CLIENT, "poll", None, start_time=begun)
                fail_with(span, error)
                span.end()
            raise

    def _polled_one(self, message: Message, begun: int) -> None:
        error = message.error()
        if _is_end(error):
            return
        span = self._spans.start(
            SpanKind.CLIENT,
            "poll",
            message.topic(),
            message_attributes(message),
            links=_links_of([message]),
            start_time=begun,
        )
        if error is not None:
            fail(span, error)
        span.end()

    def _polled(self, messages: MessageBatch | Sequence[Message], begun: int) -> None:
        """Create the span for several messages, unless only partition ends arrived."""
        events = messages.errors if isinstance(messages, MessageBatch) else messages
        errors = [error for event in events if (error := event.error()) is not None]
        count = len(messages) if isinstance(messages, MessageBatch) else len(events) - len(errors)
        failures = [error for error in errors if not _is_end(error)]
        if not count and not failures:
            return
        span = self._spans.start(
            SpanKind.CLIENT,
            "poll",
            _only_topic(messages),
            {"batch.message_count": count},
            links=_links_of(messages),
            start_time=begun,
        )
        if failures:
            fail(span, failures[0])
        span.end()

    def __enter__(self) -> Self:
        self.consumer.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self.consumer.__exit__(exc_type, exc_value, exc_traceback)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "consumer":  # not set: a copy, or a failed __init__()
                raise AttributeError(name)
            return getattr(self.consumer, name)


class TracedBatches:
    """The iterator of a traced ``batches()``. An exception would end a generator."""

    def __init__(self, traced: Traced, batches: Iterator[MessageBatch]) -> None:
        self._traced = traced
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageBatch:
        batch, begun = self._traced._read(next, self._batches)
        self._traced._polled(batch, begun)
        return batch


def _is_end(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _only_topic(messages: MessageBatch | Sequence[Message]) -> str | None:
    """Return the messages' only topic, or None if they have several topics or none."""
    if isinstance(messages, MessageBatch):
        topics = set(messages.topics)
    else:
        topics = {topic for message in messages if (topic := message.topic()) is not None}
    return topics.pop() if len(topics) == 1 else None


def _links_of(messages: MessageBatch | Sequence[Message]) -> list[Link]:
    """Return links to the messages' creation contexts, one per context."""
    contexts = map(creation_context, islice(_context_headers(messages), _MAX_LINKS))
    return [Link(context) for context in contexts if context is not None]


def _context_headers(
    messages: MessageBatch | Sequence[Message],
) -> Iterator[tuple[tuple[str, bytes | None], ...]]:
    """Yield the messages' headers that may carry a context, each combination once."""
    names = context_names()
    if isinstance(messages, MessageBatch):  # without Python code per message
        columns = (messages.header(name) for name in names)
        for row in dict.fromkeys(zip(*columns, strict=True)):
            yield tuple(zip(names, row, strict=True))
    else:
        yield from dict.fromkeys(
            tuple(header for header in message.headers() or () if header[0] in names)
            for message in messages
        )
