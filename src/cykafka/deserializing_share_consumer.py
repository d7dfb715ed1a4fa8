"""DeserializingShareConsumer: a member of a share group that gets objects."""

from __future__ import annotations

from typing import Any, NoReturn, overload

from cykafka._core.common.errors import KafkaError
from cykafka._core.common.message import Message
from cykafka._core.share.consumer import ShareConsumer
from cykafka._serdes import open_serdes
from cykafka.serialization import MessageField, SerializationContext

__all__ = ["DeserializingShareConsumer"]


class DeserializingShareConsumer(ShareConsumer):
    """A share consumer whose messages have objects as keys and values.

    The calls deserialize the key, then the value of each message. ``key()`` and ``value()`` return
    the objects. A deserializer cannot call the consumer.

    A message that cannot be deserialized keeps its bytes, and its ``error()`` is
    ``_KEY_DESERIALIZATION`` or ``_VALUE_DESERIALIZATION``. Acknowledge it like any other message,
    usually with ``AcknowledgeType.REJECT``.

    Parameters
    ----------
    conf : dict
        As for :class:`cykafka.ShareConsumer`, and, all optional:

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
        self._deserializes = True
        try:
            self._serdes.offer_cluster_id(self)
        except BaseException:
            self.close()
            raise

    def _deserialize(self, message: Message[Any, Any]) -> None:
        topic = message.topic()
        if topic is None:
            raise TypeError("Message topic is None")
        ctx = SerializationContext(topic, MessageField.KEY, message.headers())  # type: ignore[arg-type]
        key, value = message.key(), message.value()
        code = KafkaError._KEY_DESERIALIZATION
        try:
            if self._serdes.key is not None:
                key = self._serdes.key(key, ctx)
            code = KafkaError._VALUE_DESERIALIZATION
            ctx.field = MessageField.VALUE
            if self._serdes.value is not None:
                value = self._serdes.value(value, ctx)
        except Exception as error:
            # One such record must not keep the other records of the poll from the program.
            message.set_error(KafkaError(code, str(error)))
            return
        message.set_key(key)
        message.set_value(value)

    def consume_batch(self, timeout: float | None = None) -> NoReturn:
        """Not supported, because a batch contains bytes, not objects."""
        raise NotImplementedError(
            f"{type(self).__name__} has no consume_batch(): use ShareConsumer.consume_batch()"
        )

    def batches(self, timeout: float | None = 1.0) -> NoReturn:
        """Not supported, because batches contain bytes, not objects."""
        raise NotImplementedError(
            f"{type(self).__name__} has no batches(): use ShareConsumer.batches()"
        )

    @overload
    def close(self, timeout: None = None) -> None: ...
    @overload
    def close(self, timeout: float) -> bool: ...
    def close(self, timeout: float | None = None) -> bool | None:
        """Close the consumer as ``ShareConsumer.close`` does, then the deserializers from
        builders."""
        try:
            return super().close(timeout)
        finally:
            self._serdes.close()
