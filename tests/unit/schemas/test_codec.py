"""Values in the wire format of Schema Registry, decoded and encoded without Spark."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import proto_files
import pyarrow as pa
import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from cykafka.schemas.arrow.avro import AvroReader, AvroWriter
from cykafka.schemas.arrow.json_schema import JsonReader
from cykafka.schemas.arrow.protobuf import ProtobufReader, ProtobufWriter
from cykafka.schemas.codec import Decoder, Encoder
from cykafka.schemas.model.document import Document, SchemaSource, UnfitError
from cykafka.schemas.model.error import SchemaRegistryError as RegistryError
from cykafka.testing import SchemaRegistry

OLD = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "who", "type": "string"}],
}
NEW = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string", "aliases": ["who"]},
        {"name": "total", "type": ["null", "double"], "default": None},
    ],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def options(registry: SchemaRegistry, **more: str) -> tuple[tuple[str, str], ...]:
    return tuple({"url": registry.url, "retries.wait.ms": "1", **more}.items())


def wire(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def avro(number: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return wire(number, out.getvalue())


def avro_decoder(registry: SchemaRegistry, schema: Any) -> Decoder:
    return Decoder("avro", options(registry), Document("avro", json.dumps(schema)))


def decoded(decoder: Decoder, values: list[bytes | None]) -> tuple[list[Any], list[Any]]:
    # A slice, as batches of Spark may be.
    array = pa.array([b"before", *values], pa.binary())[1:]
    found = decoder.decode(array)
    return (
        found.field("data").to_pylist(maps_as_pydicts="strict"),
        found.field("error").to_pylist(),
    )


def test_ids_nulls_and_bad_records_of_one_batch_stay_in_order(registry: SchemaRegistry) -> None:
    old, new = registry.add("order-value", OLD), registry.add("order-value", NEW)
    json_id = registry.add("other-value", {"type": "object"}, "JSON")
    values = [
        avro(new, NEW, {"id": 2**40, "customer": "b", "total": 1.5}),
        None,
        avro(old, OLD, {"id": 1, "who": "a"}),
        b"text",
        wire(999, b"x"),
        wire(old, b"\x02"),
        avro(old, OLD, {"id": 2, "who": "c"}) + b"more",
        b"",
        wire(json_id, b"{}"),
        avro(new, NEW, {"id": 3, "customer": "d", "total": None}),
    ]
    # Workers get a pickled copy.
    decoder = pickle.loads(pickle.dumps(avro_decoder(registry, NEW)))

    data, errors = decoded(decoder, values)

    good = {
        0: {"id": 2**40, "customer": "b", "total": 1.5},
        2: {"id": 1, "customer": "a", "total": None},
        9: {"id": 3, "customer": "d", "total": None},
    }
    assert data == [good.get(number) for number in range(10)]
    expected = {
        3: "not in the wire format",
        4: "no schema with the id 999: 404 Schema 999 not found",
        5: f"does not fit the schema {old}: ",
        6: "4 bytes follow it",
        7: "not in the wire format",
        8: "it is of JSON, expected AVRO",
    }
    assert {number for number, error in enumerate(errors) if error} == expected.keys()
    for number, words in expected.items():
        assert words in errors[number]


def test_each_schema_is_requested_once(registry: SchemaRegistry) -> None:
    number = registry.add("once-value", {**OLD, "name": "Once"})
    decoder = avro_decoder(registry, {**NEW, "name": "Once"})
    value = avro(number, {**OLD, "name": "Once"}, {"id": 1, "who": "a"})

    for _ in range(3):
        assert decoded(decoder, [value, wire(12345, b"")] * 10)[1][0] is None

    assert registry.requests[f"GET /schemas/ids/{number}"] == 1
    assert registry.requests["GET /schemas/ids/12345"] == 1


def test_avro_references_and_all_types_survive_a_round_trip(registry: SchemaRegistry) -> None:
    registry.add("money-value", {"type": "record", "name": "shop.Money", "fields": [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                    "scale": 2}}]})  # fmt: skip
    schema = {"type": "record", "name": "shop.All", "fields": [
        {"name": "price", "type": "shop.Money"},
        {"name": "prices", "type": {"type": "array", "items": ["null", "shop.Money"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
        {"name": "four", "type": {"type": "fixed", "name": "F", "size": 4}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "number", "type": ["int", "long"]},
        {"name": "any", "type": ["null", "string", "long", "shop.Money", "K",
                                 {"type": "map", "values": "int"}]},
        {"name": "nothing", "type": "null"},
    ]}  # fmt: skip
    reference = {"name": "shop.Money", "subject": "money-value", "version": 1}
    number = registry.add("all-value", schema, references=[reference])
    written = Encoder("avro", options(registry), None).writer("all")
    decoder = Decoder("avro", options(registry), registry_document(registry, "all-value"))
    from datetime import UTC, date, datetime

    plain = {
        "price": {"amount": Decimal("12.34")},
        "prices": [None, {"amount": Decimal("-0.01")}],
        "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
        "local": datetime(2026, 1, 2, 3, 4, 5, 678901),
        "time": 1234,
        "uuid": "5c6bb5e2-2f0c-4b5c-8d84-3a3b4d3f1c0e",
        "kind": "B",
        "four": b"abcd",
        "map": {"x": 1.5},
        "number": 2**40,
        "nothing": None,
    }
    members = [
        None,
        {"member0": "text"},
        {"member1": 2**33},
        {"member2": {"amount": Decimal("1.00")}},
        {"member3": "A"},
        {"member4": {"k": 1}},
    ]
    empty = dict.fromkeys(f"member{at}" for at in range(5))
    rows = [{**plain, "any": None if each is None else {**empty, **each}} for each in members]
    kind = decoder.reader.kind
    assert written.kind == kind

    made = Encoder("avro", options(registry), None).encode(
        pa.array(rows, kind), pa.array(["all"] * len(rows))
    )

    assert made.field("error").to_pylist() == [None] * len(rows)
    assert {value[:5] for value in made.field("value").to_pylist()} == {wire(number, b"")}
    data, errors = decoded(decoder, made.field("value").to_pylist())
    assert errors == [None] * len(rows)
    assert data == rows


def registry_document(registry: SchemaRegistry, subject: str) -> Document:
    from cykafka.schemas.shared import shared_client

    return shared_client(dict(options(registry))).document_by_version(subject)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]},
         "L contains itself"),
        ({"type": "record", "name": "N", "fields": [{"name": "x", "type": "Missing"}]},
         "not an Avro schema"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, "50 digits"),
        ({"type": "bytes", "logicalType": "decimal"}, "a decimal has the precision None"),
        ({"type": "record", "name": "E", "fields": []}, "no fields"),
    ],
)  # fmt: skip
def test_avro_schemas_that_spark_cannot_have_are_refused(
    registry: SchemaRegistry, schema: Any, words: str
) -> None:
    with pytest.raises(UnfitError, match=words):
        _ = avro_decoder(registry, schema).reader


def test_reader_that_cannot_read_the_newest_schema_is_refused(registry: SchemaRegistry) -> None:
    reader = avro_decoder(registry, {**NEW, "fields": [{"name": "id", "type": "string"}]}).reader

    with pytest.raises(UnfitError, match="cannot read what schema 7 writes"):
        reader.check(Document("avro", json.dumps(OLD), id=7))
    avro_decoder(registry, NEW).reader.check(Document("avro", json.dumps(OLD), id=7))


def test_avro_defaults_of_bytes_and_of_records_are_values() -> None:
    small = {"type": "record", "name": "D", "fields": [{"name": "id", "type": "int"}]}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    inner = {"type": "record", "name": "I", "fields": [
        {"name": "n", "type": "int", "default": 3}]}  # fmt: skip
    more = [
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "price", "type": [decimal, "null"], "default": "\u00ff\u0000"},
        {"name": "two", "type": {"type": "fixed", "name": "T", "size": 2},
         "default": "\u0001\u0080"},
        {"name": "inner", "type": inner, "default": {}},
    ]  # fmt: skip
    document = Document("avro", json.dumps({**small, "fields": [*small["fields"], *more]}))
    expected = {"id": 1, "raw": b"\xff", "price": Decimal("-2.56"), "two": b"\1\x80",
                "inner": {"n": 3}}  # fmt: skip
    reader = AvroReader(document)

    read = reader.reader_of(Document("avro", json.dumps(small)))(pa.array([b"\x02"]))
    written, wrong = AvroWriter(document).write(pa.array([{"id": 1}]))

    assert (read[0].to_pylist(), read[1], wrong) == ([expected], {}, {})
    assert reader.reader_of(document)(written)[0].to_pylist() == [expected]


TREE: Any = {"type": "record", "name": "R", "fields": [
    {"name": "id", "type": "int"},
    {"name": "tree", "type": {"type": "record", "name": "T", "fields": [
        {"name": "next", "type": ["null", "T"]}]}}]}  # fmt: skip


def test_avro_values_that_nest_deeply_are_bad_and_end_no_process() -> None:
    reader = AvroReader(Document("avro", json.dumps({**TREE, "fields": TREE["fields"][:1]})))
    values = [b"\x0a" + b"\x02" * depth + b"\0" for depth in (0, 9, 100_000)]

    found, wrong = reader.reader_of(Document("avro", json.dumps(TREE)))(pa.array(values))

    assert found.to_pylist() == [{"id": 5}, {"id": 5}, None]
    assert wrong.keys() == {2}


@pytest.mark.parametrize("items", [
    "null",
    {"type": "fixed", "name": "F", "size": 0},
    {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]},
])  # fmt: skip
def test_avro_arrays_without_a_limit_are_refused(items: Any) -> None:
    id_only = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    array = {"name": "a", "type": {"type": "array", "items": items}}
    written = Document("avro", json.dumps({**id_only, "fields": [*id_only["fields"], array]}))
    reader = AvroReader(Document("avro", json.dumps(id_only)))

    for work in (reader.reader_of, reader.check):
        with pytest.raises(UnfitError, match="an array's elements have no bytes"):
            work(written)


SYMBOLS = [f"S{number}" for number in range(500)]
DEEP: Any = {"type": "enum", "name": "E", "symbols": SYMBOLS}
for _ in range(9):
    DEEP = ["null", "string", {"type": "array", "items": {"type": "map", "values": DEEP}}]


@pytest.mark.parametrize(
    ("reads", "writes"),
    [
        (json.loads(json.dumps(DEEP).replace('"S499"', '"other"')), DEEP),
        (["null", "long"], ["null", "int", "string"]),
        ("long", {"type": "map", "values": "long"}),
    ],
)
def test_avro_each_branch_and_symbol_of_the_newest_schema_is_checked(
    reads: Any, writes: Any
) -> None:
    fields = [{"name": "f", "type": writes}, {"name": "t", "type": TREE["fields"][1]["type"]}]
    newest = Document("avro", json.dumps({**TREE, "fields": fields}), id=7)

    def reader_of(kind: Any) -> AvroReader:
        own = {**TREE, "fields": [{"name": "f", "type": kind}]}
        return AvroReader(Document("avro", json.dumps(own)))

    reader_of(writes).check(newest)
    with pytest.raises(UnfitError, match="it cannot read what schema 7 writes"):
        reader_of(reads).check(newest)


def test_avro_fields_without_a_default_are_needed_in_all_depths() -> None:
    part = {"type": "record", "name": "P", "fields": [
        {"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"]},
        {"name": "z", "type": "int", "default": 1}]}  # fmt: skip
    fields = {"one": part, "list": {"type": "array", "items": ["null", "P"]},
              "map": {"type": "map", "values": "P"}}  # fmt: skip
    schema = {"type": "record", "name": "W", "fields": [
        {"name": name, "type": kind} for name, kind in fields.items()]}  # fmt: skip
    given = pa.struct([("x", pa.int32())])
    kind = pa.struct([("one", given), ("list", pa.list_(given)),
                      ("map", pa.map_(pa.string(), given))])  # fmt: skip

    with pytest.raises(UnfitError, match=r"no field list\.y, map\.y, one\.y"):
        AvroWriter(Document("avro", json.dumps(schema))).check(kind)


def test_avro_a_map_with_a_key_twice_is_bad() -> None:
    schema = {"type": "record", "name": "M", "fields": [
        {"name": "m", "type": {"type": "map", "values": "int"}}]}  # fmt: skip
    kind = pa.struct([("m", pa.map_(pa.string(), pa.int32()))])
    rows = [{"m": [("a", 1)]}, {"m": [("a", 1), ("a", 2)]}, None]

    found, wrong = AvroWriter(Document("avro", json.dumps(schema))).write(pa.array(rows, kind))

    assert found.to_pylist() == [b"\2\2a\2\0", None, None]
    assert "duplicate" in wrong[1]


# -- Protobuf

CUSTOMER = proto_files.proto("customer.proto", "shop", {"Customer": {"name": (1, "string")}})
IMPORTS = ("customer.proto", "google/protobuf/timestamp.proto")
ORDERS = [
    proto_files.proto(
        "order.proto",
        "shop",
        {
            "Order": {"id": (1, "int64"), "customer": (2, ".shop.Customer"),
                      "at": (3, ".google.protobuf.Timestamp"), **more},
            "Order.Line": {"count": (1, "int32")},
            "Refund": {"id": (1, "int64")},
        },
        *IMPORTS,
    )
    for more in ({}, {"tags": (4, "repeated string"), "big": (5, "uint64")})
]  # fmt: skip


def protobuf(registry: SchemaRegistry) -> tuple[list[int], list[Any]]:
    """The ids of two versions of a schema with a reference, and their classes."""
    from google.protobuf import timestamp_pb2

    registry.add("customer.proto", proto_files.text(CUSTOMER), "PROTOBUF")
    reference = {"name": "customer.proto", "subject": "customer.proto", "version": 1}
    numbers = [
        registry.add("p-value", proto_files.text(each), "PROTOBUF", [reference]) for each in ORDERS
    ]
    stamp = FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    classes = [proto_files.message("shop.Order", stamp, CUSTOMER, each) for each in ORDERS]
    return numbers, classes


def test_protobuf_is_read_by_the_readers_schema(registry: SchemaRegistry) -> None:
    (old, new), (Old, New) = protobuf(registry)
    decoder = Decoder("protobuf", options(registry), registry_document(registry, "p-value"))
    order = New(id=2, tags=["x"], big=2**64 - 1)
    order.customer.name, order.at.seconds = "ada", 5
    values = [
        wire(new, b"\0" + order.SerializeToString()),
        None,
        wire(old, b"\x02\x00" + Old(id=1).SerializeToString()),  # the long form of [0]
        wire(old, b"\x02\x02" + b"\x08\x07"),  # Refund
        wire(old, b"\x04\x00\x00" + b"\x08\x07"),  # Order.Line
        wire(old, b"\x02\x0e"),
        wire(new, b"\0\xff"),
        wire(new, b""),
        wire(old, b"\0"),
    ]

    data, errors = decoded(decoder, values)

    assert data[0]["customer"] == {"name": "ada"}
    assert (data[0]["id"], data[0]["tags"], data[0]["big"]) == (2, ["x"], 2**64 - 1)
    assert data[0]["at"].timestamp() == 5
    assert (data[2]["id"], data[2]["customer"], data[2]["tags"], data[8]["id"]) == (1, None, [], 0)
    assert [number for number, row in enumerate(data) if row is not None] == [0, 2, 8]
    expected = {
        3: "its message is shop.Refund, expected shop.Order",
        4: "its message is shop.Order.Line",
        5: "no message [7]",
        6: "does not fit the schema",
        7: "ends within its message's indexes",
    }
    assert {number for number, error in enumerate(errors) if error} == expected.keys()
    for number, words in expected.items():
        assert words in errors[number]


@pytest.mark.parametrize("message", ["", "shop.Refund", "shop.Order.Line"])
def test_protobuf_survives_a_round_trip(registry: SchemaRegistry, message: str) -> None:
    protobuf(registry)
    document = registry_document(registry, "p-value")
    decoder = Decoder("protobuf", options(registry), document, message)
    source = SchemaSource(subject="p-value", message=message)
    name = message or "shop.Order"
    rows = {
        "shop.Order": {"id": 5, "customer": {"name": "b"}, "at": None, "tags": ["x", ""],
                       "big": 2**63},
        "shop.Refund": {"id": 7},
        "shop.Order.Line": {"count": -1},
    }  # fmt: skip
    values = pa.array([None, rows[name], None, rows[name]], decoder.reader.kind)

    made = Encoder("protobuf", options(registry), source).encode(values, pa.array(["t"] * 4))

    found, errors = decoded(decoder, made.field("value").to_pylist())
    assert (found, errors) == ([None, rows[name]] * 2, [None] * 4)


def test_protobuf_values_without_a_place_are_refused(registry: SchemaRegistry) -> None:
    fields = {"n": (1, "int32"), "k": (2, "enum .Kind"), "a": (3, "string"), "b": (4, "int64")}
    file = proto_files.proto("e.proto", "", {"E": fields})
    file.message_type[0].oneof_decl.add(name="choice")
    for field in file.message_type[0].field[2:]:
        field.oneof_index = 0
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="A", number=0)
    registry.add("e-value", proto_files.text(file), "PROTOBUF")
    encoder = Encoder("protobuf", options(registry), None)
    given = [("n", pa.int64()), ("k", pa.string()), ("a", pa.string()), ("b", pa.int32())]
    rows = [
        {"n": 1, "k": "A", "a": "x"},
        {"n": 2**40, "k": "A"},
        {"n": 1, "k": "Z"},
        {"n": 1, "k": "7", "b": 1},
        {"n": 1, "k": "A", "a": "x", "b": 1},
    ]

    made = encoder.encode(pa.array(rows, pa.struct(given)), pa.array(["e"] * 5))

    errors = made.field("error").to_pylist()
    assert errors[0] is None
    assert "not in range" in errors[1]
    assert "the enumeration k has no 'Z'" in errors[2]
    assert "the enumeration k has no '7'" in errors[3]
    assert "more than one member of choice" in errors[4]
    with pytest.raises(UnfitError, match="no field other"):
        encoder.encode(pa.array([{"other": 1}]), pa.array(["e"]))
    with pytest.raises(UnfitError, match="cast"):
        encoder.encode(pa.array([b"raw"]), pa.array(["e"]))


def of_text(text: str) -> Document:
    """A schema of Protobuf from the text of its descriptor."""
    head = 'name: "a.proto" syntax: "proto3"'
    file = text_format.Parse(text if "syntax" in text else head + text, FileDescriptorProto())
    return Document("protobuf", proto_files.text(file))


def field(name: str, number: int, kind: str, label: str = "OPTIONAL") -> str:
    """The text of a field's descriptor."""
    of = f'TYPE_MESSAGE type_name: "{kind}"' if "." in kind else f"TYPE_{kind}"
    return f'field {{ name: "{name}" number: {number} label: LABEL_{label} type: {of} }}'


