"""Errors of clients that serialize, and their base classes."""

from __future__ import annotations

from cykafka._core.common.errors import (
    ClosedError,
    ConcurrentModificationException,
    ForkedError,
    IllegalStateException,
    KafkaError,
    KafkaException,
)
from cykafka._core.common.message import Message
from cykafka.serialization import SerializationError

__all__ = [
    "ClosedError",
    "ConcurrentModificationException",
    "ConsumeError",
    "ForkedError",
    "IllegalStateException",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "KeySerializationError",
    "ProduceError",
    "SerializationError",
    "ValueDeserializationError",
    "ValueSerializationError",
]


class _KafkaClientError(KafkaException):
    """A KafkaError, the exception that caused it, and its message."""

    def __init__(
        self,
        kafka_error: KafkaError,
        exception: Exception | None = None,
        kafka_message: Message | None = None,
    ) -> None:
        super().__init__(kafka_error)
        self._kafka_error = kafka_error
        self.exception = exception
        self.kafka_message = kafka_message

    @property
    def code(self) -> int:
        """The error's code."""
        return self._kafka_error.code()

    @property
    def name(self) -> str:
        """The error's name."""
        return self._kafka_error.name()


class ConsumeError(_KafkaClientError):
    """A message could not be consumed."""


class ProduceError(_KafkaClientError):
    """A message could not be produced."""

    def __init__(self, kafka_error: KafkaError, exception: Exception | None = None) -> None:
        super().__init__(kafka_error, exception, None)


class KeyDeserializationError(ConsumeError, SerializationError):
    """The key of ``kafka_message`` could not be deserialized."""

    def __init__(
        self, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        super().__init__(
            KafkaError(KafkaError._KEY_DESERIALIZATION, str(exception)), exception, kafka_message
        )


class ValueDeserializationError(ConsumeError, SerializationError):
    """The value of ``kafka_message`` could not be deserialized."""

    def __init__(
        self, exception: Exception | None = None, kafka_message: Message | None = None
    ) -> None:
        super().__init__(
            KafkaError(KafkaError._VALUE_DESERIALIZATION, str(exception)),
            exception,
            kafka_message,
        )


class KeySerializationError(ProduceError, SerializationError):
    """A key could not be serialized."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """A value could not be serialized."""

    def __init__(self, exception: Exception | None = None) -> None:
        super().__init__(KafkaError(KafkaError._VALUE_SERIALIZATION, str(exception)), exception)
