"""Kafka's wire protocol as of version 0.8, and message sets."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from cykafka.compat.kafka_python.codec import (
    gzip_decode,
    gzip_encode,
    snappy_decode,
    snappy_encode,
)
from cykafka.compat.kafka_python.common import (
    BrokerMetadata,
    BufferUnderflowError,
    ChecksumError,
    ConsumerFetchSizeTooSmall,
    ConsumerMetadataResponse,
    FetchRequest,
    FetchResponse,
    Message,
    MetadataResponse,
    OffsetAndMessage,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetRequest,
    OffsetResponse,
    PartitionMetadata,
    ProduceRequest,
    ProduceResponse,
    ProtocolError,
    TopicMetadata,
    UnsupportedCodecError,
)
from cykafka.compat.kafka_python.util import (
    crc32,
    group_by_topic_and_partition,
    read_int_string,
    read_short_string,
    relative_unpack,
    write_int_string,
    write_short_string,
)

ATTRIBUTE_CODEC_MASK = 0x03
CODEC_NONE = 0x00
CODEC_GZIP = 0x01
CODEC_SNAPPY = 0x02
ALL_CODECS = (CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY)

_T = TypeVar("_T")


class KafkaProtocol:
    """Encodes requests and decodes responses.

    An encoded request starts with its length. `KafkaConnection` removes the length of a response,
    so the methods decode the bytes after the length. Client ids, topics and groups are bytes.

    Brokers since Kafka 4.0 do not support requests of these versions.

    Raises
    ------
    TypeError
        From methods that encode: a string is not bytes.
    AssertionError
        From methods that encode: two payloads are for the same partition.
    BufferUnderflowError, ProtocolError
        From methods that decode: the response ends too early, or is malformed. Methods that return
        an iterator raise them from the iterator.
    """

    PRODUCE_KEY = 0
    FETCH_KEY = 1
    OFFSET_KEY = 2
    METADATA_KEY = 3
    OFFSET_COMMIT_KEY = 8
    OFFSET_FETCH_KEY = 9
    CONSUMER_METADATA_KEY = 10

    # Messages

    @classmethod
    def _encode_message_header(
        cls, client_id: bytes, correlation_id: int, request_key: int, version: int = 0
    ) -> bytes:
        header = struct.pack(">hhi", request_key, version, correlation_id)
        return header + write_short_string(client_id)

    @classmethod
    def _encode_message_set(cls, messages: Iterable[Message]) -> bytes:
        """Encode messages, each after an offset of 0 and its length."""
        parts: list[bytes] = []
        for message in messages:
            encoded = cls._encode_message(message)
            parts += struct.pack(">qi", 0, len(encoded)), encoded
        return b"".join(parts)

    @classmethod
    def _encode_message(cls, message: Message) -> bytes:
        """Encode a message of magic 0, the only one in this protocol."""
        if message.magic != 0:
            raise ProtocolError(f"cannot encode a message of magic {message.magic}: expected 0")
        body = (
            struct.pack(">BB", 0, message.attributes)
            + write_int_string(message.key)
            + write_int_string(message.value)
        )
        return struct.pack(">I", crc32(body)) + body

    @classmethod
    def _decode_message_set_iter(cls, data: bytes) -> Iterator[OffsetAndMessage]:
        """Decode messages. Brokers truncate the last message at the fetch size.

        Raises
        ------
        ConsumerFetchSizeTooSmall
            The first message is truncated.
        ChecksumError, ProtocolError, UnsupportedCodecError
            See `_decode_message`.
        """
        cur = 0
        while cur < len(data):
            try:
                (offset,), start = relative_unpack(">q", data, cur)
                encoded, end = read_int_string(data, start)
            except BufferUnderflowError as error:
                if cur == 0:
                    raise ConsumerFetchSizeTooSmall(
                        f"the first message is not complete in {len(data)} bytes"
                    ) from error
                return
            for message_offset, message in cls._decode_message(encoded or b"", offset):
                yield OffsetAndMessage(message_offset, message)
            cur = end

    @classmethod
    def _decode_message(cls, data: bytes, offset: int) -> Iterator[tuple[int, Message]]:
        """Decode a message of magic 0 or 1, or the messages in a compressed one.

        Raises
        ------
        ChecksumError
            The checksum is wrong.
        BufferUnderflowError, ProtocolError
            The message is malformed.
        UnsupportedCodecError
            The codec is neither gzip nor snappy.
        NotImplementedError
            The message needs snappy, and cramjam is not installed.
        """
        (crc, magic, attributes), cur = relative_unpack(">IBB", data, 0)
        if crc != crc32(data[4:]):
            raise ChecksumError(f"the checksum of the message at offset {offset} is wrong")
        if magic > 1:
            raise ProtocolError(f"cannot decode a message of magic {magic}: expected 0 or 1")
        if magic == 1:
            _, cur = relative_unpack(">q", data, cur)  # its timestamp
        key, cur = read_int_string(data, cur)
        value, _ = read_int_string(data, cur)

        codec = attributes & ATTRIBUTE_CODEC_MASK
        if codec == CODEC_NONE:
            yield offset, Message(magic, attributes, key, value)
            return
        if codec not in ALL_CODECS:
            raise UnsupportedCodecError(f"the message at offset {offset} has the codec {codec}")
        decode = gzip_decode if codec == CODEC_GZIP else snappy_decode
        try:
            inner = decode(value or b"")
            messages = list(cls._decode_message_set_iter(inner))
        except ValueError as error:
            raise ProtocolError(f"the message at offset {offset} is damaged: {error}") from error
        except RecursionError:
            raise ProtocolError(
                f"the message at offset {offset} contains too many nested messages"
            ) from None
        if magic == 0:
            yield from messages
            return
        # Since magic 1, inner offsets start at 0. The outer offset is the last message's.
        for inner_offset, message in messages:
            yield offset - messages[-1].offset + inner_offset, message

    # Requests and responses

    @classmethod
    def _encode_topics(
        cls, payloads: Iterable[Any] | None, encode: Callable[[Any], bytes]
    ) -> bytes:
        """Encode payloads by topic and partition. `encode` encodes what follows the partition."""
        topics = group_by_topic_and_partition(payloads or ())
        parts = [struct.pack(">i", len(topics))]
        for topic, partitions in topics.items():
            parts += write_short_string(topic), struct.pack(">i", len(partitions))
            for partition, payload in partitions.items():
                parts += struct.pack(">i", partition), encode(payload)
        return b"".join(parts)

    @classmethod
    def _decode_topics(
        cls, data: bytes, decode: Callable[[bytes, int], tuple[_T, int]]
    ) -> Iterator[_T]:
        """Decode a response by topic and partition.

        `decode` is called with a topic and the position of its next partition. It returns a struct
        and the position after the struct.
        """
        (_, topics), cur = relative_unpack(">ii", data, 0)
        for _ in range(topics):
            topic, cur = read_short_string(data, cur)
            (partitions,), cur = relative_unpack(">i", data, cur)
            for _ in range(partitions):
                decoded, cur = decode(topic or b"", cur)
                yield decoded

    @classmethod
    def encode_produce_request(
        cls,
        client_id: bytes,
        correlation_id: int,
        payloads: Iterable[ProduceRequest] | None = None,
        acks: int = 1,
        timeout: int = 1000,
    ) -> bytes:
        """Encode a produce request.

        Parameters
        ----------
        client_id : bytes
        correlation_id : int
        payloads : iterable of ProduceRequest, optional
        acks : int
            How many replicas must store the messages before the broker responds. 0: no response;
            -1: all in-sync replicas.
        timeout : int
            How long the broker waits for the replicas, in ms.

        Raises
        ------
        ProtocolError
            The magic of a message is not 0.
        """

        def encode(payload: ProduceRequest) -> bytes:
            return write_int_string(cls._encode_message_set(payload.messages))

        return write_int_string(
            cls._encode_message_header(client_id, correlation_id, cls.PRODUCE_KEY)
            + struct.pack(">hi", acks, timeout)
            + cls._encode_topics(payloads, encode)
        )

    @classmethod
    def decode_produce_response(cls, data: bytes) -> Iterator[ProduceResponse]:
        """Decode a produce response."""

        def decode(topic: bytes, cur: int) -> tuple[ProduceResponse, int]:
            values, cur = relative_unpack(">ihq", data, cur)
            return ProduceResponse(topic, *values), cur

        return cls._decode_topics(data, decode)

    @classmethod
    def encode_fetch_request(
        cls,
        client_id: bytes,
        correlation_id: int,
        payloads: Iterable[FetchRequest] | None = None,
        max_wait_time: int = 100,
        min_bytes: int = 4096,
    ) -> bytes:
        """Encode a fetch request.

        Parameters
        ----------
        client_id : bytes
        correlation_id : int
        payloads : iterable of FetchRequest, optional
        max_wait_time : int
            How long the broker waits for `min_bytes`, in ms.
        min_bytes : int
            The broker waits for this many message bytes before it responds.
        """

        def encode(payload: FetchRequest) -> bytes:
            return struct.pack(">qi", payload.offset, payload.max_bytes)

        return write_int_string(
            cls._encode_message_header(client_id, correlation_id, cls.FETCH_KEY)
            + struct.pack(">iii", -1, max_wait_time, min_bytes)  # -1: not a replica
            + cls._encode_topics(payloads, encode)
        )

    @classmethod
    def decode_fetch_response(cls, data: bytes) -> Iterator[FetchResponse]:
        """Decode a fetch response.

        `messages` of a FetchResponse is an iterator. It raises ConsumerFetchSizeTooSmall if the
        first message is not complete, ChecksumError if a checksum is wrong, and ProtocolError or
        UnsupportedCodecError for messages that it cannot decode.
        """

        def decode(topic: bytes, cur: int) -> tuple[FetchResponse, int]:
            (partition, error, highwater), cur = relative_unpack(">ihq", data, cur)
            encoded, cur = read_int_string(data, cur)
            messages = cls._decode_message_set_iter(encoded or b"")
            return FetchResponse(topic, partition, error, highwater, messages), cur

        return cls._decode_topics(data, decode)

    @classmethod
    def encode_offset_request(
        cls,
        client_id: bytes,
        correlation_id: int,
        payloads: Iterable[OffsetRequest] | None = None,
    ) -> bytes:
        """Encode a request for the offsets of partitions."""

        def encode(payload: OffsetRequest) -> bytes:
            return struct.pack(">qi", payload.time, payload.max_offsets)

        return write_int_string(
            cls._encode_message_header(client_id, correlation_id, cls.OFFSET_KEY)
            + struct.pack(">i", -1)  # not a replica
            + cls._encode_topics(payloads, encode)
        )

    @classmethod
    def decode_offset_response(cls, data: bytes) -> Iterator[OffsetResponse]:
        """Decode a response with the offsets of partitions."""

        def decode(topic: bytes, cur: int) -> tuple[OffsetResponse, int]:
            (partition, error), cur = relative_unpack(">ih", data, cur)
            offsets, cur = cls._decode_array("q", data, cur)
            return OffsetResponse(topic, partition, error, offsets), cur

        return cls._decode_topics(data, decode)

    @classmethod
    def _decode_array(cls, item: str, data: bytes, cur: int) -> tuple[tuple[int, ...], int]:
        (count,), cur = relative_unpack(">i", data, cur)
        return relative_unpack(f">{max(count, 0)}{item}", data, cur)  # -1 is a null array

    @classmethod
    def encode_metadata_request(
        cls,
        client_id: bytes,
        correlation_id: int,
        topics: Iterable[bytes] | None = None,
        payloads: Iterable[bytes] | None = None,
    ) -> bytes:
        """Encode a request for the metadata of topics.

        Parameters
        ----------
        client_id : bytes
        correlation_id : int
        topics : iterable of bytes, optional
            None or empty means all topics.
        payloads : iterable of bytes, optional
            Replaces `topics`.
        """
        names = list((topics or ()) if payloads is None else payloads)
        return write_int_string(
            cls._encode_message_header(client_id, correlation_id, cls.METADATA_KEY)
            + struct.pack(">i", len(names))
            + b"".join(map(write_short_string, names))
        )

    @classmethod
    def decode_metadata_response(cls, data: bytes) -> MetadataResponse:
        """Decode a response with the metadata of topics."""
        (_, count), cur = relative_unpack(">ii", data, 0)
        brokers = []
        for _ in range(count):
            (node,), cur = relative_unpack(">i", data, cur)
            host, cur = read_short_string(data, cur)
            (port,), cur = relative_unpack(">i", data, cur)
            brokers.append(BrokerMetadata(node, host, port))

        topics = []
        (count,), cur = relative_unpack(">i", data, cur)
        for _ in range(count):
            (error,), cur = relative_unpack(">h", data, cur)
            name, cur = read_short_string(data, cur)
            topic = TopicMetadata(name or b"", error, [])
            (partitions,), cur = relative_unpack(">i", data, cur)
            for _ in range(partitions):
                (error, partition, leader), cur = relative_unpack(">hii", data, cur)
                replicas, cur = cls._decode_array("i", data, cur)
                isr, cur = cls._decode_array("i", data, cur)
                topic.partitions.append(
                    PartitionMetadata(topic.topic, partition, leader, replicas, isr, error)
                )
            topics.append(topic)
        return MetadataResponse(brokers, topics)

    @classmethod
    def encode_consumer_metadata_request(
        cls, client_id: bytes, correlation_id: int, payloads: bytes
    ) -> bytes:
        """Encode a request for a group's coordinator. `payloads` is the group's name."""
        return write_int_string(
            cls._encode_message_header(client_id, correlation_id, cls.CONSUMER_METADATA_KEY)
            + write_short_string(payloads)
        )

    @classmethod
    def decode_consumer_metadata_response(cls, data: bytes) -> ConsumerMetadataResponse:
        """Decode a response with a group's coordinator."""
        (_, error, node), cur = relative_unpack(">ihi", data, 0)
        host, cur = read_short_string(data, cur)
        (port,), cur = relative_unpack(">i", data, cur)
        return ConsumerMetadataResponse(error, node, host, port)

    @classmethod
    def encode_offset_commit_request(
        cls,
        client_id: bytes,
        correlation_id: int,
        group: bytes,
        payloads: Iterable[OffsetCommitRequest],
    ) -> bytes:
        """Encode a request to commit a group's offsets."""

        def encode(payload: Any) -> bytes:
            return struct.pack(">q", payload.offset) + write_short_string(payload.metadata)

        return write_int_string(
            cls._encode_message_header(client_id, correlation_id, cls.OFFSET_COMMIT_KEY)
            + write_short_string(group)
            + cls._encode_topics(payloads, encode)
        )

    @classmethod
    def decode_offset_commit_response(cls, data: bytes) -> Iterator[OffsetCommitResponse]:
        """Decode the response to an offset commit."""

        def decode(topic: bytes, cur: int) -> tuple[OffsetCommitResponse, int]:
            values, cur = relative_unpack(">ih", data, cur)
            return OffsetCommitResponse(topic, *values), cur

        return cls._decode_topics(data, decode)

    @classmethod
    def encode_offset_fetch_request(
        cls,
        client_id: bytes,
        correlation_id: int,
        group: bytes,
        payloads: Iterable[OffsetFetchRequest],
        from_kafka: bool = False,
    ) -> bytes:
        """Encode a request for a group's committed offsets.

        Parameters
        ----------
        client_id : bytes
        correlation_id : int
        group : bytes
        payloads : iterable of OffsetFetchRequest
        from_kafka : bool
            Request the offsets in Kafka (version 1) instead of those in ZooKeeper (version 0).
        """
        return write_int_string(
            cls._encode_message_header(
                client_id, correlation_id, cls.OFFSET_FETCH_KEY, version=int(from_kafka)
            )
            + write_short_string(group)
            + cls._encode_topics(payloads, lambda payload: b"")
        )

    @classmethod
    def decode_offset_fetch_response(cls, data: bytes) -> Iterator[OffsetFetchResponse]:
        """Decode a response with committed offsets."""

        def decode(topic: bytes, cur: int) -> tuple[OffsetFetchResponse, int]:
            (partition, offset), cur = relative_unpack(">iq", data, cur)
            metadata, cur = read_short_string(data, cur)
            (error,), cur = relative_unpack(">h", data, cur)
            return OffsetFetchResponse(topic, partition, offset, metadata, error), cur

        return cls._decode_topics(data, decode)


