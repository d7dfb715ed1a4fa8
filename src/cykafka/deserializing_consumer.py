"""DeserializingConsumer: a consumer of objects."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, overload

from cykafka._core.batch import MessageBatch
from cykafka._core.common.errors import KafkaError
from cykafka._core.common.message import Message
from cykafka._core.consume.consumer import Consumer
from cykafka._serdes import K, V, open_serdes
from cykafka.error import ConsumeError, KeyDeserializationError, ValueDeserializationError
from cykafka.serialization import MessageField, SerializationContext

__all__ = ["DeserializingConsumer"]


class DeserializingConsumer(Consumer, Generic[K, V]):
    """A consumer whose messages have objects as keys and values.

    Parameters
    ----------
    conf : dict
        As for :class:`cykafka.Consumer`, and, all optional:

        ``key.deserializer``, ``value.deserializer``
            ``callable(bytes or None, SerializationContext) -> object``.
        ``key.deserializer.builder``, ``value.deserializer.builder``
            A DeserializerBuilder instead. The consumer closes the deserializer that it makes.

    Raises
    ------
    ValueError
        A deserializer and its builder are both given.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        # super().__init__() refuses a second call: the first serdes then stay.
        self._serdes = open_serdes(conf, "deserializer", super().__init__)
        try:
            self._serdes.offer_cluster_id(self)
        except BaseException:
            self.close()
            raise

    # The messages have objects; those of a Consumer have bytes.

    def poll(  # type: ignore[override]
        self, timeout: float | None = -1
    ) -> Message[K, V] | None:
        """Wait for one message, and deserialize its key, then its value.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever. Ctrl-C interrupts the wait
            within 0.1 s.

        Returns
        -------
        Message or None
            None if the timeout expires. ``key()``, ``value()``, ``deserialized_key()`` and
            ``deserialized_value()`` return the objects.

        Raises
        ------
        KeyDeserializationError, ValueDeserializationError
            A deserializer raised. ``exception`` is its exception; ``kafka_message`` is the message
            with its bytes. The message counts as read.
        ConsumeError
            An event (such as ``_PARTITION_EOF``) or an error came instead of a record.
        """
        message = super().poll(timeout)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        return self._deserialized(message)

    def __next__(self) -> Message[K, V]:  # type: ignore[override]
        """As ``Consumer.__next__``, but with the exceptions of :meth:`poll`."""
        while True:
            try:
                message: Message[Any, Any] = super().__next__()
                return message
            except ConsumeError as error:
                if error.code != KafkaError._PARTITION_EOF:
                    raise

    def _deserialized(self, message: Message[Any, Any]) -> Message[K, V]:
        topic = message.topic()
        assert topic is not None  # only messages with an error lack it
        ctx = SerializationContext(topic, MessageField.KEY, message.headers())  # type: ignore[arg-type]
        key, value = message.key(), message.value()
        if self._serdes.key is not None:
            try:
                key = self._serdes.key(key, ctx)
            except Exception as error:
                raise KeyDeserializationError(error, message) from error
        ctx.field = MessageField.VALUE
        if self._serdes.value is not None:
            try:
                value = self._serdes.value(value, ctx)
            except Exception as error:
                raise ValueDeserializationError(error, message) from error
        # After both succeeded: with an error the message keeps its bytes.
        message.set_key(key)
        message.set_value(value)
        return message

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:
        """Not supported, as in confluent_kafka: use :meth:`poll`."""
        raise NotImplementedError(
            f"{type(self).__name__} has no consume(): use poll(), or Consumer.consume() with "
            "the deserializers"
        )

    def consume_batch(
        self, max_messages: int = 10_000, timeout: float | None = None
    ) -> MessageBatch:
        """Not supported, because a batch contains bytes, not objects."""
        raise NotImplementedError(
            f"{type(self).__name__} has no consume_batch(): use Consumer.consume_batch()"
        )

    def batches(self, max_messages: int = 10_000, timeout: float | None = 1.0) -> NoReturn:
        """Not supported, because batches contain bytes, not objects."""
        raise NotImplementedError(
            f"{type(self).__name__} has no batches(): use Consumer.batches()"
        )

    @overload
    def close(self, timeout: None = None) -> None: ...
    @overload
    def close(self, timeout: float) -> bool | None: ...
    def close(self, timeout: float | None = None) -> bool | None:
        """Close the consumer as ``Consumer.close`` does, then the deserializers from builders."""
        left = super().close(timeout)
        self._serdes.close()
        return left
