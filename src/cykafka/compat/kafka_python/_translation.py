"""Translates between kafka-python and cykafka: messages as columns, names, numbers and errors."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from cykafka import KafkaError
from cykafka.compat.kafka_python.codec import gzip_decode, snappy_decode
from cykafka.compat.kafka_python.common import (
    FailedPayloadsError,
    Message,
    UnsupportedCodecError,
)
from cykafka.compat.kafka_python.protocol import (
    ATTRIBUTE_CODEC_MASK,
    CODEC_GZIP,
    CODEC_NONE,
    CODEC_SNAPPY,
    KafkaProtocol,
    create_message_set,
)
from cykafka.compat.kafka_python.util import kafka_bytestring
from cykafka.internal import kafka_error

__all__ = [
    "MessageSet",
    "check_numbers",
    "check_payloads",
    "errno",
    "failed_payload",
    "is_unanswered",
    "message_set",
    "text",
    "topic_name",
]

Bytes = bytes | None

_LONGEST = 32767
# Codes from librdkafka (below -1) and newer brokers, as the numbers that programs know.
_ERRNO = {
    KafkaError._AUTO_OFFSET_RESET: KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._BAD_MSG: KafkaError.INVALID_MSG,
    KafkaError._NO_OFFSET: KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._UNKNOWN_PARTITION: KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC: KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH: KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH: KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._WAIT_COORD: KafkaError.COORDINATOR_NOT_AVAILABLE,
}
# The broker did not respond. Whether it processed the request is unknown.
_UNANSWERED = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._DESTROY,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._PURGE_QUEUE,
    KafkaError._QUEUE_FULL,
    KafkaError._RESOLVE,
    KafkaError._SSL,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
}
_UNKNOWN = -1


# -- messages as columns


class MessageSet(Sequence[Message]):
    """The messages of a ProduceRequest: values, keys and a codec.

    Replaces the result of ``create_message_set()``, but creates Message objects only for a client
    that accesses them. So KafkaClient need not decompress what a producer compressed.

    Parameters
    ----------
    values : list of (bytes or None)
    keys : list of (bytes or None), optional
    codec : int
        One of ``ALL_CODECS``.
    compresslevel : int, optional
        gzip's level, 1 to 9.
    """

    def __init__(
        self,
        values: list[Bytes],
        keys: list[Bytes] | None = None,
        codec: int = CODEC_NONE,
        compresslevel: int | None = None,
    ) -> None:
        self.values = values
        self.keys = keys
        self.codec = codec
        self.compresslevel = compresslevel
        self._messages: list[Message] | None = None

    def _made(self) -> list[Message]:
        if self._messages is None:
            keys = self.keys or [None] * len(self.values)
            pairs = list(zip(self.values, keys, strict=True))
            self._messages = create_message_set(
                pairs, self.codec, keys[-1] if keys else None, self.compresslevel
            )
        return self._messages

    def __len__(self) -> int:
        return len(self._made())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._made()[index]

    def __repr__(self) -> str:
        return repr(self._made())

    def subset(self, indices: Iterable[int]) -> MessageSet:
        """Return the messages at these indices."""
        places = list(indices)
        return MessageSet(
            [self.values[place] for place in places],
            None if self.keys is None else [self.keys[place] for place in places],
            self.codec,
            self.compresslevel,
        )


def message_set(messages: Iterable[Message]) -> MessageSet:
    """Convert a ProduceRequest's messages, including the messages inside compressed ones."""
    if isinstance(messages, MessageSet):
        return messages
    values: list[Bytes] = []
    keys: list[Bytes] = []
    codec = CODEC_NONE
    for message in messages:
        check_numbers("BB", magic=message.magic, attributes=message.attributes)
        inner = message.attributes & ATTRIBUTE_CODEC_MASK
        for item in (message,) if inner == CODEC_NONE else _inside(message, inner):
            for name, part in (("value", item.value), ("key", item.key)):
                if part is not None and not isinstance(part, bytes):
                    raise TypeError(
                        f"the {name} of a message must be bytes or None, got {type(part).__name__}"
                    )
            values.append(item.value)
            keys.append(item.key)
        codec = inner or codec
    return MessageSet(values, keys if any(key is not None for key in keys) else None, codec)


