"""Batches of records to tables by the registry's schemas, and tables to values."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import proto_files
import pyarrow as pa
import pytest

from cykafka.schemas import codec
from cykafka.schemas.arrow import json_schema
from cykafka.schemas.arrow.batches import decode_batch, encode_table
from cykafka.schemas.arrow.columns import plain_lists
from cykafka.schemas.arrow.json_columns import to_json
from cykafka.schemas.model.document import Document, UnfitError
from cykafka.schemas.model.error import SchemaNotFoundError
from cykafka.schemas.model.framing import frame_guid
from cykafka.schemas.model.schema import Schema, SchemaReference
from cykafka.schemas.registry.client import SchemaRegistryClient
from cykafka.schemas.serdes.protobuf_serde import ProtobufSerializer
from cykafka.serialization import MessageField, SerializationContext, SerializationError
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
PLACES = ["topic", "partition", "offset", "timestamp", "key"]


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


@pytest.fixture(scope="module")
def client(registry: SchemaRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def avro(number: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def batch(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.Table:
    """Records with the columns of a MessageBatch."""
    count = len(values)
    stamps = [datetime(2026, 1, 2, tzinfo=UTC)] * count
    return pa.table(
        {
            "key": pa.array(keys or [None] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["orders"] * count, pa.string()),
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(17, 17 + count), pa.int64()),
            "timestamp": pa.array(stamps, pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(scope="module")
def orders(registry: SchemaRegistry) -> list[bytes | None]:
    old, new = registry.add("order-value", OLD), registry.add("order-value", NEW)
    return [
        avro(old, OLD, {"id": 1, "who": "a"}),
        b"\1nonsense",
        None,
        avro(new, NEW, {"id": 2**40, "customer": "b", "total": 1.5}),
        avro(old, OLD, {"id": 2, "who": "c"})[:-1],
    ]


def test_the_newest_schema_of_a_batch_reads_all_of_them(
    client: SchemaRegistryClient, orders: list[bytes | None]
) -> None:
    table = decode_batch(client, batch(orders))

    assert table.column_names == [*PLACES, "id", "customer", "total", "error"]
    assert table["id"].to_pylist() == [1, None, None, 2**40, None]
    assert table["customer"].to_pylist() == ["a", None, None, "b", None]
    assert table["offset"].to_pylist() == [17, 18, 19, 20, 21]
    errors = table["error"].to_pylist()
    assert [error is None for error in errors] == [True, False, True, True, False]
    assert "the value cannot be decoded: it is not in the wire format" in errors[1]
    assert "it ends early" in errors[4] or "out of range" in errors[4]


def test_null_may_be_an_object_of_the_schema(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    of = [{"type": "null", "note": 1}, "int"]
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": of}]}
    number = registry.add("null-object-value", schema)
    payloads: list[bytes | None] = [avro(number, schema, {"n": value}) for value in (1, None)]
    table = decode_batch(client, batch(payloads))
    assert table["error"].null_count == 2
    assert table["n"].to_pylist() == [1, None]
    made = client.encode_table("null-object", pa.table({"n": [1, None]}))
    assert made["value"].to_pylist() == payloads


def test_subject_needs_a_version(client: SchemaRegistryClient, orders: list[bytes | None]) -> None:
    with pytest.raises(ValueError, match="expected SUBJECT:VERSION, such as orders-value:latest"):
        decode_batch(client, batch(orders), schema="order-value")


def test_drop_omits_bad_records_and_says_how_many(
    client: SchemaRegistryClient, orders: list[bytes | None]
) -> None:
    table = decode_batch(client, batch(orders), mode="DROP")

    assert table["offset"].to_pylist() == [17, 19, 20]
    assert "error" not in table.column_names
    assert table.schema.metadata == {b"dropped": b"2"}


def test_fail_names_the_record(client: SchemaRegistryClient, orders: list[bytes | None]) -> None:
    with pytest.raises(SerializationError, match=r"orders\[3\] offset 18: the value cannot be"):
        decode_batch(client, batch(orders), mode="FAIL")

    assert len(decode_batch(client, batch(orders[2:4]), mode="FAIL")) == 2
    with pytest.raises(ValueError, match="mode: expected PERMISSIVE, DROP, FAIL"):
        decode_batch(client, batch(orders), mode="fail")


@pytest.mark.parametrize("given", ["order-value:1", json.dumps(OLD), Schema(json.dumps(OLD))])
def test_a_readers_schema_fixes_the_columns(
    client: SchemaRegistryClient, orders: list[bytes | None], given: Any
) -> None:
    table = decode_batch(client, batch([orders[0], b"x"]), schema=given)

    assert table.column_names == [*PLACES, "id", "who", "error"]
    assert table["who"].to_pylist() == ["a", None]
    assert decode_batch(client, batch([]), schema=given).schema == table.schema


def test_keys_strings_and_names_in_both(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    schema = {"type": "record", "name": "K", "fields": [{"name": "offset", "type": "long"}]}
    number = registry.add("k-key", schema)
    rows = [avro(number, schema, {"offset": 5}), b"bad"]

    both = decode_batch(client, batch(rows, rows), key="avro")
    texts = decode_batch(None, batch([b"a", b"\xff", None]), "string")

    assert both["value.offset"].to_pylist() == [5, None]
    assert both["offset"].to_pylist() == [17, 18]
    assert both["key"].to_pylist() == [{"offset": 5}, None]
    assert both["error"][1].as_py().startswith("the value cannot be decoded")
    assert texts["value"].to_pylist() == ["a", None, None]
    assert texts["error"].to_pylist()[1] == (
        "the value is not UTF-8: Invalid UTF8 payload"
    ) or "UTF" in texts["error"].to_pylist()[1]  # fmt: skip


class WithHeaders:
    """A batch whose records have headers with ids."""

    def __init__(self, values: list[bytes | None], heads: list[bytes | None]) -> None:
        self._values, self._heads = values, heads

    def header(self, name: str) -> list[bytes | None]:
        assert name == "__value_schema_id"
        return self._heads

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return batch(self._values).__arrow_c_stream__(requested_schema)


def test_header_comes_before_the_first_bytes_of_a_value(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    bits = registry.add("bits-value", {**OLD, "name": "Bits"})
    begins_with_zeros = avro(bits, {**OLD, "name": "Bits"}, {"id": 0, "who": "\0\0\0\0"})[5:]
    assert begins_with_zeros[0] == 0
    head = b"\0" + bits.to_bytes(4, "big")

    table = decode_batch(client, WithHeaders([begins_with_zeros], [head]))

    assert table["error"].to_pylist() == [None]
    assert table["who"].to_pylist() == ["\0\0\0\0"]


def test_columns_keep_all_fields_with_similar_names() -> None:
    value = b'{"error": 1, "value.error": 2, "value.value.error": 3}'

    table = decode_batch(None, batch([value]), "json")

    assert table.column_names[5:] == [
        "value.error", "value.value.error", "value.value.value.error", "error"
    ]  # fmt: skip
    assert sorted(table.to_pylist()[0][name] for name in table.column_names[5:-1]) == [1, 2, 3]


def test_bytes_after_the_id_in_a_header_do_not_belong_to_the_value(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    number = registry.add("more-value", {**OLD, "name": "More"})
    value = avro(number, {**OLD, "name": "More"}, {"id": 1, "who": "a"})[5:]
    head = b"\0" + number.to_bytes(4, "big")

    table = decode_batch(client, WithHeaders([value], [head + b"\6"]))

    assert table["error"].to_pylist() == [None]
    assert table["id"].to_pylist() == [1]


def guid_head(client: SchemaRegistryClient, subject: str, version: int = 1) -> bytes:
    """The header of a record for a version of a subject."""
    return frame_guid(UUID(client.get_version(subject, version).guid))


def test_ids_in_headers(client: SchemaRegistryClient, registry: SchemaRegistry) -> None:
    number = registry.add("guid-value", {**OLD, "name": "Guid"})
    value = avro(number, {**OLD, "name": "Guid"}, {"id": 1, "who": "a"})[5:]
    head, unknown = guid_head(client, "guid-value"), UUID(int=6)

    heads = [head, frame_guid(unknown), None, head]
    table = decode_batch(client, WithHeaders([value, value, value, value[:-1]], heads))

    assert table["who"].to_pylist() == ["a", None, None, None]
    errors = table["error"].to_pylist()
    assert f"no schema with the id {unknown}: Schema {unknown} not found" in errors[1]
    assert "not in the wire format" in errors[2]
    assert f"does not fit the schema {UUID(bytes=head[1:])}: " in errors[3]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROP", "FAIL"])
def test_null_with_a_header_stays_null(
    client: SchemaRegistryClient, registry: SchemaRegistry, mode: str
) -> None:
    number = registry.add("null-value", {**OLD, "name": "Null"})
    value = avro(number, {**OLD, "name": "Null"}, {"id": 1, "who": "a"})[5:]
    heads = [guid_head(client, "null-value")] * 2 + [b"wrong"]

    table = decode_batch(client, WithHeaders([value, None, None], heads), mode=mode)

    assert table["who"].to_pylist() == ["a", None, None]
    assert mode != "PERMISSIVE" or table["error"].null_count == 3


def test_ids_belong_to_the_context_of_the_readers_subject(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    schema, other = record("Context", "a", "b"), record("Context", "b", "a")
    number = registry.add(":.ids:context-value", schema)
    while registry.add(f"filler{number}", {**other, "doc": str(number)}) < number:
        pass  # so that the default context also has a schema with the id
    value = avro(number, schema, {"a": 1, "b": 2})

    named = decode_batch(client, batch([value]), schema=":.ids:context-value:latest", mode="FAIL")
    keys = decode_batch(
        client, batch([None], [value]), "bytes", "avro", key_schema=":.ids:context-value:1"
    )
    with SchemaRegistryClient({"url": f"{registry.url}/contexts/.ids"}) as of_context:
        newest = decode_batch(of_context, batch([value]), mode="FAIL")

    assert named.select(["a", "b"]).to_pylist() == [{"a": 1, "b": 2}]
    assert newest.select(["a", "b"]).to_pylist() == [{"a": 1, "b": 2}]
    assert keys["key"].to_pylist() == [{"a": 1, "b": 2}]


def test_json_with_and_without_a_schema(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer", "maximum": 9}, "at": {"type": "string", "format": "date-time"},
        "m": {"type": "object", "additionalProperties": {"type": "number"}}}}  # fmt: skip
    head = b"\0" + registry.add("json-value", schema, "JSON").to_bytes(4, "big")
    stamp = b'{"n": 1,\n "at": "2026-01-02T03:04:05Z", "m": {"a": 1}, "more": 1}'
    rows = [head + stamp, head + b'{"n": 10}', head + b"{}", head + b"{", b'{"n": 2}', b"\xff"]

    table = decode_batch(client, batch(rows), "json")
    plain = decode_batch(None, batch([b'{"a": 1}', b'{"a": 2, "b": ["x"]}', b"[]"]), "json")

    assert table["n"].to_pylist() == [1, None, None, None, 2, None]
    assert table["at"][0].as_py() == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert table["m"][0].as_py() == [("a", 1.0)]
    errors = table["error"].to_pylist()
    assert [error is None for error in errors] == [True, False, False, False, True, False]
    assert "/n: 10 is greater than the maximum of 9" in errors[1]
    assert plain["a"].to_pylist() == [1, 2, None]
    assert plain["b"].to_pylist() == [None, ["x"], None]
    assert "it is not an object" in plain["error"][2].as_py()


HARD_JSON = [
    b'{"n":1}{"n":2}',
    b"{",
    b"}",
    b'{"t":"a\nb"}',
    b'{"n":99999999999999999999}',
    b'{"t":"\xff"}',
    b'{"x":' + b"[" * 100_000,
    b'{"n":' + b'{"a":' * 100_000 + b"}",
    b'{"n":"1"}',
    b"null",
    b"",
]


@pytest.mark.parametrize("levels", [101, 900, 10_000])
@pytest.mark.parametrize(
    ("opening", "closing"),
    [(b'{"a":', b"}"), (b"[", b"]"), (b'["}]}]", ', b"]"), (b'["\\"]", [', b"]]"), (b"[", b"")],
)
def test_a_json_value_with_many_levels_is_bad_alone(
    client: SchemaRegistryClient,
    registry: SchemaRegistry,
    levels: int,
    opening: bytes,
    closing: bytes,
) -> None:
    deep = b'{"a":' + opening * levels + b"1" + closing * levels + b"}"
    shallow = json.dumps({"t": '["{[' * 200, "a": {str(name): [] for name in range(200)}}).encode()
    head = b"\0" + registry.add("levels", {"type": "object"}, "JSON").to_bytes(4, "big")
    for start in (b"", head):
        values: list[bytes | None] = [start + each for each in (shallow, deep, b'{"b": 1}')]
        table = decode_batch(client, batch([*values, None]), "json")
        assert table["b"].to_pylist() == [None, None, 1, None]
        errors = table["error"].to_pylist()
        assert [errors[0], *errors[2:]] == [None] * 3
        assert "more than 100 levels" in errors[1] or "it is not JSON" in errors[1]


def test_a_json_value_may_have_100_levels() -> None:
    value = b'{"a":' * 100 + b"1" + b"}" * 100
    assert decode_batch(None, batch([value]), "json")["error"].to_pylist() == [None]


@pytest.mark.parametrize("good", [0, 200])
def test_bad_json_is_bad_alone(good: int) -> None:
    schema = json.dumps({"type": "object", "properties": {
        "n": {"type": "integer"}, "t": {"type": "string"}}})  # fmt: skip
    rows = [*HARD_JSON, *[b'{"n":7}'] * good]

    table = decode_batch(None, batch(rows), "json", schema=schema)

    assert table["n"].to_pylist() == [None] * len(HARD_JSON) + [7] * good
    assert table["error"].null_count == good


PROTO = proto_files.proto(
    "o.proto",
    "p",
    {"Order": {"id": (1, "int64"), "who": (2, "string")}, "Other": {"n": (1, "int32")}},
)


def test_protobuf_by_the_message(client: SchemaRegistryClient, registry: SchemaRegistry) -> None:
    number = registry.add("p-value", proto_files.text(PROTO), "PROTOBUF")
    head = b"\0" + number.to_bytes(4, "big")
    rows = [head + b"\0\x08\x05\x12\x01a", head + b"\x02\x02\x08\x07", head + b"\0\xff"]

    first = decode_batch(client, batch(rows), "protobuf")
    other = decode_batch(client, batch(rows), "protobuf", schema="p-value:1#p.Other")

    assert first["id"].to_pylist() == [5, None, None]
    assert "its message is p.Other, expected p.Order" in first["error"][1].as_py()
    assert other["n"].to_pylist() == [None, 7, None]


@pytest.mark.parametrize("schema", [None, "p-value:latest"])
def test_protobuf_by_the_message_that_records_name(
    client: SchemaRegistryClient, registry: SchemaRegistry, schema: str | None
) -> None:
    number = registry.add("p-value", proto_files.text(PROTO), "PROTOBUF")
    head = b"\0" + number.to_bytes(4, "big")

    table = decode_batch(
        client, batch([head + b"\x01", head + b"\x02\x02\x08\x07"]), "protobuf", schema=schema
    )

    assert table["n"].to_pylist() == [None, 7]


@pytest.mark.parametrize("schema", [None, "ping-value:latest"])
def test_protobuf_skips_a_message_without_fields(
    client: SchemaRegistryClient, registry: SchemaRegistry, schema: str | None
) -> None:
    file = proto_files.proto("ping.proto", "q", {"Order": {"id": (1, "int64")}, "Ping": {}})
    number = registry.add("ping-value", proto_files.text(file), "PROTOBUF")
    head = b"\0" + number.to_bytes(4, "big")
    rows = batch([head + b"\x02\x02", head + b"\0\x08\x05"])

    table = decode_batch(client, rows, "protobuf", schema=schema)

    assert table["id"].to_pylist() == [None, 5]
    assert "its message is q.Ping, expected q.Order" in table["error"][0].as_py()


def test_protobuf_of_only_a_message_without_fields_is_bad(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    file = proto_files.proto("ping.proto", "q", {"Order": {"id": (1, "int64")}, "Ping": {}})
    number = registry.add("ping-value", proto_files.text(file), "PROTOBUF")

    table = decode_batch(client, batch([b"\0" + number.to_bytes(4, "big") + b"\2\2"]), "protobuf")

    assert "q.Ping has no fields" in table["error"][0].as_py()


@pytest.mark.parametrize(
    "wrong", [b'{"a":2,"\xff":1}', b'{"a":2,"b":{"\xff":1}}', b'{"a":2,"b":"\xff"}']
)
@pytest.mark.parametrize("schema", [None, '{"properties": {"a": {"type": "integer"}}}'])
@pytest.mark.parametrize("good", [1, 100])
def test_json_that_is_not_utf_8_is_one_bad_record(
    wrong: bytes, schema: str | None, good: int
) -> None:
    rows: list[bytes | None] = [wrong, *[b'{"a":1}'] * good]
    table = decode_batch(None, batch(rows), "json", schema=schema)
    assert table["a"].to_pylist() == [None] + [1] * good
    assert table["error"].null_count == good


@pytest.mark.parametrize("good", [0, 100])
def test_json_may_have_space_around_it(good: int) -> None:
    rows = [b'{"a":1}\n', b' {"a":2,"b":"x"}\r\n', b'\t{"a":\n3}', *[b'{"a":4}'] * good]
    for schema in (None, '{"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}'):
        table = decode_batch(None, batch([*rows]), "json", schema=schema)
        assert table["error"].null_count == len(rows)
        assert table["a"].to_pylist() == [1, 2, 3] + [4] * good
        assert table["b"].to_pylist() == [None, "x", None] + [None] * good


def test_indexes_of_a_message_are_in_the_header(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    number = registry.add("head-value", proto_files.text(PROTO), "PROTOBUF")
    head = b"\0" + number.to_bytes(4, "big")
    values: list[bytes | None] = [b"\x08\x05", b"\x08\x07", b"\x08\x09"]
    batch_of = WithHeaders(values, [head + b"\0", head + b"\x02\x02", head[:3]])

    table = decode_batch(client, batch_of, "protobuf")

    assert table["id"].to_pylist() == [5, None, None]
    errors = table["error"].to_pylist()
    assert "its message is p.Other, expected p.Order" in errors[1]
    assert "its header is wrong: 3 bytes are too few" in errors[2]


@pytest.mark.usefixtures("orders")  # which registers the schema
def test_tables_become_values_and_come_back(client: SchemaRegistryClient) -> None:
    table = pa.table({"id": [1, 2], "customer": ["a", "b"], "k": [b"x", b"y"]})
    client_subject = "order-value"

    made = client.encode_table("order", table, apart=["k", None])

    assert made.column_names == ["k", "value"]
    back = decode_batch(client, batch(made["value"].to_pylist()))
    assert back["id"].to_pylist() == [1, 2]
    assert back["total"].to_pylist() == [None, None]
    old = client.encode_table(None, table.select(["id"]).append_column("who", table["customer"]),
                              subject=client_subject, schema=json.dumps(OLD))  # fmt: skip
    assert decode_batch(client, batch(old["value"].to_pylist()))["who"].to_pylist() == ["a", "b"]
    for more, error, words in [
        ({"x": [1, 2]}, UnfitError, r"the schema \d+ \(shop.Order\): the schema has no field x"),
        ({"total": ["a", "b"]}, SerializationError, "row 0 of 2 does not fit the schema"),
    ]:
        wrong = pa.table({"id": [1, 2], "customer": ["a", "b"], **more})
        with pytest.raises(error, match=words):
            client.encode_table("order", wrong)
    with pytest.raises(SchemaNotFoundError, match="register the schema in the subject unknown-va"):
        client.encode_table("unknown", table)
    with pytest.raises(ValueError, match="subject: expected a name"):
        client.encode_table(None, table)


def test_json_and_protobuf_tables_come_back(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    registry.add("pt-value", proto_files.text(PROTO), "PROTOBUF")
    properties = {"id": {"type": "integer"}, "who": {"type": "string", "maxLength": 3}}
    registry.add("jt-value", {"type": "object", "properties": properties}, "JSON")
    table = pa.table({"id": [1, 2], "who": ["a", "b"]})

    for topic, form in [("pt", "protobuf"), ("jt", "json")]:
        made = client.encode_table(topic, table)
        back = decode_batch(client, batch(made["value"].to_pylist()), form, mode="FAIL")
        assert back.select(["id", "who"]).to_pylist() == table.to_pylist()
    with pytest.raises(SerializationError, match=r"row 0 of 1 does not fit the schema .*/who"):
        client.encode_table("jt", pa.table({"id": [1], "who": ["long"]}))


def test_json_of_every_type() -> None:
    kind = pa.struct(
        [
            ("i", pa.int64()),
            ("d", pa.float64()),
            ("b", pa.bool_()),
            ("s", pa.string()),
            ("y", pa.binary()),
            ("at", pa.timestamp("ms", "Europe/Berlin")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("price", pa.decimal128(9, 2)),
            ("l", pa.list_(pa.struct([("x", pa.int32())]))),
            ("m", pa.map_(pa.string(), pa.list_(pa.string()))),
            ("n", pa.null()),
        ]
    )
    rows = [
        {
            "i": -5,
            "d": 1e300,
            "b": True,
            "s": 'a"\\\n\x01\u00e9\U0001f600',
            "y": b"raw",
            "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
            "local": datetime(2026, 1, 2, 3, 4, 5),
            "day": date(2026, 1, 2),
            "price": Decimal("12.30"),
            "l": [{"x": 1}, None, {"x": None}],
            "m": [('k"', ["v", None]), ("e", [])],
            "n": None,
        },
        None,
        {},
    ]
    values = pa.array(rows, kind)

    made = to_json(values).to_pylist()

    assert json.loads(made[0]) == {
        "i": -5,
        "d": 1e300,
        "b": True,
        "s": 'a"\\\n\x01\u00e9\U0001f600',
        "y": "raw",
        "at": "2026-01-02T03:04:05.678Z",
        "local": "2026-01-02T03:04:05.000000",
        "day": "2026-01-02",
        "price": 12.3,
        "l": [{"x": 1}, None, {"x": None}],
        "m": {'k"': ["v", None], "e": []},
        "n": None,
    }
    assert made[1] is None
    assert json.loads(made[2]) == dict.fromkeys([field.name for field in kind])
    assert to_json(values[2:]).to_pylist() == made[2:]
    with pytest.raises(ValueError, match="not finite"):
        to_json(pa.array([{"d": float("nan")}]))
    with pytest.raises(UnfitError, match="JSON has no"):
        to_json(pa.array([{"d": timedelta(1)}]))


ORDER_FILE = proto_files.text(
    proto_files.proto("once.proto", "once", {"Order": {"id": (1, "int64")}})
)


@pytest.mark.parametrize(
    ("form", "good", "bad", "compiler"),
    [
        ("avro", json.dumps(OLD), '{"type": "record", "fields": []}', "arrow.avro.AvroSchema"),
        ("json", '{"properties": {"id": {}}}', '{"type": 7}', "arrow.json_schema.validator_for"),
        ("protobuf", ORDER_FILE, "AAAA", "model.protobuf_files._parsed"),
    ],
)
def test_an_unfit_schema_is_compiled_once(
    form: str, good: str, bad: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client:
        def document_by_id(self, number: int, _: str | None) -> Document:
            return Document(form, bad, id=number)

        def document_by_version(self, *_: Any, modes: Any) -> Document:
            return Document(form, bad, id=1)

        def document(self, schema: Schema, *, modes: Any) -> Document:
            return Document(form, schema.schema_str)

    client: Any = Client()
    module, name = compiler.rsplit(".", 1)
    compiled: list[str] = []
    known = getattr(importlib.import_module(f"cykafka.schemas.{module}"), name)

    def compile_(document: Any, *args: Any, **kwargs: Any) -> Any:
        compiled.append(document)
        return known(document, *args, **kwargs)

    monkeypatch.setattr(f"cykafka.schemas.{compiler}", compile_)
    monkeypatch.setattr(codec, "shared_client", lambda _: client)
    records = batch([b"\0\0\0\0\1\0"])
    decoder = codec.Decoder(form, (), None if form == "json" else Document(form, good))

    errors, counts = set(), []
    for _ in range(3):
        table = decode_batch(client, records, form, schema=Schema(good, form.upper()))
        errors.update(table["error"].to_pylist())
        made = decoder.decode(records["value"].combine_chunks())
        errors.add(made.field("error")[0].as_py())
        with pytest.raises(UnfitError) as caught:
            encode_table(client, "orders", pa.table({"id": [1]}))
        errors.add(str(caught.value))
        counts.append(len(compiled))

    assert counts[0] > 0
    assert counts == [counts[0]] * 3
    assert len(errors) == 2  # jobs and decode_batch() say the same
    assert sum("the schema 1 cannot be used: " in str(error) for error in errors) == 1


def test_a_json_schema_with_properties_needs_no_type(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    number = registry.add("orders-value", {"properties": {"id": {"type": "integer"}}}, "JSON")
    head = b"\0" + number.to_bytes(4, "big")
    table = decode_batch(client, batch([head + b'{"id": 7}', head + b"7"]), "json")
    assert table["id"].to_pylist() == [7, None]
    assert "not an object" in table["error"][1].as_py()


def test_json_columns_are_in_the_order_of_the_schema(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    def numbers(*names: str) -> Any:
        return {"type": "object", "properties": {name: {"type": "integer"} for name in names}}

    number = registry.add("place-value", {"$id": "http://a/place", **numbers("y", "x")}, "JSON")
    schema = {
        "$id": "http://a/order",
        "type": "object",
        "properties": {
            "total": {"type": "integer"},
            "place": {"$ref": "http://a/place"},
            "again": {"$ref": "#/$defs/alias"},
            "inner": numbers("b", "c", "a"),
            "list": {"type": "array", "items": numbers("n", "m")},
            "self": {"type": "object", "properties": {"z": {"$ref": "#/$defs/loop"}}},
            "customer": {"type": "string"},
        },
        "$defs": {
            "alias": {"$ref": "#/$defs/real"},
            "real": {"description": "x", **numbers("r2", "r1")},
            "loop": {"type": "object", "properties": {
                "w": {"type": "integer"}, "v": {"$ref": "#/$defs/loop"}}},
        },
    }  # fmt: skip
    references = [SchemaReference("http://a/place", "place-value", 1)]
    number = client.register_schema(
        "ordered-value", Schema(json.dumps(schema), "JSON", references)
    )
    value = {"customer": "a", "total": 5, "place": {"x": 1, "y": 2}}
    data = b"\0" + number.to_bytes(4, "big") + json.dumps(value).encode()

    table = decode_batch(client, batch([data]), "json", mode="FAIL")

    assert table.column_names == [*PLACES, *schema["properties"]]
    names = {name: [field.name for field in table.schema.field(name).type]
             for name in ("place", "again", "inner", "self")}  # fmt: skip
    assert names == {"place": ["y", "x"], "again": ["r2", "r1"], "inner": ["b", "c", "a"],
                     "self": ["z"]}  # fmt: skip
    assert [field.name for field in table.schema.field("list").type.value_type] == ["n", "m"]
    z = table.schema.field("self").type.field("z").type
    assert [field.name for field in z] == ["w", "v"]
    assert table["place"].to_pylist() == [{"y": 2, "x": 1}]


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize(
    "bad",
    [
        b'{"a": NaN}',
        b'{"a":-Infinity}',
        b'{"a":\n Infinity}',
        b'{"more":[1, NaN]}',
        b'{"a": -Inf}',
    ],
)
def test_numbers_that_json_lacks_are_bad(bad: bytes, is_named: bool) -> None:
    good = [b'{"a": 1.5, "s": ": NaN, Infinity"}', b'{"a": 2}']
    text = '{"type": "object", "properties": {"a": {"type": "number"}, "s": {"type": "string"}}}'
    schema = Schema(text, "JSON") if is_named else None

    table = decode_batch(None, batch([good[0], bad, good[1]]), "json", schema=schema)

    assert table["a"].to_pylist() == [1.5, None, 2]
    assert table["s"].to_pylist() == [": NaN, Infinity", None, None]
    errors = table["error"].to_pylist()
    assert errors[::2] == [None, None]
    assert errors[1].startswith("the value cannot be decoded: it is not JSON of the schema: ")


PROTO_TEXT = 'syntax = "proto3"; package once; message Order { int64 id = 1; }'


def test_the_text_of_a_proto_file_needs_the_registrys_descriptor(
    client: SchemaRegistryClient, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = registry.add("text-value", PROTO_TEXT, "PROTOBUF")
    words = (
        "the text of a .proto file, which cykafka does not compile. Use a registry that returns"
    )
    table = pa.table({"id": [5]})
    data = b"\0" + number.to_bytes(4, "big") + b"\0\x08\x05"
    schema = Schema(PROTO_TEXT, "PROTOBUF")

    assert words in decode_batch(client, batch([data]), "protobuf")["error"][0].as_py()
    for call in (
        lambda: decode_batch(client, batch([data]), "protobuf", schema=schema),
        lambda: decode_batch(client, batch([data]), "protobuf", schema=PROTO_TEXT),
        lambda: client.encode_table("text", table),
        lambda: client.encode_table("text", table, schema=PROTO_TEXT),
        lambda: client.encode_table("text", table, schema=schema),
    ):
        with pytest.raises(UnfitError, match=words):
            call()
    message = proto_files.message(
        "once.Order", proto_files.proto("once.proto", "once", {"Order": {"id": (1, "int64")}})
    )
    with pytest.raises(SerializationError, match=words):
        ProtobufSerializer(
            message, client, {"use.latest.version": True, "auto.register.schemas": False}
        )(message(id=5), SerializationContext("text", MessageField.VALUE))

    class Compiling(SchemaRegistryClient):
        """A client of a registry that returns descriptors."""

        def get_schema(self, *args: Any, **kwargs: Any) -> Schema:
            found = super().get_schema(*args[:2])
            wants = "serialized" in (*args, *kwargs.values())
            return Schema(ORDER_FILE, "PROTOBUF") if wants else found

    with Compiling({"url": registry.url}) as compiling:
        for given in (None, PROTO_TEXT, schema, "text-value:1"):
            encoded = compiling.encode_table("text", table, schema=given)
            assert encoded["value"].to_pylist() == [data]
        assert decode_batch(compiling, batch([data]), "protobuf")["id"].to_pylist() == [5]


def test_references_of_a_json_schema_are_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def inlined(*args: Any) -> Any:
        made.append(args)
        return known(*args)

    known = json_schema.inlined
    monkeypatch.setattr(json_schema, "inlined", inlined)
    schema = Schema(
        '{"title": "Once", "type": "object", "properties": {"id": {"type": "integer"}}}', "JSON"
    )
    unfit = Schema('{"title": "Twice", "properties": {"id": {"$ref": "#/no"}}}', "JSON")
    for _ in range(3):
        table = decode_batch(None, batch([b'{"id": 1}']), "json", schema=schema)
        assert table["id"].to_pylist() == [1]
        with pytest.raises(UnfitError):
            decode_batch(None, batch([b'{"id": 1}']), "json", schema=unfit)

    assert len(made) == 2


def record(name: str, *fields: str) -> dict[str, Any]:
    kinds = [{"name": field, "type": "long"} for field in fields]
    return {"type": "record", "name": name, "fields": kinds}


def test_references_of_a_table_are_in_the_context_of_the_subject(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    registry.add("point", record("Point", "x", "y"))
    registry.add(":.swap:point", record("Point", "y", "x"))
    outer = {**record("Outer"), "fields": [{"name": "at", "type": "Point"}]}
    references = [SchemaReference("Point", "point", 1)]
    schema = Schema(json.dumps(outer), "AVRO", references)
    client.register_schema(":.swap:outer", schema)
    table = pa.table({"at": pa.array([{"x": 1, "y": 2}])})

    for given in (None, schema, schema.schema_str, ":.swap:outer:1"):
        made = client.encode_table(None, table, subject=":.swap:outer", schema=given)
        assert made["value"][0].as_py()[5:] == b"\4\2"


def test_the_text_of_an_older_version_has_no_references_of_the_latest(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    registry.add("inner", record("Inner", "x"))
    old = json.dumps(record("Aged", "id"))
    number = registry.add("aged-value", old)
    inner = {"name": "inner", "type": ["null", "Inner"], "default": None}
    aged = record("Aged", "id")
    newer = json.dumps({**aged, "fields": [*aged["fields"], inner]})
    reference = {"name": "Inner", "subject": "inner", "version": 1}
    newest = registry.add("aged-value", newer, references=[reference])
    table = pa.table({"id": [1]})

    for given, expected in [
        (old, number), (newer, newest), (" aged-value:1\n", number), (None, newest)
    ]:  # fmt: skip
        made = client.encode_table("aged", table, schema=given)
        assert made["value"][0].as_py()[1:5] == expected.to_bytes(4, "big")
    with pytest.raises(SchemaNotFoundError):
        client.encode_table("aged", table, schema=json.dumps(record("Aged", "other")))


def test_unknown_ids_of_a_batch_have_a_limit(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    number = registry.add("few-value", record("Few", "n"))
    unknown: list[bytes | None] = [b"\0\1" + bytes(divmod(at, 256)) + b"\7" for at in range(300)]
    good = avro(number, record("Few", "n"), {"n": 5})
    registry.requests.clear()

    table = decode_batch(client, batch([*unknown, good, good]))

    assert table["n"].to_pylist() == [None] * 300 + [5, 5]
    assert registry.requests.total() <= 110
    errors = table["error"].to_pylist()
    assert "no schema with the id 16777223: 404" in errors[0]
    assert "100 schema ids of the batch are unknown" in errors[299]


TREE = {"type": "record", "name": "Tree", "fields": [
    {"name": "next", "type": ["null", "Tree"], "default": None}]}  # fmt: skip


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROP", "FAIL"])
def test_an_unusable_schema_makes_only_its_records_bad(
    client: SchemaRegistryClient, registry: SchemaRegistry, mode: str, headers: bool
) -> None:
    number, tree = registry.add("good-value", record("Good", "n")), registry.add("tree", TREE)
    rows = [avro(number, record("Good", "n"), {"n": 5}), avro(tree, TREE, {"next": None})]
    heads = [guid_head(client, "good-value"), guid_head(client, "tree")]
    given = WithHeaders([row[5:] for row in rows], heads) if headers else batch(rows)  # type: ignore[arg-type]

    if mode == "FAIL":
        with pytest.raises(SerializationError, match="Tree contains itself"):
            decode_batch(client, given, mode=mode)
        return
    table = decode_batch(client, given, mode=mode)

    assert table["n"].to_pylist() == [5, None][: len(table)]
    if mode == "DROP":
        assert table.schema.metadata == {b"dropped": b"1"}
    else:
        name = UUID(bytes=heads[1][1:]) if headers else tree
        words = f"the value cannot be decoded: the schema {name} cannot be used: Tree contains"
        assert table["error"][1].as_py().startswith(words)


def test_the_largest_schema_of_guids_is_the_readers(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    old = record("Grown", "a")
    part = {**record("Part", "x", "y")}
    optional = {"name": "part", "type": ["null", part], "default": None}
    new = {**old, "fields": [*old["fields"], optional]}
    registry.add("grown-value", old)
    registry.add("grown-value", new)
    first, second = guid_head(client, "grown-value", 1), guid_head(client, "grown-value", 2)
    rows = [(avro(1, old, {"a": 1})[5:], first),
            (avro(2, new, {"a": 2, "part": {"x": 3, "y": 4}})[5:], second)]  # fmt: skip

    for given in (rows, rows[::-1]):
        table = decode_batch(client, WithHeaders(*map(list, zip(*given, strict=True))))
        assert table.sort_by("a").select(["a", "part", "error"]).to_pylist() == [
            {"a": 1, "part": None, "error": None},
            {"a": 2, "part": {"x": 3, "y": 4}, "error": None},
        ]


@pytest.mark.parametrize(
    ("schema", "value", "kind", "expected", "bad"),
    [
        ({"type": "array", "items": {"type": "integer"}}, b"[1, 2]", pa.list_(pa.int64()),
         [1, 2], b'["a"]'),
        ({"type": "string", "maxLength": 2}, b'"ab"', pa.string(), "ab", b'"abc"'),
        ({"type": ["null", "integer"]}, b"7", pa.int64(), 7, b'"a"'),
        ({"type": ["string", "integer"]}, b"7", pa.string(), "7", b"{}"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, b'{"a": 1}',
         pa.map_(pa.string(), pa.int64()), [("a", 1)], b'{"a": "x"}'),
    ],
)  # fmt: skip
def test_a_json_schema_that_is_not_a_record_is_the_column_value(
    client: SchemaRegistryClient, registry: SchemaRegistry, schema: Any, value: bytes,
    kind: pa.DataType, expected: Any, bad: bytes,
) -> None:  # fmt: skip
    name = f"root{len(registry.subjects())}"
    head = b"\0" + registry.add(name, schema, "JSON").to_bytes(4, "big")
    rows = batch([head + value, head + bad, None])

    for given in (None, f"{name}:1", json.dumps(schema)):
        table = decode_batch(client, rows, "json", schema=given)

        assert table.column_names == [*PLACES, "value", "error"]
        assert len(pa.array([], kind).cast(table.schema.field("value").type)) == 0
        assert table["value"].to_pylist() == [expected, None, None]
        assert [error is None for error in table["error"].to_pylist()] == [True, False, True]


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "required": ["a"]},
                                    {"allOf": [{"type": "object"}]}, {}])  # fmt: skip
def test_a_json_schema_without_columns_gets_those_of_the_values(
    client: SchemaRegistryClient, registry: SchemaRegistry, schema: Any
) -> None:
    name = f"free{len(registry.subjects())}"
    head = b"\0" + registry.add(name, schema, "JSON").to_bytes(4, "big")

    for given in (None, f"{name}:1"):
        table = decode_batch(client, batch([head + b'{"a": 1}', head + b"[1]"]), "json",
                             schema=given)  # fmt: skip
        assert table["a"].to_pylist() == [1, None]
    table = decode_batch(client, batch([head + b"[1]", b"[1]"]), "json")
    errors = table["error"].to_pylist()
    assert "object" in errors[0]
    assert "a JSON object whose type pyarrow can infer: pass schema=" in errors[1]


def test_a_given_schema_defines_the_columns_of_bare_json(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    schema = {"type": "object", "required": ["b"], "properties": {
        "a": {"type": "integer", "minimum": 5}, "b": {"type": "string"}}}  # fmt: skip
    registry.add("bare-value", schema, "JSON")
    rows = batch([b'{"a": 1, "c": 2}', b'{"a": "x"}', None])

    for given in ("bare-value:1", json.dumps(schema)):
        table = decode_batch(client, rows, "json", schema=given)
        assert table.column_names == [*PLACES, "a", "b", "error"]
        assert table["a"].to_pylist() == [1, None, None]
        assert [error is None for error in table["error"].to_pylist()] == [True, False, True]


def test_the_check_of_a_json_schema_is_compiled_once(
    client: SchemaRegistryClient, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = b"\0" + registry.add("all", {"allOf": [{"required": ["a"]}]}, "JSON").to_bytes(4, "big")
    made = []
    known = json_schema.validator_for
    monkeypatch.setattr(
        json_schema, "validator_for", lambda *args: made.append(args) or known(*args)
    )

    for _ in range(5):
        assert decode_batch(client, batch([head + b'{"a": 1}']), "json")["a"].to_pylist() == [1]

    assert len(made) == 1


def rules(mode: str | None) -> dict[str, Any]:
    rule = {"name": "r", "kind": "CONDITION", "type": "CEL", "expr": "true"}
    return {"domainRules": [{**rule, "mode": mode} if mode else rule]}


@pytest.mark.parametrize(
    ("mode", "is_read", "is_written"),
    [("WRITE", True, False), ("READ", False, True), ("WRITEREAD", False, False),
     ("UPGRADE", False, True), (None, False, False)],
)  # fmt: skip
def test_only_rules_of_reading_refuse_a_reader_and_of_writing_a_writer(
    client: SchemaRegistryClient, registry: SchemaRegistry, mode: Any, is_read: bool,
    is_written: bool,
) -> None:  # fmt: skip
    schema = record(f"Ruled{mode}", "a")
    subject = f"ruled{mode}"
    number = registry.add(subject, schema, ruleSet=rules(mode))
    value = avro(number, schema, {"a": 1})
    text = Schema(json.dumps(schema), rule_set=rules(mode))

    read = decode_batch(client, batch([value]), schema=json.dumps(schema))["error"].null_count == 1
    assert read is is_read
    for given in (f"{subject}:1", text):
        if is_read:
            table = decode_batch(client, batch([value]), schema=given, mode="FAIL")
            assert table["a"].to_pylist() == [1]
        else:
            with pytest.raises(UnfitError, match=r"rules, which cykafka does not apply: r \(CEL"):
                decode_batch(client, batch([value]), schema=given)
    for given in (None, f"{subject}:1", text):
        if is_written:
            made = client.encode_table(None, pa.table({"a": [1]}), subject=subject, schema=given)
            assert made["value"].to_pylist() == [value]
        else:
            with pytest.raises(UnfitError, match=r"rules, which cykafka does not apply: r \(CEL"):
                client.encode_table(None, pa.table({"a": [1]}), subject=subject, schema=given)


@pytest.mark.usefixtures("orders")
def test_columns_of_a_table_have_different_names(client: SchemaRegistryClient) -> None:
    columns = [pa.array([1]), pa.array(["a"]), pa.array(["b"]), pa.array([2])]
    table = pa.Table.from_arrays(columns, ["id", "customer", "customer", "id"])

    with pytest.raises(ValueError, match=r"^column names must be unique: id, customer$"):
        client.encode_table("order", table)


@pytest.mark.usefixtures("orders")
def test_a_column_may_be_apart_twice(client: SchemaRegistryClient) -> None:
    table = pa.table({"id": [1], "customer": ["a"], "k": [0]})

    made = client.encode_table("order", table, apart=["k", "k"])

    assert made.column_names == ["k", "value"]


ITEM = {"type": "record", "name": "Item", "fields": [
    {"name": "x", "type": "long"}, {"name": "n", "type": "long", "default": 7}]}  # fmt: skip
LISTS = {"type": "record", "name": "Lists", "fields": [
    {"name": "l", "type": ["null", {"type": "array", "items": ITEM}]},
    {"name": "k", "type": "string"}]}  # fmt: skip
LIST_FILE = proto_files.proto(
    "lists.proto", "", {"Lists": {"l": (1, "repeated .Item"), "k": (2, "string")},
                        "Item": {"x": (1, "int64"), "n": (2, "int64")}})  # fmt: skip
LIST_SCHEMA = {"properties": {"k": {"type": "string"}, "l": {"type": ["null", "array"], "items": {
    "type": "object", "properties": {"x": {"type": "integer"}}}}}}  # fmt: skip
LIST_SCHEMAS = {
    "avro": (json.dumps(LISTS), "AVRO"),
    "protobuf": (proto_files.text(LIST_FILE), "PROTOBUF"),
    "json": (json.dumps(LIST_SCHEMA), "JSON"),
}


@pytest.mark.parametrize("form", LIST_SCHEMAS)
@pytest.mark.parametrize(
    "list_of", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view,
                lambda of: pa.list_(of, 2)]
)  # fmt: skip
def test_lists_of_every_type_are_written_alike(
    client: SchemaRegistryClient, registry: SchemaRegistry, form: str, list_of: Any
) -> None:
    registry.add(f"lists-{form}-value", *LIST_SCHEMAS[form])
    rows = [None, [{"x": 1}, {"x": 2}], [{"x": 3}, {"x": 4}]]

    def table(*fields: str) -> pa.Table:
        kind = list_of(pa.struct([(name, pa.int64()) for name in fields]))
        names = pa.DictionaryArray.from_arrays([0, 1, 0, 0], ["a", "b"])
        return pa.table({"l": pa.array([*rows, rows[1]], kind), "k": names})[1:]

    made = client.encode_table(f"lists-{form}", table("x"))

    back = decode_batch(client, batch(made["value"].to_pylist()), form, mode="FAIL")
    found = [[item["x"] for item in items] for items in back["l"].to_pylist()]
    assert found == [[1, 2], [3, 4], [1, 2]]
    assert back["k"].to_pylist() == ["b", "a", "a"]
    if form != "json":
        with pytest.raises(UnfitError, match=r"the schema has no field l\.y"):
            client.encode_table(f"lists-{form}", table("x", "y"))


def test_lists_in_maps_are_plain() -> None:
    kind = pa.map_(pa.string(), pa.large_list(pa.int64()))
    rows = [[("a", [1])], None, [("b", [2, 3]), ("c", None)], []]

    for start in range(3):
        found = plain_lists(pa.array(rows, kind)[start:])
        assert found.type == pa.map_(pa.string(), pa.list_(pa.int64()))
        assert found.to_pylist() == rows[start:]


def json_table_writer(
    client: SchemaRegistryClient, registry: SchemaRegistry, topic: str, schema: Any
) -> Any:
    """A function that returns the values that a column's rows become."""
    registry.add(f"{topic}-value", schema, "JSON")

    def write(values: Any, kind: pa.DataType | None = None) -> list[Any]:
        made = client.encode_table(topic, pa.table({"v": pa.array(values, kind)}))
        return [json.loads(value[5:]) for value in made["value"].to_pylist()]

    return write


