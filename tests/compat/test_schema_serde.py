"""Values of cykafka's serializers are those of confluent_kafka's, and the other way round.

A script makes and reads the values with confluent_kafka, because its modules do not go into this
process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from cykafka.testing import SchemaRegistry

pytestmark = pytest.mark.ours

# Its arguments: the modules of the serializers' side, those of the deserializers' side, and the
# registry. It writes with the first, reads with the second, and compares the bytes of both.
SCRIPT = """
import datetime, importlib, json, sys, uuid
from decimal import Decimal
import proto_files
from cykafka.serialization import MessageField, SerializationContext

class Side:
    def __init__(self, name, url):
        if name == "ours":
            modules = [f"cykafka.schemas.{each}" for each in (
                "registry.client", "model.schema", "model.framing",
                "serdes.avro_serde", "serdes.json_serde", "serdes.protobuf_serde")]
        else:
            modules = ["confluent_kafka.schema_registry"] + [
                f"confluent_kafka.schema_registry.{each}"
                for each in ("avro", "json_schema", "protobuf")]
        for module in map(importlib.import_module, modules):
            self.__dict__.update(vars(module))
        self.client = self.SchemaRegistryClient({"url": url})

UTC = datetime.timezone.utc
def record(kind):
    field = {"name": "f", "type": kind}
    return json.dumps({"type": "record", "name": "shop.R", "fields": [field]})
def logical(kind, of, **more):
    return {"type": kind, "logicalType": of, **more}
def at(topic, headers=None):
    return SerializationContext(topic, MessageField.VALUE, headers)

