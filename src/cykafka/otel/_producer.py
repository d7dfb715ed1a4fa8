"""TracedProducer: a producer with spans for its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Self

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, TracerProvider

from cykafka._core.common.errors import KafkaError
from cykafka._core.common.message import Message
from cykafka._core.consume.consumer import Consumer
from cykafka._core.produce.delivery import Delivery, observe
from cykafka._core.produce.producer import Producer, delivery_callback
from cykafka.otel._consumer import TracedConsumer
from cykafka.otel._spans import (
    Spans,
    context_names,
    copied,
    creation_context,
    fail,
    fail_with,
    injected,
    key_text,
    merged,
)

if TYPE_CHECKING:
    from cykafka._core.arrow.read import _ArrowData
    from cykafka._core.produce.producer import _Column, _ColumnOfHeaders, _Headers, _Numbers

    _Base = Producer  # for the types of the methods that the producer provides
else:
    _Base = object

__all__ = ["TracedProducer"]


class TracedProducer(_Base):
    """Sends records through a producer, with a span per record or batch.

    The span begins with the call and ends with the outcome of its records, so it includes the time
    in the producer's queue. An error sets the span's status. All other attributes and methods come
    from the producer; ``produce_batch()`` does not create spans.

    Parameters
    ----------
    producer : Producer
        Or a SerializingProducer. You can still use it directly, also as attribute `producer`.
    tracer_provider : TracerProvider, optional
        The default is OpenTelemetry's global provider.
    """

    def __init__(
        self, producer: Producer, *, tracer_provider: TracerProvider | None = None
    ) -> None:
        self.producer = producer
        self._spans = Spans(producer, Producer, tracer_provider)

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: Callable[[KafkaError | None, Message], object] | None = None,
        on_delivery: Callable[[KafkaError | None, Message], object] | None = None,
        timestamp: int = 0,
        headers: _Headers | None = None,
        timeout: float | None = 0,
    ) -> None:
        """Queue a record as ``Producer.produce()`` does, with a span ``send <topic>``.

        The call adds the span's context to the record's headers, but does not change `headers`
        itself. If `headers` already contain a context, the record keeps that context and the span
        links to it.

        Parameters
        ----------
        topic, value, key, partition, callback, on_delivery, timestamp, headers, timeout
            As for ``Producer.produce()``, in this order even for a SerializingProducer.

        Raises
        ------
        BufferError, KafkaException, RuntimeError
            As in ``Producer.produce()``. The error also sets the span's status.
        """
        own = callback if callback is not None else on_delivery
        if own is None:
            own = delivery_callback(self.producer)
        record_headers = copied(headers)
        created = creation_context(record_headers)
        span = self._spans.start(
            SpanKind.CLIENT if created else SpanKind.PRODUCER,
            "send",
            topic,
            {
                "destination.partition.id": _number(partition),
                "kafka.message.key": key_text(key),
                "kafka.message.tombstone": True if value is None else None,
            },
            links=[Link(created)] if created else None,
        )
        if created is None:
            record_headers = merged(record_headers, injected(trace.set_span_in_context(span)))

        def delivered(error: KafkaError | None, message: Message) -> None:
            _end(span, error, message)
            if own is not None:
                own(error, message)

        with _failing(span):
            self.producer.produce(
                topic,
                value=value,
                key=key,
                partition=partition,
                on_delivery=delivered if own is None or callable(own) else own,
                timestamp=timestamp,
                headers=record_headers or None,
                timeout=timeout,
            )

    def publish(
        self,
        topic: str | Sequence[str],
        values: _Column | None,
        *,
        keys: _Column | None = None,
        headers: _ColumnOfHeaders | None = None,
        timestamps: _Numbers | None = None,
        partitions: _Numbers | None = None,
        timeout: float | None = None,
        context: Literal["batch", "record"] | None = None,
    ) -> Delivery:
        """Send a batch as ``Producer.publish()`` does, with one span ``send <topic>``.

        Parameters
        ----------
        topic, values, keys, headers, timestamps, partitions, timeout
            As for ``Producer.publish()``.
        context : {"batch", "record"}, optional
            The context to add to the records' headers. None, the default, adds none. ``"batch"``
            adds the context of the batch's span to all records. ``"record"`` creates a span
            ``create <topic>`` per record, adds that span's context to the record, and links the
            batch's span to it; this costs Python objects per record. A record that already has a
            context keeps it.

        Returns
        -------
        Delivery
            The span ends when its last record has an outcome and the producer is served.

        Raises
        ------
        TypeError
            With `context`, `headers` must be a mapping or a sequence. With ``"record"``, `values`
            or `keys` must have a length.
        ValueError
            `context` has another value.
        """
        if context not in (None, "batch", "record"):
            raise ValueError(f"context: expected None, 'batch' or 'record', got {context!r}")
        name = topic if isinstance(topic, str) else None
        links: list[Link] = []
        if context == "record":
            headers, links = self._created(topic, values, keys, headers)
        kind = SpanKind.PRODUCER if context == "batch" else SpanKind.CLIENT
        span = self._spans.start(kind, "send", name, links=links)
        with _failing(span):
            if context == "batch":
                headers = _with_context(headers, injected(trace.set_span_in_context(span)))
            delivery = self.producer.publish(
                topic,
                values,
                keys=keys,
                headers=headers,
                timestamps=timestamps,
                partitions=partitions,
                timeout=timeout,
            )
        observe(delivery, lambda done: _end_batch(span, done))
        return delivery

    def publish_arrow(
        self,
        topic: str | None,
        data: _ArrowData,
        *,
        key: str | None = None,
        value: str | None = "value",
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | None = None,
        timeout: float | None = None,
        registry: Any = None,
        schema: Any = None,
        subject: str | None = None,
    ) -> Delivery:
        """Send Arrow data as ``Producer.publish_arrow()`` does, with one span, without a context.

        Parameters
        ----------
        topic, data, key, value, headers, timestamp, partition, timeout, registry, schema, subject
            As for ``Producer.publish_arrow()``.

        Returns
        -------
        Delivery
        """
        span = self._spans.start(SpanKind.CLIENT, "send", topic)
        with _failing(span):
            delivery = self.producer.publish_arrow(
                topic,
                data,
                key=key,
                value=value,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
                timeout=timeout,
                registry=registry,
                schema=schema,
                subject=subject,
            )
        observe(delivery, lambda done: _end_batch(span, done))
        return delivery

    # The producer's own method does not accept a TracedConsumer, and its block binds the producer.
    @contextmanager
    def transaction(  # type: ignore[override]
        self, consumer: Consumer | TracedConsumer | None = None, timeout: float | None = None
    ) -> Iterator[Self]:
        """Run a block as ``Producer.transaction()`` does; ``as`` binds this object.

        Parameters
        ----------
        consumer, timeout
            As for ``Producer.transaction()``; the consumer may be a TracedConsumer.
        """
        plain = consumer.consumer if isinstance(consumer, TracedConsumer) else consumer
        with self.producer.transaction(plain, timeout):
            yield self

    def _created(
        self,
        topic: str | Sequence[str],
        values: _Column | None,
        keys: _Column | None,
        headers: _ColumnOfHeaders | None,
    ) -> tuple[list[Any], list[Link]]:
        """Create a span per record; return the records' headers, and the links."""
        column = values if values is not None else keys
        if not isinstance(column, Sized):
            raise TypeError(
                "values: context='record' needs a column with a length, "
                f"got {type(column).__name__}"
            )
        count = len(column)
        rows = _rows(headers, count)
        topics = [topic] * count if isinstance(topic, str) else topic
        links = []
        for at, name in zip(range(len(rows)), topics, strict=False):  # publish() checks them
            context = creation_context(rows[at])
            if context is None:
                span = self._spans.start(SpanKind.PRODUCER, "create", name)
                rows[at] = merged(rows[at], injected(trace.set_span_in_context(span)))
                context = span.get_span_context()
                span.end()
            if context.is_valid:
                links.append(Link(context))
        return rows, links

    def __len__(self) -> int:
        return len(self.producer)

    def __bool__(self) -> bool:
        return bool(self.producer)

    def __enter__(self) -> Self:
        self.producer.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.producer.__exit__(*error)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "producer":  # not set: a copy, or a failed __init__()
                raise AttributeError(name)
            return getattr(self.producer, name)