def test_json_errors_name_the_row(client: SchemaRegistryClient, registry: SchemaRegistry) -> None:
    write = json_table_writer(client, registry, "json-rows", {"type": "object"})
    twice = [[("a", 1)], [("a", 1), ("a", 2)]]
    for values, kind, words in [
        ([0.5, float("nan")], None, "a number is not finite"),
        ([b"a", b"\xff"], None, "UTF8"),
        (twice, pa.map_(pa.string(), pa.int64()), "a map has a duplicate key"),
    ]:
        with pytest.raises(SerializationError, match=f"^row 1 of 2 does not fit .*{words}"):
            write(values, kind)
    for kind in (pa.duration("s"), pa.map_(pa.list_(pa.int8()), pa.int8())):
        with pytest.raises(UnfitError, match="JSON has no"):
            write([None], kind)


@pytest.mark.parametrize(
    ("key", "kind", "text"),
    [
        (1, pa.int64(), "1"),
        (True, pa.bool_(), "true"),
        (Decimal("1.5"), pa.decimal128(2, 1), "1.5"),
        (date(2026, 1, 2), pa.date32(), "2026-01-02"),
        ('"', pa.large_string(), '"'),
    ],
)
def test_json_keys_are_texts(
    client: SchemaRegistryClient, registry: SchemaRegistry, key: Any, kind: Any, text: str
) -> None:
    write = json_table_writer(client, registry, "json-keys", {"type": "object"})
    found = write([[(key, 5)], None, []], pa.map_(kind, pa.int64()))
    assert found == [{"v": {text: 5}}, {"v": None}, {"v": {}}]


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "rows", "made"),
    [
        ({"properties": {"v": TEXT}}, ["a", None], [{"v": "a"}, {}]),
        ({"properties": {"v": TEXT}}, [None], [{}]),
        ({"properties": {"v": {"type": ["string", "null"]}}}, [None], [{"v": None}]),
        ({"properties": {"v": {"anyOf": [TEXT, {"type": "null"}]}}}, [None], [{"v": None}]),
        ({"properties": {"v": {"enum": ["a"]}}}, ["a", None], [{"v": "a"}, {}]),
        ({"properties": {"v": {"$ref": "#/$defs/v"}}, "$defs": {"v": TEXT}}, [None], [{}]),
        ({"properties": {"other": TEXT}}, [None], [{"v": None}]),
        ({"properties": {"v": TEXT}, "required": ["v"]}, [None], None),
        ({"properties": {"v": {"properties": {"x": TEXT, "y": TEXT}, "required": ["y"]}}},
         [{"x": None, "y": "a"}, {"x": "b", "y": "c"}],
         [{"v": {"y": "a"}}, {"v": {"x": "b", "y": "c"}}]),
        ({"properties": {"v": {"items": {"properties": {"x": TEXT}}}}},
         [[{"x": None}, None, {"x": "a"}]], [{"v": [{}, None, {"x": "a"}]}]),
    ],
)  # fmt: skip
def test_json_omits_absent_properties(
    client: SchemaRegistryClient, registry: SchemaRegistry, schema: Any, rows: Any, made: Any
) -> None:
    topic = f"json-{json.dumps(schema)}-{len(rows)}"
    write = json_table_writer(client, registry, topic, schema)
    if made is None:
        with pytest.raises(SerializationError, match="row 0 of 1 does not fit"):
            write(rows)
    else:
        assert write(rows) == made


