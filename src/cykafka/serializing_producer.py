"""SerializingProducer: a producer of objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from cykafka._core.produce.producer import Producer
from cykafka._serdes import K, V, open_serdes
from cykafka.error import ClosedError, KeySerializationError, ValueSerializationError
from cykafka.serialization import Headers, MessageField, SerializationContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from cykafka._core.common.errors import KafkaError
    from cykafka._core.common.message import Message

__all__ = ["SerializingProducer"]


class SerializingProducer(Producer, Generic[K, V]):
    """A producer whose ``produce()`` takes objects as keys and values.

    Parameters
    ----------
    conf : dict
        As for :class:`cykafka.Producer`, and, all optional:

        ``key.serializer``, ``value.serializer``
            ``callable(object, SerializationContext) -> bytes or None``.
        ``key.serializer.builder``, ``value.serializer.builder``
            A SerializerBuilder instead. The producer closes the serializer that it makes.

    Raises
    ------
    ValueError
        A serializer and its builder are both given.

    Notes
    -----
    ``produce_batch()`` serializes nothing.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        # super().__init__() refuses a second call: the first serdes then stay.
        self._serdes = open_serdes(conf, "serializer", super().__init__)
        self._closed = False
        try:
            self._serdes.offer_cluster_id(self)
        except BaseException:
            self.close()
            raise

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        on_delivery: Callable[[KafkaError | None, Message], object] | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
        timeout: float | None = 0,
    ) -> None:
        """Serialize the key, then the value, and queue the record.

        Parameters
        ----------
        topic : str
        key, value : object, optional
        partition, on_delivery, timestamp, headers, timeout
            As for ``Producer.produce``. Here the key comes before the value.

        Raises
        ------
        KeySerializationError, ValueSerializationError
            A serializer raised; ``exception`` is its exception.
        BufferError, KafkaException, RuntimeError
            As ``Producer.produce``.
        """
        # Check first: a serializer must not register a schema for a record that cannot be sent.
        if self._closed:
            raise ClosedError("Producer has been closed")
        if not isinstance(topic, str):
            raise TypeError(f"topic: expected a str, got {type(topic).__name__}")
        key_data: Any = key
        value_data: Any = value
        ctx = SerializationContext(topic, MessageField.KEY, headers)
        if self._serdes.key is not None:
            try:
                key_data = self._serdes.key(key, ctx)
            except Exception as error:
                raise KeySerializationError(error) from error
        ctx.field = MessageField.VALUE
        if self._serdes.value is not None:
            try:
                value_data = self._serdes.value(value, ctx)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(
            topic,
            value_data,
            key_data,
            partition=partition,
            on_delivery=on_delivery,
            timestamp=timestamp,
            headers=headers,
            timeout=timeout,
        )

    def close(self, timeout: float | None = None) -> bool:
        """Close the producer as ``Producer.close`` does, then the serializers from builders."""
        closed = super().close(timeout)
        # After the close: its flush runs delivery callbacks, which may produce.
        self._closed = True
        self._serdes.close()
        return closed
