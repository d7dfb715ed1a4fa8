"""Typical code of users that ``mypy --strict`` and pyright must accept. Checked, never run."""

from __future__ import annotations

import array
import json
import logging
from dataclasses import dataclass
from typing import assert_type

from cykafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    Delivery,
    DeserializingConsumer,
    KafkaError,
    KafkaException,
    Message,
    MessageBatch,
    Producer,
    SerializingProducer,
    TopicPartition,
    libversion,
    murmur2,
    version,
)
from cykafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic, OffsetSpec
from cykafka.aio import AIOProducer, AsyncAdminClient, AsyncConsumer, AsyncProducer
from cykafka.otel import TracedConsumer, TracedProducer
from cykafka.serialization import (
    IntegerSerializer,
    SerializationContext,
    Serializer,
    StringDeserializer,
)


def report(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        text: str = error.str()
        code: int = error.code()
        print(text, code, error.fatal(), error.retriable(), error.txn_requires_abort())
        return
    topic: str | None = message.topic()
    partition: int | None = message.partition()
    offset: int | None = message.offset()
    print(topic, partition, offset, message.latency())


class Array:
    """An array as in numpy's stubs before Python 3.12, where it is not a Buffer."""

    @property
    def __array_interface__(self) -> dict[str, object]:
        return {}


def on_error(error: KafkaError) -> None:
    print(error.name())


def on_statistics(text: str) -> None:
    print(json.loads(text)["name"])


def produce() -> None:
    producer = Producer(
        {
            "bootstrap.servers": "localhost:9092",
            "linger.ms": 5,
            "enable.idempotence": True,
            "error_cb": on_error,
            "stats_cb": on_statistics,
            "on_delivery": report,
        },
        logger=logging.getLogger(__name__),
    )
    producer.produce("orders", b"value")
    producer.produce("orders", "value", "key", 0, report)
    producer.produce(
        topic="orders",
        value=None,
        key=b"key",
        partition=1,
        on_delivery=report,
        timestamp=1_700_000_000_000,
        headers=[("name", b"value"), ("text", "value"), ("none", None)],
    )
    producer.produce("orders", headers={"name": b"value", "none": None})
    producer.produce("orders", b"value", timeout=1.5)
    producer.produce("orders", on_delivery=lambda error, message: print(error, message.value()))
    served: int = producer.poll(0)
    left: int = producer.flush(10.0)
    delivery: Delivery = producer.publish("orders", [b"a", "b", None], keys=("k", None, b"k"))
    delivery = producer.publish(
        ["a", "b"],
        memoryview(b"abcd").cast("B", (2, 2)),
        headers={"all": b"1", "each": ["1", None]},
        timestamps=array.array("q", [1, 2]),
        partitions=0,
        timeout=1.5,
    )
    delivery = producer.publish("orders", ["a"], headers=[{"h": b"1"}], partitions=[None])
    delivery = producer.publish("orders", Array(), keys=Array(), partitions=Array())
    delivery.wait(1.0)
    delivery.add_done_callback(lambda done: print(done.failed, len(done), done.count, done.done))
    places: list[int] = delivery.offsets.tolist() + delivery.partitions.tolist()
    failures: dict[int, KafkaError] = delivery.errors
    print(places, failures)
    queued: int = producer.produce_batch("orders", [{"value": b"a"}, {"value": "b", "key": "k"}])
    print(served, left, queued, len(producer))
    producer.purge(in_queue=True, in_flight=False, blocking=True)
    closed: bool = producer.close()
    print(closed)


def transact(consumer: Consumer) -> None:
    with Producer(**{"bootstrap.servers": "localhost:9092", "transactional.id": "t"}) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        try:
            producer.produce("orders", b"value")
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
            )
            producer.commit_transaction(30.0)
        except KafkaException as exception:
            error = exception.args[0]
            if error.txn_requires_abort():
                producer.abort_transaction()
            raise


def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    for partition in partitions:
        partition.offset = OFFSET_BEGINNING
    consumer.assign(partitions)


def committed(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
    print(error, [(p.topic, p.partition, p.offset, p.error) for p in partitions])


def consume() -> None:
    consumer = Consumer({"bootstrap.servers": "localhost:9092", "group.id": "group"})
    consumer.subscribe(["orders", "^bills.*"], on_assign=assigned, on_revoke=assigned)
    message = consumer.poll(1.0)
    if message is None:
        return
    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF or error == KafkaError._TIMED_OUT:
            return
        raise KafkaException(error)
    assert_type(message.key(), bytes | None)
    assert_type(message.value(), bytes | None)
    assert_type(message.deserialized_value(), bytes | None)
    assert_type(message.headers(), list[tuple[str, bytes | None]] | None)
    value: bytes | None = message.value()
    kind, when = message.timestamp()
    if kind == TIMESTAMP_CREATE_TIME:
        print(value, when + 1, len(message))
    for name, content in message.headers() or []:
        print(name, content)
    messages: list[Message] = consumer.consume(num_messages=100, timeout=0.5)
    consumer.commit(message=messages[-1], asynchronous=True)
    done = consumer.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    print(done)
    consumer.store_offsets(message=message)
    with consumer.consume_batch(max_messages=100, timeout=0.5) as batch:
        copies: list[bytes | None] = batch.values()
        views: list[memoryview | None] = batch.keys(copy=False)
        rows: MessageBatch = batch[::-1]
        first: Message = rows[0]
        print(copies, views, first, batch.offsets[0], batch.topics, batch.header("source"))
        consumer.commit(batch, asynchronous=False)
    for batch in consumer.batches(timeout=None):
        consumer.store_offsets(batch)
    low, high = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=1.0)
    print(high - low)
    consumer.pause(consumer.assignment())
    consumer.resume(consumer.assignment())
    consumer.seek(TopicPartition("orders", 0, 3))
    found: list[TopicPartition] = consumer.committed([TopicPartition("orders", 0)], timeout=5)
    print(found, consumer.memberid())
    for name, topic in consumer.list_topics(timeout=5).topics.items():
        print(name, len(topic.partitions))
    consumer.close()


