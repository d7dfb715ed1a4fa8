"""AvroSerializer and AvroDeserializer: values, evolution, and values that are wrong."""

from __future__ import annotations

import datetime
import json
import uuid
from decimal import Decimal
from typing import Any

import pytest
from memory_registry import MemoryRegistry

from cykafka.schemas.model.schema import Schema, SchemaReference
from cykafka.schemas.serdes.avro_serde import AvroDeserializer, AvroSerializer
from cykafka.serialization import MessageField, SerializationContext, SerializationError

pytestmark = pytest.mark.ours

CTX = SerializationContext("orders", MessageField.VALUE)
UTC = datetime.UTC
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "named", "type": ["null", {"type": "map", "values": "Tree"}]},
    ],
}


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(kind: Any, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, of: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": of, **more}


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def written(registry: MemoryRegistry, schema: Any, value: Any, **conf: Any) -> bytes:
    data = AvroSerializer(registry, json.dumps(schema), conf=conf)(value, CTX)
    assert data is not None
    return data


def read(registry: MemoryRegistry, data: bytes, reader: Any = None, **kwargs: Any) -> Any:
    text = None if reader is None else json.dumps(reader)
    return AvroDeserializer(registry, text, **kwargs)(data, CTX)


def framed(registry: MemoryRegistry, schema: Any, payload: bytes) -> bytes:
    number = registry.add("other", json.dumps(schema))
    return b"\0" + number.to_bytes(4, "big") + payload


def zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*octets, number])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", None),
        ("boolean", True),
        ("int", -5),
        ("long", 2**62),
        ("float", 0.5),
        ("double", 1e300),
        ("bytes", b"\0\xff"),
        ("string", "Grüezi"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc"),
        ({"type": "array", "items": "string"}, ["a", ""]),
        ({"type": "map", "values": "long"}, {"a": 1}),
        (["null", "string", "long"], 5),
        (record(field("int", "a"), field(["null", "R"], "b")), {"a": 1, "b": {"a": 2, "b": None}}),
        (logical("bytes", "decimal", precision=10, scale=2), Decimal("-12345678.90")),
        (
            logical("fixed", "decimal", name="D", size=8, precision=10, scale=2),
            Decimal("12345678.90"),
        ),
        (logical("int", "date"), datetime.date(1, 1, 1)),
        (logical("int", "time-millis"), datetime.time(23, 59, 59, 999000)),
        (logical("long", "time-micros"), datetime.time(23, 59, 59, 999999)),
        (
            logical("long", "timestamp-millis"),
            datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
        ),
        (logical("long", "timestamp-micros"), datetime.datetime(2100, 1, 2, 3, 4, 5, 6, UTC)),
        (logical("long", "local-timestamp-millis"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6000)),
        (logical("long", "local-timestamp-micros"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6)),
        (logical("string", "uuid"), uuid.UUID(int=5)),
        (logical("string", "unknown"), "text"),
    ],
    ids=repr,
)
def test_values_go_through(registry: MemoryRegistry, schema: Any, value: Any) -> None:
    if value is None:  # Kafka's null is not Avro's
        schema, value = record(field("null")), {"f": None}
    assert read(registry, written(registry, schema, value)) == value


def test_primitive_is_registered_in_an_object(registry: MemoryRegistry) -> None:
    written(registry, "string", "a")
    assert registry.get_schema(1).schema_str == '{"type":"string"}'


def test_bytes_have_no_length(registry: MemoryRegistry) -> None:
    assert written(registry, "bytes", b"ab") == b"\0\0\0\0\1ab"
    assert written(registry, {"type": "bytes"}, "ab")[5:] == b"ab"
    assert read(registry, framed(registry, {"type": "bytes"}, b"")) == b""


