"""The schema registry serializers of confluent_kafka, unchanged, with the clients of cykafka.

They are written in Python and need the confluent-kafka package. Each test runs its own script
twice: beside the real confluent_kafka, and with cykafka in its place.
"""

from __future__ import annotations

from typing import Any

import pytest
from fixture_types import RunScript

pytestmark = pytest.mark.ours

PLACES = {
    "beside us": "",
    "in its place": "from cykafka.compat import confluent\nconfluent.install()\n",
}

# The scripts share this: objects go out through a SerializingProducer and come back.
ROUND_TRIP = """
import sys
import confluent_kafka
from confluent_kafka.schema_registry import SchemaRegistryClient
from cykafka import DeserializingConsumer, SerializingProducer, TopicPartition

def round_trip(serializer, deserializer, objects, headers=None):
    address, topic = sys.argv[1:]
    with SerializingProducer(
        {"bootstrap.servers": address, "value.serializer": serializer}
    ) as producer:
        for obj in objects:
            producer.produce(topic, value=obj, partition=0, headers=headers)
    with DeserializingConsumer({
        "bootstrap.servers": address, "group.id": "readers", "value.deserializer": deserializer
    }) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [consumer.poll(10) for _ in objects]

def is_ours():
    return confluent_kafka.Message.__module__.startswith("cykafka")

registry = SchemaRegistryClient.new_client({"url": "mock://registry"})
"""

JSON = """
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
schema = '''{"$schema": "http://json-schema.org/draft-07/schema#",
             "title": "Order", "type": "object",
             "properties": {"id": {"type": "integer"}, "who": {"type": "string"}},
             "required": ["id"]}'''
orders = [{"id": 1, "who": "ada"}, {"id": 2}]
messages = round_trip(JSONSerializer(schema, registry),
                      JSONDeserializer(schema, schema_registry_client=registry), orders)
assert [message.value() for message in messages] == orders
"""

AVRO = """
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
schema = '''{"type": "record", "name": "Order", "fields": [
             {"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]}]}'''
orders = [{"id": 1, "who": "ada"}, {"id": 2, "who": None}, None]
messages = round_trip(AvroSerializer(registry, schema), AvroDeserializer(registry), orders)
assert [message.value() for message in messages] == orders
"""

PROTOBUF = """
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
field = file.message_type.add(name="Order").field
field.add(name="id", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64)
field.add(name="who", number=2, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING)
pool = descriptor_pool.Default()
pool.AddSerializedFile(file.SerializeToString())
Order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
orders = [Order(id=1, who="ada"), Order(id=2)]
messages = round_trip(ProtobufSerializer(Order, registry),
                      ProtobufDeserializer(Order, {}, registry), orders)
assert [message.value() for message in messages] == orders
"""

# The serializer adds a header with the schema's id to the headers of the message.
HEADERS = """
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
schema = '''{"type": "record", "name": "Order", "fields": [{"name": "who", "type": "string"}]}'''
serializer = AvroSerializer(
    registry, schema, conf={"schema.id.serializer": header_schema_id_serializer})
(message,) = round_trip(
    serializer, AvroDeserializer(registry), [{"who": "ada lovelace"}], headers=[("h", b"1")])
assert message.value() == {"who": "ada lovelace"}
assert [name for name, _ in message.headers()] == ["h", "__value_schema_id"]
"""

WRONG = """
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from cykafka.error import ValueDeserializationError, ValueSerializationError
schema = '''{"title": "Order", "type": "object", "required": ["id"]}'''
try:
    round_trip(JSONSerializer(schema, registry), None, [{"who": "ada"}])
except ValueSerializationError as error:
    assert isinstance(error.exception, confluent_kafka.serialization.SerializationError)
else:
    raise AssertionError("not raised")
try:
    round_trip(None, JSONDeserializer(schema, schema_registry_client=registry), [b"no magic byte"])
except ValueDeserializationError as error:
    assert isinstance(error.exception, confluent_kafka.serialization.SerializationError)
    assert error.kafka_message.value() == b"no magic byte"
else:
    raise AssertionError("not raised")
"""

# The builder makes the registry's client, and the producer closes it.
BUILDER = """
from confluent_kafka.schema_registry.avro import AvroSerializerBuilder
from cykafka import SerializingProducer
schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
address, topic = sys.argv[1:]
delivered = []
with SerializingProducer({
    "bootstrap.servers": address,
    "value.serializer.builder": AvroSerializerBuilder()
        .set_schema_registry_config({"url": "mock://builder"}).set_schema(schema),
}) as producer:
    producer.produce(topic, value={"id": 9}, on_delivery=lambda _, each: delivered.append(each))
assert delivered[0].value()[:1] == b"\\0" and delivered[0].value()[-1:] == bytes([18])
"""

# The classes of confluent_kafka itself, for code without a single changed import.
UNCHANGED = """
from confluent_kafka import DeserializingConsumer as TheirConsumer, SerializingProducer as Theirs
from confluent_kafka.serialization import MessageField, SerializationContext, StringSerializer
assert (TheirConsumer is DeserializingConsumer) == is_ours()
assert (Theirs is SerializingProducer) == is_ours()
serializer = StringSerializer("utf_8")
assert serializer("a", SerializationContext("topic", MessageField.KEY)) == b"a"
(message,) = round_trip(serializer, None, ["text"])
assert message.value() == b"text"
"""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "source",
    [JSON, AVRO, PROTOBUF, HEADERS, WRONG, BUILDER, UNCHANGED],
    ids=["json", "avro", "protobuf", "headers", "wrong", "builder", "unchanged"],
)
def test_schema_registry_serializers_work(
    run_script: RunScript, cluster: Any, topic: str, place: str, source: str
) -> None:
    is_ours = "True" if place == "in its place" else "False"
    script = f"{PLACES[place]}{ROUND_TRIP}{source}\nassert is_ours() is {is_ours}\nprint('done')\n"

    done = run_script(script, cluster.bootstrap_servers, topic)

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