def behind(consumer: Consumer) -> int:
    for partition, (low, high) in consumer.watermarks(timeout=5.0).items():
        print(partition.topic, high - low, partition.error)
    topics: list[str] = consumer.subscription()
    acks: str | None = consumer.configuration()["acks"]
    print(topics, acks)
    return sum(left or 0 for left in consumer.lag([TopicPartition("orders", 0)]).values())


def iterate(consumer: Consumer) -> None:
    for message in consumer:
        offset: int | None = message.offset()
        print(offset)


class Shouting(Serializer):
    def __call__(self, obj: str | None, ctx: SerializationContext | None = None) -> bytes | None:
        return None if obj is None else obj.upper().encode()


def serialize() -> None:
    config = {"key.serializer": IntegerSerializer(), "value.serializer": Shouting()}
    with SerializingProducer[int, str](config) as producer:
        producer.produce("orders", 1, "text", on_delivery=report, headers={"name": b"value"})
        producer.produce(topic="orders", key=None, value="text", partition=1, timeout=5)
    untyped = SerializingProducer(config)
    untyped.produce("orders", value=object())
    consumer = DeserializingConsumer({"group.id": "g", "value.deserializer": StringDeserializer()})
    for message in consumer:
        print(message.deserialized_value())
        print(message.value())
    orders = DeserializingConsumer[str, Order]({"group.id": "g"})
    order = orders.poll(1.0)
    if order is not None:
        assert_type(order, Message[str, Order])
        assert_type(order.key(), str | None)
        assert_type(order.value(), Order | None)
        assert_type(order.deserialized_value(), Order | None)
        show(order)
    for order in orders:
        show(order)


@dataclass
class Order:
    number: int


def show(order: Message[str, Order]) -> None:
    order.set_value(b"the bytes again")
    print(order.topic(), order.key())


def module() -> None:
    text: str = version()
    number: int = libversion()[1]
    partition: int = murmur2(b"key", 12)
    print(text, number, partition, sorted([TopicPartition("b", 1), TopicPartition("a", 2)]))
    print(Message(topic="orders", value=b"v", headers=[("h", b"1")]).value())
    made = Message("orders", 0, 1)
    assert_type(made, Message)
    texts = Message("orders", key="key", value=Order(1))
    assert_type(texts, Message[str, Order])


def trace(producer: Producer, consumer: Consumer) -> None:
    traced = TracedProducer(producer)
    traced.produce("orders", b"value", on_delivery=report)
    assert_type(traced.flush(1.0), int)
    reading = TracedConsumer(consumer)
    reading.subscribe(["orders"], on_assign=assigned)
    message = reading.poll(1.0)
    if message is not None:
        with reading.processing(message) as span:
            span.set_attribute("orders", 1)
        reading.commit(message, asynchronous=False)
    with traced.transaction(reading):
        traced.publish("orders", [b"value"], context="record")


def administer() -> None:
    with AdminClient({"bootstrap.servers": "localhost:9092"}) as admin:
        made = admin.create_topics([NewTopic("orders", 3, 1)], request_timeout=5.0)
        nothing: None = made["orders"].result(5)
        print(nothing)
        names: list[str] = [node.host for node in admin.describe_cluster().result().nodes]
        resource = ConfigResource("topic", "orders")
        entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result()
        latest = {TopicPartition("orders", 0): OffsetSpec.latest()}
        for partition, future in admin.list_offsets(latest).items():
            offset: int = future.result().offset
            print(partition.topic, offset)
        everybody = admin.describe_user_scram_credentials().result()
        one = admin.describe_user_scram_credentials(["alice"])["alice"].result()
        print(names, entries, everybody["alice"].user, one.scram_credential_infos)


async def asynchronous() -> None:
    config: dict[str, str | int] = {"bootstrap.servers": "localhost:9092", "linger.ms": 5}
    async with AsyncProducer({**config}) as producer:
        sent = await producer.produce("orders", "value", b"key", headers={"name": b"value"})
        assert_type(sent, Message)
        delivery = await producer.publish("orders", [b"a", "b"], keys=["k", None], partitions=0)
        assert_type(delivery, Delivery)
        assert_type(await delivery, None)
    async with AsyncConsumer(**{"group.id": "g"}) as consumer:
        assert_type(await consumer.poll(1.0), Message | None)
    async with AsyncAdminClient(config) as admin:
        made = admin.create_topics([NewTopic("orders", 3, 1)], request_timeout=5.0)
        assert_type(await made["orders"], None)
        cluster = await admin.describe_cluster(include_authorized_operations=True)
        print([node.host for node in cluster.nodes], await admin.cluster_id())
        latest = {TopicPartition("orders", 0): OffsetSpec.latest()}
        for partition, future in admin.list_offsets(latest).items():
            offset: int = (await future).offset
            print(partition.topic, offset)
        everybody = await admin.describe_user_scram_credentials()
        one = await admin.describe_user_scram_credentials(["alice"])["alice"]
        print(everybody["alice"].user, one.scram_credential_infos)
    theirs = AIOProducer({"bootstrap.servers": "localhost:9092"})
    reported = await (await theirs.produce("orders", "value"))
    assert_type(reported.value(), bytes | None)
