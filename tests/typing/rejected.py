"""Mistakes that mypy and pyright must find: one on each line that is marked with mypy's code.

It is checked, never run.
"""

import cykafka.aio
import cykafka.testing
from cykafka import (
    Consumer,
    DeserializingConsumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from cykafka.aio import AsyncAdminClient, AsyncProducer
from cykafka.otel import TracedProducer

producer = Producer({"bootstrap.servers": "localhost:9092"})
consumer = Consumer({"bootstrap.servers": "localhost:9092", "group.id": "group"})

print(cykafka.Producers)  # expect: attr-defined
print(cykafka.aio.AsyncProducers)  # expect: attr-defined
print(cykafka.testing.MockClusters)  # expect: attr-defined

Producer("localhost:9092")  # expect: arg-type, call-overload
producer.produce(b"orders")  # expect: arg-type
producer.produce("orders", 3)  # expect: arg-type
producer.produce("orders", payload=b"x")  # expect: call-arg
producer.produce("orders", on_delivery=lambda error: None)  # expect: misc, arg-type
producer.poll("soon")  # expect: arg-type
producer.sync()  # expect: attr-defined
TracedProducer(producer).sync()  # expect: attr-defined
flushed: str = producer.flush()  # expect: assignment

consumer.subscribe("orders")  # expect: arg-type
consumer.consume("many")  # expect: arg-type
consumer.seek([TopicPartition("orders", 0, 0)])  # expect: arg-type
consumer.poll(1.0).value()  # expect: union-attr
message = Message("orders")
len(message.value())  # expect: arg-type
message.key().decode()  # expect: union-attr
message.topic().upper()  # expect: union-attr
print(message.offset() + 1)  # expect: operator
for _, value in message.headers():  # expect: union-attr
    value.decode()  # expect: union-attr
texts = DeserializingConsumer[str, str]({"group.id": "group"})
for text in texts:
    text.value().upper()  # expect: union-attr
    length: int = text.key()  # expect: assignment
print(consumer.commit(asynchronous=False).pop().offsets)  # expect: attr-defined
consumer.assignment()[0].topic = "other"  # expect: misc

TopicPartition(3)  # expect: arg-type
KafkaError("three")  # expect: arg-type
KafkaException().code()  # expect: attr-defined


async def asynchronous(producer: AsyncProducer, admin: AsyncAdminClient) -> None:
    await producer.publish("orders", [b"a"], key=[b"k"])  # expect: call-arg
    await producer.produce("orders", 3)  # expect: arg-type
    admin.describe_cluster().result(5)  # expect: call-arg
    (await producer.produce("orders")).value().decode()  # expect: union-attr
