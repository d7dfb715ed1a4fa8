"""Avro values that are read by another schema: what each becomes, in small and large batches."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any, TypeAlias

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repeated import examples

pytest.importorskip("pyruhvro", reason="the group schemas is not installed")

from cykafka.schemas.arrow.avro import AvroReader
from cykafka.schemas.model.document import Document

# The writer's schema, the reader's schema, and values: the writer's bytes, and what is read.
Case: TypeAlias = tuple[Any, Any, st.SearchStrategy[tuple[bytes, Any]]]

INT = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text("aé\0", max_size=3)
numbers = itertools.count()


def encoded(kind: str, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, kind, value)
    return out.getvalue()


def plain(
    writes: str, reads: str, values: st.SearchStrategy[Any], read: Any = lambda v: v
) -> Case:
    return writes, reads, values.map(lambda value: (encoded(writes, value), read(value)))


# Of each of these groups a union can have one.
PLAIN = [
    [plain("int", "int", INT), plain("int", "double", INT, float), plain("long", "long", INT)],
    [plain("string", "string", TEXT), plain("string", "bytes", TEXT, str.encode)],
    [plain("boolean", "boolean", st.booleans())],
]
EACH = [case for group in PLAIN for case in group]


@st.composite
def named(draw: st.DrawFn, depth: int) -> Case:
    name = f"T{next(numbers)}"
    shape = draw(st.sampled_from(["record", "enum", "fixed"]))
    if shape == "record":
        return draw(records(depth))
    if shape == "fixed":
        fixed = {"type": "fixed", "name": name, "size": 2}
        return fixed, fixed, st.binary(min_size=2, max_size=2).map(lambda value: (value, value))
    symbols = ["a", "b", "c"]
    enum = {"type": "enum", "name": name, "symbols": symbols}
    other = {**enum, "symbols": draw(st.permutations(symbols))}
    return enum, other, st.integers(0, 2).map(lambda at: (encoded("long", at), symbols[at]))


@st.composite
def records(draw: st.DrawFn, depth: int) -> Case:
    fields = draw(st.lists(cases(depth - 1), min_size=1, max_size=3))
    if draw(st.booleans()):  # a type that each schema defines in another field
        writes, reads, values = draw(named(depth - 1))
        both = st.just((b"\0", None)) | branch(values, 1, None, 0)
        fields += [(["null", writes], ["null", reads["name"]], both),
                   (["null", writes["name"]], ["null", reads], both)]  # fmt: skip
    writes, reads = (
        [{"name": f"f{at}", "type": field[side]} for at, field in enumerate(fields)]
        for side in (0, 1)
    )
    more: dict[str, Any] = {}
    if draw(st.booleans()):
        union = draw(st.sampled_from([["string", "long"], ["long", "string"]]))
        more = {"new": {"member0": None, "member1": None}}
        more["new"]["member0"] = "x" if union[0] == "string" else 7
        default = more["new"]["member0"]
        new = {"name": "new", "type": union, "default": default}
        if draw(st.booleans()):
            inner = {"type": "record", "name": f"T{next(numbers)}", "fields": [new]}
            new = {"name": "more", "type": inner, "default": {"new": default}}
            more = {"more": more}
        reads = [*reads, new]

    def joined(values: tuple[tuple[bytes, Any], ...]) -> tuple[bytes, Any]:
        read = {f"f{at}": value for at, (_, value) in enumerate(values)}
        return b"".join(data for data, _ in values), {**more, **read}

    record = {"type": "record", "name": f"T{next(numbers)}"}
    values = st.tuples(*(values for _, _, values in fields)).map(joined)
    return {**record, "fields": writes}, {**record, "fields": reads[::-1]}, values


def items(values: st.SearchStrategy[tuple[bytes, Any]]) -> st.SearchStrategy[tuple[bytes, Any]]:
    def joined(found: list[tuple[bytes, Any]]) -> tuple[bytes, Any]:
        data = b"".join(data for data, _ in found)
        count = encoded("long", len(found)) if found else b""
        return count + data + b"\0", [read for _, read in found]

    return st.lists(values, max_size=2).map(joined)


def branch(
    values: st.SearchStrategy[tuple[bytes, Any]], at: int | None, member: int | None, count: int
) -> st.SearchStrategy[tuple[bytes, Any]]:
    """Values of a branch; None for a schema that is no union."""

    def change(value: tuple[bytes, Any]) -> tuple[bytes, Any]:
        data, read = value
        if at is not None:
            data = encoded("long", at) + data
        if member is not None:
            read = {f"member{at}": read if at == member else None for at in range(count)}
        return data, read

    return values.map(change)


@st.composite
def unions(draw: st.DrawFn, depth: int) -> Case:
    """Unions of both schemas, or of one of them."""
    groups = draw(st.lists(st.sampled_from(PLAIN), max_size=2, unique_by=id))
    chosen = [draw(st.sampled_from(group)) for group in groups]
    least = max(2 - len(chosen), 0)
    chosen += draw(st.lists(named(depth - 1), min_size=least, max_size=least + 1))
    written = draw(st.permutations(range(len(chosen))))
    read = draw(st.permutations(range(len(chosen))))
    is_union = draw(st.booleans())  # in the writer's schema
    used = written if is_union else written[:1]
    values = [
        branch(chosen[case][2], at if is_union else None, read.index(case), len(chosen))
        for at, case in enumerate(used)
    ]
    writes = [chosen[case][0] for case in written] if is_union else chosen[written[0]][0]
    return writes, [chosen[case][1] for case in read], st.one_of(values)


@st.composite
def optional(draw: st.DrawFn, depth: int) -> Case:
    writes, reads, values = draw(st.one_of(st.sampled_from(EACH), named(depth - 1)))
    shape = draw(st.sampled_from(["both", "writer", "reader"]))
    if shape == "reader":
        return writes, ["null", reads], values
    present = branch(values, 1, None, 0)
    if shape == "writer":
        return ["null", writes], reads, present
    return ["null", writes], ["null", reads], st.one_of(st.just((b"\0", None)), present)


@st.composite
def cases(draw: st.DrawFn, depth: int = 2) -> Case:
    if depth <= 0:
        return draw(st.sampled_from(EACH))
    shape = draw(st.sampled_from(["plain", "named", "optional", "union", "array"]))
    if shape == "array":
        writes, reads, values = draw(cases(depth - 1))
        return (
            {"type": "array", "items": writes}, {"type": "array", "items": reads}, items(values)
        )  # fmt: skip
    if shape == "plain":
        return draw(st.sampled_from(EACH))
    return draw({"named": named, "optional": optional, "union": unions}[shape](depth))


@settings(max_examples=examples(1000))
@given(st.data())
def test_values_are_read_by_the_rules_of_schema_resolution(data: st.DataObject) -> None:
    writes, reads, values = data.draw(records(3))
    found = data.draw(st.lists(values, min_size=1, max_size=3))
    reader = AvroReader(Document("avro", json.dumps(reads), id=1))
    read = reader.reader_of(Document("avro", json.dumps(writes), id=2))
    for times, bad in itertools.product((1, 100), ([], [b""])):
        payloads = [payload for payload, _ in found] * times + bad
        rows, wrong = read(pa.array(payloads, pa.binary()))
        assert rows.to_pylist() == [value for _, value in found] * times + [None] * len(bad)
        assert len(wrong) == len(bad)
