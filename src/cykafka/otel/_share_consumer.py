"""TracedShareConsumer: a share consumer with spans for its messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from opentelemetry.trace import SpanKind, TracerProvider

from cykafka._core.batch import MessageBatch
from cykafka._core.common.errors import KafkaException
from cykafka._core.common.message import Message
from cykafka._core.common.partition import TopicPartition
from cykafka._core.model import Messages
from cykafka._core.share.consumer import ShareConsumer
from cykafka.otel._spans import Spans
from cykafka.otel._traced import Traced, TracedBatches

if TYPE_CHECKING:
    _Base = ShareConsumer  # for the types of the methods that the consumer provides
else:
    _Base = object

__all__ = ["TracedShareConsumer"]


class TracedShareConsumer(Traced, _Base):
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

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message, begun = self._read(next, self.consumer)
        self._polled_one(message, begun)
        return message

    def commit_sync(self, timeout: float = 60) -> dict[TopicPartition, KafkaException | None]:
        """Commit as ``ShareConsumer.commit_sync()`` does, with a span ``commit``.

        Parameters
        ----------
        timeout : float
            As for ``ShareConsumer.commit_sync()``.
        """
        with self._spans.current(SpanKind.CLIENT, "commit", None):
            return self.consumer.commit_sync(timeout)
