"""Bytes of every kind: batches give what their values give one by one, or errors."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any
from unittest import mock

import fastavro
import proto_files
import pyarrow as pa
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from repeated import examples

from cykafka.schemas import avro
from cykafka.schemas.avro import AvroReader, AvroWriter
from cykafka.schemas.avro_batch import SlowError
from cykafka.schemas.document import Document, UnfitError
from cykafka.schemas.json_columns import json_reader
from cykafka.schemas.protobuf import ProtobufReader

INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
# Types, and values of them for fastavro without logical types.
PLAIN: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", INT),
    ("long", LONG),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("bytes", st.binary(max_size=5)),
    ("string", st.text(max_size=5)),
    ({"type": "int", "logicalType": "date"}, INT),
    ({"type": "long", "logicalType": "timestamp-millis"}, LONG),
    ({"type": "long", "logicalType": "timestamp-micros"}, LONG),
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
]
numbers = itertools.count()


@st.composite
def kinds(draw: st.DrawFn, depth: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    """An Avro schema, and values of it for fastavro."""
    shape = draw(st.sampled_from(
        ["plain", "plain", "enum", "fixed", "decimal", "null", "list", "map", "record", "union"]
    ))  # fmt: skip
    name = f"N{next(numbers)}"
    if shape == "enum":
        symbols = draw(st.lists(st.sampled_from("ABCDEF"), min_size=1, unique=True))
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if shape == "fixed":
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    if shape == "decimal":
        return DECIMAL, st.binary(max_size=5)
    if depth == 0 or shape == "plain":
        return draw(st.sampled_from(PLAIN))
    if shape == "union":
        branches = draw(st.lists(kinds(0), min_size=1, max_size=4, unique_by=repr))
        named = [{schema["name"] if "name" in schema else schema["type"]
                  if isinstance(schema, dict) else schema for schema, _ in branches}]  # fmt: skip
        if len(named[0]) == len(branches):
            return [schema for schema, _ in branches], st.one_of(of for _, of in branches)
        shape = "null"
    schema, of = draw(kinds(depth - 1))
    if shape == "null":
        if isinstance(schema, list) or schema == "null":
            return schema, of
        return draw(st.permutations(["null", schema])), st.none() | of
    if shape == "list":
        return {"type": "array", "items": schema}, st.lists(of, max_size=3)
    if shape == "map":
        return {"type": "map", "values": schema}, st.dictionaries(st.text(max_size=3), of,
                                                                  max_size=3)  # fmt: skip
    return record(draw, [(schema, of), *draw(st.lists(kinds(depth - 1), max_size=2))])


def record(
    draw: st.DrawFn, members: list[tuple[Any, st.SearchStrategy[Any]]]
) -> tuple[Any, st.SearchStrategy[Any]]:
    fields = [{"name": f"f{at}", "type": schema} for at, (schema, _) in enumerate(members)]
    values = st.fixed_dictionaries({f"f{at}": of for at, (_, of) in enumerate(members)})
    return {"type": "record", "name": f"R{next(numbers)}", "fields": fields}, values


def without_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_logical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if "logicalType" in schema:
        return schema["type"]
    made = {name: without_logical(schema[name]) for name in ("items", "values") if name in schema}
    if "fields" in schema:
        made["fields"] = [
            {"name": field["name"], "type": without_logical(field["type"])}
            for field in schema["fields"]
        ]
    return {**schema, **made}


WIDER = {"int": ["long", "float", "double"], "long": ["double", "float"], "float": ["double"],
         "string": ["bytes"], "bytes": ["string"]}  # fmt: skip


@st.composite
def evolved(draw: st.DrawFn, schema: Any) -> Any:
    """A schema that may read the values of another one."""
    if isinstance(schema, list):
        return [draw(evolved(branch)) for branch in schema]
    if isinstance(schema, str):
        choices = [schema, schema, *WIDER.get(schema, ())]
        return draw(st.sampled_from(choices))
    made = dict(schema)
    for name in ("items", "values"):
        if name in made:
            made[name] = draw(evolved(made[name]))
    if schema["type"] == "enum":
        made["symbols"] = draw(st.permutations([*schema["symbols"], "G"]))
        made["symbols"] = made["symbols"][draw(st.integers(0, 1)):]  # fmt: skip
    if "fields" in made:
        fields = []
        for field in made["fields"]:
            change = draw(st.sampled_from(["keep", "keep", "keep", "drop", "rename", "null"]))
            if change == "drop" and len(made["fields"]) > 1:
                continue
            kind = draw(evolved(field["type"]))
            if change == "rename":
                field = {"name": field["name"] + "x", "aliases": [field["name"]]}
            if change == "null" and not isinstance(kind, list) and kind != "null":
                kind = ["null", kind]
            fields.append({**field, "type": kind})
        if draw(st.booleans()):
            fields.append({"name": "more", "type": {"type": "array", "items": "int"},
                           "default": [1, 2]})  # fmt: skip
        made["fields"] = draw(st.permutations(fields)) or [{"name": "n", "type": "int",
                                                            "default": 7}]  # fmt: skip
    return made


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any, list[bytes]]:
    """A writer's schema, a reader's, and bytes, most of which are values."""
    schema, of = record(draw, draw(st.lists(kinds(), min_size=1, max_size=4)))
    plain = fastavro.parse_schema(without_logical(schema))
    payloads = []
    for value in draw(st.lists(of, max_size=6)):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, plain, value)
        payloads.append(out.getvalue())
    changes = st.tuples(st.integers(0, 40), st.integers(0, 3), st.binary(max_size=3))
    for row, (place, size, octets) in draw(st.dictionaries(st.integers(0, 5), changes)).items():
        if row < len(payloads):
            old = payloads[row]
            payloads[row] = old[:place] + octets + old[place + size :]
    reads = draw(st.just(schema) | evolved(schema))
    return schema, reads, payloads


def document(schema: Any) -> Document:
    return Document("avro", json.dumps(schema), id=1)


def slow_reader(*_: Any) -> Any:
    raise SlowError("in this test")


def as_text(found: pa.Array) -> list[str]:
    return [repr(value) for value in found.cast(timeless(found.type)).to_pylist()]


def timeless(kind: pa.DataType) -> pa.DataType:
    """The type with numbers instead of times, which Python may lack."""
    from cykafka.schemas.columns import replace_types

    times = [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()]
    return replace_types(kind, {time: pa.int32() if time == pa.date32() else pa.int64()
                                for time in times})  # fmt: skip


@given(cases())
@settings(max_examples=examples(1500), deadline=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])  # fmt: skip
def test_batches_are_read_as_fastavro_reads_their_values(
    case: tuple[Any, Any, list[bytes]],
) -> None:
    writes, reads, payloads = case
    try:
        reader = AvroReader(document(reads))
        read = reader.reader_of(document(writes))
    except UnfitError:
        return
    with mock.patch.object(avro, "batch_reader", slow_reader):
        read_each = AvroReader(document(reads)).reader_of(document(writes))
    values = pa.array(payloads, pa.binary())

    found, wrong = read(values)
    expected, expected_wrong = read_each(values)

    found.validate(full=True)
    assert found.type == expected.type == reader.kind
    assert wrong == expected_wrong
    assert as_text(found) == as_text(expected)
    if writes == reads and not wrong:
        check_writer(writes, found)


def check_writer(schema: Any, values: pa.Array) -> None:
    """Batches are written like fastavro writes their values, or where fastavro cannot."""
    writer = AvroWriter(document(schema))
    for part in (values, values[1:], pa.concat_arrays([values, pa.nulls(1, values.type)])):
        made, wrong = writer.write(part)
        with mock.patch.object(avro, "batch_writer", slow_reader):
            expected, expected_wrong = AvroWriter(document(schema)).write(part)
        assert wrong.keys() <= expected_wrong.keys()
        for row, (one, other) in enumerate(zip(made, expected, strict=True)):
            if row not in expected_wrong and one != other:
                # The same number: fastavro writes a byte too many for a decimal like -1.28.
                both = pa.array([one.as_py(), other.as_py()], pa.binary())
                read, bad = AvroReader(document(schema)).reader_of(document(schema))(both)
                assert not bad
                assert read[0] == read[1]


JSON_SCHEMA = {"type": "object", "properties": {
    "n": {"type": "integer"}, "x": {"type": "number"}, "t": {"type": "string"},
    "b": {"type": "boolean"}, "l": {"type": "array", "items": {"type": "string"}},
    "o": {"type": "object", "properties": {"n": {"type": "integer"}}}}}  # fmt: skip
TOKENS = rb"""{ } [ ] , : " \ "n": "t":"a" 1 {"n":1} {"o":{"n":2}} "l":["x"] null 1.5 1e400"""
PARTS = st.sampled_from([*TOKENS.split(), b"\n", b"\r", b" ", b"\xff", b"\0"])
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "n": LONG | st.none(),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "t": st.text(max_size=4),
        "b": st.booleans(),
        "l": st.lists(st.text(max_size=3), max_size=2),
        "o": st.none() | st.fixed_dictionaries({"n": LONG}),
        "more": st.integers() | st.lists(st.none()),
    },
).map(lambda value: json.dumps(value).encode())
JSON_VALUES = OBJECTS | st.lists(PARTS, max_size=5).map(b"".join)


