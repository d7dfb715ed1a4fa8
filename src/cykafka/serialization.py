"""Serializers and deserializers for SerializingProducer and DeserializingConsumer."""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeAlias

from cykafka._core.common.errors import KafkaException

__all__ = [
    "Deserializer",
    "DeserializerBuilder",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "MessageField",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "SerializerBuilder",
    "StringDeserializer",
    "StringSerializer",
]

Headers: TypeAlias = dict[str, str | bytes | None] | list[tuple[str, str | bytes | None]]


class SerializationError(KafkaException):
    """An object could not be serialized, or bytes could not be deserialized."""


class MessageField(StrEnum):
    """The part of a message that is serialized."""

    NONE = "none"
    KEY = "key"
    VALUE = "value"


class SerializationContext:
    """The topic and the message part that a serializer works on.

    Parameters
    ----------
    topic : str
    field : MessageField
    headers : dict or list of (str, str or bytes or None), optional
        The message's headers, not a copy: a serializer may add headers.
    """

    def __init__(self, topic: str, field: MessageField, headers: Headers | None = None) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


class _Serde:
    """The common methods of serializers and deserializers."""

    __slots__: tuple[str, ...] = ()

    def set_cluster_id_resolver(self, resolver: Callable[[], str]) -> None:
        """Accept a function that returns the cluster id.

        The client calls this method once, after its construction. The default does nothing.

        Parameters
        ----------
        resolver : callable
            Returns the cluster's id (str), or raises. It may wait up to 60 s for a broker, so
            do not call it before the id is needed.
        """

    def close(self) -> None:
        """Release resources. The default does nothing.

        A closing client calls this method on each serializer or deserializer from a builder.
        """


class Serializer(_Serde):
    """The base of serializers; any ``callable(object, SerializationContext)`` also works."""

    __slots__ = ()

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Serialize an object to bytes. None stays None, Kafka's null.

        Raises
        ------
        SerializationError
        """
        raise NotImplementedError(f"{type(self).__name__} has no __call__")


class Deserializer(_Serde):
    """The base of deserializers; any ``callable(bytes, SerializationContext)`` also works."""

    __slots__ = ()

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Deserialize bytes to an object. None, Kafka's null, stays None.

        Raises
        ------
        SerializationError
        """
        raise NotImplementedError(f"{type(self).__name__} has no __call__")


class SerializerBuilder:
    """Creates a client's serializer, for ``key.serializer.builder`` and the like."""

    __slots__: tuple[str, ...] = ()

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Serializer, dict[str, Any]]:
        """Create the serializer.

        Parameters
        ----------
        conf : dict
            A copy of the client's configuration.
        is_key : bool
            Whether the serializer is for keys.

        Returns
        -------
        tuple of (Serializer, dict)
            The serializer, which the client will close, and the configuration without the
            serializer's properties.
        """
        raise NotImplementedError(f"{type(self).__name__} has no build()")


class DeserializerBuilder:
    """Creates a client's deserializer, for ``key.deserializer.builder`` and the like."""

    __slots__: tuple[str, ...] = ()

    def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Deserializer, dict[str, Any]]:
        """Create the deserializer; see :meth:`SerializerBuilder.build`."""
        raise NotImplementedError(f"{type(self).__name__} has no build()")


def _packed(layout: struct.Struct, obj: Any) -> bytes | None:
    if obj is None:
        return None
    try:
        return layout.pack(obj)
    except struct.error as error:
        raise SerializationError(str(error)) from error


def _unpacked(layout: struct.Struct, value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return layout.unpack(value)[0]
    except struct.error as error:
        raise SerializationError(str(error)) from error


_DOUBLE = struct.Struct(">d")
_INTEGER = struct.Struct(">i")


class DoubleSerializer(Serializer):
    """float -> 8 bytes, IEEE 754 binary64, big-endian."""

    def __call__(self, obj: float | None, ctx: SerializationContext | None = None) -> bytes | None:
        return _packed(_DOUBLE, obj)


class DoubleDeserializer(Deserializer):
    """8 bytes, IEEE 754 binary64, big-endian -> float."""

    def __call__(
        self, value: bytes | None, ctx: SerializationContext | None = None
    ) -> float | None:
        number: float | None = _unpacked(_DOUBLE, value)
        return number


class IntegerSerializer(Serializer):
    """int -> 4 bytes, signed, big-endian."""

    def __call__(self, obj: int | None, ctx: SerializationContext | None = None) -> bytes | None:
        return _packed(_INTEGER, obj)


class IntegerDeserializer(Deserializer):
    """4 bytes, signed, big-endian -> int."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> int | None:
        number: int | None = _unpacked(_INTEGER, value)
        return number


class StringSerializer(Serializer):
    """str -> bytes.

    Parameters
    ----------
    codec : str
        One of Python's encodings.
    """

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        if obj is None:
            return None
        try:
            return obj.encode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error


class StringDeserializer(Deserializer):
    """bytes -> str.

    Parameters
    ----------
    codec : str
        One of Python's encodings.
    """

    def __init__(self, codec: str = "utf_8") -> None:
        self.codec = codec

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> str | None:
        if value is None:
            return None
        try:
            return value.decode(self.codec)
        except UnicodeError as error:
            raise SerializationError(str(error)) from error
