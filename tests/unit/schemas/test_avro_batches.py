"""Batches of Avro by pyruhvro: bad bytes, every type, evolution, and processes that fork."""

from __future__ import annotations

import copy
import io
import json
import os
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from time import process_time
from typing import Any
from unittest import mock
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from cykafka.schemas.arrow import avro_batch
from cykafka.schemas.arrow.avro import AvroReader, AvroWriter
from cykafka.schemas.arrow.columns import join_bytes
from cykafka.schemas.model.document import Document, UnfitError

GOOD = 300  # more than are read one by one


def document(schema: Any) -> Document:
    return Document("avro", json.dumps(schema), id=7)


def record(*fields: Any) -> Any:
    named = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(fields)]
    return {"type": "record", "name": "R", "fields": named}


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def long(number: int) -> bytes:
    return encoded("long", number)


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
INTS = {"type": "array", "items": "int"}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (record("string"), {"f0": "a"}, b"\x02\xff"),
        (record("string"), {"f0": "a"}, long(2**62) + b"abc"),
        (record("string"), {"f0": "a"}, long(-1) + b"abc"),
        (record("bytes"), {"f0": b"\xff"}, long(2**62)),
        (record(INTS), {"f0": [1]}, long(2**62) + b"\2"),
        (record(INTS), {"f0": [1]}, long(-(2**62)) + long(2**62) + b"\2"),
        (record({"type": "map", "values": "int"}), {"f0": {"k": 1}}, long(2**62) + b"\2k\2"),
        (record("int"), {"f0": 1}, long(2**31)),
        (record("long"), {"f0": 1}, b"\xff" * 11),
        (record("double"), {"f0": 1.0}, b"\0" * 7),
        (record("double"), {"f0": 1.0}, b"\0" * 9),
        (record("int"), {"f0": 1}, b""),
        (record(["null", "int"]), {"f0": 1}, b"\4\2"),
        (record(["null", "int", "string"]), {"f0": 1}, b"\6"),
        (record({"type": "enum", "name": "E", "symbols": ["A"]}), {"f0": "A"}, b"\2"),
        (record(DECIMAL), {"f0": Decimal("12.34")}, long(3) + b"\1\0\0"),
        (record(DECIMAL), {"f0": Decimal("12.34")}, long(20) + b"\1" * 20),
        (record({"type": "int", "logicalType": "date"}), {"f0": 1}, long(2**40)),
        (record({"type": "long", "logicalType": "timestamp-millis"}), {"f0": 1}, long(2**62)),
    ],
)
@pytest.mark.parametrize("place", [0, 150, GOOD])
def test_a_bad_value_is_bad_alone(schema: Any, good: Any, bad: bytes, place: int) -> None:
    values = [encoded(schema, good)] * GOOD
    values.insert(place, bad)
    reader = AvroReader(document(schema))

    found, wrong = reader.reader_of(document(schema))(pa.array(values, pa.binary()))

    assert wrong.keys() == {place}
    assert "the value does not fit the schema 7: " in wrong[place]
    assert found.type == reader.kind
    assert [row for row, value in enumerate(found) if not value.is_valid] == [place]


def test_a_length_in_a_field_that_the_reader_lacks_ends() -> None:
    """fastavro alone would skip 2**62 elements, also after the end of the value."""
    writes = record({"type": "array", "items": "boolean"}, {"type": "fixed", "name": "F",
                                                            "size": 1}, "int")  # fmt: skip
    reads = {**writes, "fields": writes["fields"][2:]}
    values = pa.array([b"\0x\2", long(2**62) + b"\1"], pa.binary())

    found, wrong = AvroReader(document(reads)).reader_of(document(writes))(values)

    assert (found.to_pylist(), list(wrong)) == ([{"f2": 1}, None], [1])


A = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "long"}]}
B = {"type": "record", "name": "B", "fields": [{"name": "y", "type": "A"}]}