def create_message(payload: bytes | None, key: bytes | None = None) -> Message:
    """Create a message without a codec."""
    return Message(0, 0, key, payload)


def create_gzip_message(
    payloads: Iterable[tuple[bytes | None, bytes | None] | bytes],
    key: bytes | None = None,
    compresslevel: int | None = None,
) -> Message:
    """Create one message that contains other messages, compressed with gzip.

    Parameters
    ----------
    payloads : iterable of (value, key) or bytes
        The messages. Bytes are a value without a key.
    key : bytes, optional
        The key of the outer message.
    compresslevel : int, optional
        1 to 9, by default 9.
    """
    return Message(0, CODEC_GZIP, key, gzip_encode(_encode_inner(payloads), compresslevel))


def create_snappy_message(
    payloads: Iterable[tuple[bytes | None, bytes | None] | bytes], key: bytes | None = None
) -> Message:
    """Create one message that contains other messages, compressed with snappy.

    See `create_gzip_message`.

    Raises
    ------
    NotImplementedError
        cramjam is not installed.
    """
    return Message(0, CODEC_SNAPPY, key, snappy_encode(_encode_inner(payloads)))


def _encode_inner(payloads: Iterable[tuple[bytes | None, bytes | None] | bytes]) -> bytes:
    # The documentation of 0.9.5 says bytes; its code accepted pairs.
    pairs = ((payload, None) if isinstance(payload, bytes) else payload for payload in payloads)
    return KafkaProtocol._encode_message_set(create_message(value, key) for value, key in pairs)


