"""The wire format of Schema Registry for single records: how a record names its schema.

A value begins with a zero byte and the schema's id in four bytes, or a header of the record has a
byte of one and the schema's GUID. For Protobuf the message's indexes in its file follow.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Any
from uuid import UUID

from cykafka.serialization import MessageField, SerializationContext, SerializationError

__all__ = [
    "FIRST_MESSAGE",
    "GUID_BYTES",
    "ID_BYTES",
    "SchemaId",
    "dual_schema_id_deserializer",
    "frame_guid",
    "frame_id",
    "frame_indexes",
    "header_name",
    "header_schema_id_serializer",
    "prefix_schema_id_deserializer",
    "prefix_schema_id_serializer",
    "schema_header",
    "split_frame",
    "split_indexes",
]

_ID = struct.Struct(">BI")
# The sizes of what `frame_id` and `frame_guid` return.
ID_BYTES, GUID_BYTES = 5, 17
_MOST_INDEXES = 100
# The indexes of the first message in a file, which are encoded as one zero byte.
FIRST_MESSAGE = (0,)


def frame_id(schema_id: int) -> bytes:
    """Return the five bytes before a value that was written with a schema.

    Raises
    ------
    SerializationError
        The registry returned an id that four bytes cannot hold.
    """
    if not 0 <= schema_id < 1 << 32:
        raise SerializationError(f"the schema id {schema_id} does not fit into four bytes")
    return _ID.pack(0, schema_id)


def frame_guid(guid: UUID) -> bytes:
    """Return the 17 bytes of a record's header for a schema."""
    return b"\1" + guid.bytes


def split_frame(data: bytes) -> tuple[int | UUID, int]:
    """Return the id or the GUID that bytes begin with, and the offset of what follows.

    Raises
    ------
    SerializationError
        The first byte is neither 0 nor 1, or the bytes end early.
    """
    if len(data) >= ID_BYTES and data[0] == 0:
        return int.from_bytes(data[1:ID_BYTES], "big"), ID_BYTES
    if len(data) >= GUID_BYTES and data[0] == 1:
        return UUID(bytes=bytes(data[1:GUID_BYTES])), GUID_BYTES
    if len(data) == 0 or data[0] in (0, 1):
        raise SerializationError(f"{len(data)} bytes are too few for a schema id")
    raise SerializationError(
        f"unknown magic byte {data[0]}: the value was not written with a schema registry"
    )


def frame_indexes(indexes: Sequence[int]) -> bytes:
    """Return the bytes for a Protobuf message's indexes."""
    if tuple(indexes) == FIRST_MESSAGE:
        return b"\0"
    return b"".join(map(_varint, (len(indexes), *indexes)))