@pytest.mark.parametrize(
    ("schema", "payload", "value"),
    [
        ('["A", "B"]', b"\2\6", {"member0": None, "member1": {"y": {"x": 3}}}),
        ('["null", "A"]', b"\2\6", {"x": 3}),
        ('{"type": "array", "items": "B"}', b"\2\6\0", [{"y": {"x": 3}}]),
        ('{"type": "map", "values": "A"}', b"\2\2k\6\0", [("k", {"x": 3})]),
        (json.dumps(record("B", ["null", "A"])), b"\6\2\6", {"f0": {"y": {"x": 3}},
                                                              "f1": {"x": 3}}),
    ],
)  # fmt: skip
def test_references_go_through_value_by_value(schema: str, payload: bytes, value: Any) -> None:
    parts = tuple((part["name"], json.dumps(part)) for part in (A, B))
    whole = Document("avro", schema, parts, id=7)
    reader, writer = AvroReader(whole), AvroWriter(whole)

    found, wrong = reader.reader_of(whole)(pa.array([payload, payload + b"x", payload]))

    assert wrong == {1: "the value does not fit the schema 7: 1 bytes follow it"}
    assert found.to_pylist() == [value, None, value]
    assert writer._write_each(found, {}) == (pa.array([payload, None, payload]), {})


@pytest.mark.parametrize("kind", [AvroReader, AvroWriter])
def test_a_schema_with_too_many_fields_is_refused(kind: Any) -> None:
    """Each record uses the next one twice, and so has twice as many fields."""
    schema = record("int")
    for number in range(40):
        name = schema["name"]
        schema = {**record(schema, name), "name": f"R{number}"}
    with pytest.raises(UnfitError, match="more than 20000 fields"):
        kind(document(schema))
    with pytest.raises(UnfitError, match="more than 20000"):
        AvroReader(document(record("int"))).check(document(schema))


def test_a_large_decimal_is_bad_alone() -> None:
    schema = record(DECIMAL)
    values = [b"\2\1", long(1_000_000) + b"\x7f" * 1_000_000, b"\2\1"]

    found, wrong = AvroReader(document(schema)).reader_of(document(schema))(pa.array(values))

    assert found.to_pylist() == [{"f0": Decimal("0.01")}, None, {"f0": Decimal("0.01")}]
    assert "a decimal has 1000000 bytes" in wrong[1]


def test_many_bad_values_take_no_more_time_each() -> None:
    schema = record("string", "long")
    good = encoded(schema, {"f0": "text", "f1": 5})
    read = AvroReader(document(schema)).reader_of(document(schema))

    def seconds(count: int) -> float:
        values = pa.array([good[:-1]] * count, pa.binary())
        start = process_time()
        assert len(read(values)[1]) == count
        return process_time() - start

    few = min(seconds(1000) for _ in range(3))
    assert seconds(16_000) < 100 * few


OLD = {"type": "record", "name": "a.R", "fields": [
    {"name": "i", "type": "int"},
    {"name": "l", "type": "long"},
    {"name": "gone", "type": {"type": "map", "values": "string"}},
    {"name": "s", "type": "string"},
    {"name": "p", "type": {"type": "record", "name": "P", "fields": [
        {"name": "x", "type": "float"}]}},
    {"name": "ps", "type": {"type": "array", "items": ["null", "P"]}},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
]}  # fmt: skip
NEW = {"type": "record", "name": "b.R", "fields": [
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["C", "B", "A"]}},
    {"name": "text", "type": "bytes", "aliases": ["s"]},
    {"name": "i", "type": ["null", "double"]},
    {"name": "l", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "p", "type": {"type": "record", "name": "P", "fields": [
        {"name": "x", "type": "double"},
        {"name": "y", "type": {"type": "array", "items": "int"}, "default": [1]}]}},
    {"name": "ps", "type": {"type": "array", "items": ["null", "P"]}},
    {"name": "d", "type": DECIMAL, "default": "\u00ff"},
]}  # fmt: skip


