"""The serializers and deserializers for asyncio, and the builders."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import proto_files
import pytest
from memory_registry import AsyncMemoryRegistry, MemoryRegistry

from cykafka.schemas.model.error import SchemaRegistryError
from cykafka.schemas.model.schema import Schema, SchemaReference
from cykafka.schemas.registry.aio import AsyncSchemaRegistryClient
from cykafka.schemas.serdes import avro_serde, json_serde, protobuf_serde
from cykafka.schemas.serdes.avro_serde import (
    AsyncAvroDeserializer,
    AsyncAvroSerializer,
    AsyncAvroSerializerBuilder,
    AvroDeserializerBuilder,
    AvroSerializer,
    AvroSerializerBuilder,
)
from cykafka.schemas.serdes.json_serde import AsyncJSONDeserializer, AsyncJSONSerializer
from cykafka.schemas.serdes.protobuf_serde import (
    AsyncProtobufDeserializer,
    AsyncProtobufSerializer,
)
from cykafka.serialization import (
    DeserializerBuilder,
    MessageField,
    SerializationContext,
    SerializationError,
    SerializerBuilder,
)
from cykafka.testing import SchemaRegistry

pytestmark = pytest.mark.ours

CTX = SerializationContext("orders", MessageField.VALUE)
TOPIC = {"subject.name.strategy.type": "TOPIC"}
AVRO = '{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"long"}]}'
JSON = '{"title":"shop.Order","type":"object","properties":{"id":{"type":"integer"}}}'
FILE = proto_files.proto("order.proto", "shop", {"Order": {"id": (1, "int64")}})
Order = proto_files.message("shop.Order", FILE)


def steps_of(call: Coroutine[Any, Any, Any]) -> int:
    """How often a coroutine gives control to the loop before it ends."""
    for number in range(100):
        try:
            call.send(None)
        except StopIteration:
            return number
    raise AssertionError


@pytest.mark.parametrize(
    ("write", "read", "value"),
    [
        (
            lambda client: AsyncAvroSerializer(client, AVRO),
            lambda client: AsyncAvroDeserializer(client, AVRO),
            {"id": 5},
        ),
        (
            lambda client: AsyncJSONSerializer(JSON, client),
            lambda client: AsyncJSONDeserializer(JSON, None, client),
            {"id": 5},
        ),
        (
            lambda client: AsyncProtobufSerializer(Order, client),
            lambda client: AsyncProtobufDeserializer(Order, None, client),
            Order(id=5),
        ),
    ],
    ids=["avro", "json", "protobuf"],
)
def test_values_go_through(write: Any, read: Any, value: Any) -> None:
    registry = MemoryRegistry()

    async def main() -> None:
        client = AsyncMemoryRegistry(registry)
        writer, reader = await write(client), await read(client)
        assert await writer(None, CTX) is None
        assert await reader(None, CTX) is None
        first = await writer(value, CTX)
        assert await reader(first, CTX) == value
        data = await asyncio.gather(*(writer(value, CTX) for _ in range(100)))
        assert await asyncio.gather(*(reader(each, CTX) for each in data)) == [value] * 100
        assert registry.calls == {"associations": 2, "register": 1, "get": 1}
        # A known schema needs no turn of the loop.
        assert steps_of(writer(value, CTX)) == steps_of(reader(data[0], CTX)) == 0

    asyncio.run(main())


def test_serdes_work_in_several_loops() -> None:
    with SchemaRegistry() as registry:
        client = AsyncSchemaRegistryClient({"url": registry.url})
        writer = AsyncAvroSerializer(client, AVRO)
        reader = AsyncAvroDeserializer(client)

        async def main(topic: str) -> None:
            registry.delay_next(1, 0.1)
            contexts = [SerializationContext(f"{topic}{n}", MessageField.VALUE) for n in range(4)]
            data = await asyncio.gather(*(writer({"id": 5}, ctx) for ctx in contexts))
            calls = (reader(*each) for each in zip(data, contexts, strict=True))
            assert await asyncio.gather(*calls) == [{"id": 5}] * 4

        for topic in "ab":
            asyncio.run(main(topic))


def test_many_tasks_register_once() -> None:
    with SchemaRegistry() as registry:

        async def main() -> None:
            async with AsyncSchemaRegistryClient({"url": registry.url}) as client:
                writer = await AsyncAvroSerializer(client, AVRO, conf=TOPIC)
                await asyncio.gather(*(writer({"id": 5}, CTX) for _ in range(100)))

        asyncio.run(main())
        assert registry.requests.total() == 1


def test_references_are_awaited() -> None:
    registry = MemoryRegistry()
    registry.add("c", '{"type":"record","name":"shop.Customer","fields":[]}')
    schema = Schema('["null","shop.Customer"]', "AVRO", (SchemaReference("Customer", "c", 1),))

    async def main() -> None:
        client = AsyncMemoryRegistry(registry)
        writer = await AsyncAvroSerializer(client, schema)
        data = await writer({}, CTX)
        assert data == b"\0\0\0\0\2\2"
        # Without await the first call prepares the schema.
        assert await AsyncAvroDeserializer(client, schema)(data, CTX) == {}

    asyncio.run(main())


def test_errors_are_those_of_threads() -> None:
    async def main() -> None:
        client = AsyncMemoryRegistry(MemoryRegistry())
        writer = await AsyncAvroSerializer(client, AVRO)
        with pytest.raises(SerializationError, match="does not fit"):
            await writer({"id": "x"}, CTX)
        reader = await AsyncAvroDeserializer(client)
        with pytest.raises(SchemaRegistryError, match="Schema 9 not found"):
            await reader(b"\0\0\0\0\x09\0", CTX)
        with pytest.raises(SerializationError, match="magic byte"):
            await reader(b"\x09\0\0\0\0\0", CTX)
        assert await reader(await writer({"id": 5}, CTX), CTX) == {"id": 5}
        with pytest.raises(ValueError, match="not an Avro schema"):
            await AsyncAvroSerializer(client, "{}")

    asyncio.run(main())


def test_cluster_id_is_awaited() -> None:
    registry = MemoryRegistry()

    async def cluster() -> str:
        await asyncio.sleep(0)
        return "cluster"

    async def main() -> None:
        writer = await AsyncAvroSerializer(AsyncMemoryRegistry(registry), AVRO)
        writer.set_async_cluster_id_resolver(cluster)
        await writer({"id": 5}, CTX)
        await writer.aclose()
        assert registry.cluster == "cluster"
        writer.own_schema_registry_client()
        await writer.aclose()

    asyncio.run(main())
    assert registry.calls["close"] == 1


BUILDERS = [
    getattr(module, name)
    for module in (avro_serde, json_serde, protobuf_serde)
    for name in module.__all__
    if name.endswith("Builder")
]


@pytest.mark.parametrize("of", BUILDERS, ids=lambda of: of.__name__)
def test_builder_has_a_method_for_each_value(of: Any) -> None:
    registry = MemoryRegistry()
    names = [name for name in vars(of()) if name != "schema_registry_config"]
    values = dict.fromkeys(names)
    client = AsyncMemoryRegistry(registry) if "Async" in of.__name__ else registry
    is_json = "JSON" in of.__name__
    values["schema_registry_client"] = client
    values |= {"schema": JSON if is_json else AVRO} if "schema" in names else {}
    values |= {"message_type": Order} if "message_type" in names else {}
    values |= {"return_record_name": True} if "return_record_name" in names else {}
    built = of(**values)

    chained = of()
    for name, value in values.items():
        assert getattr(chained, f"set_{name}")(value) is chained

    assert vars(chained) == vars(built)
    made = built.build({"a": 1}, False)
    serde, left = asyncio.run(made) if "Async" in of.__name__ else made
    assert type(serde).__name__ == of.__name__.removesuffix("Builder")
    assert left == {"a": 1}


def test_builder_owns_the_client_that_it_makes() -> None:
    registry = MemoryRegistry()
    seen: list[Any] = []

    class Builder(AvroSerializerBuilder):
        def _open(self, config: Any) -> Any:
            assert config == {"url": "x"}
            return registry

    serde, _ = Builder({"url": "x"}, schema=AVRO, serializer_init=seen.append).build({}, False)
    assert seen == [serde]
    assert isinstance(serde, AvroSerializer)
    serde.close()
    assert registry.calls == {"close": 1}
    with pytest.raises(ValueError, match="not an Avro schema"):
        Builder({"url": "x"}, schema="{}").build({}, False)
    assert registry.calls == {"close": 2}
    with pytest.raises(ZeroDivisionError):
        Builder({"url": "x"}, schema=AVRO, serializer_init=lambda _: 1 / 0).build({}, False)
    assert registry.calls == {"close": 3}
    with pytest.raises(ValueError, match="either"):
        Builder({"url": "x"}, registry, AVRO).build({}, False)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="message_type"):
        protobuf_serde.ProtobufDeserializerBuilder().build({}, False)


def test_awaited_builder_awaits_its_function() -> None:
    seen: list[Any] = []

    async def init(serde: Any) -> None:
        await asyncio.sleep(0)
        seen.append(serde)

    async def main() -> None:
        client = AsyncMemoryRegistry(MemoryRegistry())
        builder = AsyncAvroSerializerBuilder(
            schema_registry_client=client, schema=AVRO, serializer_init=init
        )
        serde, _ = await builder.build({}, False)
        assert seen == [serde]
        assert await serde({"id": 5}, CTX) == b"\0\0\0\0\1\x0a"

    asyncio.run(main())


@pytest.mark.parametrize("of", BUILDERS, ids=lambda of: of.__name__)
def test_builder_hides_secrets_and_has_the_clients_base(of: Any) -> None:
    builder = of(schema_registry_config={"url": "http://h", "basic.auth.user.info": "ada:secret"})
    assert "secret" not in repr(builder)
    assert hash(builder) == hash(builder)
    if not of.__name__.startswith("Async"):
        base = DeserializerBuilder if "Deserializer" in of.__name__ else SerializerBuilder
        assert isinstance(builder, base)


def test_builder_is_for_clients_with_their_own_registry() -> None:
    serde, left = AvroDeserializerBuilder().set_schema_registry_config(
        {"url": "http://127.0.0.1:1"}
    ).build({"group.id": "g"}, False)  # fmt: skip
    assert left == {"group.id": "g"}
    serde.close()
