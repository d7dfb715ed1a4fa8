"""TracedConsumer and TracedShareConsumer: consumers with spans for their messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, TracerProvider

from cykafka._core.batch import MessageBatch
from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.message import Message
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.consumer import Consumer
from cykafka._core.model import Messages
from cykafka._core.share.consumer import ShareConsumer
from cykafka.internal import kafka_error
from cykafka.otel._spans import (
    Spans,
    context_names,
    creation_context,
    extracted,
    fail,
    fail_with,
    message_attributes,
)

if TYPE_CHECKING:
    # For the types of the methods that the consumers provide.
    _Consumer = Consumer
    _ShareConsumer = ShareConsumer
else:
    _Consumer = _ShareConsumer = object

__all__ = ["TracedConsumer", "TracedShareConsumer"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# OpenTelemetry's SDK keeps 128 links per span.
_MAX_LINKS = 128


@contextmanager
def _attached(parent: Context) -> Iterator[None]:
    token = context.attach(parent)
    try:
        yield
    finally:
        context.detach(token)


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
        with (
            nullcontext() if parent is None else _attached(parent),
            self._spans.current(
                SpanKind.CONSUMER, "process", topic, attributes, links=links
            ) as span,
        ):
            yield span

    def _read(self, read: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> tuple[_T, int]:
        """Return a call's result and its start time in ns. A failure creates a span."""
        begun = time.time_ns()
        try:
            return read(*args, **kwargs), begun
        except Exception as error:
            if not isinstance(error, StopIteration) and not _is_end(kafka_error(error)):
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

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message: Message
        message, begun = self._read(next, self.consumer)
        self._polled_one(message, begun)
        return message

    def __enter__(self) -> Self:
        self.consumer.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.consumer.__exit__(*error)

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


class TracedConsumer(Traced, _Consumer):
    """Reads messages through a consumer, with a span for each call that returns messages.

    The spans link to the messages' creation contexts. All other attributes and methods come from
    the consumer.

    Parameters
    ----------
    consumer : Consumer
        Or a DeserializingConsumer. You can still use it directly, also as attribute `consumer`.
    tracer_provider : TracerProvider, optional
        The default is OpenTelemetry's global provider.
    """

    consumer: Consumer

    def __init__(
        self, consumer: Consumer, *, tracer_provider: TracerProvider | None = None
    ) -> None:
        self.consumer = consumer
        self._spans = Spans(consumer, Consumer, tracer_provider)

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Wait for one message as ``Consumer.poll()`` does, with a span ``poll <topic>``.

        Without a message, the call creates no span.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever.

        Returns
        -------
        Message or None
        """
        message, begun = self._read(self.consumer.poll, timeout)
        if message is not None:
            self._polled_one(message, begun)
        return message

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Wait for messages as ``Consumer.consume()`` does, with a span ``poll <topic>``.

        Parameters
        ----------
        num_messages : int
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever.

        Returns
        -------
        list of Message
        """
        messages, begun = self._read(self.consumer.consume, num_messages, timeout)
        self._polled(messages, begun)
        return messages

    def consume_batch(
        self, max_messages: int = 10_000, timeout: float | None = None
    ) -> MessageBatch:
        """Wait for a batch as ``Consumer.consume_batch()`` does, with a span ``poll <topic>``.

        Parameters
        ----------
        max_messages : int
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever.

        Returns
        -------
        MessageBatch
        """
        batch, begun = self._read(self.consumer.consume_batch, max_messages, timeout)
        self._polled(batch, begun)
        return batch

    def batches(
        self, max_messages: int = 10_000, timeout: float | None = 1.0
    ) -> Iterator[MessageBatch]:
        """Iterate as ``Consumer.batches()`` does, with a span ``poll <topic>`` for each batch.

        Parameters
        ----------
        max_messages : int
        timeout : float, optional
            Seconds to wait per batch. None or a negative value waits for full batches.

        Returns
        -------
        iterator of MessageBatch
        """
        return TracedBatches(self, self.consumer.batches(max_messages, timeout))

    # One signature instead of the consumer's overloads.
    def commit(  # type: ignore[override]
        self,
        message: Message | MessageBatch | None = None,
        offsets: list[TopicPartition] | tuple[TopicPartition, ...] | None = None,
        asynchronous: bool = True,
        **kwargs: bool,
    ) -> list[TopicPartition] | None:
        """Commit as ``Consumer.commit()`` does, with a span ``commit``.

        An asynchronous commit's span ends before the outcome is known.

        Parameters
        ----------
        message, offsets, asynchronous, **kwargs
            As for ``Consumer.commit()``.
        """
        with self._spans.current(SpanKind.CLIENT, "commit", None):
            return self.consumer.commit(message, offsets, asynchronous, **kwargs)


class TracedShareConsumer(Traced, _ShareConsumer):
    """Reads messages through a share consumer, with a span for each call that returns messages.

    The spans link to the messages' creation contexts. All other attributes and methods come from
    the consumer.

    Parameters
    ----------
    consumer : ShareConsumer
        Or a DeserializingShareConsumer. You can still use it directly, also as attribute
        `consumer`.
    tracer_provider : TracerProvider, optional
        The default is OpenTelemetry's global provider.
    """

    consumer: ShareConsumer

    def __init__(
        self, consumer: ShareConsumer, *, tracer_provider: TracerProvider | None = None
    ) -> None:
        self.consumer = consumer
        self._spans = Spans(consumer, ShareConsumer, tracer_provider)

    def poll(self, timeout: float = -1) -> Messages:
        """Wait for records as ``ShareConsumer.poll()`` does, with a span ``poll <topic>``.

        Without a record, the call creates no span.

        Parameters
        ----------
        timeout : float
            Seconds to wait. A negative value waits forever.

        Returns
        -------
        Messages
        """
        messages, begun = self._read(self.consumer.poll, timeout)
        self._polled(list(messages), begun)
        return messages

    def consume_batch(self, timeout: float | None = None) -> MessageBatch:
        """Wait for a batch as ``ShareConsumer.consume_batch()`` does, with a span
        ``poll <topic>``.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever.

        Returns
        -------
        MessageBatch
        """
        batch, begun = self._read(self.consumer.consume_batch, timeout)
        self._polled(batch, begun)
        return batch

    def batches(self, timeout: float | None = 1.0) -> Iterator[MessageBatch]:
        """Iterate as ``ShareConsumer.batches()`` does, with a span ``poll <topic>`` for each
        batch.

        Parameters
        ----------
        timeout : float, optional
            Seconds that one wait lasts.

        Returns
        -------
        iterator of MessageBatch
        """
        return TracedBatches(self, self.consumer.batches(timeout))

    def commit_sync(self, timeout: float = 60) -> dict[TopicPartition, KafkaException | None]:
        """Commit as ``ShareConsumer.commit_sync()`` does, with a span ``commit``.

        Parameters
        ----------
        timeout : float
            As for ``ShareConsumer.commit_sync()``.
        """
        with self._spans.current(SpanKind.CLIENT, "commit", None):
            return self.consumer.commit_sync(timeout)


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
