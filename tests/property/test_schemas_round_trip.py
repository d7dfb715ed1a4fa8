"""Properties of values with schemas: all of them come back, in their order, whatever their id."""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cykafka.testing import SchemaRegistry

pytest.importorskip("ptars", reason="the group spark is not installed")

import proto_files

from cykafka.schemas.arrow.avro import AvroReader, AvroWriter
from cykafka.schemas.arrow.columns import schema_ids
from cykafka.schemas.arrow.protobuf import ProtobufReader, ProtobufWriter
from cykafka.schemas.codec import Decoder, Encoder
from cykafka.schemas.model.document import Document

INT, LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=5)
TIMES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
# Schemas of Avro and values of them.
PLAIN: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", INT),
    "long": ("long", LONG),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "bytes": ("bytes", st.binary(max_size=5)),
    "string": ("string", TEXT),
    "date": (
        {"type": "int", "logicalType": "date"},
        st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31)),
    ),
    "timestamp": (
        {"type": "long", "logicalType": "timestamp-micros"},
        TIMES.map(lambda at: at.replace(tzinfo=datetime.UTC)),
    ),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-millis"},
        TIMES.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
        st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    ),
}
names = itertools.count()


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema of Avro with values of it, as Spark has them."""
    shape = draw(st.sampled_from(["plain", "null", "list", "map", "record", "union"]))
    if depth == 0 or shape == "plain":
        return draw(st.sampled_from(list(PLAIN.values())))
    if shape == "union":
        chosen = draw(st.lists(st.sampled_from(["boolean", "long", "string", "double", "bytes"]),
                               min_size=2, max_size=4, unique=True))  # fmt: skip
        if set(chosen) <= {"long", "double"}:
            chosen = ["boolean", *chosen]
        members = [f"member{at}" for at in range(len(chosen))]
        values = [
            PLAIN[kind][1].map(lambda value, at=at: {**dict.fromkeys(members), members[at]: value})
            for at, kind in enumerate(chosen)
        ]
        return [*chosen, "null"], st.one_of(st.none(), *values)
    schema, of = draw(kinds(depth - 1))
    if shape == "null":
        if isinstance(schema, list):
            return schema, of
        return ["null", schema], st.none() | of
    if shape == "list":
        return {"type": "array", "items": schema}, st.lists(of, max_size=3)
    if shape == "map":
        return {"type": "map", "values": schema}, st.dictionaries(TEXT, of, max_size=3)
    return record(draw, [(schema, of), draw(kinds(depth - 1))])


def record(
    draw: st.DrawFn, members: list[tuple[Any, st.SearchStrategy[Any]]]
) -> tuple[Any, st.SearchStrategy[Any]]:
    fields = [{"name": f"f{at}", "type": schema} for at, (schema, _) in enumerate(members)]
    values = st.fixed_dictionaries({f"f{at}": of for at, (_, of) in enumerate(members)})
    return {"type": "record", "name": f"R{next(names)}", "fields": fields}, values


@st.composite
def records(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    members = draw(st.lists(kinds(), min_size=1, max_size=4))
    schema, values = record(draw, members)
    return schema, draw(st.lists(st.none() | values, max_size=5))


# The value of one branch may be a value of another one, too.
CHOICE = {"type": "record", "name": "C", "fields": [
    {"name": "f", "type": ["double", "long", "null"]}]}  # fmt: skip


@given(records())
@example((CHOICE, [{"f": {"member0": None, "member1": 0}}]))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_avro_values_come_back(case: tuple[Any, list[Any]]) -> None:
    schema, values = case
    document = Document("avro", json.dumps(schema))
    reader, writer = AvroReader(document), AvroWriter(document)

    encoded, wrong = writer.write(pa.array(values, reader.kind))

    present = [value for value in values if value is not None]
    found, bad = reader.reader_of(document)(encoded.drop_null())
    assert (wrong, bad) == ({}, {})
    assert found.to_pylist(maps_as_pydicts="strict") == present
    reader.check(document)


PROTO = proto_files.proto(
    "all.proto",
    "p",
    {
        "Part": {"n": (1, "int32"), "s": (2, "string")},
        "All": {
            "i": (1, "int32"),
            "l": (2, "int64"),
            "u": (3, "uint64"),
            "s": (4, "string"),
            "d": (5, "double"),
            "b": (6, "bytes"),
            "t": (7, "bool"),
            "part": (8, ".p.Part"),
            "parts": (9, "repeated .p.Part"),
            "texts": (10, "repeated string"),
        },
    },
)
PART = st.fixed_dictionaries({"n": INT, "s": TEXT})
ALL = st.fixed_dictionaries(
    {
        "i": INT,
        "l": LONG,
        "u": st.integers(0, 2**64 - 1).map(Decimal),
        "s": TEXT,
        "d": st.floats(allow_nan=False),
        "b": st.binary(max_size=4),
        "t": st.booleans(),
        "part": st.none() | PART,
        "parts": st.lists(PART, max_size=3),
        "texts": st.lists(TEXT, max_size=3),
    }
)


@given(st.lists(st.none() | ALL, max_size=5))
def test_protobuf_values_come_back(values: list[Any]) -> None:
    document = Document("protobuf", proto_files.text(PROTO))
    reader, writer = ProtobufReader(document, "p.All"), ProtobufWriter(document, "p.All")

    encoded, wrong = writer.write(pa.array(values, reader.kind))

    found, bad = reader.reader_of(document)(encoded.drop_null())
    assert (wrong, bad) == ({}, {})
    assert found.to_pylist() == [value for value in values if value is not None]


@given(st.lists(st.none() | st.binary(max_size=8), max_size=12), st.integers(0, 5))
def test_ids_are_those_of_the_wire_format(values: list[bytes | None], start: int) -> None:
    found = schema_ids(pa.array(values, pa.binary())[start:])

    expected = [
        -1 if value is None
        else int.from_bytes(value[1:5], "big") if len(value) >= 5 and value[0] == 0
        else -2
        for value in values[start:]
    ]  # fmt: skip
    assert found.tolist() == expected


# -- batches of several ids

VERSIONS = [
    {"type": "record", "name": "V", "fields": [
        {"name": "n", "type": "long"},
        *({"name": f"x{at}", "type": "int", "default": at} for at in range(count))]}
    for count in range(4)
]  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        for at, schema in enumerate(VERSIONS):
            made.add(f"v{at}-value", schema)
        yield made


ROW = st.none() | st.binary(max_size=9) | st.tuples(st.integers(0, 3), LONG)


@given(rows=st.lists(ROW,
                     max_size=30))  # fmt: skip
def test_each_row_of_a_batch_is_its_own(registry: SchemaRegistry, rows: list[Any]) -> None:
    options = (("url", registry.url),)
    decoder = Decoder("avro", options, Document("avro", json.dumps(VERSIONS[3])))
    values = []
    for row in rows:
        if isinstance(row, tuple):
            at, number = row
            fields = {"n": number, **dict.fromkeys((f"x{number}" for number in range(at)), 7)}
            made = Encoder("avro", options, None).encode(pa.array([fields]), pa.array([f"v{at}"]))
            values.append(made.field("value")[0].as_py())
        else:
            values.append(b"\1" + row if row is not None else None)

    found = decoder.decode(pa.array(values, pa.binary())).to_pylist()

    for row, one in zip(rows, found, strict=True):
        if isinstance(row, tuple):
            at, number = row
            extra = {f"x{number}": 7 if number < at else number for number in range(3)}
            assert one == {"data": {"n": number, **extra}, "error": None}
        else:
            assert one["data"] is None
            assert (one["error"] is None) == (row is None)