def test_evolution_needs_no_fastavro() -> None:
    rows = [{"i": n, "l": n, "gone": {"a": "b"}, "s": "t", "p": {"x": 0.5},
             "ps": [None, {"x": 1.5}], "e": "AB"[n % 2]} for n in range(3)]  # fmt: skip
    values = pa.array([encoded(OLD, row) for row in rows], pa.binary())

    with mock.patch.object(fastavro, "schemaless_reader", side_effect=AssertionError):
        found, wrong = AvroReader(document(NEW)).reader_of(document(OLD))(values)

    assert wrong == {}
    made = found.to_pylist()[1]
    assert made.pop("l").timestamp() == 0.001
    assert made == {"e": "B", "text": b"t", "i": 1.0, "p": {"x": 0.5, "y": [1]},
                    "ps": [None, {"x": 1.5, "y": [1]}], "d": Decimal("-0.01")}  # fmt: skip


def test_a_forked_process_writes_without_threads() -> None:
    schema = record("long")
    values = pa.array([{"f0": number} for number in range(100)])
    expected = AvroWriter(document(schema)).write(values)[0]
    parent, child = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            made = AvroWriter(document(schema)).write(values)[0]
            os.write(child, b"equal" if made.equals(expected) else b"other")
        finally:
            os._exit(0)
    os.close(child)
    assert os.read(parent, 5) == b"equal"
    os.waitpid(pid, 0)
    os.close(parent)


def test_decimals_have_the_fewest_bytes() -> None:
    schema = record({**DECIMAL, "precision": 38})
    numbers = [0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, -32768, 10**38 - 1, -(10**38) + 1]
    values = pa.array([{"f0": Decimal(f"{n}e-2")} for n in numbers],
                      pa.struct([("f0", pa.decimal128(38, 2))]))  # fmt: skip

    made, wrong = AvroWriter(document(schema)).write(values)
    back, bad = AvroReader(document(schema)).reader_of(document(schema))(made)

    sizes = [(number if number >= 0 else ~number).bit_length() // 8 + 1 for number in numbers]
    assert (wrong, bad) == ({}, {})
    assert made.to_pylist() == [
        long(size) + number.to_bytes(size, "big", signed=True)
        for number, size in zip(numbers, sizes, strict=True)
    ]
    assert back.equals(values)


@pytest.mark.parametrize("kind", ["bytes", "string"])
@pytest.mark.parametrize("is_quick", [True, False])
def test_a_decimal_is_bytes_for_a_reader_without_decimals(kind: str, is_quick: bool) -> None:
    written = record(DECIMAL, ["null", DECIMAL], DECIMAL)
    reads = record(kind, ["null", kind], DECIMAL)
    value = {"f0": Decimal("0.65"), "f1": Decimal("0.66"), "f2": Decimal("0.67")}
    payload = encoded(written, value)
    payloads = [payload] if is_quick else [payload, b"bad"]

    found, wrong = AvroReader(document(reads)).reader_of(document(written))(pa.array(payloads))

    bare: Any = {"bytes": (b"A", b"B"), "string": ("A", "B")}[kind]
    assert found[0].as_py() == {"f0": bare[0], "f1": bare[1], "f2": Decimal("0.67")}
    assert list(wrong) == ([] if is_quick else [1])


def test_a_fixed_decimal_may_become_a_plain_fixed() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 2}
    decimal = {**DECIMAL, **fixed}
    payload = pa.array([b"\0A\0B"])
    for written, reads, expected in [
        (record(decimal, "F"), record(fixed, "F"), [b"\0A", b"\0B"]),
        (record(decimal, "F"), record(decimal, "F"), [Decimal("0.65"), Decimal("0.66")]),
    ]:
        found, wrong = AvroReader(document(reads)).reader_of(document(written))(payload)
        assert (list(found[0].as_py().values()), wrong) == (expected, {})


def test_error_of_another_record_names_both() -> None:
    other = {**record("int"), "name": "Other"}
    other["fields"] = [{"name": "f0", "type": "string"}]

    read = AvroReader(document(other)).reader_of(document(record("int")))
    _, wrong = read(pa.array([b"\2"], pa.binary()))

    words = "the schemas do not fit: it is of R, and the reader expects Other"
    assert wrong == {0: f"the value does not fit the schema 7: {words}"}