@given(st.lists(JSON_VALUES, max_size=8))
@settings(max_examples=examples(1500), deadline=None)
def test_json_is_read_as_one_by_one(payloads: list[bytes]) -> None:
    _, read = json_reader(JSON_SCHEMA)

    found, wrong = read(pa.array(payloads, pa.binary()))

    found.validate(full=True)
    for row, payload in enumerate(payloads):
        one, error = read(pa.array([payload], pa.binary()))
        assert (row in wrong) == (0 in error)
        assert found[row] == one[0]
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            value = None
        assert (row in wrong) or isinstance(value, dict)
        if row not in wrong:
            made = found[row].as_py()
            assert {name: value.get(name) for name in ("n", "t", "b", "l", "o")} == {
                name: made[name] for name in ("n", "t", "b", "l", "o")
            }


PROTO = proto_files.proto("f.proto", "p", {
    "A": {"n": (1, "int64"), "t": (2, "string"), "d": (3, "double"), "m": (4, ".p.B"),
          "l": (5, "repeated int32"), "ms": (6, "repeated .p.B")},
    "B": {"n": (1, "int32"), "y": (2, "bytes")}})  # fmt: skip


@given(st.lists(st.binary(max_size=12).map(lambda octets: b"\0" + octets), max_size=8))
@settings(max_examples=examples(1500), deadline=None)
def test_protobuf_is_read_as_by_googles_library(payloads: list[bytes]) -> None:
    file = Document("protobuf", proto_files.text(PROTO))
    kind = proto_files.message("p.A", PROTO)
    reader = ProtobufReader(file)

    found, wrong = reader.reader_of(file)(pa.array(payloads, pa.binary()))

    found.validate(full=True)
    for row, payload in enumerate(payloads):
        try:
            message = kind.FromString(payload[1:])
        except DecodeError:
            continue  # ptars accepts some of what Google's library refuses
        if row not in wrong:
            assert (found[row]["n"].as_py(), found[row]["t"].as_py()) == (message.n, message.t)