A_MAP = of_text(
    f'message_type {{ name: "A" {field("m", 1, ".A.MEntry", "REPEATED")} nested_type {{'
    f' name: "MEntry" options {{ map_entry: true }} {field("key", 1, "STRING")}'
    f' {field("value", 2, ".V")} }} }} message_type {{ name: "V" {field("x", 1, "INT32")} }}'
)


def test_protobuf_values_that_ptars_panics_at_are_read_or_bad() -> None:
    good = b"\0\x0a\x07\x0a\x01k\x12\x02\x08\x05"
    values = [good, b"\0\x0a\x03\x0a\x01k", b"\0\x7a\xfe" + b"\xff" * 8 + b"\x01", good]
    document = A_MAP

    found, wrong = ProtobufReader(document).reader_of(document)(pa.array(values))

    rows = found.to_pylist()
    assert rows[0] == rows[3] == {"m": [("k", {"x": 5})]}
    assert rows[1] == {"m": [("k", {"x": 0})]}  # the default
    assert wrong.keys() == {2}


@pytest.mark.parametrize("kind", ["BOOL", "INT64", "STRING"])
def test_protobuf_the_last_member_and_the_last_value_of_a_key_count(kind: str) -> None:
    members = "".join(
        field(name, number, of).replace("label", "oneof_index: 0 label")
        for name, number, of in (("a", 1, "INT32"), ("b", 2, "INT32"), ("c", 3, ".B"))
    )
    document = of_text(
        f'message_type {{ name: "A" {field("os", 1, ".O", "REPEATED")}'
        f' {field("m", 2, ".A.MEntry", "REPEATED")} nested_type {{ name: "MEntry" options {{'
        f" map_entry: true }} {field('key', 1, kind)} {field('value', 2, 'INT32')} }} }}"
        f'message_type {{ name: "B" {field("x", 1, "INT32")} }}'
        f'message_type {{ name: "O" oneof_decl {{ name: "o" }} {members} }}'
    )
    key = b"\x0a\x011" if kind == "STRING" else b"\x08\x01"
    entries = [bytes([0x12, len(key) + 2]) + key + b"\x10" + bytes([n]) for n in (5, 6)]
    choices = [b"\x08\x05", b"\x10\x06", b"\x1a\x00"]
    twice = [(first, last) for first in range(3) for last in range(3)]
    values = [
        b"\0\x0a\x04" + choices[first] + choices[last] + entries[0] + entries[first == 1]
        for first, last in twice
    ]

    found, wrong = ProtobufReader(document).reader_of(document)(pa.array(values))

    assert wrong == {}
    for row, (first, last) in zip(found.to_pylist(), twice, strict=True):
        assert [name for name, of in row["os"][0].items() if of is not None] == ["abc"[last]]
        assert [value for _, value in row["m"]] == [6 if first == 1 else 5]


