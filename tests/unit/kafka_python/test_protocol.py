"""Kafka's wire protocol as of version 0.8.

The expected bytes come from the encoder below, which follows the protocol's specification.
"""

from __future__ import annotations

import gzip
import struct
import sys
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cykafka.compat.kafka_python import protocol
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
from cykafka.compat.kafka_python.protocol import (
    CODEC_GZIP,
    CODEC_NONE,
    CODEC_SNAPPY,
    KafkaProtocol,
    create_gzip_message,
    create_message,
    create_message_set,
    create_snappy_message,
)

pytestmark = pytest.mark.ours

BAD_DATA = (BufferUnderflowError, ConsumerFetchSizeTooSmall, ChecksumError, ProtocolError)


# The types of the specification.


def int8(value: int) -> bytes:
    return value.to_bytes(1, "big", signed=True)


def int16(value: int) -> bytes:
    return value.to_bytes(2, "big", signed=True)


def int32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def int64(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def string(value: bytes | None) -> bytes:
    return int16(-1) if value is None else int16(len(value)) + value


def data(value: bytes | None) -> bytes:
    return int32(-1) if value is None else int32(len(value)) + value


def array(*items: bytes) -> bytes:
    return int32(len(items)) + b"".join(items)


def request(key: int, version: int, body: bytes) -> bytes:
    """A request with the correlation id 42 of the client "me"."""
    return data(int16(key) + int16(version) + int32(42) + string(b"me") + body)


def message_body(
    value: bytes | None,
    key: bytes | None = None,
    attributes: int = 0,
    magic: int = 0,
) -> bytes:
    time = int64(1234567890123) if magic == 1 else b""
    body = int8(magic) + int8(attributes) + time + data(key) + data(value)
    return struct.pack(">I", zlib.crc32(body)) + body


def message(offset: int, *args: Any, **kwargs: Any) -> bytes:
    return int64(offset) + data(message_body(*args, **kwargs))


def decoded(encoded: bytes) -> list[OffsetAndMessage]:
    return list(KafkaProtocol._decode_message_set_iter(encoded))


def test_constants_are_those_of_the_original() -> None:
    assert protocol.ATTRIBUTE_CODEC_MASK == 3
    assert (CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY) == protocol.ALL_CODECS == (0, 1, 2)
    keys = {name: key for name, key in vars(KafkaProtocol).items() if name.endswith("_KEY")}
    assert keys == {
        "PRODUCE_KEY": 0,
        "FETCH_KEY": 1,
        "OFFSET_KEY": 2,
        "METADATA_KEY": 3,
        "OFFSET_COMMIT_KEY": 8,
        "OFFSET_FETCH_KEY": 9,
        "CONSUMER_METADATA_KEY": 10,
    }


# Messages


@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"value"])
def test_message_is_encoded_and_decoded(value: bytes | None, key: bytes | None) -> None:
    made = create_message(value, key)

    assert made == Message(0, 0, key, value)
    assert KafkaProtocol._encode_message(made) == message_body(value, key)
    assert KafkaProtocol._encode_message_set([made] * 2) == message(0, value, key) * 2
    assert list(KafkaProtocol._decode_message(message_body(value, key), 7)) == [(7, made)]


def test_encoded_message_has_the_bytes_of_the_specification() -> None:
    # By hand: CRC, magic 0, no attributes, the key "key", the value "test".
    expected = bytes.fromhex("aaf1 8f5b 00 00 00000003 6b6579 00000004 74657374")

    assert KafkaProtocol._encode_message(create_message(b"test", b"key")) == expected


def test_encode_message_writes_attributes() -> None:
    assert KafkaProtocol._encode_message(Message(0, 2, None, b"v")) == message_body(b"v", None, 2)


def test_encode_message_raises_for_another_magic() -> None:
    with pytest.raises(ProtocolError, match="magic 1"):
        KafkaProtocol._encode_message(Message(1, 0, None, b"v"))


def test_encode_message_raises_for_text() -> None:
    with pytest.raises(TypeError):
        KafkaProtocol._encode_message(Message(0, 0, None, "text"))  # type: ignore[arg-type]


