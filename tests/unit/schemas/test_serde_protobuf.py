"""ProtobufSerializer and ProtobufDeserializer: messages, indexes, imports, wrong values."""

from __future__ import annotations

import base64
from typing import Any

import proto_files
import pytest
from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2
from memory_registry import MemoryRegistry

from cykafka.schemas.serdes.protobuf_serde import ProtobufDeserializer, ProtobufSerializer
from cykafka.serialization import MessageField, SerializationContext, SerializationError

pytestmark = pytest.mark.ours

CTX = SerializationContext("orders", MessageField.VALUE)
FILE = proto_files.proto(
    "order.proto",
    "shop",
    {
        "Other": {"x": (1, "int32")},
        "Order": {"id": (1, "int64"), "inner": (2, ".shop.Order.Inner")},
        "Order.First": {},
        "Order.Inner": {"text": (1, "string"), "more": (2, ".shop.Order.Inner")},
    },
)
Other, Order, Inner = (
    proto_files.message(f"shop.{name}", FILE) for name in ("Other", "Order", "Order.Inner")
)


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.mark.parametrize(
    ("message", "indexes"),
    [
        (Other(x=5), b"\0"),
        (Order(id=5), b"\2\2"),
        (Inner(text="é"), b"\4\2\2"),
        (Order(), b"\2\2"),
    ],
)
def test_messages_go_through(registry: MemoryRegistry, message: Any, indexes: bytes) -> None:
    data = ProtobufSerializer(type(message), registry)(message, CTX)

    assert data == b"\0\0\0\0\1" + indexes + message.SerializeToString()
    assert ProtobufDeserializer(type(message), None, registry)(data, CTX) == message
    assert ProtobufDeserializer(type(message))(data) == message
    assert registry.get_schema(1).schema_str == proto_files.text(FILE)


def test_latest_version_has_the_message_at_another_place(registry: MemoryRegistry) -> None:
    moved = descriptor_pb2.FileDescriptorProto.FromString(FILE.SerializeToString())
    moved.message_type.insert(0, descriptor_pb2.DescriptorProto(name="New"))
    registry.add("orders-value", proto_files.text(moved), "PROTOBUF")
    conf = {"auto.register.schemas": False, "use.latest.version": True}

    data = ProtobufSerializer(Order, registry, conf)(Order(id=5), CTX)

    assert data is not None
    assert data[:7] == b"\0\0\0\0\1\2\4"
    del moved.message_type[:]
    registry.add("orders-value", proto_files.text(moved), "PROTOBUF")
    with pytest.raises(SerializationError, match=r"no message shop\.Order"):
        ProtobufSerializer(Order, registry, conf)(Order(id=5), CTX)


def imported() -> Any:
    """Order imports Customer, which imports Money and a file of Google's."""
    money = proto_files.proto("money.proto", "shop", {"Money": {"units": (1, "int64")}})
    customer = proto_files.proto(
        "customer.proto",
        "shop",
        {"Customer": {"paid": (1, ".shop.Money"), "at": (2, ".google.protobuf.Timestamp")}},
        "money.proto",
        "google/protobuf/timestamp.proto",
    )
    order = proto_files.proto(
        "order.proto", "shop", {"Order": {"who": (1, ".shop.Customer")}}, "customer.proto"
    )
    google = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    return proto_files.message("shop.Order", google, money, customer, order)


def test_imported_files_are_registered_first(registry: MemoryRegistry) -> None:
    of = imported()
    message = of()
    message.who.paid.units = 5

    data = ProtobufSerializer(of, registry)(message, CTX)

    assert list(registry.subjects()) == ["money.proto", "customer.proto", "orders-value"]
    (reference,) = registry.get_latest_version("orders-value").schema.references
    assert (reference.name, reference.subject, reference.version) == (
        "customer.proto",
        "customer.proto",
        1,
    )
    assert ProtobufDeserializer(of, None, registry)(data, CTX) == message
    with pytest.raises(Exception, match="not found"):
        ProtobufSerializer(of, MemoryRegistry(), {"auto.register.schemas": False})(message, CTX)