def test_protobuf_a_map_with_a_key_twice_is_not_written() -> None:
    writer = ProtobufWriter(A_MAP)
    rows = [{"m": [("k", {"x": 1})] * count} for count in (1, 2)]

    _, wrong = writer.write(pa.array(rows, writer.kind))

    assert "a map has a duplicate key" in wrong[1]
    assert wrong.keys() == {1}


def test_protobuf_values_that_nest_deeply_are_bad_and_end_no_process() -> None:
    document = of_text(f'message_type {{ name: "A" {field("x", 1, "INT32")} }}')
    groups = [b"\0\x08\x05" + b"\x1b" * depth + b"\x1c" * depth for depth in (50, 400_000)]
    long = b"\0\x08\x06\x12" + b"\xa0\x8d\x06" + b"x" * 100_000  # with an unknown field

    found, wrong = ProtobufReader(document).reader_of(document)(pa.array([*groups, long]))

    assert [row["x"] for row in found.to_pylist()] == [5, 0, 6]
    assert wrong.keys() == {1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name: "a.proto" syntax: "proto2" message_type { name: "A" field { name: "g" number: 1 '
         'label: LABEL_OPTIONAL type: TYPE_GROUP type_name: ".A.G" } nested_type { name: "G" '
         f'{field("x", 2, "INT32")} }} }}', r"the field A\.g is a group"),
        ('name: "a.proto" syntax: "editions" edition: EDITION_2023 message_type { name: "A" '
         f'{field("x", 1, "INT32")} }}', "ptars cannot use it"),
        (f'message_type {{ name: "A" {field("b", 1, ".B")} }} message_type {{ name: "B" '
         f'{field("x", 2**29 - 1, "INT32")} }}', r"the field B\.x has the number 536870911"),
    ],
)  # fmt: skip
def test_protobuf_schemas_that_ptars_cannot_read_are_refused(text: str, words: str) -> None:
    for make in (ProtobufReader, ProtobufWriter):
        with pytest.raises(UnfitError, match=words):
            make(of_text(text))


