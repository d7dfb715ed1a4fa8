"""Damaged values: batches and deserializers of single records decode or refuse them alike.

Each example is a batch of valid values of a random schema, most of them with changed bytes.
`make soak` tries ten times as many. hypothesis prints the smallest failing example. If the process
crashes or hangs instead, the file `INPUT` contains the example.
"""

from __future__ import annotations

import json
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import proto_files
import pyarrow as pa
import pytest
from avro_cases import encoded, evolved, kinds, record
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from memory_registry import MemoryRegistry
from repeated import examples

from cykafka.schemas.arrow.batches import decode_batch
from cykafka.schemas.arrow.columns import replace_types
from cykafka.schemas.model.document import SCHEMA_TYPES, Document, UnfitError
from cykafka.schemas.model.error import SchemaRegistryError
from cykafka.schemas.model.framing import frame_id, frame_indexes, header_name
from cykafka.schemas.model.schema import Schema
from cykafka.schemas.serdes.avro_serde import AvroDeserializer
from cykafka.schemas.serdes.json_serde import JSONDeserializer
from cykafka.schemas.serdes.protobuf_serde import ProtobufDeserializer
from cykafka.serialization import MessageField, SerializationContext, SerializationError

INPUT = Path(tempfile.gettempdir(), f"cykafka-fuzz-{os.getpid()}.txt")
# For one batch or record, in processor time and additional memory.
MOST_S, MOST_KIB = 10.0, 200 << 10
pytestmark = pytest.mark.timeout(3600)


