"""Serializers of schemas with AsyncSerializingProducer and AsyncDeserializingConsumer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S

from cykafka import TopicPartition
from cykafka.aio import AsyncDeserializingConsumer, AsyncSerializingProducer
from cykafka.error import ValueDeserializationError, ValueSerializationError
from cykafka.schemas.model.framing import header_schema_id_serializer
from cykafka.schemas.registry.aio import AsyncSchemaRegistryClient
from cykafka.schemas.serdes.avro_serde import (
    AsyncAvroDeserializer,
    AsyncAvroDeserializerBuilder,
    AsyncAvroSerializer,
    AsyncAvroSerializerBuilder,
)
from cykafka.schemas.serdes.json_serde import AsyncJSONDeserializer, AsyncJSONSerializer
from cykafka.serialization import SerializationError
from cykafka.testing import SchemaRegistry

pytestmark = pytest.mark.ours

Run = Callable[..., Any]

KEY = '{"type": "string"}'
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
COUNT = 200


async def read_all(
    consumer: AsyncDeserializingConsumer[Any, Any], topic: str, count: int
) -> list[Any]:
    await consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < count:
        messages = await consumer.consume(count - len(found), WAIT_S)
        assert messages
        found += messages
    return found


def test_records_go_through_without_a_thread_for_each(
    run: Run, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            headers: list[Any] = []
            async with await AsyncSerializingProducer(
                {
                    **quick,
                    "key.serializer": await AsyncAvroSerializer(client, KEY),
                    "value.serializer": await AsyncAvroSerializer(
                        client, ORDER, conf={"schema.id.serializer": header_schema_id_serializer}
                    ),
                }
            ) as producer:
                for number in range(COUNT):
                    headers = [("n", str(number).encode())]
                    await producer.produce(topic, f"k{number}", {"id": number}, 0, headers=headers)
                    if number == 0:
                        threads = threading.active_count()
                assert threading.active_count() == threads
                await producer.flush()
            assert [name for name, _ in headers] == ["n", "__value_schema_id"]
            requests = registry.requests.total()
            consumer: Any = await AsyncDeserializingConsumer(
                {
                    **reading,
                    "key.deserializer": await AsyncAvroDeserializer(client),
                    "value.deserializer": await AsyncAvroDeserializer(client),
                }
            )
            messages = await read_all(consumer, topic, COUNT)
            assert [(each.key(), each.value()) for each in messages] == [
                (f"k{number}", {"id": number}) for number in range(COUNT)
            ]
            await consumer.close()
        assert requests == 4  # an association and a registration for each field
        assert registry.requests.total() - requests == 2  # a schema: the client knows the subject

    with SchemaRegistry() as registry:
        run(main())


def test_builders_make_the_client_and_close_it(
    run: Run, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        config = {"url": registry.url}
        async with await AsyncSerializingProducer(
            {**quick, "value.serializer.builder": AsyncAvroSerializerBuilder(config, schema=ORDER)}
        ) as producer:
            future = await producer.produce(topic, value={"id": 5}, partition=0)
            assert (await future).value() == b"\0\0\0\0\1\x0a"
            cluster = await producer.cluster_id()
        consumer: Any = await AsyncDeserializingConsumer(
            {**reading, "value.deserializer.builder": AsyncAvroDeserializerBuilder(config)}
        )
        (message,) = await read_all(consumer, topic, 1)
        assert message.value() == {"id": 5}
        await consumer.close()
        assert registry.requests[f"GET /associations/resources/{cluster}/{topic}"] == 2

    with SchemaRegistry() as registry:
        run(main())


def test_wrong_objects_and_records_are_errors_of_their_message(
    run: Run, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    schema = '{"type": "object", "required": ["id"]}'

    async def main() -> None:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
            async with await AsyncSerializingProducer(
                {**quick, "value.serializer": await AsyncJSONSerializer(schema, client)}
            ) as producer:
                with pytest.raises(ValueSerializationError) as failed:
                    await producer.produce(topic, value={}, partition=0)
                assert isinstance(failed.value.exception, SerializationError)
                await producer.produce(topic, value={"id": 1}, partition=0)
                await producer.flush()
            async with await AsyncSerializingProducer(quick) as producer:
                await producer.produce(topic, value=b"\0\0\0\0\1{}", partition=0)
                await producer.flush()
            consumer: Any = await AsyncDeserializingConsumer(
                {**reading, "value.deserializer": await AsyncJSONDeserializer(None, None, client)}
            )
            (message,) = await read_all(consumer, topic, 1)
            assert message.value() == {"id": 1}
            with pytest.raises(ValueDeserializationError) as wrong:
                await consumer.poll(WAIT_S)
            assert wrong.value.kafka_message.value() == b"\0\0\0\0\1{}"
            assert await asyncio.wait_for(consumer.close(), WAIT_S) is None

    with SchemaRegistry() as registry:
        run(main())
