"""Avro values that `cykafka consume --json` has decoded become the same bytes again."""

from __future__ import annotations

import itertools
import json
import math
import struct
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastavro")

from cykafka.cli.records.json_record import parse
from cykafka.cli.records.schema_values import avro_reader, avro_writer
from cykafka.schemas.model.document import Document
from cykafka.schemas.model.schema import Schema

pytestmark = pytest.mark.ours

# A schema, and the bytes of a value.
Encoded: TypeAlias = tuple[Any, bytes]
NAMES = itertools.count()
HEAD = b"\0\0\0\0\1"


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def decimal(number: int) -> bytes:
    # fastavro's size. For -128 and so on it is one byte more than needed.
    size = (number.bit_length() + 8) // 8
    return number.to_bytes(size, "big", signed=True)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
# Days, ms and us of the years 1 to 9999.
DAY = st.integers(-719_162, 2_932_896)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBER = st.floats(width=32).map(lambda value: math.nan if math.isnan(value) else value)
LOCAL = [logical("long", f"local-timestamp-{unit}") for unit in ("millis", "micros")]
INSTANT = [logical("long", f"timestamp-{unit}") for unit in ("millis", "micros")]

PLAIN: list[st.SearchStrategy[Encoded]] = [
    st.just(("null", b"")),
    st.booleans().map(lambda value: ("boolean", bytes([value]))),
    INT.map(lambda value: ("int", varint(value))),
    LONG.map(lambda value: ("long", varint(value))),
    NUMBER.map(lambda value: ("float", struct.pack("<f", value))),
    NUMBER.map(lambda value: ("double", struct.pack("<d", value))),
    TEXT.map(lambda value: ("string", sized(value.encode()))),
    st.binary(max_size=5).map(lambda value: ("bytes", sized(value))),
    LONG.map(lambda value: (
        logical("bytes", "decimal", precision=30, scale=3), sized(decimal(value)))),
    DAY.map(lambda value: (logical("int", "date"), varint(value))),
    DAY.map(lambda value: (INSTANT[0], varint(value * 86_400_000 + 1))),
    DAY.map(lambda value: (INSTANT[1], varint(value * 86_400_000_000 + 1))),
    DAY.map(lambda value: (LOCAL[0], varint(value * 86_400_000 + 1))),
    DAY.map(lambda value: (LOCAL[1], varint(value * 86_400_000_000 + 1))),
    st.integers(0, 86_399_999).map(lambda value: (logical("int", "time-millis"), varint(value))),
    st.integers(0, 86_399_999_999).map(
        lambda value: (logical("long", "time-micros"), varint(value))),
    st.uuids().map(lambda value: (logical("string", "uuid"), sized(str(value).encode()))),
]  # fmt: skip


@st.composite
def named(draw: st.DrawFn) -> Encoded:
    name = f"space{next(NAMES)}.Type"
    if draw(st.booleans()):
        symbol = draw(st.integers(0, 2))
        return {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}, varint(symbol)
    data = draw(st.binary(min_size=3, max_size=3))
    return {"type": "fixed", "name": name, "size": 3}, data


@st.composite
def record(draw: st.DrawFn, inner: st.SearchStrategy[Encoded]) -> Encoded:
    fields = draw(st.lists(inner, max_size=4))
    schema = {
        "type": "record",
        "name": f"Record{next(NAMES)}",
        "namespace": "cykafka.tests",
        "fields": [{"name": f"f{at}", "type": kind} for at, (kind, _) in enumerate(fields)],
    }
    return schema, b"".join(data for _, data in fields)


@st.composite
def union(draw: st.DrawFn, inner: st.SearchStrategy[Encoded]) -> Encoded:
    branches: dict[str, Encoded] = {}
    for schema, data in draw(st.lists(inner, min_size=1, max_size=4)):
        if not isinstance(schema, list):
            kind = schema if isinstance(schema, str) else schema.get("name", schema["type"])
            branches[kind] = schema, data
    if not branches:
        return "null", b""
    chosen = draw(st.sampled_from(list(branches)))
    at = list(branches).index(chosen)
    return [schema for schema, _ in branches.values()], varint(at) + branches[chosen][1]


@st.composite
def container(draw: st.DrawFn, inner: st.SearchStrategy[Encoded]) -> Encoded:
    schema, data = draw(inner.filter(lambda item: item[1] != b""))
    count = draw(st.integers(0, 2))
    if draw(st.booleans()):
        items = data * count
        return {"type": "array", "items": schema}, (
            varint(count) + items if count else b""
        ) + b"\0"
    items = b"".join(sized(f"k{at}".encode()) + data for at in range(count))
    return {"type": "map", "values": schema}, (varint(count) + items if count else b"") + b"\0"


VALUES = st.recursive(
    st.one_of(*PLAIN, named()),
    lambda inner: st.one_of(record(inner), union(inner), container(inner)),
    max_leaves=8,
)


class Registry:
    """A registry with one schema."""

    def __init__(self, text: str) -> None:
        self.schema = Schema(text)

    def get_schema(self, *_: Any) -> Schema:
        return self.schema


@given(VALUES)
def test_json_becomes_the_same_bytes(encoded: Encoded) -> None:
    schema, data = encoded
    text = json.dumps(schema)
    registry: Any = Registry(text)
    # Values of the type bytes have no length.
    framed = HEAD + (data[1:] if schema == "bytes" else data)

    shown = avro_reader("value", registry)(framed, "topic", None)
    write = avro_writer(registry, Document("avro", text, id=1))

    assert write(parse(shown)) == framed