@pytest.mark.parametrize(("seconds", "is_bad"), [(253_402_300_799, False), (10**13, True)])
@pytest.mark.parametrize("kind", ["Timestamp", "Duration"])
def test_protobuf_times_out_of_range_are_bad(kind: str, seconds: int, is_bad: bool) -> None:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

    file = f"google/protobuf/{kind.lower()}.proto"
    times = field("t", 1, f".google.protobuf.{kind}", "REPEATED")
    document = of_text(f'dependency: "{file}" message_type {{ name: "A" {times} }}')
    made = {"Timestamp": Timestamp, "Duration": Duration}[kind](seconds=seconds)
    octets = made.SerializeToString()
    values = [b"\0", b"\0\x0a" + bytes([len(octets)]) + octets]

    _, wrong = ProtobufReader(document).reader_of(document)(pa.array(values))

    assert list(wrong) == ([1] if is_bad else [])


def test_protobuf_messages_in_themselves_are_refused() -> None:
    document = of_text(
        f'message_type {{ name: "A" {field("b", 1, ".B")} {field("x", 2, "INT32")} }}'
        f'message_type {{ name: "B" {field("a", 1, ".A")} {field("bs", 2, ".B", "REPEATED")} }}'
    )
    rows = [{"b": {"a": None, "bs": []}, "x": 1}, {"b": {"a": b"", "bs": []}, "x": 2},
            {"b": {"a": None, "bs": [b""]}, "x": 3}, {"b": None, "x": 4}]  # fmt: skip
    writer = ProtobufWriter(document)

    found, wrong = writer.write(pa.array(rows, writer.kind))

    assert found.is_valid().to_pylist() == [True, False, False, True]
    assert "the field a has a message in itself" in wrong[1]
    assert "the field bs has a message in itself" in wrong[2]


