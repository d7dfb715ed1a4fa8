"""Random Avro schemas, their values, and schemas that read them."""

from __future__ import annotations

import io
import itertools
from typing import Any

import fastavro
from hypothesis import strategies as st

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
    """A record of such schemas."""
    fields = [{"name": f"f{at}", "type": schema} for at, (schema, _) in enumerate(members)]
    values = st.fixed_dictionaries({f"f{at}": of for at, (_, of) in enumerate(members)})
    return {"type": "record", "name": f"R{next(numbers)}", "fields": fields}, values


def encoded(schema: Any, values: list[Any]) -> list[bytes]:
    """Values as bytes without a frame."""
    plain, payloads = fastavro.parse_schema(without_logical(schema)), []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, plain, value)
        payloads.append(out.getvalue())
    return payloads


def without_logical(schema: Any) -> Any:
    """The schema with the plain types of its logical types."""
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