def fuzz(many: int) -> settings:
    return settings(
        max_examples=examples(many, many // 10),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )


# -- input

# A record's header that names its schema, and its value.
Row = tuple[bytes | None, bytes | None]
TWO_62 = b"\x80" * 8 + b"\x40", b"\x80" * 9 + b"\1"  # plain, and as Avro's long
PIECES = st.sampled_from(
    [*TWO_62, b"", b"\0", b"\1", b"\xff" * 9 + b"\1", b"\xff" * 11, b"\x0a\x7f", b"\x0b",
     b"\2" * 300, b"\xff\xfe", b'"', b"\\", b"}{", b"\n", b"NaN", b"1e999", b"[" * 2000,
     b'{"f0":' * 500]
)  # fmt: skip
PLACES, SIZES = st.integers(0, 80), st.sampled_from([0, 1, 2, 4, 1000])


def replaced(place: int, size: int, piece: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + piece + data[place + size :]


def flipped(place: int, bit: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + bytes(
        octet ^ 1 << bit for octet in data[place : place + 1]
    ) + data[place + 1 :]  # fmt: skip


def swapped(place: int, size: int) -> Callable[[bytes], bytes]:
    end = place + size
    return lambda data: (
        data[:place] + data[end : end + size] + data[place:end] + data[end + size :]
    )


EDITS = st.one_of(
    st.builds(flipped, PLACES, st.integers(0, 7)),
    st.builds(replaced, PLACES, SIZES, PIECES | st.binary(max_size=3)),
    st.builds(swapped, PLACES, st.integers(1, 4)),
)
DAMAGE = st.just([]) | st.lists(EDITS, min_size=1, max_size=3)


@st.composite
def rows(
    draw: st.DrawFn, registry: MemoryRegistry, values: list[tuple[int, bytes]], head: bytes = b""
) -> list[Row]:
    """Frame values, each with its schema's id, and damage some of them."""
    made: list[Row] = []
    for number, payload in values:
        guid = b"\1" + UUID(registry.guid(number)).bytes
        frame = draw(st.sampled_from([None, None, None, frame_id(number), guid]))
        value = payload if frame else frame_id(number) + head + payload
        frame = frame and frame + head
        for edit in draw(DAMAGE):
            if frame is not None and draw(st.booleans()):
                frame = edit(frame)
            else:
                value = edit(value)
        made.append((frame, value))
    return [*made, (None, None)] if draw(st.booleans()) else made


# -- decoding


class Registry(MemoryRegistry):
    """The registry and its client, also for batches."""

    def document_by_id(self, schema_id: int | UUID, subject_name: str | None = None) -> Document:
        if isinstance(schema_id, UUID):
            return self._document(self.get_schema_by_guid(str(schema_id)), None)
        return self._document(self.get_schema(schema_id), schema_id)

    def document_by_version(
        self, subject_name: str, version: Any = "latest", *, modes: Any = None
    ) -> Document:
        return self._document(self.get_version(subject_name, version).schema, None)

    def document(self, schema: Schema, *_: Any, modes: Any = None) -> Document:
        return self._document(schema, None)

    def _document(self, schema: Schema, number: int | None) -> Document:
        form = next(form for form, kind in SCHEMA_TYPES.items() if kind == schema.schema_type)
        return Document(form, schema.schema_str, id=number)


class Batch:
    """Records as a MessageBatch has them."""

    def __init__(self, rows: list[Row], field: str) -> None:
        self._field, self._heads = field, [head for head, _ in rows]
        values, none = pa.array([value for _, value in rows], pa.binary()), pa.nulls(len(rows))
        columns = dict.fromkeys(("topic", "partition", "offset", "timestamp"), none)
        both = {"key": none.cast(pa.binary()), "value": none.cast(pa.binary()), field: values}
        self._table = pa.table({**columns, **both})

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)

    def header(self, name: str) -> list[bytes | None]:
        is_own = name == header_name(self._field)
        return self._heads if is_own else [None] * len(self._heads)


@contextmanager
def limited(case: object) -> Iterator[None]:
    """Keep the input for a crash, and limit the time and the memory of what reads it."""
    INPUT.write_text(repr(case))
    begun = time.process_time()
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - begun < MOST_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size < MOST_KIB
    INPUT.unlink()


def check(
    registry: Registry, form: str, field: str, rows: list[Row], schema: str, single: Any,
    expected: dict[str, str],
) -> None:  # fmt: skip
    """Decode rows as a batch and one by one.

    `expected` has the errors that only a single record may have, and those that only a row may
    have, as regular expressions.
    """
    given = schema if form == "protobuf" else Schema(schema, SCHEMA_TYPES[form])
    formats = (form,) if field == "value" else ("bytes", form)
    name = "schema" if field == "value" else "key_schema"
    with limited((form, field, rows, schema)):
        table = decode_batch(registry, Batch(rows, field), *formats, **{name: given})
    table.validate(full=True)
    errors = table["error"].to_pylist()
    is_null = [
        data is None or error is not None for (_, data), error in zip(rows, errors, strict=True)
    ]
    found = column(table, field, is_null)
    for row, (head, data) in enumerate(rows):
        name = header_name(field)
        headers = None if head is None else [("other", b""), (name, head)]
        value, error = None, None
        with limited((form, field, head, data, schema)):
            try:
                value = single(data, SerializationContext("orders", field, headers))
            except (SerializationError, SchemaRegistryError) as caught:
                error = str(caught)
        words = f"row {row}, {data!r}, {head!r}: {error!r} alone, {errors[row]!r} in the batch"
        if (error is None) != (errors[row] is None):
            side = "single" if error else "batch"
            assert re.search(expected[side], error or errors[row], re.DOTALL), words
        elif error is None:
            assert is_same(found[row], value), f"{words}: {value!r} and {found[row]!r}"
        if errors[row] is not None:
            assert found[row] is None, words


def column(table: pa.Table, field: str, is_null: list[bool]) -> list[Any]:
    """A column's values in Python, which lacks some times: with numbers instead of times."""
    if field == "value" and "value" not in table.column_names:
        names = [name for name in table.column_names[5:] if name != "error"]
        arrays = [table[name].combine_chunks() for name in names]
        bare = [name.removeprefix("value.") for name in names]
        # The columns of a null record and of one with null fields are alike.
        found: Any = pa.StructArray.from_arrays(arrays, bare, mask=pa.array(is_null, pa.bool_()))
    else:
        found = table[field].combine_chunks()
    times = {pa.timestamp("us", "UTC"): pa.int64(), pa.timestamp("us"): pa.int64(),
             pa.date32(): pa.int32()}  # fmt: skip
    plain = found.cast(replace_types(found.type, times))
    return plain.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]


def is_same(found: Any, value: Any) -> bool:
    """Whether a cell and a single value are the same."""
    if isinstance(value, Message):
        return all(
            found[field.name] is None
            if field.message_type and not field.is_repeated and not value.HasField(field.name)
            else is_same(found[field.name], getattr(value, field.name))
            for field in value.DESCRIPTOR.fields
        )
    if isinstance(found, dict) and found and all(re.fullmatch(r"member\d+", k) for k in found):
        inner = [each for each in found.values() if each is not None]
        # fastavro does not say which branch it has read. Of int and a time that is a long, a batch
        # guesses int for small numbers; and a float before the time can read the long, too.
        is_guessed = isinstance(value, date) and isinstance(inner[0], int | float)
        return len(inner) == 1 and (is_guessed or is_same(inner[0], value))
    if isinstance(value, datetime):
        return found == (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(value, date):
        return found == (value - date(1970, 1, 1)).days
    if value is None:
        return found is None
    if isinstance(found, dict):
        value = {**dict.fromkeys(found), **value} if isinstance(value, dict) else {}
        return all(is_same(found[name], value[name]) for name in found)
    if isinstance(found, list):
        return len(found) == len(value) and all(map(is_same, found, value))
    if isinstance(value, Decimal) and isinstance(found, bytes | str):
        # The reader's schema lacks the decimal, which only a batch notices.
        data = found.encode() if isinstance(found, str) else found
        scale = value.as_tuple().exponent
        return value == Decimal(int.from_bytes(data, "big", signed=True)).scaleb(int(scale))
    if isinstance(found, float):
        # fastavro does not round a number that is promoted to float.
        is_rounded = abs(value) < 2**64 and found == np.float32(value)
        return found == value or is_rounded or (found != found and value != value)
    if isinstance(value, UUID):  # bytes, if a reader's union has bytes before it
        found = UUID(found.decode() if isinstance(found, bytes) else found)
    return bool(found == value)


FIELDS = st.sampled_from([MessageField.VALUE, MessageField.KEY])


AVRO_DIFFERS = {
    # In a batch a UUID is a text. Python lacks some times. A batch skips texts in fields that the
    # reader lacks; the other texts are validated here.
    "single": "UUID|base 16|out of range|ordinal|OverflowError|codec can't decode",
    # A decimal's type has a precision. In a reader's union fastavro takes the first branch that
    # can read a value: bytes, or a decimal, before the string that was written. fastavro reads an
    # int of more than 32 bits.
    "batch": "precision|got bytes|too large to fit in C integer type",
}


@given(st.data(), FIELDS)
@fuzz(12_000)
def test_avro(data: st.DataObject, field: str) -> None:
    registry, values = Registry(), []
    schema, of = record(data.draw, data.draw(st.lists(kinds(), min_size=1, max_size=4)))
    number = registry.add("orders-value", json.dumps(schema))
    values = [(number, each) for each in encoded(schema, data.draw(st.lists(of, max_size=6)))]
    reader = json.dumps(data.draw(st.just(schema) | evolved(schema)))
    try:
        single = AvroDeserializer(registry, reader)
    except UnfitError:
        return
    batch = data.draw(rows(registry, values))
    check(registry, "avro", field, batch, reader, single, AVRO_DIFFERS)


@st.composite
def protobufs(draw: st.DrawFn) -> tuple[Any, str]:
    """A file with messages, and the name of one of them."""
    plain = [*proto_files.TYPES]
    messages: dict[str, dict[str, tuple[int, str]]] = {}
    for name in ("C", "B", "B.D", "A"):
        types = [*plain, *(f".p.{known}" for known in messages)]
        chosen = draw(st.lists(st.sampled_from(types), min_size=1, max_size=5))
        messages[name] = {
            f"f{at}": (at + 1, draw(st.sampled_from(["", "repeated "])) + kind)
            for at, kind in enumerate(chosen)
        }
    return proto_files.proto("f.proto", "p", messages), draw(st.sampled_from([*messages]))


SCALARS: dict[int, st.SearchStrategy[Any]] = {
    proto_files.FIELD.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    proto_files.FIELD.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    proto_files.FIELD.TYPE_UINT64: st.integers(0, 2**64 - 1),
    proto_files.FIELD.TYPE_STRING: st.text(max_size=5),
    proto_files.FIELD.TYPE_DOUBLE: st.floats(),
    proto_files.FIELD.TYPE_BYTES: st.binary(max_size=5),
    proto_files.FIELD.TYPE_BOOL: st.booleans(),
}


@st.composite
def messages(draw: st.DrawFn, kind: Any) -> Any:
    of = {
        field.name: messages(GetMessageClass(field.message_type))
        if field.message_type
        else SCALARS[field.type]
        for field in kind.DESCRIPTOR.fields
    }
    repeated = {field.name for field in kind.DESCRIPTOR.fields if field.is_repeated}
    return kind(**{
        name: draw(st.lists(each, max_size=3) if name in repeated else each)
        for name, each in of.items() if draw(st.booleans())
    })  # fmt: skip


# A batch has one kind of message, and the deserializer ignores the message's name. ptars ignores
# what is wrong in fields that the schema lacks, such as a group with the end of another one.
PROTOBUF_DIFFERS = {"single": "Wire format was corrupt", "batch": "its message is"}


@given(st.data(), protobufs(), FIELDS)
@fuzz(12_000)
def test_protobuf(data: st.DataObject, made: tuple[Any, str], field: str) -> None:
    file, name = made
    registry, kind = Registry(), proto_files.message(f"p.{name}", file)
    text = proto_files.text(file)
    number = registry.add("orders-value", text, "PROTOBUF")
    head = frame_indexes({"C": (0,), "B": (1,), "B.D": (1, 0), "A": (2,)}[name])
    drawn = data.draw(st.lists(messages(kind), max_size=6))
    values = [(number, message.SerializeToString()) for message in drawn]
    batch = data.draw(rows(registry, values, head))
    single = ProtobufDeserializer(kind, None, registry)
    check(registry, "protobuf", field, batch, f"orders-value:1#p.{name}", single,
          PROTOBUF_DIFFERS)  # fmt: skip


LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ({"type": "integer"}, st.integers(-(2**63), 2**63 - 1)),
    ({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False)),
    ({"type": "string"}, st.text(max_size=5)),
    ({"type": "boolean"}, st.booleans()),
    ({"type": ["string", "null"]}, st.none() | st.text(max_size=5)),
]


@st.composite
def jsons(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A JSON Schema, and values of it."""
    shape = draw(st.sampled_from(["leaf", "leaf", "list", "object"])) if depth else "leaf"
    if shape == "leaf":
        return draw(st.sampled_from(LEAVES))
    if shape == "list":
        items, of = draw(jsons(depth - 1))
        return {"type": "array", "items": items}, st.lists(of, max_size=3)
    return draw(objects(depth - 1))


@st.composite
def objects(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    found = draw(st.lists(jsons(depth), min_size=1, max_size=4))
    properties = {f"f{at}": schema for at, (schema, _) in enumerate(found)}
    values = {f"f{at}": of for at, (_, of) in enumerate(found)}
    return {"type": "object", "properties": properties}, st.fixed_dictionaries({}, optional=values)


# Arrow's texts are UTF-8, and integers have 64 bits.
JSON_DIFFERS = {"single": "^$", "batch": "surrogates|too large"}


@given(st.data(), objects(), FIELDS)
@fuzz(12_000)
def test_json(data: st.DataObject, made: tuple[Any, st.SearchStrategy[Any]], field: str) -> None:
    registry, text = Registry(), json.dumps(made[0])
    number = registry.add("orders-value", text, "JSON")
    drawn = data.draw(st.lists(made[1], max_size=6))
    values = [(number, json.dumps(value).encode()) for value in drawn]
    batch = data.draw(rows(registry, values))
    single = JSONDeserializer(text, None, registry)
    check(registry, "json", field, batch, text, single, JSON_DIFFERS)