def test_message_set_is_decoded_with_its_offsets() -> None:
    encoded = message(5, b"a") + message(8, b"b", b"k")

    assert decoded(encoded) == [
        OffsetAndMessage(5, Message(0, 0, None, b"a")),
        OffsetAndMessage(8, Message(0, 0, b"k", b"b")),
    ]
    assert all(isinstance(item, OffsetAndMessage) for item in decoded(encoded))
    assert decoded(b"") == []


def test_cut_off_message_ends_the_message_set() -> None:
    first, second = message(5, b"first"), message(6, b"second")

    for length in range(1, len(first)):
        with pytest.raises(ConsumerFetchSizeTooSmall):
            decoded(first[:length])
    for length in range(len(second)):
        assert [item.offset for item in decoded(first + second[:length])] == [5]
    assert [item.offset for item in decoded(first + second)] == [5, 6]


def test_every_damaged_byte_of_a_message_is_found() -> None:
    encoded = message_body(b"value", b"key")

    for position in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[position] ^= 0x01
        with pytest.raises(ChecksumError, match="offset 9"):
            list(KafkaProtocol._decode_message(bytes(damaged), 9))


def test_messages_before_a_damaged_one_are_returned() -> None:
    messages = KafkaProtocol._decode_message_set_iter(
        message(1, b"a") + message(2, b"value")[:-1] + b"!"
    )

    assert next(messages).offset == 1
    with pytest.raises(ChecksumError):
        next(messages)


def test_message_with_a_wrong_length_inside_is_malformed() -> None:
    body = int8(0) + int8(0) + int32(-1) + int32(100) + b"short"
    encoded = int64(0) + data(struct.pack(">I", zlib.crc32(body)) + body)

    with pytest.raises(BufferUnderflowError):
        decoded(encoded)


@pytest.mark.parametrize("length", [-1, 0, 5])
def test_message_that_is_too_short_is_malformed(length: int) -> None:
    with pytest.raises(BufferUnderflowError):
        decoded(int64(0) + int32(length) + bytes(max(length, 0)))


def test_message_of_magic_1_is_decoded() -> None:
    assert decoded(message(3, b"v", b"k", magic=1)) == [
        OffsetAndMessage(3, Message(1, 0, b"k", b"v"))
    ]


def test_message_of_magic_2_raises() -> None:
    with pytest.raises(ProtocolError, match="magic 2"):
        decoded(message(3, b"v", magic=2))


def test_message_of_another_codec_raises() -> None:
    with pytest.raises(UnsupportedCodecError, match="codec 3"):
        decoded(message(3, b"v", attributes=3))


@pytest.mark.parametrize("codec", [CODEC_GZIP, CODEC_SNAPPY])
def test_compressed_messages_are_decoded(codec: int) -> None:
    inner = message(5, b"a") + message(6, b"b", b"k")
    encoded = message(6, compressed(codec, inner), attributes=codec) + message(7, b"c")

    assert decoded(encoded) == [
        OffsetAndMessage(5, Message(0, 0, None, b"a")),
        OffsetAndMessage(6, Message(0, 0, b"k", b"b")),
        OffsetAndMessage(7, Message(0, 0, None, b"c")),
    ]


@pytest.mark.parametrize("codec", [CODEC_GZIP, CODEC_SNAPPY])
def test_compressed_messages_of_magic_1_have_relative_offsets(codec: int) -> None:
    # Compaction removed the message in the middle.
    inner = message(0, b"a", magic=1) + message(2, b"c", magic=1)
    encoded = message(12, compressed(codec, inner), attributes=codec, magic=1)

    assert [(item.offset, item.message.value) for item in decoded(encoded)] == [
        (10, b"a"),
        (12, b"c"),
    ]


@pytest.mark.parametrize(
    "value", [b"not compressed", gzip.compress(b"...")[:-1]], ids=["plain", "cut"]
)
@pytest.mark.parametrize("codec", [CODEC_GZIP, CODEC_SNAPPY])
def test_damaged_compressed_message_raises(codec: int, value: bytes) -> None:
    with pytest.raises(ProtocolError, match="offset 6 is damaged"):
        decoded(message(6, value, attributes=codec))


def test_too_many_messages_inside_of_each_other() -> None:
    encoded = message(0, b"x")
    for _ in range(sys.getrecursionlimit()):
        encoded = message(0, gzip.compress(encoded, 1), attributes=CODEC_GZIP)
    with pytest.raises(ProtocolError, match="too many nested messages"):
        decoded(encoded)