def test_union_of_records(registry: MemoryRegistry) -> None:
    schema = [record(field("int"), name="shop.A"), record(field("int"), name="shop.B")]

    data = written(registry, schema, ("shop.B", {"f": 1}))

    assert data[5:] == b"\2\2"
    assert read(registry, data) == {"f": 1}
    assert read(registry, data, return_record_name=True) == ("shop.B", {"f": 1})
    with pytest.raises(ValueError, match="return_record_name must be a boolean value"):
        AvroDeserializer(registry, return_record_name=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value", "payload"),
    [
        ('["shop.Customer", "shop.Order"]', ("shop.Order", {"who": {"name": "ada"}}), b"\2\6ada"),
        (
            '{"type": "array", "items": ["shop.Order", "shop.Customer"]}',
            [("shop.Order", {"who": {"name": "ada"}}), ("shop.Customer", {"name": "ada"})],
            b"\4\0\6ada\2\6ada\0",
        ),
        ('{"type": "map", "values": "shop.Customer"}', {"a": {"name": ""}}, b"\2\2a\0\0"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "o", "type": "shop.Order"}]}',
            {"o": {"who": {"name": "ada"}}},
            b"\6ada",
        ),
    ],
)
def test_references_go_through(
    registry: MemoryRegistry, text: str, value: Any, payload: bytes
) -> None:
    registry.add("c", json.dumps(record(field("string", "name"), name="shop.Customer")))
    customer = SchemaReference("shop.Customer", "c", 1)
    order = record(field("shop.Customer", "who"), name="shop.Order")
    registry.add("o", json.dumps(order), references=(customer,))
    schema = Schema(text, references=(customer, SchemaReference("shop.Order", "o", 1)))

    data = AvroSerializer(registry, schema)(value, CTX)

    assert data is not None
    assert data[5:] == payload
    read = AvroDeserializer(registry, schema, return_record_name=True)
    assert read(data, CTX) == value
    assert AvroDeserializer(registry, None, None, True)(data, CTX) == value


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", 5, 5),
        ("double", 1, 1),
        ("string", "a", "a"),
        ("bytes", "\u00ffa", b"\xffa"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0000\u00ff", b"\0\xff"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "bytes"}, ["a"], [b"a"]),
        ({"type": "map", "values": "bytes"}, {"a": "b"}, {"a": b"b"}),
        (["null", "string"], None, None),
        (["bytes", "null"], "a", b"a"),
        (
            record(field("bytes", "b"), field("bytes", "n", default="y"), name="Inner"),
            {"b": "x"},
            {"b": b"x", "n": b"y"},
        ),
        (logical("bytes", "decimal", precision=4, scale=2), "\u0001\u0000", Decimal("2.56")),
        (logical("int", "date"), 1, datetime.date(1970, 1, 2)),
        (
            logical("long", "timestamp-millis"),
            1,
            datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, UTC),
        ),
        (logical("string", "uuid"), str(uuid.UUID(int=5)), uuid.UUID(int=5)),
    ],
    ids=repr,
)
def test_evolution_uses_defaults(
    registry: MemoryRegistry, kind: Any, default: Any, value: Any
) -> None:
    data = written(registry, record(field("int", "a")), {"a": 1})
    wanted = record(field("int", "a"), field(kind, default=default))

    assert read(registry, data, wanted) == {"a": 1, "f": value}
    # A serializer uses the default of a field that is not there.
    assert read(registry, written(registry, wanted, {"a": 1})) == {"a": 1, "f": value}


def test_evolution_follows_avros_rules(registry: MemoryRegistry) -> None:
    old = record(field("int", "a"), field("string", "b"), field("int", "gone"))
    new = record(field("double", "a"), field(["null", "bytes"], "c", aliases=["b"]))
    data = written(registry, old, {"a": 1, "b": "x", "gone": 5})

    assert read(registry, data, new) == {"a": 1.0, "c": b"x"}
    with pytest.raises(SerializationError, match="No default value"):
        read(registry, data, record(field("int", "missing")))
    with pytest.raises(SerializationError, match="cannot read"):
        read(registry, data, record(field("boolean", "a")))


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ("string", zigzag(2**62) + b"ab"),
        ("string", zigzag(-5) + b"abcdef"),
        ("string", zigzag(10) + b"ab"),
        ("string", b""),
        ("string", zigzag(2) + b"\xff\xfe"),
        (record(field("bytes")), zigzag(2**62)),
        (record(field("bytes")), zigzag(-(2**63))),
        ("long", b"\xff\xff"),
        ("double", b"1234567"),
        ("float", b"123"),
        ("boolean", b""),
        ("int", b"\2\2"),
        ("string", zigzag(1) + b"ab"),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, zigzag(5)),
        (["null", "string"], zigzag(7)),
        ({"type": "array", "items": "int"}, zigzag(2**62) + b"\2"),
        ({"type": "array", "items": "int"}, zigzag(-(2**62)) + b"\2\2"),
        ({"type": "map", "values": "null"}, zigzag(2**62) + b"\2a"),
        (logical("int", "date"), zigzag(2**31 - 1)),
        (logical("long", "timestamp-millis"), zigzag(2**62)),
        (logical("int", "time-millis"), zigzag(2**31 - 1)),
        (logical("string", "uuid"), zigzag(2) + b"ab"),
        (NODE, b""),
        (TREE, b"\2" * 100),
    ],
    ids=repr,
)
def test_value_is_wrong(registry: MemoryRegistry, schema: Any, payload: bytes) -> None:
    with pytest.raises(SerializationError, match="cannot read the value") as caught:
        read(registry, framed(registry, schema, payload))
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
@pytest.mark.parametrize("schema", [NODE, TREE])
def test_deep_value_is_an_error(registry: MemoryRegistry, schema: Any, depth: int) -> None:
    data = framed(registry, schema, b"\2" * depth + b"\0" * depth)
    with pytest.raises(SerializationError, match="RecursionError"):
        read(registry, data)
    with pytest.raises(SerializationError):
        read(registry, data, {**schema, "doc": "another schema"})


