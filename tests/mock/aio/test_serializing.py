"""AsyncSerializingProducer and AsyncDeserializingConsumer: objects in an event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S

from cykafka import KafkaError, TopicPartition
from cykafka.aio import AsyncDeserializingConsumer, AsyncSerializingProducer
from cykafka.error import (
    ClosedError,
    ConsumeError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from cykafka.serialization import SerializationContext, StringDeserializer, StringSerializer

pytestmark = pytest.mark.ours

Run = Callable[..., Any]


class Json:
    """A serializer and deserializer whose calls are coroutines, and its builder."""

    def __init__(self) -> None:
        self.closed = 0
        self.resolver: Any = None
        self.fields: list[str | None] = []

    async def __call__(self, data: Any, ctx: SerializationContext) -> Any:
        await asyncio.sleep(0)
        self.fields.append(ctx.field)
        return json.loads(data) if isinstance(data, bytes) else json.dumps(data).encode()

    async def build(self, config: dict[str, Any], is_key: bool) -> tuple[Json, dict[str, Any]]:
        await asyncio.sleep(0)
        return self, {key: config[key] for key in config if key != "json.indent"}

    def set_async_cluster_id_resolver(self, resolver: Any) -> None:
        self.resolver = resolver

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


async def assigned(config: dict[str, Any], topic: str) -> AsyncDeserializingConsumer[Any, Any]:
    consumer: AsyncDeserializingConsumer[Any, Any] = await AsyncDeserializingConsumer(config)
    await consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def test_objects_go_through(
    run: Run, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        writer, reader = Json(), Json()
        async with await AsyncSerializingProducer(
            {
                **quick, "key.serializer": StringSerializer(), "value.serializer.builder": writer,
                "json.indent": 2,
            }
        ) as producer:  # fmt: skip
            future = await producer.produce(topic, "key", {"n": 1}, 0, headers=[("h", b"1")])
            assert (await future).offset() == 0
            assert await writer.resolver() == await producer.cluster_id()
        consumer = await assigned(
            {
                **reading, "key.deserializer": StringDeserializer(),
                "value.deserializer.builder": reader, "json.indent": 2,
            },
            topic,
        )  # fmt: skip
        message = await consumer.poll(WAIT_S)
        assert message is not None
        assert (message.key(), message.value()) == ("key", {"n": 1})
        assert message.headers() == [("h", b"1")]
        await consumer.close()
        await consumer.close()
        assert (writer.closed, reader.closed) == (1, 1)
        assert writer.fields == reader.fields == ["value"]

    run(main())


def test_ready_made_serdes_are_not_closed(run: Run, quick: dict[str, Any]) -> None:
    async def main() -> None:
        serializer = Json()
        async with AsyncSerializingProducer({**quick, "value.serializer": serializer}):
            pass
        assert serializer.closed == 0

    run(main())


def test_a_failed_build_closes_what_is_built(run: Run, quick: dict[str, Any]) -> None:
    class Broken:
        async def build(self, config: dict[str, Any], is_key: bool) -> None:
            raise OSError("no registry")

    async def main() -> None:
        built = Json()
        with pytest.raises(OSError, match="no registry"):
            await AsyncSerializingProducer(
                {**quick, "key.serializer.builder": built, "value.serializer.builder": Broken()}
            )
        assert built.closed == 1
        with pytest.raises(ValueError, match="mutually exclusive"):
            AsyncSerializingProducer(
                {**quick, "key.serializer": built, "key.serializer.builder": built}
            )

    run(main())


def test_serialization_errors(run: Run, quick: dict[str, Any], topic: str) -> None:
    async def fail(data: object, ctx: SerializationContext) -> bytes:
        raise RuntimeError("bad")

    async def main() -> None:
        for field, error in (("key", KeySerializationError), ("value", ValueSerializationError)):
            async with AsyncSerializingProducer(
                {**quick, f"{field}.serializer": fail}
            ) as producer:
                with pytest.raises(error, match="bad"):
                    await producer.produce(topic, "k", "v")
                with pytest.raises(TypeError, match="topic"):
                    await producer.produce(None, "k", "v")  # type: ignore[arg-type]
            with pytest.raises(ClosedError):
                await producer.produce(topic, "k", "v")

    run(main())


def test_messages_around_one_that_cannot_be_deserialized(
    run: Run, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncSerializingProducer({**quick}) as producer:
            for value in (b"1", b"2", b"{", b"4"):
                await producer.produce(topic, value=value, partition=0)
        consumer = await assigned({**reading, "value.deserializer": Json()}, topic)
        async with consumer:
            messages = await consumer.consume(4, WAIT_S)
            assert [message.value() for message in messages] == [1, 2]
            with pytest.raises(ValueDeserializationError) as caught:
                await consumer.consume(4, WAIT_S)
            assert caught.value.kafka_message.value() == b"{"
            (message,) = await consumer.consume(4, 0)
            assert message.value() == 4

    run(main())


def test_commit_covers_only_messages_that_the_program_has(
    run: Run, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncSerializingProducer({**quick}) as producer:
            for value in (b"1", b"2", b"{", b"4"):
                await producer.produce(topic, value=value, partition=0)
        async with await assigned({**reading, "value.deserializer": Json()}, topic) as consumer:
            for count in (2, 3):
                try:
                    await consumer.consume(4, WAIT_S)
                except ValueDeserializationError:
                    assert count == 3
                (committed,) = await consumer.commit(asynchronous=False) or ()
                assert committed.offset == count

    run(main())


def test_two_tasks_get_different_messages(
    run: Run, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncSerializingProducer({**quick}) as producer:
            for number in range(20):
                await producer.produce(topic, value=b"%d" % number, partition=0)
        async with await assigned({**reading, "value.deserializer": Json()}, topic) as consumer:
            read: list[Any] = []

            async def work() -> None:
                while (message := await consumer.poll(1)) is not None:
                    read.append(message.value())

            await asyncio.gather(work(), work(), work())
        assert sorted(read) == list(range(20))

    run(main())


def test_seek_forgets_messages_that_are_left(
    run: Run, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncSerializingProducer({**quick}) as producer:
            for value in (b"1", b"{"):
                await producer.produce(topic, value=value, partition=0)
        async with await assigned({**reading, "value.deserializer": Json()}, topic) as consumer:
            assert len(await consumer.consume(2, WAIT_S)) == 1
            await consumer.seek(TopicPartition(topic, 0, 0))
            message = await consumer.poll(WAIT_S)
            assert message is not None
            assert message.value() == 1

    run(main())


def test_client_must_be_awaited(run: Run, quick: dict[str, Any]) -> None:
    async def main() -> None:
        producer: AsyncSerializingProducer[Any, Any] = AsyncSerializingProducer({**quick})
        with pytest.raises(RuntimeError, match=r"await AsyncSerializingProducer\(conf\)"):
            await producer.produce("topic", "key")
        await producer.close()
        with pytest.raises(TypeError, match="expected configuration dict"):
            AsyncDeserializingConsumer(None)  # type: ignore[arg-type]

    run(main())


def test_cancelled_consume_loses_no_message(
    run: Run, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    calls = 0

    async def slow(data: bytes, ctx: SerializationContext) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            await asyncio.sleep(WAIT_S)
        return int(data)

    async def main() -> None:
        async with AsyncSerializingProducer({**quick}) as producer:
            for number in range(5):
                await producer.produce(topic, value=b"%d" % number, partition=0)
        consumer = await assigned({**reading, "value.deserializer": slow}, topic)
        async with consumer:
            reading_all = asyncio.create_task(consumer.consume(5))
            while calls < 3:
                await asyncio.sleep(0.01)
            reading_all.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading_all
            first = await consumer.poll(WAIT_S)
            assert first is not None
            rest = await consumer.consume(5, WAIT_S)
            assert [message.value() for message in (first, *rest)] == [0, 1, 2, 3, 4]
            assert calls == 6  # only the interrupted call was repeated

    run(main())


def test_events_are_errors(run: Run, reading: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        config = {**reading, "enable.partition.eof": True, "value.deserializer": Json()}
        async with await assigned(config, topic) as consumer:
            with pytest.raises(ConsumeError) as caught:
                await consumer.poll(WAIT_S)
            assert caught.value.code == KafkaError._PARTITION_EOF
            await consumer.seek(TopicPartition(topic, 0, 0))
            (event,) = await consumer.consume(1, WAIT_S)
            assert event.error() == KafkaError._PARTITION_EOF

    run(main())