@pytest.mark.parametrize("is_nested", [False, True])
def test_json_has_each_column_once_and_no_more_than_the_schema(
    client: SchemaRegistryClient, registry: SchemaRegistry, is_nested: bool
) -> None:
    one = pa.array([1], pa.int64())
    for number, (more, names, words) in enumerate([
        ({"additionalProperties": False}, ["x", "zz"], "the schema has no property zz"),
        ({"additionalProperties": False}, ["x"], None),
        ({"additionalProperties": False, "patternProperties": {"^z": {}}}, ["x", "zz"], None),
        ({}, ["x", "zz"], None),
        ({}, ["x", "y", "x"], "two fields of one name"),
    ]):  # fmt: skip
        schema = {"type": "object", "properties": {"x": {"type": "integer"}}, **more}
        struct = pa.StructArray.from_arrays([one] * len(names), names)
        if is_nested:
            schema = {"type": "object", "properties": {"v": {"items": schema}}}
            struct = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], struct)], ["v"])
        document = Document("json", json.dumps(schema), id=number)
        writer = json_schema.JsonWriter(document)
        if words is None:
            writer.check(struct.type)
            made = dict.fromkeys(names, 1)
            assert writer.write(struct)[1] == {}
            found = json.loads(writer.write(struct)[0][0].as_py())
            assert found == ({"v": [made]} if is_nested else made)
        else:
            with pytest.raises(UnfitError, match=words):
                writer.check(struct.type)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.timestamp("us", "Asia/Tokyo"), -62135596800000000, 253402300799999999),
        (pa.timestamp("s", "UTC"), -62135596800, 253402300799),
        (pa.date32(), -719162, 2932896),
    ],
    ids=str,
)
def test_json_has_the_times_that_are_read_again(
    client: SchemaRegistryClient, registry: SchemaRegistry, kind: pa.DataType, low: int, high: int
) -> None:
    form = "date" if kind == pa.date32() else "date-time"
    schema = {"properties": {"v": {"type": "string", "format": form}}}
    write = json_table_writer(client, registry, f"times-{kind}", schema)
    payloads: list[bytes | None] = [json.dumps(each).encode() for each in write([low, high], kind)]
    table = decode_batch(None, batch(payloads), "json", schema=json.dumps(schema))
    assert table["error"].null_count == 2
    for wrong in (low - 1, high + 1):
        with pytest.raises(SerializationError, match=r"row 1 of 3 .*years 1 and 9999"):
            write([low, wrong, None], kind)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.timestamp("s"), 1, "1970-01-01T00:00:01Z"),
        (pa.date32(), 1, "1970-01-02T00:00:00Z"),
        (pa.date64(), 86400000, "1970-01-02T00:00:00Z"),
    ],
    ids=str,
)
def test_json_has_a_time_zone_where_the_schema_has_one(
    client: SchemaRegistryClient,
    registry: SchemaRegistry,
    kind: pa.DataType,
    value: int,
    text: str,
) -> None:
    schema = {"properties": {"v": {"type": "string", "format": "date-time"}}}
    write = json_table_writer(client, registry, f"zone-{kind}", schema)
    assert write([value, None], kind) == [{"v": text}, {}]


