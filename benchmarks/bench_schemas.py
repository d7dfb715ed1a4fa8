"""Compare tables from and to values with schemas with confluent_kafka's serializers.

The values have 10 fields: string, long, double, timestamp, nullable, nested, array, enum, boolean
and int. Each round runs both ways of each case, in random order, in this process, and measures
the CPU time of all threads. confluent_kafka decodes in a loop, and `pyarrow.Table.from_pylist`
makes the table; it encodes the dicts of `Table.to_pylist`. Both know the schema's id before.

    python benchmarks/bench_schemas.py                    20,000 values, 7 rounds
    python benchmarks/bench_schemas.py --values 5000 --rounds 3
"""

from __future__ import annotations

import argparse
import base64
import json
import random
from collections.abc import Callable
from time import process_time
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
from confluent_kafka.schema_registry import Schema as PeerSchema
from confluent_kafka.schema_registry import SchemaRegistryClient as PeerClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.text_format import Parse

from _figures import Spread, ratios
from _machine import describe_machine, load_before, show_progress
from cykafka.schemas.arrow.batches import decode_batch, encode_table
from cykafka.schemas.model.document import SCHEMA_TYPES, Document
from cykafka.schemas.model.schema import RegisteredSchema, Schema

TOPIC, ID = "orders", 1
STATES = ["NEW", "PAID", "SENT"]
AVRO = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "name", "type": "string"},
    {"name": "price", "type": "double"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "count", "type": "int"},
    {"name": "paid", "type": "boolean"},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": STATES}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "address", "type": {"type": "record", "name": "Address", "fields": [
        {"name": "street", "type": "string"}, {"name": "zip", "type": "int"}]}},
]}  # fmt: skip
JSON = {"type": "object", "title": "Order", "properties": {
    "id": {"type": "integer"},
    "name": {"type": "string"},
    "price": {"type": "number"},
    "at": {"type": "string", "format": "date-time"},
    "note": {"type": ["string", "null"]},
    "count": {"type": "integer"},
    "paid": {"type": "boolean"},
    "state": {"type": "string", "enum": STATES},
    "tags": {"type": "array", "items": {"type": "string"}},
    "address": {"type": "object", "properties": {
        "street": {"type": "string"}, "zip": {"type": "integer"}}},
}}  # fmt: skip
PROTO = """
name: "order.proto" syntax: "proto3"
message_type { name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "price" number: 3 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "at" number: 4 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "note" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0
          proto3_optional: true }
  field { name: "count" number: 6 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "paid" number: 7 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "state" number: 8 type: TYPE_ENUM type_name: ".State" label: LABEL_OPTIONAL }
  field { name: "tags" number: 9 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "address" number: 10 type: TYPE_MESSAGE type_name: ".Address"
          label: LABEL_OPTIONAL }
  oneof_decl { name: "_note" } }
message_type { name: "Address"
  field { name: "street" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "zip" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL } }
enum_type { name: "State" value { name: "NEW" number: 0 } value { name: "PAID" number: 1 }
  value { name: "SENT" number: 2 } }
"""


class Case(NamedTuple):
    """The same work for both, and how many times faster cykafka should be."""

    name: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]
    target: int