def test_deep_object_is_an_error(registry: MemoryRegistry) -> None:
    node: Any = None
    for _ in range(10_000):
        node = {"next": node}
    with pytest.raises(SerializationError, match="more than 100 levels"):
        written(registry, NODE, node)
    while node:  # so that Python frees it step by step
        node = node["next"]


@pytest.mark.parametrize("depth", [1, 50, 100])
def test_recursion_goes_through(registry: MemoryRegistry, depth: int) -> None:
    node: Any = None
    for _ in range(depth):
        node = {"next": node}
    assert read(registry, written(registry, NODE, node)) == node


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array", "items": "null"}, "number is unlimited"),
        ({"type": "array", "items": record()}, "number is unlimited"),
        (record(field({"type": "array", "items": record(field("null"), name="N")})), "unlimited"),
        (
            {"type": "map", "values": {"type": "array", "items": {"type": "null"}}},
            "number is unlimited",
        ),
        (
            ["null", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}],
            "number is unlimited",
        ),
        (record(field("R")), "no finite value"),
        (
            record(field(["null", record(field("B", "b"), name="C")], "u"), name="A"),
            "not an Avro schema",
        ),
        (
            record(
                field(["null", record(field(record(field("A", "a"), name="B")), name="C")], "u"),
                field("B"),
                name="A",
            ),
            "no finite value",
        ),
    ],
    ids=repr,
)
def test_schema_without_limits_is_refused(
    registry: MemoryRegistry, schema: Any, words: str
) -> None:
    with pytest.raises(SerializationError, match=words):
        read(registry, framed(registry, schema, zigzag(2**31) + b"\0"))


def test_arrays_without_bytes_can_be_written(registry: MemoryRegistry) -> None:
    schema = {"type": "array", "items": "null"}
    assert written(registry, schema, [None, None])[5:] == b"\4\0"


def test_nested_schema_is_refused(registry: MemoryRegistry) -> None:
    schema = '{"type":"array","items":' * 800 + '"int"' + "}" * 800
    number = registry.add("deep", schema)
    with pytest.raises(SerializationError, match=r"nested too deeply"):
        read(registry, b"\0" + number.to_bytes(4, "big") + b"\2" * 100)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", 5),
        ("int", "5"),
        (["null", "string"], 5),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("123.45")),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.234")),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("NaN")),
        ("long", 2**70),
        ("string", "\ud800"),
    ],
    ids=repr,
)
def test_object_does_not_fit(registry: MemoryRegistry, kind: Any, value: Any) -> None:
    with pytest.raises(SerializationError, match="does not fit the schema 1") as caught:
        written(registry, record(field(kind)), {"f": value})
    assert caught.value.__cause__ is not None


def test_decimal_with_more_digits_is_not_rounded(registry: MemoryRegistry) -> None:
    """As in Java; fastavro alone rounds it to the precision."""
    schema = record(field(logical("bytes", "decimal", precision=4, scale=2)))
    payload = (123456789).to_bytes(4, "big", signed=True)
    data = framed(registry, schema, zigzag(4) + payload)
    assert read(registry, data) == {"f": Decimal("1234567.89")}
    assert read(registry, data, schema) == {"f": Decimal("1234567.89")}