def test_compressed_message_without_value_has_no_messages() -> None:
    encoded = message(6, None, attributes=CODEC_GZIP) + message(7, b"a")

    assert [item.offset for item in decoded(encoded)] == [7]


def compressed(codec: int, encoded: bytes) -> bytes:
    if codec == CODEC_GZIP:
        return gzip.compress(encoded)
    return bytes(cramjam.snappy.compress_raw(encoded))


def decompressed(codec: int, encoded: bytes) -> bytes:
    if codec == CODEC_GZIP:
        return gzip.decompress(encoded)
    return bytes(cramjam.snappy.decompress_raw(encoded))


@pytest.mark.parametrize(
    ("codec", "create"), [(CODEC_GZIP, create_gzip_message), (CODEC_SNAPPY, create_snappy_message)]
)
def test_compressed_message_has_the_others(codec: int, create: Callable[..., Message]) -> None:
    made = create([(b"a", None), (b"b", b"k"), b"cd"], b"outer")

    assert (made.magic, made.attributes, made.key) == (0, codec, b"outer")
    assert made.value is not None
    inner = message(0, b"a") + message(0, b"b", b"k") + message(0, b"cd")
    assert decompressed(codec, made.value) == inner
    assert create_message_set([(b"a", None), (b"b", b"k"), b"cd"], codec, b"outer") == [  # type: ignore[list-item]
        made
    ]


def test_create_message_set_passes_the_compression_level() -> None:
    pairs = [(b"%d" % (i * i), None) for i in range(999)]

    def value(level: int | None) -> bytes | None:
        (made,) = create_message_set(pairs, CODEC_GZIP, compresslevel=level)
        return made.value

    assert value(1) != value(9) == value(None)


@pytest.mark.parametrize("pairs", [[], [(b"a", None)], [(b"a", b"k"), (None, b"l")]])
def test_create_message_set_makes_messages(pairs: list[tuple[bytes, bytes]]) -> None:
    made = create_message_set(pairs)

    assert made == [Message(0, 0, key, value) for value, key in pairs]
    assert all(type(item) is Message for item in made)
    assert create_message_set(iter(pairs)) == made


@pytest.mark.parametrize("codec", [-1, 3, 4, None])
def test_create_message_set_raises_for_another_codec(codec: Any) -> None:
    with pytest.raises(UnsupportedCodecError, match=f"codec {codec}: expected CODEC_NONE"):
        create_message_set([(b"a", None)], codec)


# Requests


def test_produce_request_has_topics_partitions_and_messages() -> None:
    payloads = [
        ProduceRequest(b"t", 1, [create_message(b"a"), create_message(b"b", b"k")]),
        ProduceRequest(b"u", 0, []),
        ProduceRequest(b"t", 0, [create_message(None)]),
    ]
    expected = request(
        0,
        0,
        int16(-1)
        + int32(2000)
        + array(
            string(b"t")
            + array(
                int32(1) + data(message(0, b"a") + message(0, b"b", b"k")),
                int32(0) + data(message(0, None)),
            ),
            string(b"u") + array(int32(0) + data(b"")),
        ),
    )

    assert KafkaProtocol.encode_produce_request(b"me", 42, payloads, -1, 2000) == expected


def test_fetch_request_has_positions_and_sizes() -> None:
    payloads = [FetchRequest(b"t", 1, 2**40, 1000), FetchRequest(b"t", 0, 5, 2000)]
    partitions = array(int32(1) + int64(2**40) + int32(1000), int32(0) + int64(5) + int32(2000))
    expected = int32(-1) + int32(7) + int32(8) + array(string(b"t") + partitions)

    encoded = KafkaProtocol.encode_fetch_request(b"me", 42, payloads, 7, 8)

    assert encoded == request(1, 0, expected)


def test_offset_request_has_times() -> None:
    payloads = [OffsetRequest(b"t", 1, -2, 3)]
    expected = int32(-1) + array(string(b"t") + array(int32(1) + int64(-2) + int32(3)))

    assert KafkaProtocol.encode_offset_request(b"me", 42, payloads) == request(2, 0, expected)


