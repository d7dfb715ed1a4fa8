"""Values of the Spark jobs are those of confluent_kafka's serializers, and the other way round."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from cykafka.testing import SchemaRegistry

pytestmark = pytest.mark.ours

# It prints what confluent_kafka's serializers write, and then what its deserializers read.
SCRIPT = """
import base64, json, sys
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
import proto_files

customer = proto_files.proto("customer.proto", "shop", {"Customer": {"name": (1, "string")}})
order = proto_files.proto("order.proto", "shop", {
    "Other": {"x": (1, "int32")},
    "Order": {"id": (1, "int64"), "who": (2, ".shop.Customer")}}, "customer.proto")
Order = proto_files.message("shop.Order", customer, order)
registry = SchemaRegistryClient({"url": sys.argv[1], "basic.auth.user.info": "ada:secret"})
avro = '''{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]}]}'''
schema = '''{"title": "Order", "type": "object", "required": ["id"], "properties": {
    "id": {"type": "integer"}, "who": {"type": "string"}}}'''
forms = ("avro", "json", "protobuf")
at = {form: SerializationContext(form, MessageField.VALUE) for form in forms}
given = sys.argv[2:]
if not given:
    message = Order(id=1)
    message.who.name = "ada"
    values = [
        AvroSerializer(registry, avro)({"id": 1, "who": "ada"}, at["avro"]),
        JSONSerializer(schema, registry)({"id": 1, "who": "ada"}, at["json"]),
        ProtobufSerializer(Order, registry)(message, at["protobuf"]),
    ]
    print(json.dumps([base64.b64encode(each).decode() for each in values]))
else:
    values = [base64.b64decode(each) for each in given]
    message = ProtobufDeserializer(Order, {}, registry)(values[2], at["protobuf"])
    print(json.dumps([
        AvroDeserializer(registry)(values[0], at["avro"]),
        JSONDeserializer(schema, schema_registry_client=registry)(values[1], at["json"]),
        {"id": message.id, "who": message.who.name},
    ]))
"""


def run(*arguments: str) -> Any:
    paths = f"import sys; sys.path[:0] = {[item for item in sys.path if 'tests' in item]!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", paths + SCRIPT, *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_confluent_kafka_reads_and_writes_the_same_values() -> None:
    import base64

    from cykafka.schemas.codec import Decoder, Encoder
    from cykafka.schemas.model.document import SchemaSource
    from cykafka.schemas.shared import shared_client

    order = {"id": 1, "who": "ada"}
    rows = {"avro": order, "json": json.dumps(order).encode(),
            "protobuf": {"id": 1, "who": {"name": "ada"}}}  # fmt: skip
    with SchemaRegistry(users={"ada": "secret"}) as registry:
        theirs = [base64.b64decode(item) for item in run(registry.url)]
        given = {"url": registry.url, "basic.auth.user.info": "ada:secret"}
        ours = []
        for (form, row), value in zip(rows.items(), theirs, strict=True):
            message = "shop.Order" if form == "protobuf" else ""
            document = shared_client(given).document_by_version(f"{form}-value")
            options = tuple(given.items())
            decoder = Decoder(form, options, None if form == "json" else document, message)
            found = decoder.decode(pa.array([value]))
            assert found.to_pylist()[0]["error"] is None
            data = found.field("data").to_pylist()[0]
            assert data == row or (form == "json" and json.loads(data) == order)
            encoder = Encoder(
                form, options, SchemaSource(subject=f"{form}-value", message=message)
            )
            values = pa.array([row], decoder.reader.kind)
            made = encoder.encode(values, pa.array(["topic"])).field("value").to_pylist()[0]
            assert form == "json" or made == value
            ours.append(base64.b64encode(made).decode())

        assert run(registry.url, *ours) == [order] * 3