class OneSchema:
    """A client that knows one schema."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def document_by_id(self, schema_id: int | UUID, subject_name: str | None = None) -> Document:
        return self._document

    def document_by_version(
        self, subject_name: str, version: Any = "latest", *, modes: Any = None
    ) -> Document:
        return self._document

    def document(self, schema: Schema, *_: Any, modes: Any = None) -> Document:
        return self._document

    def lookup_schema(self, subject_name: str, schema: Schema) -> RegisteredSchema:
        return RegisteredSchema(subject_name, 1, ID, None, schema)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number * 1_000_003,
        "name": f"customer {number}",
        "price": number * 0.37,
        "at": 1_700_000_000_000 + number,
        "note": None if number % 3 else "before noon, please",
        "count": number % 100,
        "paid": number % 2 == 0,
        "state": STATES[number % 3],
        "tags": ["a", "bb", "ccc"][: number % 4],
        "address": {"street": f"street {number % 77}", "zip": number % 9999},
    }


def records(values: list[bytes]) -> pa.Table:
    """A table with the columns of a MessageBatch."""
    count = len(values)
    return pa.table(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array([TOPIC] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
        }
    )


def table_of(rows: list[dict[str, Any]], kind: pa.Schema | None = None) -> pa.Table:
    return pa.Table.from_pylist(rows, kind)


def cases_of(
    form: str, document: Document, serialize: Any, deserialize: Any, rows: list[Any],
    to_dict: Callable[[Any], Any], to_object: Callable[[Any], Any], targets: tuple[int, int],
) -> list[Case]:  # fmt: skip
    """Decoding and encoding with one format."""
    context = SerializationContext(TOPIC, MessageField.VALUE)
    values = [serialize(row, context) for row in rows]
    batch, client = records(values), OneSchema(document)

    def decode() -> Any:
        return decode_batch(client, batch, form, mode="FAIL")

    def decode_by_peer() -> Any:
        return table_of([to_dict(deserialize(value, context)) for value in values])

    table = decode().drop_columns(["topic", "partition", "offset", "timestamp", "key"])
    decoded = decode_by_peer()
    assert len(decoded) == len(table)
    assert decoded["name"].to_pylist() == table["name"].to_pylist()

    def encode() -> Any:
        return encode_table(client, TOPIC, table)

    def encode_by_peer() -> Any:
        return [serialize(to_object(row), context) for row in table.to_pylist()]

    if form != "json":  # the peer's JSON has spaces
        assert encode()["value"].to_pylist() == encode_by_peer() == values
    name = SCHEMA_TYPES[form].capitalize() if form != "json" else "JSON"
    return [
        Case(f"{name} to Arrow", decode, decode_by_peer, targets[0]),
        Case(f"{name} from Arrow", encode, encode_by_peer, targets[1]),
    ]


def all_cases(count: int) -> list[Case]:
    rows = [order(number) for number in range(count)]
    peer = PeerClient.new_client({"url": "mock://"})
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    found = []

    def same(value: Any) -> Any:
        return value

    text = json.dumps(AVRO)
    peer.register_schema(f"{TOPIC}-value", PeerSchema(text, "AVRO"))
    found += cases_of(
        "avro", Document("avro", text, id=ID), AvroSerializer(peer, text, conf=settings),
        AvroDeserializer(peer, text), rows, same, same, (30, 10),
    )  # fmt: skip

    file = Parse(PROTO, FileDescriptorProto())
    pool = DescriptorPool()
    pool.Add(file)
    Order = GetMessageClass(pool.FindMessageTypeByName("Order"))
    peer = PeerClient.new_client({"url": "mock://protobuf"})

    def to_message(row: dict[str, Any]) -> Any:
        made = dict(row)
        if made["note"] is None:
            del made["note"]
        return Order(**made)

    def to_dict(message: Any) -> dict[str, Any]:
        return {
            "id": message.id,
            "name": message.name,
            "price": message.price,
            "at": message.at,
            "note": message.note if message.HasField("note") else None,
            "count": message.count,
            "paid": message.paid,
            "state": STATES[message.state],
            "tags": list(message.tags),
            "address": {"street": message.address.street, "zip": message.address.zip},
        }

    serializer = ProtobufSerializer(Order, peer, {"use.deprecated.format": False})

    def serialize(row: Any, context: Any) -> Any:
        return serializer(to_message(row) if isinstance(row, dict) else row, context)

    document = Document("protobuf", base64.b64encode(file.SerializeToString()).decode(), id=ID)
    found += cases_of(
        "protobuf", document, serialize,
        ProtobufDeserializer(Order, {"use.deprecated.format": False}, peer), rows, to_dict,
        to_message, (15, 10),
    )  # fmt: skip

    text = json.dumps(JSON)
    peer = PeerClient.new_client({"url": "mock://json"})
    peer.register_schema(f"{TOPIC}-value", PeerSchema(text, "JSON"))
    for row in rows:
        row["at"] = "2026-01-02T03:04:05.678Z"
    found += cases_of(
        "json", Document("json", text, id=ID),
        JSONSerializer(text, peer, lambda row, _: {**row, "at": str(row["at"])}, settings),
        JSONDeserializer(text, schema_registry_client=peer), rows, same, same, (5, 10),
    )  # fmt: skip
    return found


def cpu(work: Callable[[], Any]) -> float:
    start = process_time()
    work()
    return process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--values", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    load = load_before()
    cases = all_cases(args.values)
    times: dict[tuple[str, bool], list[float]] = {}
    for turn in range(args.rounds):
        show_progress(f"round {turn + 1} of {args.rounds}")
        for case in random.sample(cases, len(cases)):
            for is_ours in random.sample([True, False], 2):
                taken = cpu(case.ours if is_ours else case.peer)
                figure = taken / args.values * 1e6
                times.setdefault((case.name, is_ours), []).append(figure)
    print(describe_machine(load))
    print("\n| case | cykafka, us | confluent_kafka, us | times faster | target |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for case in cases:
        ours, peer = times[case.name, True], times[case.name, False]
        figures = [Spread.of(each) for each in (ours, peer, ratios(peer, ours))]
        texts = [f"{each.median:.3g} ({each.low:.3g} to {each.high:.3g})" for each in figures]
        print(f"| {case.name} | {' | '.join(texts)} | {case.target} |")


if __name__ == "__main__":
    main()