def test_protobuf_a_bad_value_of_a_map_makes_only_its_record_bad() -> None:
    kind = 'enum_type { name: "K" value { name: "Z" number: 0 } }'
    values = field("value", 2, "ENUM").replace("TYPE_ENUM", 'TYPE_ENUM type_name: ".K"')
    document = of_text(
        f'message_type {{ name: "A" {field("m", 1, ".A.MEntry", "REPEATED")} nested_type {{ name: '
        f'"MEntry" options {{ map_entry: true }} {field("key", 1, "INT32")} {values} }} }} {kind}'
    )
    rows = [{"m": [(1, name)]} for name in ("Z", "BAD", "Z")]
    writer = ProtobufWriter(document)

    found, wrong = writer.write(pa.array(rows, writer.kind))

    assert wrong.keys() == {1}
    assert found.is_valid().to_pylist() == [True, False, True]


# -- JSON


def test_errors_do_not_quote_long_values() -> None:
    document = Document("json", '{"type": "integer"}')

    _, wrong = JsonReader().reader_of(document)(pa.array([b'"' + b"x" * 1_000_000 + b'"']))

    # A dead letter has its error as a header.
    assert len(wrong[0]) < 1000


def test_json_is_checked_with_its_own_schema_and_references(registry: SchemaRegistry) -> None:
    registry.add("who-value", {"type": "object", "required": ["name"]}, "JSON")
    schema = {"type": "object", "required": ["id"], "properties": {
        "id": {"type": "integer"}, "who": {"$ref": "who.json"}}}  # fmt: skip
    reference = {"name": "who.json", "subject": "who-value", "version": 1}
    number = registry.add("j-value", schema, "JSON", [reference])
    decoder = Decoder("json", options(registry), None)

    data, errors = decoded(
        decoder,
        [
            wire(number, each)
            for each in (b'{"id": 1}', b'{"id": "x"}', b"{", b'{"id":1,"who":{}}')
        ],
    )

    assert data == [b'{"id": 1}', None, None, None]
    assert errors[0] is None
    assert "/id: " in errors[1]
    assert "not JSON" in errors[2]
    assert '/who: "name" is a required property' in errors[3]


