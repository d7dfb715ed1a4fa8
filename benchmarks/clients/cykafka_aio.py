"""asyncio: cykafka.aio's clients, and confluent_kafka's with the same interface."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from clients._section import CHUNK, TIMEOUT, Arguments, Section, check
from clients.with_aiokafka import time_each


def aio(args: Arguments) -> Any:
    return importlib.import_module(f"{args.client.__name__}.aio")


# --- producers ----------------------------------------------------------------------------


async def measure_sending(
    args: Arguments, send_batch: Callable[[], Awaitable[int]]
) -> dict[str, float]:
    """``send_batch`` sends CHUNK records, awaits all outcomes and returns their number."""
    await send_batch()
    section = Section()
    for _ in range(args.messages // CHUNK):
        check("outcomes", await send_batch(), CHUNK)
    return section.report(args.messages, CHUNK + args.messages)


def produce(args: Arguments) -> dict[str, float]:
    """AsyncProducer: 10,000 futures, a flush, and their results."""

    async def run() -> dict[str, float]:
        values = args.values()
        async with aio(args).AsyncProducer(args.config) as producer:

            async def send_batch() -> int:
                sent = [producer.produce(args.topic, value) for value in values]
                await producer.flush()
                return len([await future for future in sent])

            return await measure_sending(args, send_batch)

    return asyncio.run(run())


def publish(args: Arguments) -> dict[str, float]:
    """AsyncProducer: ``await publish()`` of 10,000."""

    async def run() -> dict[str, float]:
        values = args.values()
        async with aio(args).AsyncProducer(args.config) as producer:

            async def send_batch() -> int:
                return len(await producer.publish(args.topic, values))

            return await measure_sending(args, send_batch)

    return asyncio.run(run())


def aio_produce(args: Arguments) -> dict[str, float]:
    """AIOProducer: 10,000 futures, a flush as in confluent_kafka's example, and their results."""

    async def run() -> dict[str, float]:
        values = args.values()
        async with aio(args).AIOProducer(dict(args.config)) as producer:

            async def send_batch() -> int:
                sent = [await producer.produce(args.topic, value) for value in values]
                await producer.flush()
                return len([await future for future in sent])

            return await measure_sending(args, send_batch)

    return asyncio.run(run())


# --- consumers ----------------------------------------------------------------------------


async def measure_reading(
    args: Arguments,
    assign: Callable[[Any], Awaitable[object]],
    read: Callable[[int], Awaitable[int]],
) -> dict[str, float]:
    """``read`` reads so many records and returns the size of the last value."""
    partition_of = args.client.TopicPartition
    await assign([partition_of(f"{args.topic}-warm", 0, 0)])
    await read(CHUNK)
    section = Section()
    await assign([partition_of(args.topic, each, 0) for each in range(args.partitions)])
    size = await read(args.messages)
    result = section.report(args.messages)
    check("bytes of the last value", size, args.value_size)
    return result


def aio_poll(args: Arguments) -> dict[str, float]:
    """AIOConsumer: ``await poll()`` and each ``value()``."""

    async def run() -> dict[str, float]:
        async with aio(args).AIOConsumer(dict(args.config)) as consumer:

            async def read(messages: int) -> int:
                value = b""
                while messages:
                    message = await consumer.poll(1.0)
                    if message is not None:
                        value = message.value()
                        messages -= 1
                return len(value)

            return await measure_reading(args, consumer.assign, read)

    return asyncio.run(run())


def poll(args: Arguments) -> dict[str, float]:
    """AsyncConsumer: ``await poll()`` and each ``value()``."""

    async def run() -> dict[str, float]:
        async with aio(args).AsyncConsumer(args.config) as consumer:

            async def assign(partitions: list[Any]) -> None:
                consumer.assign(partitions)

            async def read(messages: int) -> int:
                value = b""
                while messages:
                    message = await consumer.poll(1.0)
                    if message is not None:
                        value = message.value()
                        messages -= 1
                return len(value)

            return await measure_reading(args, assign, read)

    return asyncio.run(run())


def batches(args: Arguments) -> dict[str, float]:
    """AsyncConsumer: ``await consume_batch(10_000)`` and its values."""

    async def run() -> dict[str, float]:
        async with aio(args).AsyncConsumer(args.config) as consumer:

            async def assign(partitions: list[Any]) -> None:
                consumer.assign(partitions)

            async def read(messages: int) -> int:
                values: list[Any] = []
                while messages:
                    batch = await consumer.consume_batch(min(CHUNK, messages), 1.0)
                    if batch:
                        values = batch.values()
                        messages -= len(values)
                return len(values[-1])

            return await measure_reading(args, assign, read)

    return asyncio.run(run())


# --- both ---------------------------------------------------------------------------------


def end_to_end(args: Arguments) -> dict[str, float]:
    """AsyncProducer and AsyncConsumer: each record is awaited."""

    async def run() -> dict[str, float]:
        async with (
            aio(args).AsyncProducer(args.config) as producer,
            aio(args).AsyncConsumer(args.config) as consumer,
        ):
            partition = args.client.TopicPartition(args.topic, 0)
            _, partition.offset = await consumer.get_watermark_offsets(partition)
            consumer.assign([partition])

            async def exchange(value: bytes) -> None:
                producer.produce(args.topic, value, partition=0)
                message = await consumer.poll(TIMEOUT)
                check("a record", message.value(), value)

            return await time_each(args, exchange)

    return asyncio.run(run())
