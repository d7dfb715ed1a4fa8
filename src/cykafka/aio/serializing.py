"""AsyncSerializingProducer and AsyncDeserializingConsumer: confluent_kafka's, for objects."""

from __future__ import annotations

import logging
import weakref
from asyncio import Future
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any, Generic, Self

from cykafka import KafkaException, Message, TopicPartition
from cykafka._core.consume.consumer import available
from cykafka._serdes import CLUSTER_ID_S, K, Serdes, V
from cykafka._steps import arun
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

_log = logging.getLogger("cykafka")

_STORE = "enable.auto.offset.store"


class _Serializing(_Client):
    """A client that is complete when it has been awaited, because its builders may be coroutine
    functions. Comes before the client's class in the method resolution order."""

    _kind: str

    def __init__(self, conf: dict[str, Any], **kwargs: Any) -> None:
        self._serdes = _AsyncSerdes(conf, self._kind)
        self._kwargs = kwargs
        self._is_open = False
        self._is_opening = False

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self

    async def _open(self) -> Self:
        if self._is_open:
            return self
        if self._is_opening:
            raise RuntimeError("another task creates this client, or has failed to do so")
        self._is_opening = True
        try:
            await arun(self._serdes.build())
            super().__init__(self._serdes.config, **self._kwargs)  # type: ignore[call-arg]
            self._is_open = True
            self._serdes.offer_cluster_id(self)
        except BaseException:
            try:
                await self.close()
            except Exception:
                _log.warning("Failed to close %r", self, exc_info=True)
            raise
        return self

    def _check_awaited(self) -> None:
        if not self._is_open:
            name = type(self).__name__
            raise RuntimeError(f"await the client before its first call: await {name}(conf)")

    async def close(self) -> None:
        """Close the client, then the serdes from builders."""
        if self._is_open:
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
        self._check_awaited()
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
        if not isinstance(conf, dict):
            raise TypeError(f"expected configuration dict, got {type(conf).__name__}")
        # Store offsets when the program gets the messages, not when they are read.
        self._stores = str(conf.get(_STORE, True)).lower() in ("true", "t", "1")
        super().__init__({**conf, _STORE: False} if self._stores else conf, **kwargs)
        # Messages of a call that was cancelled or has failed, and whether each has its objects.
        self._kept: deque[tuple[Message[Any, Any], bool]] = deque()

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
        you cancel the call, the next call returns the messages. Offsets are stored when a call
        returns the messages.

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
        self._check_awaited()
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        consumer = self._async._consumer
        if not self._kept and num_messages:
            await self._async._read(
                partial(available, consumer, num_messages),
                lambda count: count == num_messages,
                timeout,
            )
        self._async._check_open()
        done: list[Message[Any, Any]] = []
        while len(done) < num_messages and (taken := self._take()) is not None:
            message, is_done = taken
            try:
                if not is_done and message.error() is None:
                    await self._deserialize(message)
            except (KeyDeserializationError, ValueDeserializationError):
                if not done:
                    self._store([message])
                    raise
                self._kept.appendleft((message, False))  # the next call raises
                break
            except BaseException:
                self._kept.extendleft([(message, False), *((each, True) for each in done[::-1])])
                raise
            done.append(message)
        self._store(done)
        return done

    def _take(self) -> tuple[Message[Any, Any], bool] | None:
        if self._kept:
            return self._kept.popleft()
        messages = self._async._consumer.consume(1, 0)
        return (messages[0], False) if messages else None

    def _store(self, messages: list[Message[Any, Any]]) -> None:
        for message in messages:
            if self._stores and message.error() is None:
                with suppress(KafkaException):  # the partition was revoked
                    self._async.store_offsets(message)

    # The messages that are left belong to the former position.

    async def seek(self, partition: TopicPartition) -> None:
        """Continue reading at another offset."""
        self._kept.clear()
        await super().seek(partition)

    async def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions."""
        self._kept.clear()
        await super().assign(partitions)

    async def unassign(self) -> None:
        """Remove all partitions from the assignment."""
        self._kept.clear()
        await super().unassign()

    async def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._kept.clear()
        await super().incremental_unassign(partitions)

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

    def offer_cluster_id(self, client: Any) -> None:
        """Give the serdes that accept it a coroutine function that returns the cluster's id."""
        # The application's serdes may outlive the client, and must not keep it alive.
        reference = weakref.ref(client)

        async def resolver() -> str | None:
            client = reference()
            if client is None:
                raise RuntimeError("cannot get the cluster's id: the client no longer exists")
            found: str | None = await client.cluster_id(timeout=CLUSTER_ID_S)
            return found

        for serde in (self.key, self.value):
            set_resolver = getattr(serde, "set_async_cluster_id_resolver", None)
            if callable(set_resolver):
                set_resolver(resolver)

    async def aclose(self) -> None:
        """As close()."""
        await arun(self.closing("aclose", "close"))


async def _awaited(result: Any) -> Any:
    return await result if isawaitable(result) else result
