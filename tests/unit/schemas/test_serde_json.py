"""JSONSerializer and JSONDeserializer: values, checks, and values that are wrong."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from memory_registry import MemoryRegistry

from cykafka.schemas.arrow.json_schema import (
    JsonReader,
    JsonTableReader,
    JsonWriter,
    resolve_references,
)
from cykafka.schemas.model.document import Document, UnfitError
from cykafka.schemas.model.json_validation import accepts_null
from cykafka.schemas.model.schema import Schema, SchemaReference
from cykafka.schemas.serdes.json_serde import JSONDeserializer, JSONSerializer
from cykafka.serialization import MessageField, SerializationContext, SerializationError

pytestmark = pytest.mark.ours

CTX = SerializationContext("orders", MessageField.VALUE)
SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    }
)
HEAD = b"\0\0\0\0\1"


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"id": 1, "tags": ["é", "\u20ac"]}, '{"id":1,"tags":["é","€"]}'.encode()),
        ({"id": 10**30}, b'{"id":1' + b"0" * 30 + b"}"),
        ({"id": 1.0}, b'{"id":1.0}'),
        ({"id": 1, "tags": ("a",)}, b'{"id":1,"tags":["a"]}'),
        ({"id": 1, "at": "not a time"}, b'{"id":1,"at":"not a time"}'),  # a format is a comment
    ],
)
def test_values_go_through(registry: MemoryRegistry, value: Any, data: bytes) -> None:
    assert JSONSerializer(SCHEMA, registry)(value, CTX) == HEAD + data
    assert JSONDeserializer(SCHEMA)(HEAD + data, CTX) == json.loads(data)
    assert JSONDeserializer(SCHEMA)(HEAD + data) == json.loads(data)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "required"),
        ({"id": "1"}, "/id: "),
        ({"id": 1, "tags": ["a", 5]}, "/tags/1: "),
        ([], "the value: "),
        ({"id": 1, "x": float("nan")}, "not JSON compliant"),
        ({"id": 1, "x": {1, 2}}, "not JSON serializable"),
        ({"id": 1, "x": b""}, "not JSON serializable"),
        ({"id": 1, "x": "\ud800"}, "surrogates"),
    ],
)
def test_object_does_not_fit(registry: MemoryRegistry, value: Any, words: str) -> None:
    with pytest.raises(SerializationError, match=words) as caught:
        JSONSerializer(SCHEMA, registry)(value, CTX)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "Expecting value"),
        (b'{"id": 1', "Expecting"),
        (b'{"id": 1}x', "Extra data"),
        (b"\xff\xfe", "utf-8"),
        (b'{"id": NaN}', "JSON has no NaN"),
        (b'{"id": "1"}', "/id: "),
        (b'{"id": ' + b"1" * 5000 + b"}", "digits"),
        (b"[" * 10_000, "RecursionError"),
        (b'{"a":' * 100_000, "RecursionError"),
    ],
)
def test_value_is_wrong(registry: MemoryRegistry, payload: bytes, words: str) -> None:
    registry.add("orders-value", SCHEMA, "JSON")
    for read in (JSONDeserializer(SCHEMA), JSONDeserializer(None, None, registry)):
        with pytest.raises(SerializationError, match=words) as caught:
            read(HEAD + payload, CTX)
        assert caught.value.__cause__ is not None


def test_deep_object_is_an_error(registry: MemoryRegistry) -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(SerializationError, match="RecursionError"):
        JSONSerializer("{}", registry)(value, CTX)
    while value:
        value = value[0]


def test_deep_schema_checks_deep_values(registry: MemoryRegistry) -> None:
    schema = '{"type": "array", "items": {"$ref": "#"}}'
    for depth in (10, 400):
        value = json.loads("[" * depth + "]" * depth)
        data = JSONSerializer(schema, registry)(value, CTX)
        assert JSONDeserializer(schema)(data, CTX) == value


def test_checks_can_be_off(registry: MemoryRegistry) -> None:
    data = JSONSerializer(SCHEMA, registry, conf={"validate": False})({"id": "1"}, CTX)
    assert JSONDeserializer(SCHEMA, conf={"validate": False})(data, CTX) == {"id": "1"}
    with pytest.raises(ValueError, match="validate must be a boolean value"):
        JSONDeserializer(SCHEMA, conf={"validate": 0})


def test_readers_schema_counts(registry: MemoryRegistry) -> None:
    data = JSONSerializer("{}", registry)({"id": "1"}, CTX)
    assert JSONDeserializer(None, None, registry)(data, CTX) == {"id": "1"}
    with pytest.raises(SerializationError, match="/id: "):
        JSONDeserializer(SCHEMA, None, registry)(data, CTX)


def test_own_encoder_and_decoder(registry: MemoryRegistry) -> None:
    def encode(value: Any) -> str:
        return json.dumps(value, default=str)

    value = {"id": 1, "at": datetime.date(2026, 1, 2)}
    write = JSONSerializer(SCHEMA, registry, json_encode=encode)
    data = write(value, CTX)
    assert data == HEAD + b'{"id": 1, "at": "2026-01-02"}'
    with pytest.raises(SerializationError, match="/id: "):
        write({"id": datetime.date(2026, 1, 2)}, CTX)
    read = JSONDeserializer(SCHEMA, json_decode=lambda data: json.loads(data, parse_int=float))
    assert read(HEAD + b'{"id": 1}', CTX) == {"id": 1.0}


def test_references_are_found(registry: MemoryRegistry) -> None:
    registry.add("money", '{"type": "number", "minimum": 0}', "JSON")
    registry.add(
        "customer",
        '{"type": "object", "properties": {"paid": {"$ref": "money.json"}}}',
        "JSON",
        references=(SchemaReference("money.json", "money", 1),),
    )
    schema = Schema(
        '{"$id": "http://shop/order.json", "properties": {"who": {"$ref": "customer.json"}}}',
        "JSON",
        (SchemaReference("http://shop/customer.json", "customer", 1),),
    )
    write = JSONSerializer(schema, registry)
    assert write({"who": {"paid": 5}}, CTX)
    with pytest.raises(SerializationError, match="/who/paid: "):
        write({"who": {"paid": -5}}, CTX)
    data = b"\0\0\0\0\3" + b'{"who": {"paid": -5}}'
    for read in (
        JSONDeserializer(None, None, registry),
        JSONDeserializer(schema, None, registry),
    ):
        with pytest.raises(SerializationError, match="/who/paid: "):
            read(data, CTX)
    with pytest.raises(ValueError, match="schema_registry_client is needed"):
        JSONDeserializer(schema)


@pytest.mark.parametrize(
    "schema",
    ["[1]", '{"type": 5}', '{"$ref": "http://127.0.0.1:1/x.json"}', '{"pattern": "("}', "5"],
)
def test_schema_is_wrong(registry: MemoryRegistry, schema: str) -> None:
    """A schema on the Web is not fetched."""
    with pytest.raises(SerializationError, match="not a JSON Schema"):
        JSONSerializer(schema, registry)({}, CTX)
    with pytest.raises(ValueError, match="not a JSON Schema"):
        JSONDeserializer(schema)


def test_nested_schema_is_refused(registry: MemoryRegistry) -> None:
    schema = '{"items":' * 800 + "{}" + "}" * 800
    with pytest.raises(ValueError, match="nested too deeply"):
        JSONDeserializer(schema)


def test_schema_may_be_true(registry: MemoryRegistry) -> None:
    assert JSONSerializer("true", registry)({"a": 1}, CTX) == HEAD + b'{"a":1}'


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b'{"at": "yesterday"}', None),  # a format is a comment
        (b'{"at": 5}', '/at: 5 is not of type "string"'),
        (b'{"n": NaN}', "JSON has no NaN"),
        (b'{"n": -Infinity}', "JSON has no -Infinity"),
        ('{"at": "a"}'.encode("utf-16"), "codec can't decode"),
    ],
    ids=repr,
)
def test_batches_are_checked_as_single_values_are(payload: bytes, words: str | None) -> None:
    schema = json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"at": {"type": "string", "format": "date-time"}},
        }
    )
    document = Document("json", schema, id=1)
    faults = [
        JsonReader().reader_of(document)(pa.array([payload]))[1],
        JsonWriter(document).write(pa.array([payload]))[1],
    ]
    read = JSONDeserializer(schema)
    if words is None:
        assert faults == [{}, {}]
        assert read(HEAD + payload, CTX) == json.loads(payload)
    else:
        # The reader of tables has a column of times.
        faults.append(JsonTableReader.of(document).reader_of(document)(pa.array([payload]))[1])
        assert all(words in fault[0] for fault in faults)
        with pytest.raises(SerializationError, match=re.escape(words)):
            read(HEAD + payload, CTX)


def test_a_writers_name_is_the_title() -> None:
    assert JsonWriter(Document("json", '{"title": "Order"}')).name == "Order"
    assert JsonWriter(Document("json", "true")).name == ""


@pytest.mark.parametrize("is_named", [False, True])
def test_references_that_multiply_are_refused(is_named: bool) -> None:
    def reference(number: int) -> Any:
        return {"$ref": f"L{number}" if is_named else f"#/$defs/L{number}"}

    def level(number: int) -> Any:
        parts = {"a": reference(number + 1), "b": reference(number + 1)} if number < 40 else {}
        named = {"$id": f"L{number}"} if is_named else {}
        return {"type": "object", "properties": parts, **named}

    schema = {"$id": "http://schemas/top", "type": "object", "properties": {"a": reference(0)},
              "$defs": {f"L{number}": level(number) for number in range(41)}}  # fmt: skip
    with pytest.raises(UnfitError, match="more than 100000 objects"):
        resolve_references(Document("json", json.dumps(schema)))


def test_references_are_replaced() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "part.json#/$defs/n"},
                                               "b": {"$ref": "#/properties/a"},
                                               "c": {"$ref": "#"},
                                               "d": {"enum": [{"$id": "x y", "$ref": "no"}]},
                                               "$ref": {"type": "string"}}}  # fmt: skip
    part = json.dumps({"$defs": {"n": {"type": "integer"}}})
    made = resolve_references(Document("json", json.dumps(schema), (("part.json", part),)))
    assert made["properties"]["a"] == made["properties"]["b"] == {"type": "integer"}


@pytest.mark.parametrize("is_first", [False, True])
def test_references_have_their_whole_name(is_first: bool) -> None:
    schema = json.dumps({"properties": {"a": {"$ref": "common.json"},
                                        "b": {"$ref": "a/common.json"},
                                        "c": {"$ref": "other/a/common.json"}}})  # fmt: skip
    parts = (("common.json", '{"type": "integer"}'), ("a/common.json", '{"type": "string"}'))
    document = Document("json", schema, parts if is_first else parts[::-1])
    kinds = {name: of["type"] for name, of in resolve_references(document)["properties"].items()}
    assert kinds == {"a": "integer", "b": "string", "c": "string"}
    payloads = pa.array([b'{"a": 1, "b": "x", "c": "x"}', b'{"b": 1}'])
    _, wrong = JsonReader().reader_of(document)(payloads)
    assert list(wrong) == [1]


@pytest.mark.parametrize("kind", ["anyOf", "allOf"])
@pytest.mark.parametrize("reference", ["$ref", "$dynamicRef"])
def test_schemas_with_many_branches_are_bounded(
    registry: MemoryRegistry, kind: str, reference: str
) -> None:
    """Finding the error of a value would take 2**levels steps."""

    place = "#" if reference == "$dynamicRef" else "#/$defs/"

    def schema(levels: int) -> str:
        named: dict[str, Any] = {f"d{levels}": {"type": "integer"}}
        for level in range(levels):
            named[f"d{level}"] = {kind: [{reference: f"{place}d{level + 1}"}] * 2}
        for name, of in named.items():
            of["$dynamicAnchor"] = name
        return json.dumps({"$defs": named, "properties": {"s": {"$ref": "#/$defs/d0"}}})

    payload = b'{"s": "a"}'
    words = "too large to say which part of the value is wrong"
    document = Document("json", schema(13), id=1)
    with pytest.raises(SerializationError, match=words):
        JSONDeserializer(document.text)(HEAD + payload, CTX)
    assert words in JsonWriter(document).write(pa.array([payload]))[1][0]
    assert words in JsonReader().reader_of(document)(pa.array([payload]))[1][0]
    assert JSONDeserializer(document.text)(HEAD + b'{"s": 1}', CTX) == {"s": 1}

    document = Document("json", schema(40), id=1)
    words = "more than 100000 objects"
    with pytest.raises(ValueError, match=words):
        JSONDeserializer(document.text)
    with pytest.raises(SerializationError, match=words):
        JSONSerializer(document.text, registry)({"s": "a"}, CTX)
    with pytest.raises(UnfitError, match=words):
        JsonWriter(document)
    with pytest.raises(UnfitError, match=words):
        JsonReader().reader_of(document)


def test_a_large_wrong_value_is_bounded() -> None:
    """Each branch of each item has an error of its own."""
    branch = {"required": ["t", "x"], "properties": {"t": {"const": 1}}}
    items = {"type": "array", "items": {"oneOf": [branch] * 6}}
    read = JSONDeserializer(json.dumps({"properties": {"a": items}}))
    for count, words in [(10, "is not valid under any"), (100_000, "too large to say")]:
        value = json.dumps({"a": [{"t": "z"}] * count}).encode()
        with pytest.raises(SerializationError, match=words):
            read(HEAD + value, CTX)


def test_a_wrong_value_of_a_recursive_schema_is_bounded() -> None:
    """Finding the error would take 2**levels steps."""
    branch = {"type": "object", "properties": {"a": {"$ref": "#/$defs/any"}}}
    any_of = {"anyOf": [{"type": "integer"}, branch, branch]}
    read = JSONDeserializer(json.dumps({"$defs": {"any": any_of}, "$ref": "#/$defs/any"}))
    for levels, words in [(6, "is not valid under any"), (20, "too large to say")]:
        value = b'{"a":' * levels + b"%s" + b"}" * levels
        assert read(HEAD + value % b"1", CTX) == json.loads(value % b"1")
        with pytest.raises(SerializationError, match=words):
            read(HEAD + value % b'"x"', CTX)

    tree = {"type": "object", "properties": {"of": {"items": {"$ref": "#/$defs/tree"}}}}
    value = b'{"of": [' * 40 + b"1" + b"]}" * 40
    with pytest.raises(SerializationError, match=r'1 is not of type "object"'):
        JSONDeserializer(json.dumps({"$defs": {"tree": tree}, **tree}))(HEAD + value, CTX)


def test_a_part_of_a_schema_names_no_file_that_is_read(tmp_path: Path) -> None:
    meta = tmp_path / "meta.json"
    meta.write_text('{"$schema": "https://json-schema.org/draft/2020-12/schema"}')
    assert accepts_null({"$schema": meta.as_uri(), "type": "string"})
    assert not accepts_null({"type": "string"})
