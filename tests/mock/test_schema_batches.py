"""Tables to a topic and back, by a Schema Registry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import polars
import pyarrow as pa
import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique
from machine import WAIT_S

import cykafka
from cykafka import aio
from cykafka.schemas import AsyncSchemaRegistryClient, SchemaRegistryClient
from cykafka.serialization import SerializationError
from cykafka.testing import SchemaRegistry

pytestmark = pytest.mark.ours

SCHEMA = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "note", "type": ["null", "string"], "default": None}]}  # fmt: skip
AT = datetime(2026, 1, 2, tzinfo=UTC)
TABLE = pa.table({"id": [1, 2], "at": pa.array([AT] * 2, pa.timestamp("us", "UTC")),
                  "k": [b"x", b"y"]})  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def read(make_consumer: MakeConsumer, topic: str, count: int) -> cykafka.MessageBatch:
    consumer: Any = make_consumer()
    consumer.assign([cykafka.TopicPartition(topic, 0, 0)])
    batch = consumer.consume_batch(count, timeout=WAIT_S)
    assert len(batch) == count
    return batch


def test_a_table_comes_back(
    cluster: Any, unique: Unique, make_producer: MakeProducer, make_consumer: MakeConsumer,
    registry: SchemaRegistry,
) -> None:  # fmt: skip
    topic = unique("orders")
    cluster.create_topic(topic, 1)
    registry.add(f"{topic}-value", {**SCHEMA, "name": topic.replace("-", "_")})
    client = SchemaRegistryClient({"url": registry.url})
    producer: Any = make_producer()

    producer.publish_arrow(topic, TABLE, key="k", registry=client).wait(WAIT_S)

    batch = read(make_consumer, topic, 2)
    for wrong in (None, registry.url):
        with pytest.raises(TypeError, match="registry: expected a client, such as SchemaRegist"):
            batch.decode(wrong)  # type: ignore[arg-type]
    table = batch.decode(client)
    assert table.select(["id", "at", "note", "key", "error"]).to_pylist() == [
        {"id": 1, "at": AT, "note": None, "key": b"x", "error": None},
        {"id": 2, "at": AT, "note": None, "key": b"y", "error": None},
    ]
    assert polars.DataFrame(table)["id"].to_list() == [1, 2]
    wrong = pa.table({"id": pa.array([None], pa.int64()), "at": [AT]})
    with pytest.raises(SerializationError, match="row 0 of 1 does not fit the schema"):
        producer.publish_arrow(topic, wrong, registry=client)


@pytest.mark.parametrize("kind", [SchemaRegistryClient, AsyncSchemaRegistryClient])
def test_a_table_is_published_by_the_event_loop(
    cluster: Any, unique: Unique, make_consumer: MakeConsumer, registry: SchemaRegistry,
    kind: Any,
) -> None:  # fmt: skip
    topic = unique("orders")
    cluster.create_topic(topic, 1)
    registry.add("Any", {**SCHEMA, "name": "Any"})
    conf = {"url": registry.url}
    client = SchemaRegistryClient(conf)

    async def publish() -> None:
        async with aio.AsyncProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            given = {"key": "k", "subject": "Any"}
            await producer.publish_arrow(topic, TABLE, registry=kind(conf), **given)
            with pytest.raises(TypeError, match=r"^schema: needs registry="):
                await producer.publish_arrow(topic, TABLE, schema="Any:latest")
            with pytest.raises(ValueError, match=r"^value: 'id' cannot be combined with registry"):
                await producer.publish_arrow(topic, TABLE, registry=client, value="id")

    asyncio.run(publish())
    table = read(make_consumer, topic, 2).decode(client, schema="Any:latest", mode="FAIL")
    assert table["id"].to_pylist() == [1, 2]
