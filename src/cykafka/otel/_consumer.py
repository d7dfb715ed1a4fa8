"""TracedConsumer: a consumer with spans for its messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from opentelemetry.trace import SpanKind, TracerProvider

from cykafka._core.batch import MessageBatch
from cykafka._core.common.message import Message
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.consumer import Consumer
from cykafka.otel._spans import Spans
from cykafka.otel._traced import Traced, TracedBatches

if TYPE_CHECKING:
    _Base = Consumer  # for the types of the methods that the consumer provides
else:
    _Base = object

__all__ = ["TracedConsumer"]


class TracedConsumer(Traced, _Base):
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

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message, begun = self._read(next, self.consumer)
        self._polled_one(message, begun)
        return message

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
