"""Bytes of every kind: batches give what their values give one by one, or errors."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import proto_files
import pyarrow as pa
from avro_cases import LONG, encoded, evolved, kinds, record
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from repeated import examples

from cykafka.schemas.arrow import avro
from cykafka.schemas.arrow.avro import AvroReader, AvroWriter
from cykafka.schemas.arrow.avro_batch import SlowError
from cykafka.schemas.arrow.json_columns import json_reader
from cykafka.schemas.arrow.protobuf import ProtobufReader
from cykafka.schemas.model.document import Document, UnfitError


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any, list[bytes]]:
    """A writer's schema, a reader's, and bytes, most of which are values."""
    schema, of = record(draw, draw(st.lists(kinds(), min_size=1, max_size=4)))
    payloads = encoded(schema, draw(st.lists(of, max_size=6)))
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
    from cykafka.schemas.arrow.columns import replace_types

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
