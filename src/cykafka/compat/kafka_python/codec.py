"""The codecs of kafka-python 0.9.5: gzip, and snappy (with the package cramjam)."""

from __future__ import annotations

import gzip
import struct
import zlib
from types import ModuleType
from typing import TypeAlias

_Bytes: TypeAlias = bytes | bytearray | memoryview

# The header that the Java library snappy-java writes: its magic, its version, and the lowest
# version that can read the data.
_XERIAL_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)

# Snappy's densest element has 3 bytes and becomes 64 bytes.
_MOST_SNAPPY_RATIO = 22


def has_gzip() -> bool:
    """True: gzip is part of Python."""
    return True


def has_snappy() -> bool:
    """Whether cramjam is installed."""
    try:
        _cramjam()
    except NotImplementedError:
        return False
    return True


def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise NotImplementedError("snappy needs a package: pip install cramjam") from error
    return cramjam


def gzip_encode(payload: _Bytes, compresslevel: int | None = None) -> bytes:
    """Compress with gzip. The result does not contain a timestamp.

    Parameters
    ----------
    payload : bytes, bytearray or memoryview
    compresslevel : int, optional
        1 to 9. None and 0 mean 9.
    """
    return gzip.compress(payload, compresslevel or 9, mtime=0)


def gzip_decode(payload: _Bytes) -> bytes:
    """Decompress gzip data.

    Raises
    ------
    ValueError
        The data are damaged or incomplete.
    """
    try:
        return gzip.decompress(payload)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"cannot decompress gzip data: {error}") from error


def snappy_encode(
    payload: _Bytes, xerial_compatible: bool = False, xerial_blocksize: int = 32 * 1024
) -> bytes:
    """Compress with snappy.

    Parameters
    ----------
    payload : bytes, bytearray or memoryview
    xerial_compatible : bool
        Write snappy-java's format: a header of 16 bytes, then blocks. A block consists of a 4-byte
        size and the compressed data.
    xerial_blocksize : int
        The uncompressed bytes of a block.

    Raises
    ------
    NotImplementedError
        cramjam is not installed.
    ValueError
        `xerial_blocksize` is not positive.
    """
    compress = _cramjam().snappy.compress_raw
    data = memoryview(payload).cast("B")
    if not xerial_compatible:
        return bytes(compress(data))
    if xerial_blocksize < 1:
        raise ValueError(f"xerial_blocksize: expected a positive number, got {xerial_blocksize}")
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), xerial_blocksize):
        block = bytes(compress(data[start : start + xerial_blocksize]))
        parts += struct.pack(">i", len(block)), block
    return b"".join(parts)


def snappy_decode(payload: _Bytes) -> bytes:
    """Decompress snappy data, with or without snappy-java's blocks.

    Raises
    ------
    NotImplementedError
        cramjam is not installed.
    ValueError
        The data are damaged or incomplete.
    """
    cramjam = _cramjam()
    data = memoryview(payload).cast("B")
    # Raw snappy data cannot start with the header: after the size, the first element would be a
    # copy of earlier bytes.
    blocks = _xerial_blocks(data) if data[: len(_XERIAL_HEADER)] == _XERIAL_HEADER else [data]
    parts = []
    for block in blocks:
        try:
            # A wrong size must not allocate gigabytes.
            if cramjam.snappy.decompress_raw_len(block) > _MOST_SNAPPY_RATIO * len(block):
                raise ValueError("cannot decompress snappy data: the size in the data is wrong")
            parts.append(bytes(cramjam.snappy.decompress_raw(block)))
        except cramjam.DecompressionError as error:
            raise ValueError(f"cannot decompress snappy data: {error}") from error
    return b"".join(parts)


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    start = len(_XERIAL_HEADER)
    while start < len(data):
        end = start + 4
        if end <= len(data):
            (size,) = struct.unpack_from(">i", data, start)
            start, end = end, end + max(size, 0)  # cramjam rejects an empty block
        if end > len(data):
            raise ValueError(f"cannot decompress snappy data: no complete block at byte {start}")
        blocks.append(data[start:end])
        start = end
    return blocks