@pytest.mark.parametrize("topics", [(), (b"t",), (b"t", b"u")])
def test_metadata_request_has_topics(topics: tuple[bytes, ...]) -> None:
    expected = request(3, 0, array(*map(string, topics)))

    assert KafkaProtocol.encode_metadata_request(b"me", 42, topics) == expected
    assert KafkaProtocol.encode_metadata_request(b"me", 42, [b"other"], topics) == expected


def test_consumer_metadata_request_has_the_group() -> None:
    expected = request(10, 0, string(b"group"))

    assert KafkaProtocol.encode_consumer_metadata_request(b"me", 42, b"group") == expected


def test_offset_commit_request_has_offsets_and_metadata() -> None:
    payloads = [OffsetCommitRequest(b"t", 1, 9, None), OffsetCommitRequest(b"t", 2, 8, b"meta")]
    partitions = array(
        int32(1) + int64(9) + string(None),
        int32(2) + int64(8) + string(b"meta"),
    )
    expected = request(8, 0, string(b"group") + array(string(b"t") + partitions))

    encoded = KafkaProtocol.encode_offset_commit_request(b"me", 42, b"group", payloads)

    assert encoded == expected


@pytest.mark.parametrize(("from_kafka", "version"), [(False, 0), (True, 1)])
def test_offset_fetch_request_has_a_version_by_the_storage(from_kafka: bool, version: int) -> None:
    payloads = [OffsetFetchRequest(b"t", 1), OffsetFetchRequest(b"u", 2)]
    topics = array(string(b"t") + array(int32(1)), string(b"u") + array(int32(2)))

    encoded = KafkaProtocol.encode_offset_fetch_request(b"me", 42, b"group", payloads, from_kafka)

    assert encoded == request(9, version, string(b"group") + topics)


def test_requests_have_defaults() -> None:
    nothing = array()

    assert KafkaProtocol.encode_produce_request(b"me", 42) == request(
        0, 0, int16(1) + int32(1000) + nothing
    )
    assert KafkaProtocol.encode_fetch_request(b"me", 42) == request(
        1, 0, int32(-1) + int32(100) + int32(4096) + nothing
    )
    assert KafkaProtocol.encode_offset_request(b"me", 42) == request(2, 0, int32(-1) + nothing)
    assert KafkaProtocol.encode_metadata_request(b"me", 42) == request(3, 0, nothing)


