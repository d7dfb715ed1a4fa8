"""Any bytes are a value or a SerializationError, and the process goes on."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import proto_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_registry import MemoryRegistry
from repeated import examples

from cykafka.schemas.model.document import UnfitError
from cykafka.schemas.model.error import SchemaRegistryError
from cykafka.schemas.serdes.avro_serde import AvroDeserializer
from cykafka.schemas.serdes.json_serde import JSONDeserializer
from cykafka.schemas.serdes.protobuf_serde import ProtobufDeserializer
from cykafka.serialization import MessageField, SerializationContext, SerializationError

CTX = SerializationContext("orders", MessageField.VALUE)
PLAIN: list[Any] = [
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", "R",
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "string", "logicalType": "uuid"},
]  # fmt: skip
numbers = itertools.count()
enums = st.lists(st.sampled_from("ABC"), min_size=1, unique=True).map(
    lambda symbols: {"type": "enum", "name": f"E{next(numbers)}", "symbols": symbols}
)
fixed = st.integers(0, 9).map(
    lambda size: {"type": "fixed", "name": f"F{next(numbers)}", "size": size}
)
kinds = st.recursive(
    st.sampled_from(PLAIN) | enums | fixed,
    lambda inner: st.one_of(
        inner.map(lambda kind: {"type": "array", "items": kind}),
        inner.map(lambda kind: {"type": "map", "values": kind}),
        st.lists(inner, min_size=1, max_size=3),
        st.lists(inner, max_size=4).map(lambda found: record(f"N{next(numbers)}", found)),
    ),
    max_leaves=12,
)


def record(name: str, fields: list[Any]) -> dict[str, Any]:
    named = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named}


schemas = st.lists(kinds, max_size=4).map(lambda found: json.dumps(record("R", found)))
# Bytes that mean something in one of the formats.
pieces = st.sampled_from(
    [b"\0", b"\1", b"\2", b"\3", b"\x80", b"\xff" * 9 + b"\1", b"\xfe" * 9 + b"\1", b"\2" * 300,
     b"\x12\x04", b"{", b'"', b"[", b":1,", b"[" * 2000, b"\xff\xfe"]
)  # fmt: skip
payloads = st.lists(pieces | st.binary(max_size=8), max_size=20).map(b"".join)
FILE = proto_files.proto(
    "order.proto",
    "shop",
    {
        "Order": {
            "text": (1, "string"),
            "inner": (2, ".shop.Order"),
            "many": (3, "repeated double"),
            "data": (4, "repeated bytes"),
        }
    },
)
Order = proto_files.message("shop.Order", FILE)
LOOSE = settings(
    max_examples=examples(2500), deadline=None, suppress_health_check=list(HealthCheck)
)


def survives(read: Any, data: bytes) -> None:
    for ctx in (CTX, None):
        with contextlib.suppress(SerializationError, SchemaRegistryError):
            read(data, ctx)


@LOOSE
@given(writer=schemas, reader=st.none() | schemas, payload=payloads)
def test_avro(writer: str, reader: str | None, payload: bytes) -> None:
    registry = MemoryRegistry()
    registry.add("orders-value", writer)
    try:
        read = AvroDeserializer(registry, reader)
    except UnfitError:
        return
    survives(read, b"\0\0\0\0\1" + payload)
    survives(read, payload)


@LOOSE
@given(payload=payloads)
def test_protobuf_and_json(payload: bytes) -> None:
    registry = MemoryRegistry()
    registry.add("orders-value", proto_files.text(FILE), "PROTOBUF")
    registry.add("orders-value", '{"type": "object"}', "JSON")
    for read in (ProtobufDeserializer(Order, None, registry), ProtobufDeserializer(Order)):
        for head in (b"\0\0\0\0\1\0", b"\0\0\0\0\1", b""):
            survives(read, head + payload)
    for check in (JSONDeserializer(None, None, registry), JSONDeserializer("true")):
        for head in (b"\0\0\0\0\2", b"\0\0\0\0\2{", b""):
            survives(check, head + payload)