def split_indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the Protobuf message's indexes at an offset, and the offset of what follows.

    Raises
    ------
    SerializationError
        The indexes end early, or are not valid.
    """
    count, place = _zigzag(data, start)
    if count == 0:
        return FIRST_MESSAGE, place
    if not 0 < count <= _MOST_INDEXES:
        raise SerializationError(f"{count} indexes of a message, expected 1 to {_MOST_INDEXES}")
    indexes = []
    for _ in range(count):
        index, place = _zigzag(data, place)
        if index < 0:
            raise SerializationError(f"a message's index is {index}")
        indexes.append(index)
    return tuple(indexes), place


def _zigzag(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        if place >= len(data):
            raise SerializationError("the value ends within its message's indexes")
        octet = data[place]
        place += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (number >> 1) ^ -(number & 1), place
    raise SerializationError("a message's index has more than 64 bits")


def _varint(number: int) -> bytes:
    number <<= 1
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


class SchemaId:
    """The schema of a record, for the functions ``schema.id.serializer`` and
    ``schema.id.deserializer``.

    Parameters
    ----------
    schema_type : str
        ``AVRO``, ``PROTOBUF`` or ``JSON``.
    schema_id : int, optional
        The registry's id; the attribute is `id`.
    guid : str, optional
        The schema's GUID; the attribute is a UUID.
    message_indexes : list of int, optional
        Protobuf: the message's indexes.
    """

    __slots__ = ("guid", "id", "message_indexes", "schema_type")

    def __init__(
        self,
        schema_type: str,
        schema_id: int | None = None,
        guid: str | None = None,
        message_indexes: list[int] | None = None,
    ) -> None:
        self.schema_type = schema_type
        self.id = schema_id
        self.guid = UUID(guid) if guid is not None else None
        self.message_indexes = message_indexes

    def from_bytes(self, payload: BytesIO) -> BytesIO:
        """Read the id or the GUID, and the indexes; return the stream at what follows.

        Raises
        ------
        SerializationError
        """
        data = payload.read()
        payload.seek(len(payload.getvalue()) - len(data) + self.read(data))
        return payload

    def read(self, data: bytes) -> int:
        """Read the id or the GUID, and the indexes; return the offset of what follows.

        Raises
        ------
        SerializationError
        """
        found, start = split_frame(data)
        if isinstance(found, UUID):
            self.guid = found
        else:
            self.id = found
        if self.schema_type == "PROTOBUF":
            indexes, start = split_indexes(data, start)
            self.message_indexes = list(indexes)
        return start

    def id_to_bytes(self) -> bytes:
        """Return the bytes before a value. Raises SerializationError without an id."""
        if self.id is None:
            raise SerializationError("the schema has no id")
        return frame_id(self.id) + self._indexes()

    def guid_to_bytes(self) -> bytes:
        """Return a header's bytes. Raises SerializationError without a GUID."""
        if self.guid is None:
            raise SerializationError("the schema has no GUID: the registry returned none")
        return frame_guid(self.guid) + self._indexes()

    def _indexes(self) -> bytes:
        return b"" if self.message_indexes is None else frame_indexes(self.message_indexes)


def header_name(field: str) -> str:
    """Return the name of the header for the schema of a key or a value."""
    return "__key_schema_id" if field == MessageField.KEY else "__value_schema_id"


def schema_header(ctx: SerializationContext | None) -> Any:
    """Return the header of a record that names its schema, or None.

    A program that copies a record's headers adds a second one. The last one counts, as in Java and
    in batches.
    """
    headers = None if ctx is None else ctx.headers
    if not headers or ctx is None:
        return None
    name = header_name(ctx.field)
    if isinstance(headers, dict):
        return headers.get(name)
    return next((value for key, value in reversed(list(headers)) if key == name), None)


def prefix_schema_id_serializer(
    payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId
) -> bytes:
    """Put the schema's id before the value. This is the default ``schema.id.serializer``."""
    return schema_id.id_to_bytes() + payload


def header_schema_id_serializer(
    payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId
) -> bytes:
    """Put the schema's GUID into a header, and return the value as it is.

    The header is ``__key_schema_id`` or ``__value_schema_id``.

    Raises
    ------
    SerializationError
        The record has no headers to add to, or the registry has no GUIDs.
    """
    headers = None if ctx is None else ctx.headers
    if ctx is None or headers is None:
        raise SerializationError(
            "header_schema_id_serializer needs headers: pass a list or a dict to produce()"
        )
    if isinstance(headers, dict):
        headers[header_name(ctx.field)] = schema_id.guid_to_bytes()
    elif isinstance(headers, list):
        headers.append((header_name(ctx.field), schema_id.guid_to_bytes()))
    else:
        raise SerializationError(
            f"headers: expected a list or a dict, got {type(headers).__name__}"
        )
    return payload


def dual_schema_id_deserializer(
    payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId
) -> BytesIO:
    """Read the schema's id from the header or, without one, from the value's beginning.

    This is the default ``schema.id.deserializer``. It returns the rest of the value.
    """
    header = schema_header(ctx)
    if header is None:
        return schema_id.from_bytes(BytesIO(payload))
    schema_id.read(header)
    return BytesIO(payload)


def prefix_schema_id_deserializer(
    payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId
) -> BytesIO:
    """Read the schema's id from the value's beginning, and return the rest of the value."""
    return schema_id.from_bytes(BytesIO(payload))