def test_subjects_of_imported_files(registry: MemoryRegistry) -> None:
    of = imported()
    conf = {
        "skip.known.types": False,
        "reference.subject.name.strategy": lambda ctx, file: f"{ctx.topic}/{file.name}",
    }
    ProtobufSerializer(of, registry, conf)(of(), CTX)
    assert list(registry.subjects()) == [
        "orders/money.proto",
        "orders/google/protobuf/timestamp.proto",
        "orders/customer.proto",
        "orders-value",
    ]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "within its message's indexes"),
        (b"\4\2", "within its message's indexes"),
        (b"\xff" * 11, "more than 64 bits"),
        (b"\2\x40", r"no message with the indexes \[32\]"),
        (b"\6\2\2\2", r"no message with the indexes \[1, 1, 1\]"),
        (b"\2\1", "index is -1"),
        (b"\2\2\x08", "cannot read the value"),
        (b"\2\2\x12\x05\x0a", "cannot read the value"),
        (b"\2\2\x12\xff\xff\xff\xff\xff\xff\xff\xff\x3f", "cannot read the value"),
        (b"\2\2\x12\x04\x0a\x02\xff\xfe", "cannot read the value"),  # not UTF-8
        (b"\2\2\x07", "cannot read the value"),  # a wire type that does not exist
    ],
)
def test_value_is_wrong(registry: MemoryRegistry, payload: bytes, words: str) -> None:
    registry.add("orders-value", proto_files.text(FILE), "PROTOBUF")
    for ctx in (CTX, None):
        with pytest.raises(SerializationError, match=words):
            ProtobufDeserializer(Order, None, registry)(b"\0\0\0\0\1" + payload, ctx)


def test_deep_message_is_an_error(registry: MemoryRegistry) -> None:
    data = b""
    for _ in range(10_000):
        size, octets = len(data), bytearray()
        while size > 0x7F:
            octets.append(size & 0x7F | 0x80)
            size >>= 7
        data = b"\x12" + bytes([*octets, size]) + data
    with pytest.raises(SerializationError, match="cannot read the value"):
        ProtobufDeserializer(Inner)(b"\0\0\0\0\1\4\2\2" + data, CTX)
    message = Inner()
    inner = message
    for _ in range(99):
        inner = inner.more
        inner.text = "x"
    data = ProtobufSerializer(Inner, registry)(message, CTX)
    assert ProtobufDeserializer(Inner)(data) == message
    for _ in range(100_000):
        inner = inner.more
        inner.text = "x"
    with pytest.raises(SerializationError, match="more than 100 levels"):
        ProtobufSerializer(Inner, registry)(message, CTX)


def test_levels_in_lists_and_maps(registry: MemoryRegistry) -> None:
    value = inner = struct_pb2.Value()
    for _ in range(40):
        inner = inner.struct_value.fields["a"].list_value.values.add()
    data = ProtobufSerializer(struct_pb2.Value, registry)(struct_pb2.Value(number_value=5), CTX)
    assert ProtobufDeserializer(struct_pb2.Value)(data) == struct_pb2.Value(number_value=5)
    with pytest.raises(SerializationError, match="more than 100 levels"):
        ProtobufSerializer(struct_pb2.Value, registry)(value, CTX)


def test_another_message_is_an_error(registry: MemoryRegistry) -> None:
    with pytest.raises(SerializationError, match=r"expected a message shop\.Order, got Other"):
        ProtobufSerializer(Order, registry)(Other(x=5), CTX)
    with pytest.raises(SerializationError, match="got dict"):
        ProtobufSerializer(Order, registry)({"id": 5}, CTX)


@pytest.mark.parametrize(
    "text",
    ['syntax = "proto3"; message Order {}', "", base64.b64encode(b"\x12\x05a").decode(), "é"],
)
def test_schema_is_wrong(registry: MemoryRegistry, text: str) -> None:
    registry.add("orders-value", text, "PROTOBUF")
    with pytest.raises(SerializationError, match="schema cannot be used"):
        ProtobufDeserializer(Order, None, registry)(b"\0\0\0\0\1\0", CTX)


def test_options(registry: MemoryRegistry) -> None:
    for conf, words in (
        ({"use.deprecated.format": True}, "is not supported"),
        ({"use.deprecated.format": 1}, "must be a boolean value"),
    ):
        for make in (
            lambda given: ProtobufSerializer(Order, registry, given),
            lambda given: ProtobufDeserializer(Order, given),
        ):
            with pytest.raises(ValueError, match=words):
                make(conf)
    with pytest.raises(ValueError, match=r"skip\.known\.types must be a boolean value"):
        ProtobufSerializer(Order, registry, {"skip.known.types": None})
