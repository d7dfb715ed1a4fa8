"""The codecs of kafka-python 0.9.5."""

from __future__ import annotations

import gzip
import struct
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cykafka.compat.kafka_python import codec

pytestmark = pytest.mark.ours

# The header of snappy-java: a magic, the version, and the lowest compatible version.
HEADER = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01"
TYPES = [bytes, bytearray, memoryview]


def literal(data: bytes) -> bytes:
    """Snappy data with one uncompressed element, as the format describes it."""
    assert 0 < len(data) <= 60
    return bytes([len(data), (len(data) - 1) << 2]) + data


def block(data: bytes) -> bytes:
    encoded = literal(data)
    return struct.pack(">i", len(encoded)) + encoded


def test_has_gzip_is_true() -> None:
    assert codec.has_gzip() is True


@pytest.mark.parametrize("kind", TYPES)
def test_gzip_encode_writes_gzip_data(kind: Any) -> None:
    assert gzip.decompress(codec.gzip_encode(kind(b"payload" * 9))) == b"payload" * 9


def test_gzip_encode_has_no_time_stamp() -> None:
    assert codec.gzip_encode(b"payload")[4:8] == bytes(4)


def test_gzip_encode_compresses_by_the_level() -> None:
    data = b"".join(b"%d" % (i * i) for i in range(5000))

    assert codec.gzip_encode(data, 1) != codec.gzip_encode(data, 9)
    assert codec.gzip_encode(data) == codec.gzip_encode(data, 9) == codec.gzip_encode(data, 0)


@pytest.mark.parametrize("kind", TYPES)
def test_gzip_decode_reads_gzip_data(kind: Any) -> None:
    assert codec.gzip_decode(kind(gzip.compress(b"payload"))) == b"payload"
    assert codec.gzip_decode(kind(b"")) == b""


def test_gzip_decode_raises_for_cut_off_data() -> None:
    encoded = gzip.compress(b"payload" * 9)

    for length in range(1, len(encoded)):
        with pytest.raises(ValueError, match="cannot decompress gzip data"):
            codec.gzip_decode(encoded[:length])


@pytest.mark.parametrize("position", [0, 12, -8, -1])
def test_gzip_decode_raises_for_damaged_data(position: int) -> None:
    encoded = bytearray(gzip.compress(b"payload" * 9))
    encoded[position] ^= 0xFF

    with pytest.raises(ValueError, match="cannot decompress gzip data"):
        codec.gzip_decode(encoded)


@given(st.binary(max_size=40))
def test_gzip_decode_raises_only_value_error(data: bytes) -> None:
    for item in (data, gzip.compress(b"")[:10] + data):
        with suppress(ValueError):
            assert isinstance(codec.gzip_decode(item), bytes)


@pytest.mark.parametrize("kind", TYPES)
def test_snappy_decode_reads_raw_data(kind: Any) -> None:
    assert codec.snappy_decode(kind(literal(b"payload"))) == b"payload"
    assert codec.snappy_decode(kind(b"\0")) == b""


@pytest.mark.parametrize("kind", TYPES)
def test_snappy_decode_reads_blocks_of_snappy_java(kind: Any) -> None:
    assert codec.snappy_decode(kind(HEADER + block(b"pay") + block(b"load"))) == b"payload"
    assert codec.snappy_decode(kind(HEADER)) == b""


@pytest.mark.parametrize("kind", TYPES)
def test_snappy_encode_writes_raw_data(kind: Any) -> None:
    # The size of 300 as a varint, a literal of 6 bytes, then copies from 6 bytes before.
    copies = b"\xfe\x06\0" * 4 + b"\x96\x06\0"
    assert codec.snappy_encode(kind(b"SNAPPY" * 50)) == b"\xac\x02\x14SNAPPY" + copies


@pytest.mark.parametrize("kind", TYPES)
def test_snappy_encode_writes_blocks_for_snappy_java(kind: Any) -> None:
    encoded = codec.snappy_encode(kind(b"abcdefgh"), xerial_compatible=True, xerial_blocksize=3)

    assert encoded == HEADER + block(b"abc") + block(b"def") + block(b"gh")


def test_snappy_encode_has_blocks_of_32_kib() -> None:
    encoded = codec.snappy_encode(bytes(2 * 32768 + 1), xerial_compatible=True)
    sizes = []
    start = len(HEADER)
    while start < len(encoded):
        (length,) = struct.unpack_from(">i", encoded, start)
        sizes.append(len(codec.snappy_decode(encoded[start + 4 : start + 4 + length])))
        start += 4 + length

    assert sizes == [32768, 32768, 1]


@pytest.mark.parametrize("size", [0, -1])
def test_snappy_encode_raises_for_a_block_size_that_is_not_positive(size: int) -> None:
    with pytest.raises(ValueError, match="xerial_blocksize"):
        codec.snappy_encode(b"a", xerial_compatible=True, xerial_blocksize=size)


@given(st.binary(max_size=200).map(lambda data: data * 7), st.booleans(), st.integers(1, 99))
def test_snappy_decode_reads_what_snappy_encode_wrote(
    data: bytes, xerial: bool, size: int
) -> None:
    assert codec.snappy_decode(codec.snappy_encode(data, xerial, size)) == data


def test_snappy_decode_reads_data_of_the_highest_ratio() -> None:
    data = bytes(1_000_000)

    assert codec.snappy_decode(codec.snappy_encode(data)) == data


def test_snappy_decode_raises_for_cut_off_data() -> None:
    raw, blocks = literal(b"payload"), HEADER + block(b"pay")

    for length in range(len(raw)):
        with pytest.raises(ValueError, match="cannot decompress snappy data"):
            codec.snappy_decode(raw[:length])
    for length in range(len(HEADER) + 1, len(blocks)):
        with pytest.raises(ValueError, match="cannot decompress snappy data"):
            codec.snappy_decode(blocks[:length])


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1])
def test_snappy_decode_raises_for_a_wrong_block_size(size: int) -> None:
    for following in (b"", literal(b"payload")):
        with pytest.raises(ValueError, match="cannot decompress snappy data"):
            codec.snappy_decode(HEADER + struct.pack(">i", size) + following)


def test_snappy_decode_raises_for_a_false_size_before_it_allocates() -> None:
    with pytest.raises(ValueError, match="the size in the data is wrong"):
        codec.snappy_decode(b"\xff\xff\xff\xff\x0f" + literal(b"payload"))


@given(st.binary(max_size=40), st.booleans())
def test_snappy_decode_raises_only_value_error(data: bytes, xerial: bool) -> None:
    with suppress(ValueError):
        assert isinstance(codec.snappy_decode(HEADER + data if xerial else data), bytes)


def test_has_snappy_is_true_with_cramjam() -> None:
    assert codec.has_snappy() is True


def test_snappy_raises_without_cramjam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)

    assert codec.has_snappy() is False
    with pytest.raises(NotImplementedError, match="pip install cramjam"):
        codec.snappy_encode(b"a")
    with pytest.raises(NotImplementedError, match="pip install cramjam"):
        codec.snappy_decode(literal(b"a"))


def test_codecs_raise_for_text() -> None:
    with pytest.raises(TypeError):
        codec.gzip_encode("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        codec.gzip_decode("text")  # type: ignore[arg-type]