def _number(partition: object) -> str | None:
    """Return the partition as an attribute; None if unknown, or if the producer will reject it."""
    return str(partition) if isinstance(partition, int) and partition >= 0 else None


@contextmanager
def _failing(span: Span) -> Iterator[None]:
    """End the span if the block raises, unless the record's callback raised and ended it."""
    try:
        yield
    except BaseException as error:
        if span.is_recording():
            fail_with(span, error)
            span.end()
        raise


def _end(span: Span, error: KafkaError | None, message: Message) -> None:
    if span.is_recording():
        partition, offset = _number(message.partition()), message.offset()
        if partition is not None:
            span.set_attribute("messaging.destination.partition.id", partition)
        if error is not None:
            fail(span, error)
        elif offset is not None and offset >= 0:
            span.set_attribute("messaging.kafka.offset", offset)
    span.end()


def _end_batch(span: Span, delivery: Delivery) -> None:
    if span.is_recording():
        span.set_attribute("messaging.batch.message_count", delivery.count)
        if delivery.failed:
            first = next(iter(delivery.errors.values()))
            failed = f"{delivery.failed} of {delivery.count} records failed: {first.str()}"
            fail(span, first, failed)
    span.end()


def _rows(headers: Any, count: int) -> list[list[Any]]:
    """Return each record's headers as a new list; `headers` are as for ``Producer.publish()``."""
    if headers is None:
        return [[] for _ in range(count)]
    if isinstance(headers, Mapping):
        columns = [(name, _column(name, value, count)) for name, value in headers.items()]
        return [[(name, column[row]) for name, column in columns] for row in range(count)]
    if isinstance(headers, Sequence):
        return [copied(row) for row in headers]
    raise TypeError(
        "headers: cannot add a context; expected a mapping or a sequence, "
        f"got {type(headers).__name__}"
    )


def _column(name: str, value: Any, count: int) -> Any:
    """Return a header of ``publish()`` as a column; `value` may be one value for all records."""
    is_bytes = isinstance(value, memoryview) and value.ndim == value.itemsize == 1
    if value is None or is_bytes or isinstance(value, (bytes, str, bytearray)):
        return [value] * count
    if len(value) != count:
        raise ValueError(
            f"headers[{name!r}] has {len(value)} item(s), but there are {count} record(s)"
        )
    return value


def _with_context(headers: Any, context: list[Any]) -> Any:
    """Return a batch's headers with the context added to all records."""
    if headers is None or isinstance(headers, Mapping):
        own = {} if headers is None else headers
        # Baggage alone is not a trace context.
        if (context_names() - {"baggage"}) & own.keys():
            return own
        return {**own, **dict(context)} or None
    rows = _rows(headers, 0)
    return [row if creation_context(row) else merged(row, context) for row in rows]
