"""TracedConsumer: a consumer whose messages have spans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, TracerProvider

from cykafka._core.batch import MessageBatch
from cykafka._core.common.errors import KafkaError
from cykafka._core.common.message import Message
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.consumer import Consumer
from cykafka.otel._headers import context_names, creation_context, extracted
from cykafka.otel._spans import Spans, cause, fail, fail_with, name_of

__all__ = ["TracedConsumer"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# OpenTelemetry's SDK keeps 128 links of a span.
_MAX_LINKS = 128


class TracedConsumer:
    """Reads messages through a consumer, with a span for each call that returns some.

    The spans link to the contexts in which the messages were created. All other attributes and
    methods are the consumer's.

    Parameters
    ----------
    consumer : Consumer
        Also a DeserializingConsumer. The caller may go on using it; its attribute is `consumer`.
    tracer_provider : TracerProvider, optional
        By default OpenTelemetry's global one.
    """

    def __init__(
        self, consumer: Consumer, *, tracer_provider: TracerProvider | None = None
    ) -> None:
        self.consumer = consumer
        self._spans = Spans(consumer, Consumer, tracer_provider)

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Wait for one message as ``Consumer.poll()`` does, with a span ``poll <topic>``.

        There is no span if no message arrives.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None or less than 0: forever.

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
            Seconds; None or less than 0: forever.

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
            Seconds; None or less than 0: forever.

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
            Seconds; None or less than 0: only full batches.

        Yields
        ------
        MessageBatch
        """
        batches = iter(self.consumer.batches(max_messages, timeout))
        while True:
            try:
                batch, begun = self._read(next, batches)
            except StopIteration:
                return
            self._polled(batch, begun)
            yield batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message, begun = self._read(next, self.consumer)
        self._polled_one(message, begun)
        return message

    @contextmanager
    def processing(
        self, messages: Message | MessageBatch | list[Message], *, as_child: bool = False
    ) -> Iterator[Span]:
        """A block with a span ``process <topic>``, which is the current span in it.

        The span links to the contexts in which the messages were created. An exception is its
        status, and propagates.

        Parameters
        ----------
        messages : Message or MessageBatch or list of Message
        as_child : bool
            Make the span a child of the context in which the message was created, so that both are
            in one trace. Then the baggage of that context is the current one, and the span also
            links to the caller's span. A message without a context changes nothing. Only for one
            message.

        Yields
        ------
        Span

        Raises
        ------
        ValueError
            `as_child` with several messages, because a span has one parent.
        """
        parent = None
        if isinstance(messages, Message):
            attributes = self._spans.of_message("process", "process", messages)
            topic = messages.topic()
            links = _links_of([messages])
            if as_child and links:
                caller = trace.get_current_span().get_span_context()
                links += [Link(caller)] if caller.is_valid else []
                parent = extracted(messages.headers() or ())
        elif as_child:
            raise ValueError("as_child: expected one Message, because a span has one parent")
        else:
            topics = _topics(messages)
            topic = topics.pop() if len(topics) == 1 else None
            links = _links_of(messages)
            attributes = self._spans.attributes(
                "process", "process", topic, batch__message_count=len(messages)
            )
        with self._spans.tracer.start_as_current_span(
            name_of("process", topic),
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except Exception as error:
                fail_with(span, error)
                raise

    def commit(self, *args: Any, **kwargs: Any) -> list[TopicPartition] | None:
        """Commit as ``Consumer.commit()`` does, with a span ``commit``.

        The span of an asynchronous commit ends before its outcome is known.

        Parameters
        ----------
        *args, **kwargs
            As for ``Consumer.commit()``.
        """
        with self._spans.tracer.start_as_current_span(
            "commit",
            kind=SpanKind.CLIENT,
            attributes=self._spans.attributes("commit", "settle", None),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                committed: list[TopicPartition] | None = self.consumer.commit(*args, **kwargs)
                return committed
            except Exception as error:
                fail_with(span, error)
                raise

    def _read(self, read: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> tuple[_T, int]:
        """The result of a call, and the time in ns at which it began; a failure has a span."""
        begun = time.time_ns()
        try:
            return read(*args, **kwargs), begun
        except Exception as error:
            if not isinstance(error, StopIteration) and not _is_end(cause(error)):
                span = self._spans.tracer.start_span(
                    "poll",
                    kind=SpanKind.CLIENT,
                    attributes=self._spans.attributes("poll", "receive", None),
                    start_time=begun,
                )
                fail_with(span, error)
                span.end()
            raise

    def _polled_one(self, message: Message, begun: int) -> None:
        error = message.error()
        if _is_end(error):
            return
        span = self._spans.tracer.start_span(
            name_of("poll", message.topic()),
            kind=SpanKind.CLIENT,
            attributes=self._spans.of_message("poll", "receive", message),
            links=_links_of([message]),
            start_time=begun,
        )
        if error is not None:
            fail(span, error)
        span.end()

    def _polled(self, messages: MessageBatch | list[Message], begun: int) -> None:
        """Make the span of several messages, unless nothing came but ends of partitions."""
        events = messages.errors if isinstance(messages, MessageBatch) else messages
        errors = [error for each in events if (error := each.error()) is not None]
        count = len(messages) if isinstance(messages, MessageBatch) else len(events) - len(errors)
        failures = [each for each in errors if not _is_end(each)]
        if not count and not failures:
            return
        topics = _topics(messages)
        topic = topics.pop() if len(topics) == 1 else None
        span = self._spans.tracer.start_span(
            name_of("poll", topic),
            kind=SpanKind.CLIENT,
            attributes=self._spans.attributes(
                "poll", "receive", topic, batch__message_count=count
            ),
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

    def __getattr__(self, name: str) -> Any:
        if name == "consumer":  # not set yet: a copy, or a failed __init__()
            raise AttributeError(name)
        return getattr(self.consumer, name)


def _is_end(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _topics(messages: MessageBatch | list[Message]) -> set[str]:
    if isinstance(messages, MessageBatch):
        return set(messages.topics)
    return {topic for each in messages if (topic := each.topic()) is not None}


def _links_of(messages: MessageBatch | list[Message]) -> list[Link]:
    """Links to the contexts in which the messages were created, each of them once."""
    contexts = map(creation_context, islice(_context_headers(messages), _MAX_LINKS))
    return [Link(each) for each in contexts if each is not None]


def _context_headers(
    messages: MessageBatch | list[Message],
) -> Iterator[tuple[tuple[str, bytes | None], ...]]:
    """The headers of messages that may have their context, each combination once."""
    names = context_names()
    if isinstance(messages, MessageBatch):  # without Python code for each message
        columns = (messages.header(name) for name in names)
        for row in dict.fromkeys(zip(*columns, strict=True)):
            yield tuple(zip(names, row, strict=True))
    else:
        yield from dict.fromkeys(
            tuple(each for each in message.headers() or () if each[0] in names)
            for message in messages
        )