def create_message_set(
    messages: Iterable[tuple[bytes | None, bytes | None]],
    codec: int = CODEC_NONE,
    key: bytes | None = None,
    compresslevel: int | None = None,
) -> list[Message]:
    """Create the messages for a ProduceRequest.

    Parameters
    ----------
    messages : iterable of (value, key)
    codec : int
        CODEC_NONE, CODEC_GZIP or CODEC_SNAPPY.
    key : bytes, optional
        The key of the compressed message.
    compresslevel : int, optional
        1 to 9, by default 9. Only for gzip.

    Returns
    -------
    list of Message
        All messages, or one compressed message that contains them.

    Raises
    ------
    UnsupportedCodecError
        The codec is none of these.
    NotImplementedError
        The codec is CODEC_SNAPPY, and cramjam is not installed.
    """
    if codec == CODEC_NONE:
        # Skip Message.__new__, which is Python code and takes as long as all the rest.
        new = tuple.__new__
        return [new(Message, (0, 0, key, value)) for value, key in messages]
    if codec == CODEC_GZIP:
        return [create_gzip_message(messages, key, compresslevel)]
    if codec == CODEC_SNAPPY:
        return [create_snappy_message(messages, key)]
    raise UnsupportedCodecError(
        f"codec {codec!r}: expected CODEC_NONE (0), CODEC_GZIP (1) or CODEC_SNAPPY (2)"
    )