CREATED = {"type": "record", "name": "Created", "fields": [{"name": "id", "type": "string"}]}
ENDED = {"type": "record", "name": "Ended", "fields": [{"name": "id", "type": "string"}]}
KIND = {"type": "enum", "name": "Kind", "symbols": ["X", "Y"]}
OTHER = {"type": "enum", "name": "Other", "symbols": ["X"]}
FOUR = {"type": "fixed", "name": "Four", "size": 4}
TIME = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("writes", "reads", "value", "found"),
    [
        (CREATED, [CREATED, ENDED], {"id": "1"}, {"member0": {"id": "1"}}),
        (ENDED, ["null", CREATED, ENDED], {"id": "1"}, {"member1": {"id": "1"}}),
        (CREATED, [{"type": "map", "values": "string"}, CREATED], {"id": "1"},
         {"member1": {"id": "1"}}),
        (KIND, [KIND, "string"], "X", {"member0": "X"}),
        (KIND, [KIND, "long"], "X", {"member0": "X"}),
        (KIND, [OTHER, KIND], "X", {"member1": "X"}),
        (FOUR, [FOUR, "bytes"], b"1234", {"member0": b"1234"}),
        ("string", ["bytes", "long"], "x", {"member0": b"x"}),
        ("int", ["string", "double"], 7, {"member1": 7.0}),
        (TIME, [TIME, "string"], 7, {"member0": 7}),
        ([CREATED, ENDED], [ENDED, CREATED], ("Created", {"id": "1"}), {"member1": {"id": "1"}}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["alone", "field", "array", "map"])
def test_value_without_a_union_is_read_as_its_member_of_a_union(
    writes: Any, reads: Any, value: Any, found: Any, place: str
) -> None:
    def placed(kind: Any, value: Any) -> tuple[Any, Any]:
        if place == "field":
            fields = [{"name": "v", "type": kind}]
            return {"type": "record", "name": "Outer", "fields": fields}, {"v": value}
        if place == "array":
            return {"type": "array", "items": kind}, [value]
        return ({"type": "map", "values": kind}, {"k": value}) if place == "map" else (kind, value)

    written, given = placed(writes, value)
    values = pa.array([encoded(copy.deepcopy(written), given)], pa.binary())
    reader = AvroReader(document(placed(reads, None)[0]))

    rows, wrong = reader.reader_of(document(written))(values)

    assert wrong == {}
    (row,) = rows.to_pylist(maps_as_pydicts="strict")
    key: Any = {"field": "v", "array": 0, "map": "k"}.get(place)
    members = row if key is None else row[key]
    if members is not None:
        members = {
            name: round(item.timestamp() * 1000) if isinstance(item, datetime) else item
            for name, item in members.items()
            if item is not None
        }
    assert members == found


CARD, IBAN = (
    {"type": "record", "name": name, "fields": [{"name": "number", "type": "string"}]}
    for name in ("Card", "Iban")
)
PAIR = {**record(["null", "int"], "string"), "name": "Pair"}


@pytest.mark.parametrize(
    ("writes", "reads", "value", "found"),
    [
        (["null", KIND], KIND, "X", "X"),
        (["null", FOUR], FOUR, b"1234", b"1234"),
        (["null", PAIR], PAIR, {"f0": 5, "f1": "a"}, {"f0": 5, "f1": "a"}),
        (["null", "string", INTS], INTS, [1], [1]),
        (["string", PAIR], ["null", PAIR], ("Pair", {"f0": 5, "f1": "a"}), {"f0": 5, "f1": "a"}),
    ],
)
@pytest.mark.parametrize("is_in_array", [False, True])
def test_a_writers_union_is_read_as_one_type(
    writes: Any, reads: Any, value: Any, found: Any, is_in_array: bool
) -> None:
    """A second field makes fastavro name the types of values."""
    if is_in_array:
        writes, reads = ({"type": "array", "items": of} for of in (writes, reads))
        value, found = [value], [found]
    union = ["long", "string"]
    payload = encoded(copy.deepcopy(record(writes, union)), {"f0": value, "f1": "x"})

    reader = AvroReader(document(record(reads, union)))
    rows, wrong = reader.reader_of(document(record(writes, union)))(pa.array([payload]))

    assert wrong == {}
    assert rows.to_pylist() == [{"f0": found, "f1": {"member0": None, "member1": "x"}}]


@pytest.mark.parametrize("is_inline", [True, False])
def test_a_type_of_a_union_may_be_a_name_in_one_schema_alone(is_inline: bool) -> None:
    """A fixed makes the reader read value by value."""
    bill, ship = (
        {"name": name, "type": ["null", of]} for name, of in (("bill", CARD), ("ship", "Card"))
    )
    ends = [{"name": "id", "type": FOUR}, {"name": "ref", "type": ["long", "string"]}]
    both = {**record(), "fields": [{**bill, "default": None}, ship, *ends]}
    one = {**record(), "fields": [{**ship, "type": bill["type"]}, *ends]}
    value = {"bill": None, "ship": {"number": "1"}, "id": b"1234", "ref": 7}
    writes, reads = (
        (one, both)
        if is_inline
        else (
            both,
            {
                **one,
                "fields": [*one["fields"], {**bill, "type": ["null", "Card"], "default": None}],
            },
        )
    )
    payload = encoded(copy.deepcopy(writes), value)

    rows, wrong = AvroReader(document(reads)).reader_of(document(writes))(pa.array([payload] * 2))

    assert wrong == {}
    assert rows.to_pylist() == [{**value, "ref": {"member0": 7, "member1": None}}] * 2


def test_a_readers_union_in_a_branch_of_a_writers_union_has_the_written_member() -> None:
    paid, refused = ({**record(of), "name": name} for of, name in ((IBAN, "P"), ("int", "R")))
    reads = [{**record([CARD, IBAN]), "name": "P"}, refused]
    payload = encoded([copy.deepcopy(paid), refused], ("P", {"f0": {"number": "DE1"}}))

    rows, wrong = AvroReader(document(reads)).reader_of(document([paid, refused]))(
        pa.array([payload])
    )

    assert wrong == {}
    how = {"f0": {"member0": None, "member1": {"number": "DE1"}}}
    assert rows.to_pylist() == [{"member0": how, "member1": None}]


@pytest.mark.parametrize("name", ["x", "member0"])
@pytest.mark.parametrize("is_field", [True, False])
def test_a_union_of_only_a_record_is_the_record(name: str, is_field: bool) -> None:
    inner = {"type": "record", "name": "U", "fields": [{"name": name, "type": "long"}]}
    schema: Any = record([inner]) if is_field else [inner]
    value: Any = {"f0": {name: 7}} if is_field else {name: 7}
    payload = encoded(copy.deepcopy(schema), value)

    found, wrong = AvroReader(document(schema)).reader_of(document(schema))(pa.array([payload]))
    made, bad = AvroWriter(document(schema)).write(found)

    assert (found.to_pylist(), wrong) == ([value], {})
    assert (made.to_pylist(), bad) == ([payload], {})


def with_default(kind: Any, default: Any) -> Any:
    return {**record(), "fields": [{"name": "a", "type": kind, "default": default}]}


@pytest.mark.parametrize(
    "schema",
    [
        with_default("int", 2**40),
        with_default(INTS, ["x"]),
        with_default(record("int"), {"f0": "x"}),
        with_default("string", "\ud800"),
        with_default({"type": "map", "values": "int"}, {"\ud800": 1}),
        {**record(), "fields": [{"name": "w\ud800", "type": "int"}]},
        {"type": "enum", "name": "E", "symbols": ["a\ud800"]},
        [["int", "null"], "string"],
        record([["int", "null"], "string"]),
        [{"type": ["int", "null"]}, "string"],
    ],
)
@pytest.mark.parametrize("kind", [AvroReader, AvroWriter])
def test_an_invalid_schema_is_unfit(kind: Any, schema: Any) -> None:
    with pytest.raises(UnfitError):
        kind(document(schema))
    with suppress(UnfitError):  # the writer's schema may have invalid defaults
        AvroReader(document(record("string"))).reader_of(document(schema))


@pytest.mark.parametrize(
    ("kind", "default", "found"),
    [
        ([KIND, "long"], "X", {"member0": "X", "member1": None}),
        ([CREATED, "long"], {"id": "1"}, {"member0": {"id": "1"}, "member1": None}),
        (["double", "string"], 1, {"member0": 1.0, "member1": None}),
        (["double", "long", "string"], 1, {"member0": 1.0, "member1": None, "member2": None}),
        ([KIND, "string"], "X", {"member0": "X", "member1": None}),
        (["long", "string"], "X", {"member0": None, "member1": "X"}),
        ([FOUR, DECIMAL, "long"], "1234", {"member0": b"1234", "member1": None, "member2": None}),
        (["null", KIND, "string"], None, None),
        ({"type": "int", "logicalType": "time-millis"}, 5, 5),
        ({"type": "string", "logicalType": "uuid"}, "", ""),
        (TIME, 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (["null", "bytes"], "\u00ff", b"\xff"),
        (["null", DECIMAL], "\u0001\u0000", Decimal("2.56")),
        (["null", {"type": "int", "logicalType": "date"}], 5, date(1970, 1, 6)),
        (["null", {**record("int"), "name": "D"}], {"f0": 5}, {"f0": 5}),
        (["null", KIND, {**with_default("bytes", "\u00ff"), "name": "D"}], {}, {"member0": None,
                                                                "member1": {"a": b"\xff"}}),
        ({**record(["long", "string"]), "name": "D"}, {"f0": 1},
         {"f0": {"member0": 1, "member1": None}}),
        ({**record(["long", {"type": "map", "values": "long"}]), "name": "D"}, {"f0": 1},
         {"f0": {"member0": 1, "member1": None}}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("wrote", [{"fields": [{"name": "b", "type": "int"}]}, {"fields": []}])
@pytest.mark.parametrize("has_bad", [False, True])
def test_a_default_of_any_type_is_read(
    kind: Any, default: Any, found: Any, wrote: Any, has_bad: bool
) -> None:
    """Beside a bad value the others are read one by one."""
    schema = with_default(kind, default)
    good, bad = (b"\2", b"") if wrote["fields"] else (b"", b"\2")
    values = pa.array([good] * 3 + [bad] * has_bad)

    rows, wrong = AvroReader(document(schema)).reader_of(document({**schema, **wrote}))(values)

    assert rows.to_pylist() == [{"a": found}] * 3 + [None] * has_bad
    assert list(wrong) == [3] * has_bad


@pytest.mark.parametrize(
    ("kind", "default"),
    [([KIND, "string"], "X"), (["double", "long", "string"], 1), (["long", "string"], "X")],
)
def test_a_default_is_written_as_fastavro_writes_it(kind: Any, default: Any) -> None:
    schema = with_default(kind, default)
    schema["fields"].append({"name": "b", "type": "int"})

    made, wrong = AvroWriter(document(schema)).write(pa.array([{"b": 1}]))

    assert (made.to_pylist(), wrong) == ([encoded(copy.deepcopy(schema), {"b": 1})], {})


def test_a_huge_fixed_is_unfit() -> None:
    huge = record({"type": "fixed", "name": "F", "size": 10**12})
    with pytest.raises(UnfitError, match="more than 1048576 bytes"):
        AvroReader(document(huge)).check(document(huge))


def test_values_without_place_for_their_guards_are_read_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def join(values: pa.Array, guard: bytes) -> pa.Array:
        if len(values) > 100:
            raise pa.ArrowCapacityError("more than 2 GiB")
        return join_bytes(values, guard)

    monkeypatch.setattr(avro_batch, "join_bytes", join)
    schema = record("int")

    read = AvroReader(document(schema)).reader_of(document(schema))
    found, wrong = read(pa.array([b"\2"] * GOOD))

    assert (found.to_pylist(), wrong) == ([{"f0": 1}] * GOOD, {})


def written(kind: Any, values: pa.Array) -> tuple[list[bytes | None], dict[int, str]]:
    """Return fields as a writer writes them."""
    column = pa.StructArray.from_arrays([values], ["f0"])
    writer = AvroWriter(document(record(kind)))
    writer.check(column.type)
    made, wrong = writer.write(column)
    return made.to_pylist(), wrong


@pytest.mark.parametrize(
    ("kind", "logical", "values", "number"),
    [
        ("long", "timestamp-nanos", pa.array([5], pa.timestamp("s", "UTC")), 5 * 10**9),
        ("long", "timestamp-nanos", pa.array([5], pa.timestamp("us")), 5000),
        ("long", "timestamp-nanos", pa.array([1], pa.date32()), 86400 * 10**9),
        ("long", "timestamp-nanos", pa.array([5]), 5),
        ("long", "local-timestamp-nanos", pa.array([5], pa.timestamp("ms")), 5 * 10**6),
        ("long", "local-timestamp-nanos", pa.array(["5"]), 5),
        ("int", "time-millis", pa.array([5], pa.time32("s")), 5000),
        ("int", "time-millis", pa.array([5999], pa.time64("us")), 5),
        ("int", "time-millis", pa.array([5], pa.int64()), 5),
        ("long", "time-micros", pa.array([5000], pa.time64("ns")), 5),
        ("long", "time-micros", pa.array([5], pa.int8()), 5),
        ("long", "other", pa.array([5], pa.int8()), 5),
    ],
)
@pytest.mark.parametrize("place", ["field", "array", "optional"])
def test_times_are_written_in_the_unit_of_the_logical_type(
    kind: str, logical: str, values: pa.Array, number: int, place: str
) -> None:
    schema: Any = {"type": kind, "logicalType": logical}
    expected = long(number)
    if place == "array":
        schema, expected = {"type": "array", "items": schema}, b"\2" + expected + b"\0"
        values = pa.ListArray.from_arrays([0, 1], values)
    elif place == "optional":
        schema, expected = ["null", schema], b"\2" + expected
    assert written(schema, values) == ([expected], {})


def test_times_without_a_logical_type_are_numbers() -> None:
    assert written("long", pa.array([5], pa.timestamp("s"))) == ([long(5)], {})


@pytest.mark.parametrize(
    ("kind", "logical", "values"),
    [
        ("long", "timestamp-weeks", pa.array([5], pa.timestamp("s"))),
        ("long", "time-millis", pa.array([5], pa.time32("s"))),
        ("int", "other", pa.array([5], pa.date32())),
        ("long", "time-micros", pa.array([5], pa.duration("s"))),
    ],
)
def test_times_of_another_logical_type_are_bad(kind: str, logical: str, values: pa.Array) -> None:
    made, wrong = written({"type": kind, "logicalType": logical}, values)
    assert made == [None]
    assert "Unsupported cast" in wrong[0]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0.5, 1e300, float("inf"), None]),
        pa.array(["0.5", "1e300", "inf", None]),
    ],
)
def test_a_number_that_is_too_large_for_a_float_is_bad(values: pa.Array) -> None:
    made, wrong = written(["null", "float"], values)

    infinite = encoded(["null", "float"], float("inf"))
    assert made == [encoded(["null", "float"], 0.5), None, infinite, b"\0"]
    assert wrong == {1: "it is of another type: a number is too large for a float"}


def test_a_uuid_is_written_as_a_text() -> None:
    kind = {"type": "string", "logicalType": "uuid"}
    number = UUID(int=5)
    values = pa.array([number.bytes, None], pa.uuid())
    made, wrong = written(["null", kind], values)
    assert (made, wrong) == ([b"\2\x48" + str(number).encode(), b"\0"], {})
    assert written("bytes", values[:1]) == ([b"\x20" + number.bytes], {})
