"""AsyncSerializingProducer and AsyncDeserializingConsumer: confluent_kafka's, for objects."""

from __future__ import annotations

import logging
from asyncio import Future
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, Self

from cykafka import KafkaException, Message
from cykafka._serdes import CLUSTER_ID_S, Serdes, Steps
from cykafka.aio.confluent import AIOConsumer, AIOProducer, _Client
from cykafka.error import (
    ClosedError,
    ConsumeError,
    KeyDeserializationError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from cykafka.serialization import Headers, MessageField, SerializationContext

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:  # the defaults of type variables are for type checkers
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

_log = logging.getLogger("cykafka")


class _Serializing(_Client):
    """A client that is complete when it has been awaited, because its builders may be coroutine
    functions. Comes before the client's class in the method resolution order."""

    _kind: str

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        self._serdes = _AsyncSerdes(conf, self._kind)
        self._kwargs = kwargs
        self._is_open = False

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self

    async def _open(self) -> Self:
        if self._is_open:
            return self
        try:
            await _run(self._serdes.build())
            super().__init__(self._serdes.config, **self._kwargs)  # type: ignore[call-arg]
        except BaseException:
            try:
                await self._serdes.aclose()
            except Exception:
                _log.warning("Failed to close a serializer", exc_info=True)
            raise
        self._serdes.offer_cluster_id(self.cluster_id)
        self._is_open = True
        return self

    async def close(self) -> None:
        """Close the client, then the serdes from builders."""
        await super().close()
        await self._serdes.aclose()


class AsyncSerializingProducer(_Serializing, AIOProducer, Generic[K, V]):
    """A producer whose ``produce()`` takes objects: ``await AsyncSerializingProducer(conf)``.

    Parameters
    ----------
    conf : dict
        As for :class:`AIOProducer`, and the serializers and builders of
        :class:`cykafka.SerializingProducer`. Serializers, builders and their ``close()`` may be
        coroutine functions. The others run in the loop, so they should not block.
    **kwargs
        As for :class:`AIOProducer`.

    Raises
    ------
    ValueError
        A serializer and its builder are both given.
    """

    _kind = "serializer"

    async def produce(  # type: ignore[override]
        self,
        topic: str,
        key: K | None = None,
        value: V | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> Future[Message]:
        """Serialize the key, then the value, and queue the record.

        Await the result for a Future, and the Future for the delivered Message.

        Parameters
        ----------
        topic : str
        key, value : object, optional
        partition, timestamp, headers
            As for :meth:`cykafka.Producer.produce`. Here the key comes before the value.

        Raises
        ------
        KeySerializationError, ValueSerializationError
            A serializer raised; ``exception`` is its exception.
        KafkaException, RuntimeError
            As :meth:`AIOProducer.produce`.
        """
        # Check first: a serializer must not register a schema for a record that cannot be sent.
        if self._is_closed:
            raise ClosedError("Producer has been closed")
        if not isinstance(topic, str):
            raise TypeError(f"topic: expected a str, got {type(topic).__name__}")
        key_data: Any = key
        value_data: Any = value
        ctx = SerializationContext(topic, MessageField.KEY, headers)
        if self._serdes.key is not None:
            try:
                key_data = await _awaited(self._serdes.key(key, ctx))
            except Exception as error:
                raise KeySerializationError(error) from error
        ctx.field = MessageField.VALUE
        if self._serdes.value is not None:
            try:
                value_data = await _awaited(self._serdes.value(value, ctx))
            except Exception as error:
                raise ValueSerializationError(error) from error
        return await super().produce(topic, value_data, key_data, partition, timestamp, headers)


class AsyncDeserializingConsumer(_Serializing, AIOConsumer, Generic[K, V]):
    """A consumer whose messages have objects: ``await AsyncDeserializingConsumer(conf)``.

    Parameters
    ----------
    conf : dict
        As for :class:`AIOConsumer`, and the deserializers and builders of
        :class:`cykafka.DeserializingConsumer`. Deserializers, builders and their ``close()`` may
        be coroutine functions. The others run in the loop, so they should not block.
    **kwargs
        As for :class:`AIOConsumer`.

    Raises
    ------
    ValueError
        A deserializer and its builder are both given.
    """

    _kind = "deserializer"

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(conf, **kwargs)
        # Messages that no call has returned: with bytes, and with objects. The exception that
        # comes between them.
        self._read: deque[Message[Any, Any]] = deque()
        self._deserialized: list[Message[Any, Any]] = []
        self._failure: KafkaException | None = None

    async def poll(  # type: ignore[override]
        self, timeout: float | None = None
    ) -> Message[K, V] | None:
        """Wait for one message, and deserialize its key, then its value.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever.

        Returns
        -------
        Message or None
            None if the timeout expires.

        Raises
        ------
        KeyDeserializationError, ValueDeserializationError
            A deserializer raised. ``exception`` is its exception; ``kafka_message`` is the message
            with its bytes. The message counts as read.
        ConsumeError
            An event (such as ``_PARTITION_EOF``) or an error came instead of a record.
        """
        messages = await self.consume(1, timeout)
        if not messages:
            return None
        error = messages[0].error()
        if error is not None:
            raise ConsumeError(error, kafka_message=messages[0])  # type: ignore[arg-type]
        return messages[0]

    async def consume(  # type: ignore[override]
        self, num_messages: int = 1, timeout: float | None = None
    ) -> list[Message[K, V]]:
        """Wait for `num_messages` messages, or fewer if the timeout expires, and deserialize them.

        Returns fewer messages before one that cannot be deserialized: the next call raises. If
        you cancel the call, the next call returns the messages.

        Parameters
        ----------
        num_messages : int
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever.

        Returns
        -------
        list of Message
            Check ``error()`` of each: events and errors stay as they are.

        Raises
        ------
        KeyDeserializationError, ValueDeserializationError
            As for ``poll()``.
        """
        if not self._read and not self._deserialized and self._failure is None:
            self._read.extend(await super().consume(num_messages, timeout))
        while self._read and len(self._deserialized) < num_messages and self._failure is None:
            message = self._read[0]
            try:
                if message.error() is None:
                    await self._deserialize(message)
            except (KeyDeserializationError, ValueDeserializationError) as error:
                self._failure = error
                self._read.popleft()
            else:
                self._deserialized.append(self._read.popleft())
        if not self._deserialized and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        messages = self._deserialized[:num_messages]
        del self._deserialized[:num_messages]
        return messages

    async def _deserialize(self, message: Message[Any, Any]) -> None:
        topic = message.topic()
        assert topic is not None  # only messages with an error lack it
        ctx = SerializationContext(topic, MessageField.KEY, message.headers())  # type: ignore[arg-type]
        key, value = message.key(), message.value()
        if self._serdes.key is not None:
            try:
                key = await _awaited(self._serdes.key(key, ctx))
            except Exception as error:
                raise KeyDeserializationError(error, message) from error
        ctx.field = MessageField.VALUE
        if self._serdes.value is not None:
            try:
                value = await _awaited(self._serdes.value(value, ctx))
            except Exception as error:
                raise ValueDeserializationError(error, message) from error
        # After both succeeded: with an error the message keeps its bytes.
        message.set_key(key)
        message.set_value(value)


class _AsyncSerdes(Serdes):
    """Serdes whose calls may be coroutines."""

    def offer_cluster_id(  # type: ignore[override]
        self, cluster_id: Callable[..., Coroutine[Any, Any, str | None]]
    ) -> None:
        """Give the serdes that accept it a coroutine function that returns the cluster's id."""

        async def resolver() -> str | None:
            return await cluster_id(timeout=CLUSTER_ID_S)

        for serde in (self.key, self.value):
            set_resolver = getattr(serde, "set_async_cluster_id_resolver", None)
            if callable(set_resolver):
                set_resolver(resolver)

    async def aclose(self) -> None:
        """As close()."""
        await _run(self.closing("aclose", "close"))


async def _awaited(result: Any) -> Any:
    return await result if isawaitable(result) else result


async def _run(steps: Steps) -> None:
    try:
        result = next(steps)
        while True:
            try:
                result = await _awaited(result)
            except BaseException as error:
                result = steps.throw(error)
            else:
                result = steps.send(result)
    except StopIteration:
        pass
