"""The Python and the tables of docs/schemas.md and docs/schemas-reference.md are right."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import proto_files
import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from guides import blocks, names, tables
from machine import WAIT_S

from cykafka import Consumer, Producer, TopicPartition
from cykafka.schemas import Schema, SchemaRegistryClient
from cykafka.schemas.arrow.formats import reader_for
from cykafka.schemas.arrow.json_columns import json_reader
from cykafka.schemas.model.document import Document
from cykafka.schemas.registry.options import DEFAULTS
from cykafka.schemas.serdes.serde import SERIALIZER_OPTIONS
from cykafka.serialization import MessageField, SerializationContext
from cykafka.testing import MockCluster, SchemaRegistry

pytestmark = pytest.mark.ours

PAGE = "docs/schemas.md"
REFERENCE = "docs/schemas-reference.md"
(
    TABLE, LIBRARIES, PRODUCING, SERIALIZERS, DESERIALIZER,
    EVOLUTION, BAD, ASYNCIO, CLIENT, SUBJECTS,
) = blocks(PAGE)  # fmt: skip
FIELDS = [{"name": "id", "type": "long"}, {"name": "total", "type": "double"}]
ORDER = {"type": "record", "name": "Order", "fields": FIELDS}
ORDERS = pa.table({"id": [1, 2], "total": [9.5, 20.0]})
FILE = proto_files.proto("order.proto", "shop", {"Order": {"id": (1, "int64")}})


class Shop:
    """A cluster and a registry, and the names that the page's examples share."""

    def __init__(self, cluster: MockCluster, registry: SchemaRegistry) -> None:
        self._addresses = {
            "localhost:9092": cluster.bootstrap_servers,
            "http://localhost:8081": registry.url,
        }
        self.registry = registry
        self.config = {"bootstrap.servers": cluster.bootstrap_servers}
        self.client = SchemaRegistryClient({"url": registry.url})
        self.names: dict[str, Any] = {
            "config": self.config, "earliest": {"auto.offset.reset": "earliest"},
            "registry": self.client, "ORDER": json.dumps(ORDER), "Schema": Schema,
        }  # fmt: skip

    def run(self, block: str, **changes: str) -> dict[str, Any]:
        """Run an example; return the names that it and the earlier ones have defined."""
        # A member of a classic group waits longer on the mock.
        own = {'"group.id"': '"group.protocol": "consumer", "group.id"'}
        for old, new in (self._addresses | own | changes).items():
            block = block.replace(old, new)
        exec(compile(block, PAGE, "exec"), self.names)
        return self.names

    def send(self, *values: bytes) -> None:
        """Send two orders, then values as they are."""
        with Producer(self.config) as producer:
            if self.client.get_subjects():
                producer.publish_arrow("orders", ORDERS, registry=self.client).wait(WAIT_S)
            if values:
                producer.publish("orders", list(values)).wait(WAIT_S)

    def batch(self, topic: str, count: int) -> Any:
        with Consumer({**self.config, "group.id": "shop"}) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            batch = consumer.consume_batch(count, WAIT_S)
            assert len(batch) == count
            batch.detach()
            return batch


@pytest.fixture
def empty_shop() -> Iterator[Shop]:
    """A shop without a schema."""
    with (
        MockCluster(group_consumer_heartbeat_interval_ms=100) as cluster,
        SchemaRegistry() as registry,
    ):
        for topic in ("orders", "copies"):
            cluster.create_topic(topic, 1)
        shop = Shop(cluster, registry)
        yield shop
        shop.client.close()


@pytest.fixture
def shop(empty_shop: Shop) -> Shop:
    """A shop with the schema of its orders."""
    empty_shop.registry.add("orders-value", ORDER)
    return empty_shop


def test_a_batch_becomes_a_table_that_libraries_read(shop: Shop) -> None:
    shop.send()

    found = shop.run(TABLE, **{"10_000, timeout=5.0": f"2, timeout={WAIT_S}"})

    assert found["orders"].select(["id", "total"]).equals(ORDERS)
    pandas, polars, duckdb = LIBRARIES.split("\n\n")
    shop.run(pandas)
    assert found["totals"].to_dict() == {1: 9.5, 2: 20.0}
    shop.run(polars)
    assert dict(found["totals"].iter_rows()) == {1: 9.5, 2: 20.0}
    shop.run(duckdb)
    assert sorted(found["totals"]) == [(1, 9.5), (2, 20.0)]