# -- writing


@pytest.mark.parametrize("registers", ["true", "false"])
def test_schemas_are_registered_only_on_request(registry: SchemaRegistry, registers: str) -> None:
    schema = {**OLD, "name": f"shop.Auto{registers}"}
    source = SchemaSource(Document("avro", json.dumps(schema)))
    given = options(registry, **{
        "auto.register.schemas": registers, "subject.name.strategy.type": "TOPIC_RECORD",
    })  # fmt: skip
    encoder = Encoder("avro", given, source)
    values, topics = pa.array([{"id": 1, "who": "a"}] * 2), pa.array(["t", "u"])

    if registers == "false":
        with pytest.raises(RegistryError, match=r'key "encode": .*subject t-shop\.Autofalse'):
            encoder.encode(values, topics)
        registry.add("t-shop.Autofalse", schema)
        registry.add("u-shop.Autofalse", schema)
        encoder = Encoder("avro", (*given, ("cache.latest.ttl.sec", "0")), source)
    made = encoder.encode(values, topics).field("value").to_pylist()

    number = int.from_bytes(made[0][1:5], "big")
    subjects = registry.subjects()
    assert subjects[f"t-shop.Auto{registers}"] == subjects[f"u-shop.Auto{registers}"] == [number]
    assert made[0] == avro(number, schema, {"id": 1, "who": "a"})


