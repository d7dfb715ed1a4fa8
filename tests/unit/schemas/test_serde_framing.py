"""How single records name their schemas."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from uuid import UUID

import pytest

from cykafka.schemas.model.framing import (
    SchemaId,
    dual_schema_id_deserializer,
    frame_guid,
    frame_id,
    frame_indexes,
    header_schema_id_serializer,
    prefix_schema_id_deserializer,
    prefix_schema_id_serializer,
    split_frame,
    split_indexes,
)
from cykafka.serialization import SerializationContext, SerializationError

pytestmark = pytest.mark.ours

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


def test_frame_of_an_id() -> None:
    assert frame_id(0x01020304) == b"\0\1\2\3\4"
    assert split_frame(b"\0\xff\xff\xff\xff...") == (2**32 - 1, 5)


@pytest.mark.parametrize("number", [-1, 2**32])
def test_an_id_of_more_than_four_bytes_is_an_error(number: int) -> None:
    with pytest.raises(SerializationError, match=f"{number} does not fit into four bytes"):
        frame_id(number)


def test_frame_of_a_guid() -> None:
    assert frame_guid(GUID) == b"\1" + GUID.bytes
    assert split_frame(frame_guid(GUID)) == (GUID, 17)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes are too few"),
        (b"\0\0\0\0", "4 bytes are too few"),
        (b"\1" + bytes(15), "16 bytes are too few"),
        (b"\7\0\0\0\1x", "unknown magic byte 7"),
        (b'{"a": 1}', "unknown magic byte 123"),
    ],
)
def test_frame_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(SerializationError, match=words):
        split_frame(data)


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (300, 2, 64), tuple(range(100))])
def test_indexes_go_through(indexes: tuple[int, ...]) -> None:
    data = frame_indexes(indexes)

    assert split_indexes(b"?" + data + b"rest", 1) == (indexes, 1 + len(data))


def test_indexes_of_the_first_message_are_one_byte() -> None:
    assert frame_indexes([0]) == b"\0"
    assert split_indexes(b"\2\0", 0) == ((0,), 2)  # the long form is valid


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "ends within"),
        (b"\x04\x02", "ends within"),
        (b"\x80" * 5, "ends within"),
        (b"\xff" * 11, "more than 64 bits"),
        (b"\1", "-1 indexes"),
        (b"\x80\x10", "1024 indexes"),
        (b"\2\1", "index is -1"),
    ],
)
def test_indexes_are_wrong(data: bytes, words: str) -> None:
    with pytest.raises(SerializationError, match=words):
        split_indexes(data, 0)


def test_schema_id_is_read_from_a_stream() -> None:
    schema_id = SchemaId("PROTOBUF")

    rest = schema_id.from_bytes(BytesIO(b"\0\0\0\0\5\4\2\0payload"))

    assert (schema_id.id, schema_id.guid, schema_id.message_indexes) == (5, None, [1, 0])
    assert rest.read() == b"payload"


def test_schema_id_writes_what_it_has() -> None:
    schema_id = SchemaId("PROTOBUF", 5, str(GUID), [1])

    assert schema_id.id_to_bytes() == b"\0\0\0\0\5\2\2"
    assert schema_id.guid_to_bytes() == b"\1" + GUID.bytes + b"\2\2"
    assert prefix_schema_id_serializer(b"x", None, schema_id) == b"\0\0\0\0\5\2\2x"
    with pytest.raises(SerializationError, match="no id"):
        SchemaId("AVRO").id_to_bytes()
    with pytest.raises(SerializationError, match="no GUID"):
        SchemaId("AVRO", 5).guid_to_bytes()


@pytest.mark.parametrize("headers", [[("h", b"1")], {"h": b"1"}])
@pytest.mark.parametrize("field", ["key", "value"])
def test_header_names_the_schema(headers: Any, field: Any) -> None:
    ctx = SerializationContext("topic", field, headers)

    assert header_schema_id_serializer(b"data", ctx, SchemaId("AVRO", 5, str(GUID))) == b"data"

    assert dict(headers)[f"__{field}_schema_id"] == frame_guid(GUID)
    found = SchemaId("AVRO")
    assert dual_schema_id_deserializer(b"data", ctx, found).read() == b"data"
    assert (found.id, found.guid) == (None, GUID)


@pytest.mark.parametrize(
    ("ctx", "words"),
    [
        (None, "needs headers"),
        (SerializationContext("topic", "value"), "needs headers"),  # type: ignore[arg-type]
        (SerializationContext("topic", "value", (("h", b""),)), "got tuple"),  # type: ignore[arg-type]
    ],
)
def test_header_has_no_place(ctx: Any, words: str) -> None:
    with pytest.raises(SerializationError, match=words):
        header_schema_id_serializer(b"data", ctx, SchemaId("AVRO", 5, str(GUID)))


def test_the_last_header_names_the_schema() -> None:
    headers: Any = [("__value_schema_id", b"\1" + bytes(16))]  # copied from another record
    ctx: Any = SerializationContext("topic", "value", headers)  # type: ignore[arg-type]
    header_schema_id_serializer(b"data", ctx, SchemaId("AVRO", 5, str(GUID)))
    found = SchemaId("AVRO")

    assert dual_schema_id_deserializer(b"data", ctx, found).read() == b"data"

    assert found.guid == GUID


def test_prefix_is_read_if_there_is_no_header() -> None:
    ctx: Any = SerializationContext("topic", "value", [("__key_schema_id", b"?")])  # type: ignore[arg-type]
    for read in (dual_schema_id_deserializer, prefix_schema_id_deserializer):
        found = SchemaId("AVRO")
        assert read(b"\0\0\0\0\5data", ctx, found).read() == b"data"
        assert found.id == 5
