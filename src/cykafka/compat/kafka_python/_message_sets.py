"""A request's messages as columns, which is how the client sends them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from cykafka.compat.kafka_python._translation import check_numbers
from cykafka.compat.kafka_python.codec import gzip_decode, snappy_decode
from cykafka.compat.kafka_python.common import Message, UnsupportedCodecError
from cykafka.compat.kafka_python.protocol import (
    ATTRIBUTE_CODEC_MASK,
    CODEC_GZIP,
    CODEC_NONE,
    CODEC_SNAPPY,
    KafkaProtocol,
    create_message_set,
)

Bytes = bytes | None


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