@pytest.mark.parametrize(
    "kind",
    [logical("bytes", "decimal", precision=4, scale=2),
     logical("fixed", "decimal", name="D", size=10_000, precision=4, scale=2)],
    ids=["bytes", "fixed"],
)  # fmt: skip
def test_large_decimal_is_an_error(registry: MemoryRegistry, kind: Any) -> None:
    """The time to convert it would grow with the square of its size."""
    size = zigzag(10_000) if kind["type"] == "bytes" else b""
    with pytest.raises(SerializationError, match="a decimal has 10000 bytes, more than 1000"):
        read(registry, framed(registry, record(field(kind)), size + b"\x7f" * 10_000))


@pytest.mark.parametrize("negative", [False, True])
def test_decimal_of_the_most_bytes_is_exact(registry: MemoryRegistry, negative: bool) -> None:
    kind = logical("bytes", "decimal", precision=4, scale=2)
    number = -(2**7999) if negative else 2**7999 - 1
    data = zigzag(1000) + number.to_bytes(1000, "big", signed=True)
    assert read(registry, framed(registry, record(field(kind)), data)) == {
        "f": Decimal(f"{number}e-2")
    }


@pytest.mark.parametrize(
    ("skipped", "payload"),
    [
        ({"type": "array", "items": "double"}, zigzag(2**62)),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 2}}, zigzag(2**62)),
        ({"type": "map", "values": {"type": "array", "items": "boolean"}},
         b"\2\0" + zigzag(2**62)),
        # A key without letters, and a length that leads back to it.
        ({"type": "map", "values": "bytes"}, zigzag(2**62) + b"\0\3"),
        (["null", record(field({"type": "array", "items": "float"}), name="Inner")],
         b"\2" + zigzag(2**62)),
    ],
    ids=repr,
)  # fmt: skip
def test_length_in_a_field_that_the_reader_lacks_ends(
    registry: MemoryRegistry, skipped: Any, payload: bytes
) -> None:
    data = framed(registry, record(field(skipped), field("int", "b")), payload)
    with pytest.raises(SerializationError, match="cannot read the value"):
        read(registry, data, record(field("int", "b")))


def test_field_that_a_renamed_record_lacks_is_checked(registry: MemoryRegistry) -> None:
    inner = record(field({"type": "array", "items": "double"}), field("int", "b"), name="x.Old")
    data = framed(registry, record(field(inner, "i")), zigzag(2**62))
    new = {**record(field("int", "b"), name="New"), "aliases": ["x.Old"]}
    with pytest.raises(SerializationError, match="cannot read the value"):
        read(registry, data, record(field(new, "i")))


def test_bytes_may_be_of_any_type(registry: MemoryRegistry) -> None:
    for value in (b"ab", bytearray(b"ab"), memoryview(b"ab"), "ab"):
        assert written(registry, "bytes", value)[5:] == b"ab"
    with pytest.raises(SerializationError):
        written(registry, "bytes", 5)


def test_default_outside_of_its_logical_type(registry: MemoryRegistry) -> None:
    wanted = record(field("int", "a"), field(logical("string", "uuid"), default=""))
    data = written(registry, record(field("int", "a")), {"a": 1})
    assert read(registry, data, wanted) == {"a": 1, "f": ""}


def test_defaults_have_a_limit(registry: MemoryRegistry) -> None:
    """Each record uses the next one twice, and so has twice as many default values."""
    kind: Any = record(field("int", default=0), name="R0")
    for number in range(1, 40):
        kind = record(
            field(kind, "a", default={}),
            field(f"R{number - 1}", "b", default={}),
            name=f"R{number}",
        )
    with pytest.raises(ValueError, match="more than 100000 values"):
        AvroSerializer(registry, json.dumps(kind))


def test_strict_records(registry: MemoryRegistry) -> None:
    schema = record(field("int", "a"), field("int", "b", default=1))
    assert written(registry, schema, {"a": 1, "more": 2})[5:] == b"\2\2"
    for conf in ({"validate.strict": True}, {"validate.strict.allow.default": True}):
        with pytest.raises(SerializationError, match="more"):
            written(registry, schema, {"a": 1, "b": 1, "more": 2}, **conf)
    with pytest.raises(SerializationError):
        written(registry, schema, {"a": 1}, **{"validate.strict": True})
    assert written(registry, schema, {"a": 1}, **{"validate.strict.allow.default": True})