def test_a_schema_without_a_name_has_no_subject(registry: SchemaRegistry) -> None:
    given = options(registry, **{"subject.name.strategy.type": "RECORD"})
    source = SchemaSource(Document("json", '{"type": "object"}'))

    with pytest.raises(UnfitError, match="the schema has no name"):
        Encoder("json", given, source).number("topic")


def test_values_that_do_not_fit_are_bad(registry: SchemaRegistry) -> None:
    registry.add("fit-value", OLD)
    values = pa.array(
        [{"id": 1, "who": "a"}, {"id": 2, "who": None}, None, {"id": 2**40, "who": ""}]
    )
    topics = pa.array(["fit"] * 4)

    made = Encoder("avro", options(registry), None).encode(values, topics)

    is_bad = [error is not None for error in made.field("error").to_pylist()]
    assert is_bad == [False, True, False, True]
    assert [value is not None for value in made.field("value").to_pylist()] == [True] + 3 * [False]
    with pytest.raises(UnfitError, match="the value has no field who"):
        Encoder("avro", options(registry), None).encode(pa.array([{"id": 1}]), pa.array(["fit"]))
    with pytest.raises(UnfitError, match="cast"):
        Encoder("avro", options(registry), None).encode(pa.array([b"raw"]), pa.array(["fit"]))
    with pytest.raises(UnfitError, match="the schema has no field x"):
        Encoder("avro", options(registry), None).encode(
            pa.array([{"id": 1, "who": "a", "x": 1}]), pa.array(["fit"])
        )


def test_each_batch_finds_the_latest_version_once(registry: SchemaRegistry) -> None:
    number = registry.add("latest-value", {**OLD, "name": "Latest"})
    given = options(registry, **{"cache.latest.ttl.sec": "0"})
    encoder = Encoder("avro", given, None)

    made = encoder.encode(pa.array([{"id": 1, "who": "a"}]), pa.array(["latest"]))

    assert made.field("value")[0].as_py()[:5] == wire(number, b"")
    assert registry.requests["GET /subjects/latest-value/versions/latest"] == 1


PAIR: Any = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}],
}


def test_ids_belong_to_the_context_of_the_readers_subject(registry: SchemaRegistry) -> None:
    number = registry.add(":.swap:pair-value", PAIR)
    other = {**PAIR, "fields": PAIR["fields"][::-1]}
    while registry.add("pair-value", {**other, "doc": str(registry.subjects())}) < number:
        pass  # so that the default context also has a schema with the id
    document = registry_document(registry, ":.swap:pair-value")
    value = avro(number, PAIR, {"a": 1, "b": 2})
    decoder = Decoder("avro", options(registry), document, subject=":.swap:pair-value")

    assert decoded(decoder, [value]) == ([{"a": 1, "b": 2}], [None])