def test_tables_and_single_records_are_produced(
    empty_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = empty_shop
    order = proto_files.message("shop.Order", FILE)
    monkeypatch.setitem(sys.modules, "order_pb2", SimpleNamespace(Order=order))
    shop.run(PRODUCING)

    found = shop.run(SERIALIZERS)

    rows = shop.batch("orders", 3).decode(shop.client, key="string").to_pylist()
    assert [(row["key"], row["id"], row["total"]) for row in rows] == [
        ("ada", 1, 9.5), ("bob", 2, 20.0), ("ada", 3, 4.5)]  # fmt: skip
    context = SerializationContext("copies", MessageField.VALUE)
    assert found["protobuf"](order(id=1), context).endswith(b"\0\x08\1")
    context = SerializationContext("files", MessageField.VALUE)
    assert found["json"]({"id": 1}, context).endswith(b'{"id":1}')


def test_single_records_are_read(shop: Shop) -> None:
    class Seen(Exception):
        pass

    def show(key: bytes | None, total: float) -> None:
        assert (key, total) == (None, 9.5)
        raise Seen  # else it would never end

    shop.send()
    shop.names["print"] = show
    with pytest.raises(Seen):
        shop.run(DESERIALIZER)


def test_a_readers_schema_and_bad_records(shop: Shop) -> None:
    shop.send(b"plain")
    note = {"name": "note", "type": "string", "default": "none"}
    newer = Schema(json.dumps({**ORDER, "fields": [*FIELDS, note]}))
    shop.client.register_schema("orders-value", newer)
    shop.names["batch"] = shop.batch("orders", 3)
    shop.run("from cykafka.schemas import AvroDeserializer")

    found = shop.run(EVOLUTION)
    table = found["orders"]
    assert table["note"].to_pylist() == ["none", "none", None]

    found = shop.run(BAD)
    (reason,) = found["reasons"]
    assert "not in the wire format" in reason
    assert found["dropped"] == 1
    assert found["good"]["id"].to_pylist() == [1, 2]


def test_records_are_copied_by_the_event_loop(shop: Shop) -> None:
    shop.send()
    # The example ends when no more records come.
    found = shop.run(ASYNCIO, **{"is not None:": "is not None and message.value()['id'] < 9:"})
    with Producer(shop.config) as producer:
        last = pa.table({"id": [9], "total": [0.0]})
        producer.publish_arrow("orders", last, registry=shop.client).wait(WAIT_S)

    asyncio.run(found["copy"]())

    assert shop.batch("copies", 2).decode(shop.client)["id"].to_pylist() == [1, 2]


def test_schemas_are_checked_and_registered(shop: Shop) -> None:
    shop.run(CLIENT)

    assert shop.client.get_versions("orders-value") == [1, 2]


def test_a_header_names_the_schema(shop: Shop) -> None:
    shop.registry.add("Order", ORDER)
    shop.run("from cykafka.schemas import AvroDeserializer, AvroSerializer")

    found = shop.run(SUBJECTS)

    headers: list[tuple[str, str | bytes | None]] = []
    context = SerializationContext("any", MessageField.VALUE, headers)
    value = found["serializer"]({"id": 1, "total": 2.0}, context)
    assert value[:1] == b"\2"
    assert [name for name, _ in headers] == ["__value_schema_id"]
    assert found["AvroDeserializer"](shop.client)(value, context) == {"id": 1, "total": 2.0}


def test_the_reference_has_all_options_and_their_defaults() -> None:
    (client,) = tables(REFERENCE, "The client's options")
    found = {name: row[1] for row in client for name in names(row[0])}
    assert found.keys() == DEFAULTS.keys()
    numbers = [name for name, default in DEFAULTS.items() if isinstance(default, int | float)]
    for row in client:
        given = [DEFAULTS[name] for name in names(row[0]) if name in numbers]
        if given:
            assert [float(word) for word in row[1].split(",")] == given

    (serializers,) = tables(REFERENCE, "The serializers' options")
    known = {name for row in serializers for name in names(row[0])}
    assert known <= SERIALIZER_OPTIONS.keys()


def arrow_types(number: int) -> list[tuple[str, str]]:
    """The types of a table, each with its Arrow type."""
    return [
        pair
        for given, arrow in tables(REFERENCE, "Arrow types")[number]
        if len(names(given)) == len(names(arrow))
        for pair in zip(names(given), names(arrow), strict=True)
    ]


AVRO_KINDS = {"timestamp": "long", "local": "long", "date": "int", "uuid": "string"}


@pytest.mark.parametrize(("name", "arrow"), arrow_types(0))
def test_avro_type_becomes_the_arrow_type(name: str, arrow: str) -> None:
    plain = AVRO_KINDS.get(name.partition("-")[0], "int" if name == "time-millis" else "long")
    kind: Any = {"type": plain, "logicalType": name}
    if "-" not in name and name not in AVRO_KINDS:
        kind = {"type": name, "name": "Named", "symbols": ["A"], "size": 4}
    schema = {"type": "record", "name": "X", "fields": [{"name": "field", "type": kind}]}

    reader = reader_for("avro", Document("avro", json.dumps(schema)))

    assert str(reader.kind.field(0).type) == arrow


@pytest.mark.parametrize(("name", "arrow"), arrow_types(1))
def test_protobuf_type_becomes_the_arrow_type(name: str, arrow: str) -> None:
    file = FileDescriptorProto(name="x.proto", package="x", syntax="proto3")
    field = file.message_type.add(name="X").field.add(name="field", number=1, label=1)
    if name.islower():
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    else:
        part = "wrappers" if name.endswith("Value") else name.lower()
        file.dependency.append(f"google/protobuf/{part}.proto")
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".google.protobuf.{name}"

    reader = reader_for("protobuf", Document("protobuf", proto_files.text(file)))

    assert str(reader.kind.field(0).type) == arrow


@pytest.mark.parametrize(("name", "arrow"), arrow_types(2))
def test_json_type_becomes_the_arrow_type(name: str, arrow: str) -> None:
    is_format = name.startswith("date")
    schema = {"type": "string", "format": name} if is_format else {"type": name}

    kind, _ = json_reader(schema)

    assert str(kind) == arrow