AVRO = [
    ("boolean", True), ("int", -5), ("long", 2**62), ("float", 0.5),
    ("double", 1e300), ("bytes", b"\\0\\xff"), ("string", "Gr\\u00fcezi"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
    ({"type": "fixed", "name": "F", "size": 3}, b"abc"),
    ({"type": "array", "items": "string"}, ["a", ""]),
    ({"type": "map", "values": "long"}, {"a": 1}),
    (["null", "string", "long"], 5),
    (["null", "R"], {"f": None}),
    (logical("bytes", "decimal", precision=10, scale=2), Decimal("-12345678.90")),
    (logical("fixed", "decimal", name="D", size=8, precision=10, scale=2), Decimal("1.20")),
    (logical("int", "date"), datetime.date(1, 1, 1)),
    (logical("int", "time-millis"), datetime.time(23, 59, 59, 999000)),
    (logical("long", "time-micros"), datetime.time(23, 59, 59, 999999)),
    (logical("long", "timestamp-millis"), datetime.datetime(1969, 1, 2, 3, 4, 5, 6000, UTC)),
    (logical("long", "timestamp-micros"), datetime.datetime(2100, 1, 2, 3, 4, 5, 6, UTC)),
    (logical("long", "local-timestamp-millis"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6000)),
    (logical("long", "local-timestamp-micros"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6)),
    (logical("string", "uuid"), uuid.UUID(int=5)),
    (logical("string", "unknown"), "text"),
]
TOPS = [('"string"', "a"), ('{"type": "bytes"}', b"ab"), ('["null", "long"]', 5),
        ('{"type": "array", "items": "int"}', [1, 2])]
JSON = '''{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order",
    "type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}'''
customer = proto_files.proto("customer.proto", "shop", {"Customer": {"name": (1, "string")}})
order = proto_files.proto("order.proto", "shop", {
    "Other": {"x": (1, "int32")},
    "Order": {"id": (1, "int64"), "who": (2, ".shop.Customer"), "data": (3, "repeated bytes")},
    "Order.Inner": {"ok": (1, "bool"), "n": (2, "double"), "u": (3, "uint64")},
}, "customer.proto")
Other, Order, Inner = (proto_files.message(f"shop.{name}", customer, order)
                       for name in ("Other", "Order", "Order.Inner"))
MESSAGES = [Other(x=5), Order(id=1, who={"name": "ada"}, data=[b"a", b""]),
            Inner(ok=True, n=0.5, u=2**64 - 1)]

def both(topic, value, makers, readers):
    mine, other = (make(value, at(topic)) for make in makers)
    assert mine == other, (value, mine, other)
    for read in readers:
        assert read(mine, at(topic)) == value, (value, read(mine, at(topic)))

a, b = Side(sys.argv[1], sys.argv[3]), Side(sys.argv[2], sys.argv[3])
for number, (kind, value) in enumerate(AVRO):
    both(f"avro{number}", {"f": value},
         [side.AvroSerializer(side.client, record(kind)) for side in (a, b)],
         [make(side) for side in (a, b) for make in (
             lambda side: side.AvroDeserializer(side.client),
             lambda side: side.AvroDeserializer(side.client, record(kind)))])
for number, (text, value) in enumerate(TOPS):
    both(f"top{number}", value, [side.AvroSerializer(side.client, text) for side in (a, b)],
         [side.AvroDeserializer(side.client) for side in (a, b)])
for value in ({"id": 1, "x": "\\u20ac"}, {"id": 2, "l": [1.5, None, True, {"a": {}}]}):
    both("json", value, [side.JSONSerializer(JSON, side.client) for side in (a, b)],
         [side.JSONDeserializer(text, None, side.client)
          for side in (a, b) for text in (JSON, None)])
for number, message in enumerate(MESSAGES):
    both(f"proto{number}", message,
         [side.ProtobufSerializer(type(message), side.client) for side in (a, b)],
         [side.ProtobufDeserializer(type(message), None, side.client) for side in (a, b)])

# The GUID in a header.
headers = []
make = a.AvroSerializer(a.client, record("string"),
                        conf={"schema.id.serializer": a.header_schema_id_serializer})
data = make({"f": "a long enough text"}, at("headers", headers))
assert data[0] != 0 and headers[0][0] == "__value_schema_id"
assert b.AvroDeserializer(b.client)(data, at("headers", headers)) == {"f": "a long enough text"}

# Evolution to a reader's schema, and names of records.
old, new = record("int"), json.loads(record("double"))
new["fields"].append({"name": "g", "type": "string", "default": "x"})
data = a.AvroSerializer(a.client, old)({"f": 5}, at("evolution"))
read = b.AvroDeserializer(b.client, json.dumps(new))
assert read(data, at("evolution")) == {"f": 5.0, "g": "x"}
union = json.dumps([json.loads(record("int")), {"type": "record", "name": "S", "fields": []}])
data = a.AvroSerializer(a.client, union)(("shop.R", {"f": 5}), at("union"))
read = b.AvroDeserializer(b.client, return_record_name=True)
assert read(data, at("union")) == ("shop.R", {"f": 5})

# Subjects.
made = set()
for kind, subject in (("TOPIC", "{0}-value"), ("RECORD", "shop.R"), ("TOPIC_RECORD", "{0}-shop.R"),
                      ("ASSOCIATED", "{0}-value"), (None, "{0}-value")):
    topic = f"subject{kind}"
    conf = {"subject.name.strategy.type": kind}
    both(topic, {"f": 1}, [
             side.AvroSerializer(side.client, record("int"), conf=conf) for side in (a, b)],
         [side.AvroDeserializer(side.client, conf=conf) for side in (a, b)])
    made.add(subject.format(topic))
both("linked", {"f": 1}, [side.AvroSerializer(side.client, record("int")) for side in (a, b)],
     [side.AvroDeserializer(side.client) for side in (a, b)])
made.add("linked-orders")
starts = ("subject", "shop", "linked")
found = {name for name in a.client.get_subjects() if name.startswith(starts)}
assert found == made, found

# References.
a.client.register_schema("inner", a.Schema(record("int"), "AVRO"))
schema = a.Schema('{"type": "array", "items": "shop.R"}', "AVRO",
                  [a.SchemaReference("shop.R", "inner", 1)])
data = a.AvroSerializer(a.client, schema)([{"f": 1}], at("references"))
assert b.AvroDeserializer(b.client)(data, at("references")) == [{"f": 1}]
print("done")
"""

# Their client, schemas, strategies and rules with our serializers.
MIXED = """
import sys
from confluent_kafka.schema_registry import (
    Rule, RuleKind, RuleMode, RuleSet, Schema, SchemaReference, SchemaRegistryClient,
    header_schema_id_serializer, topic_record_subject_name_strategy)
from confluent_kafka.schema_registry.serde import AssociatedNameStrategy
from confluent_kafka.serialization import MessageField, SerializationContext
from cykafka.schemas.serdes.avro_serde import AvroDeserializer, AvroSerializer
from cykafka.schemas.serdes.json_serde import JSONDeserializer, JSONSerializer
from cykafka.serialization import SerializationError

client = SchemaRegistryClient({"url": sys.argv[1]})
text = '{"type": "record", "name": "R", "fields": [{"name": "f", "type": "string"}]}'
def at(topic, headers=None):
    return SerializationContext(topic, MessageField.VALUE, headers)
def round_trip(schema, topic, value, headers=None, **conf):
    data = AvroSerializer(client, schema, conf=conf)(value, at(topic, headers))
    assert AvroDeserializer(client)(data, at(topic, headers)) == value

round_trip(text, "a", {"f": "x"})
round_trip(Schema(text, "AVRO"), "b", {"f": "x"})
round_trip(text, "c", {"f": "x"}, **{"subject.name.strategy": AssociatedNameStrategy()})
round_trip(text, "d", {"f": "x"}, **{
    "subject.name.strategy": topic_record_subject_name_strategy})
round_trip(text, "e", {"f": "x"}, {}, **{"schema.id.serializer": header_schema_id_serializer})
assert {"c-value", "d-R"} <= set(client.get_subjects())
latest = {"auto.register.schemas": False, "use.latest.version": True}
round_trip(None, "a", {"f": "x"}, **latest)
round_trip(None, "a", {"f": "x"}, **{
    "auto.register.schemas": False,
    "use.schema.id": client.get_latest_version("a-value").schema_id})
client.register_schema("inner", Schema(text, "AVRO"))
round_trip(Schema('["null", "R"]', "AVRO", [SchemaReference("R", "inner", 1)]), "f", {"f": "x"})
data = JSONSerializer('{"title": "J"}', client)({"a": 1}, at("j"))
assert JSONDeserializer(None, None, client)(data, at("j")) == {"a": 1}
rule = Rule("encrypt", None, RuleKind.TRANSFORM, RuleMode.WRITEREAD, "ENCRYPT", ["PII"], None,
            None, None, None, False)
client.register_schema("g-value", Schema(text, "AVRO", [], None, RuleSet([], [rule])))
try:
    round_trip(None, "g", {"f": "x"}, **latest)
except SerializationError as error:
    assert "encrypt (ENCRYPT)" in str(error), error
else:
    raise AssertionError("not raised")
print("done")
"""

# As if the confluent-kafka package were not installed.
WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        return None
finders = list(sys.meta_path)
for finder in finders:
    def find_spec(name, path=None, target=None, finder=finder):
        return None if name == "confluent_kafka" else finder.find_spec(name, path, target)
    hidden = Hidden()
    hidden.find_spec = find_spec
    sys.meta_path[sys.meta_path.index(finder)] = hidden
from cykafka.compat import confluent
confluent.install()

from confluent_kafka import schema_registry
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient, RegisteredSchema, Schema, SchemaReference, SchemaRegistryClient,
    SchemaRegistryError, dual_schema_id_deserializer, header_schema_id_serializer,
    prefix_schema_id_deserializer, prefix_schema_id_serializer, record_subject_name_strategy,
    topic_record_subject_name_strategy, topic_subject_name_strategy)
from confluent_kafka.schema_registry.avro import (
    AsyncAvroDeserializer, AsyncAvroSerializer, AvroDeserializer, AvroSerializer,
    AvroSerializerBuilder)
from confluent_kafka.schema_registry.error import SchemaRegistryError as Error
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.schema_registry_client import SchemaRegistryClient as Client
from confluent_kafka.schema_registry.serde import (
    AssociatedNameStrategy, BaseDeserializer, BaseSerializer, SchemaId)
from confluent_kafka.serialization import MessageField, SerializationContext
import confluent_kafka, cykafka.schemas.registry.client

assert Client is SchemaRegistryClient is cykafka.schemas.registry.client.SchemaRegistryClient
assert Error is SchemaRegistryError and confluent_kafka.schema_registry is schema_registry
assert schema_registry.avro.AvroSerializer is AvroSerializer
ctx = SerializationContext("orders", MessageField.VALUE)
client = SchemaRegistryClient({"url": sys.argv[1]})
data = AvroSerializer(client, '{"type": "string"}')("a", ctx)
assert AvroDeserializer(client)(data, ctx) == "a"
confluent.uninstall()
assert "confluent_kafka.schema_registry" not in sys.modules
print("done")
"""


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as registry:
        yield registry


def run(source: str, *arguments: str) -> None:
    paths = f"import sys; sys.path[:0] = {[item for item in sys.path if 'tests' in item]!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", paths + source, *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize(("writer", "reader"), [("ours", "theirs"), ("theirs", "ours")])
def test_both_write_and_read_the_same(registry: SchemaRegistry, writer: str, reader: str) -> None:
    registry.associate("linked", "linked-orders")
    run(SCRIPT, writer, reader, registry.url)


def test_our_serializers_work_with_their_client(registry: SchemaRegistry) -> None:
    run(MIXED, registry.url)


def test_without_their_package_the_modules_are_ours(registry: SchemaRegistry) -> None:
    run(WITHOUT, registry.url)