def test_requests_raise_for_text_and_duplicates() -> None:
    with pytest.raises(TypeError):
        KafkaProtocol.encode_metadata_request(b"me", 42, ["topic"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        KafkaProtocol.encode_metadata_request("me", 42)  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        KafkaProtocol.encode_offset_request(b"me", 42, [OffsetRequest(b"t", 1, -2, 3)] * 2)


# Responses

META = [
    TopicMetadata(
        b"t",
        0,
        [
            PartitionMetadata(b"t", 0, 1, (1, 2), (1,), 0),
            PartitionMetadata(b"t", 1, -1, (), (), 5),
        ],
    ),
    TopicMetadata(b"u", 3, []),
]


def fetch_responses(encoded: bytes) -> list[FetchResponse]:
    """Decode a fetch response together with its messages."""
    return [
        item._replace(messages=list(item.messages))
        for item in KafkaProtocol.decode_fetch_response(encoded)
    ]


def listed(decode: Callable[[bytes], Iterable[Any]]) -> Callable[[bytes], list[Any]]:
    return lambda encoded: list(decode(encoded))


RESPONSES: dict[str, tuple[Callable[[bytes], Any], bytes, Any]] = {
    "produce": (
        listed(KafkaProtocol.decode_produce_response),
        array(
            string(b"t")
            + array(int32(0) + int16(0) + int64(2**40), int32(1) + int16(6) + int64(-1)),
            string(b"u") + array(int32(2) + int16(0) + int64(7)),
        ),
        [
            ProduceResponse(b"t", 0, 0, 2**40),
            ProduceResponse(b"t", 1, 6, -1),
            ProduceResponse(b"u", 2, 0, 7),
        ],
    ),
    "fetch": (
        fetch_responses,
        array(
            string(b"t")
            + array(
                int32(0) + int16(0) + int64(9) + data(message(5, b"a") + message(6, b"b", b"k")),
                int32(1) + int16(1) + int64(-1) + data(None),
            )
        ),
        [
            FetchResponse(
                b"t",
                0,
                0,
                9,
                [
                    OffsetAndMessage(5, Message(0, 0, None, b"a")),
                    OffsetAndMessage(6, Message(0, 0, b"k", b"b")),
                ],
            ),
            FetchResponse(b"t", 1, 1, -1, []),
        ],
    ),
    "offset": (
        listed(KafkaProtocol.decode_offset_response),
        array(
            string(b"t")
            + array(
                int32(0) + int16(0) + array(int64(9), int64(4)),
                int32(1) + int16(3) + array(),
            )
        ),
        [OffsetResponse(b"t", 0, 0, (9, 4)), OffsetResponse(b"t", 1, 3, ())],
    ),
    "metadata": (
        KafkaProtocol.decode_metadata_response,
        array(int32(1) + string(b"host") + int32(9092), int32(2) + string(b"b") + int32(9093))
        + array(
            int16(0)
            + string(b"t")
            + array(
                int16(0) + int32(0) + int32(1) + array(int32(1), int32(2)) + array(int32(1)),
                int16(5) + int32(1) + int32(-1) + array() + array(),
            ),
            int16(3) + string(b"u") + array(),
        ),
        MetadataResponse([BrokerMetadata(1, b"host", 9092), BrokerMetadata(2, b"b", 9093)], META),
    ),
    "consumer metadata": (
        KafkaProtocol.decode_consumer_metadata_response,
        int16(0) + int32(3) + string(b"host") + int32(9092),
        ConsumerMetadataResponse(0, 3, b"host", 9092),
    ),
    "offset commit": (
        listed(KafkaProtocol.decode_offset_commit_response),
        array(string(b"t") + array(int32(0) + int16(0), int32(1) + int16(12))),
        [OffsetCommitResponse(b"t", 0, 0), OffsetCommitResponse(b"t", 1, 12)],
    ),
    "offset fetch": (
        listed(KafkaProtocol.decode_offset_fetch_response),
        array(
            string(b"t")
            + array(
                int32(0) + int64(5) + string(b"meta") + int16(0),
                int32(1) + int64(-1) + string(None) + int16(3),
            )
        ),
        [
            OffsetFetchResponse(b"t", 0, 5, b"meta", 0),
            OffsetFetchResponse(b"t", 1, -1, None, 3),
        ],
    ),
}


@pytest.fixture(params=RESPONSES)
def response(request: pytest.FixtureRequest) -> tuple[Callable[[bytes], Any], bytes, Any]:
    """A method that decodes, an encoded response, and the expected structs."""
    decode, body, expected = RESPONSES[request.param]
    return decode, int32(42) + body, expected


Response = tuple[Callable[[bytes], Any], bytes, Any]


def test_response_is_decoded(response: Response) -> None:
    decode, encoded, expected = response

    assert decode(encoded) == expected


def test_response_that_is_cut_off_raises(response: Response) -> None:
    decode, encoded, _ = response

    for length in range(len(encoded)):
        with pytest.raises(BufferUnderflowError):
            decode(encoded[:length])


def test_response_with_damaged_bytes_raises_only_its_errors(response: Response) -> None:
    decode, encoded, _ = response
    raised = 0

    for position in range(len(encoded)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(encoded)
            damaged[position] = value
            try:
                decode(bytes(damaged))
            except BAD_DATA:
                raised += 1

    assert raised


@given(st.sampled_from(sorted(RESPONSES)), st.binary(max_size=60))
def test_random_bytes_raise_only_the_errors_of_the_protocol(name: str, encoded: bytes) -> None:
    decode = RESPONSES[name][0]
    try:
        decode(encoded)
        decode(int32(42) + int32(1) + encoded)
    except BAD_DATA:
        pass


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))),
    st.sampled_from([CODEC_NONE, CODEC_GZIP]),
)
def test_messages_survive_the_wire(
    pairs: list[tuple[bytes | None, bytes | None]], codec: int
) -> None:
    encoded = KafkaProtocol._encode_message_set(create_message_set(pairs, codec))

    assert [(item.message.value, item.message.key) for item in decoded(encoded)] == pairs