def test_json_refuses_a_time_where_the_schema_has_a_date(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    schema = {"properties": {"v": {"type": "string", "format": "date"}}}
    write = json_table_writer(client, registry, "time-of-date", schema)
    with pytest.raises(UnfitError, match=r"format is date, and the column is timestamp\[s\]"):
        write([1], pa.timestamp("s"))


def test_json_of_null_does_not_depend_on_what_it_hides(
    client: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    nulls = pa.array([False, True, False])
    write = json_table_writer(client, registry, "hidden", {"type": "object"})
    keys = pa.array(["a", "b", "b", "c"])
    ends = pa.array([0, 1, 3, 4], pa.int32())
    maps = pa.MapArray.from_arrays(ends, keys, pa.array([1, 2, 3, 4]), mask=nulls)
    assert write(maps) == [{"v": {"a": 1}}, {"v": None}, {"v": {"c": 4}}]
    numbers = pa.array([1.5, float("nan"), 2.5])
    structs = pa.StructArray.from_arrays([numbers], ["x"], mask=nulls)
    assert write(structs) == [{"v": {"x": 1.5}}, {"v": None}, {"v": {"x": 2.5}}]


@pytest.mark.parametrize("good", [0, 100])
def test_json_values_do_not_depend_on_others(good: int) -> None:
    """An error makes Python parse the values of the same half."""
    of = {"type": ["object", "null"], "properties": {"n": {"type": "number"}}}
    kinds = {"n": {"type": "number"}, "l": {"type": "array", "items": of}}
    schema = json.dumps({"properties": kinds})
    number = b"9007199254740993"
    values: list[bytes | None] = [
        b'{"n": %s, "l": [{"n": %s}, null]}' % (number, number), b'{"n": "x"}', b'{"l": ""}',
        b'\xef\xbb\xbf{"n": 1}', '{"n": 1}'.encode("utf-16"), b'{"n": 1%s}' % (b"0" * 400),
    ]  # fmt: skip
    table = decode_batch(None, batch([*values, *[b"{}"] * good]), "json", schema=schema)
    assert table["n"].to_pylist()[:6] == [2.0**53, None, None, None, None, float("inf")]
    assert table["l"][0].as_py() == [{"n": 2.0**53}, None]
    is_bad = [error is not None for error in table["error"].to_pylist()[:6]]
    assert is_bad == [False, True, True, True, True, False]


@pytest.mark.parametrize("good", [0, 100])
@pytest.mark.parametrize(
    "column", ['{"v": %s}', '{"l": [%s]}', '{"m": {"k": %s}}', '{"o": {"v": %s}}']
)
@pytest.mark.parametrize(
    ("of", "value", "read"),
    [
        ({"type": "integer"}, "1.5", None),
        ({"type": "integer"}, "true", None),
        ({"type": "integer"}, "1e400", None),
        ({"type": "integer"}, "1e2", 100),
        ({"type": "integer"}, "null", None),
        ({"type": "number"}, "true", None),
        ({"type": "number"}, "[]", None),
        ({"type": "boolean"}, "1", None),
        ({"type": "string"}, "1", None),
        ({"type": "object", "properties": {"x": TEXT}}, "[]", None),
        ({"type": "object", "properties": {"x": TEXT}}, '[["x", "a"]]', None),
        ({"type": "object", "properties": {"x": TEXT}}, "{}", {"x": None}),
        ({"type": "object", "additionalProperties": TEXT}, "[]", None),
    ],
)
def test_json_of_another_type_is_bad(
    client: SchemaRegistryClient, registry: SchemaRegistry, good: int, column: str, of: Any,
    value: str, read: Any,
) -> None:  # fmt: skip
    schema = {"properties": {"v": of, "l": {"type": "array", "items": of},
              "m": {"type": "object", "additionalProperties": of},
              "o": {"type": "object", "properties": {"v": of}}}}  # fmt: skip
    payload = (column % value).encode()
    head = b"\0" + registry.add("any", {"type": "object"}, "JSON").to_bytes(4, "big")
    for start in (b"", head):
        values: list[bytes | None] = [start + payload, *[b'{"v": null}'] * good]
        table = decode_batch(client, batch(values), "json", schema=json.dumps(schema))
        is_bad = read is None and value != "null"
        assert [error is not None for error in table["error"].to_pylist()] == [
            is_bad,
            *[False] * good,
        ]
        if not is_bad:
            found = table[column[2]][0].as_py()
            assert found in (read, [read], [("k", read)], {"v": read})


@pytest.mark.parametrize("has_map", [False, True])
@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2023-11-14T22:13:20.1234567Z", datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)),
        ("2023-11-14T22:13:20.123456789+01:00", datetime(2023, 11, 14, 21, 13, 20, 123456, UTC)),
        ("2023-11-14t22:13:20.5z", datetime(2023, 11, 14, 22, 13, 20, 500000, UTC)),
        ("2016-12-31T23:59:60Z", None),
        ("2023-11-14T22:13:20", None),
    ],
)
def test_json_times_are_those_of_rfc_3339(has_map: bool, text: str, time: Any) -> None:
    kinds = {"at": {"type": "string", "format": "date-time"}}
    parts = {"type": "array", "items": {"type": ["object", "null"], "properties": kinds}}
    more = {"m": {"type": "object"}} if has_map else {}
    schema = json.dumps({"properties": {**kinds, "l": parts, **more}})
    values = [{"at": text, "l": [None, {"at": text}]}, {"at": "2026-01-02T00:00:00Z"}, {}]
    made = batch([json.dumps(value).encode() for value in values])
    table = decode_batch(None, made, "json", schema=schema)
    assert table["at"].to_pylist() == [time, datetime(2026, 1, 2, tzinfo=UTC), None]
    assert table["l"].to_pylist()[0] == (time and [None, {"at": time}])
    assert [error is None for error in table["error"].to_pylist()] == [bool(time), True, True]