def _inside(message: Message, codec: int) -> Iterator[Message]:
    decode = {CODEC_GZIP: gzip_decode, CODEC_SNAPPY: snappy_decode}.get(codec)
    if decode is None:
        raise UnsupportedCodecError(f"Codec 0x{codec:02x} unsupported")
    for _, inner in KafkaProtocol._decode_message_set_iter(decode(message.value or b"")):
        yield inner


# -- requests


def text(string: str | bytes) -> str:
    """Return a protocol string as str. Invalid UTF-8 becomes U+FFFD, as in the brokers.

    Raises
    ------
    TypeError
        The string is neither str nor bytes.
    struct.error
        The string is longer than 32767 bytes, the limit in a request.
    """
    encoded = kafka_bytestring(string)
    if len(encoded) > _LONGEST:
        raise _too_long(encoded)
    return encoded.decode(errors="replace")


def _too_long(string: bytes) -> struct.error:
    return struct.error(
        f"{string[:40]!r}... has {len(string)} bytes, the limit is {_LONGEST} for a string in "
        "Kafka's protocol"
    )


def topic_name(topic: str | bytes) -> str:
    """Return a topic's text(). librdkafka cannot send NUL, so NUL also becomes U+FFFD.

    Brokers reject both: error 17, "Invalid topic".
    """
    return text(topic).replace("\0", "\ufffd")


def check_numbers(layout: str, **numbers: int) -> None:
    """Raise struct.error for numbers that do not fit, as kafka-python does while it encodes them.

    Parameters
    ----------
    layout : str
        One :mod:`struct` character per number: ``h`` 16 bits, ``i`` 32 bits, ``q`` 64 bits.
    **numbers : int
        The error message contains their names.
    """
    try:
        struct.pack(">" + layout, *numbers.values())
    except struct.error as error:
        raise struct.error(f"{numbers}: {error}") from None


def check_payloads(payloads: Sequence[Any], layout: str, *fields: str) -> None:
    """Check the numbers in each payload's fields like check_numbers().

    Raises
    ------
    struct.error
    FailedPayloadsError
        A topic is longer than 32767 bytes, the limit in a request.
    AssertionError
        Two payloads are for the same partition.
    """
    places = set()
    for payload in payloads:
        topic = kafka_bytestring(payload.topic)
        if len(topic) > _LONGEST:
            raise FailedPayloadsError(payload, str(_too_long(topic)))
        check_numbers(layout, **{field: getattr(payload, field) for field in fields})
        places.add((topic, payload.partition))
    if len(places) < len(payloads):
        raise AssertionError(f"a partition appears twice in the payloads: {list(payloads)}")


# -- errors


def is_unanswered(error: KafkaError) -> bool:
    """Whether the brokers did not respond, so that kafka-python raised FailedPayloadsError."""
    return error.code() in _UNANSWERED


def errno(error: KafkaError | None) -> int:
    """Return the broker's error number: 0 for success, -1 for an error without a number."""
    if error is None:
        return 0
    code = error.code()
    return _ERRNO.get(code, code if code >= 0 else _UNKNOWN)


def failed_payload(payload: Any, error: BaseException) -> FailedPayloadsError:
    """Return the error for a request to which the brokers did not respond."""
    cause = kafka_error(error)
    topic = topic_name(payload.topic)
    text = error if cause is None else cause.str()
    failed = FailedPayloadsError(
        payload, f"the brokers did not respond for {topic}[{payload.partition}]: {text}"
    )
    failed.__cause__ = error
    return failed
