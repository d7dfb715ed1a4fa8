"""aiokafka: futures awaited in groups of 10,000, and ``getmany()``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from typing import Any

from clients._section import (
    CHUNK,
    SPARK_COLUMNS,
    TIMEOUT,
    WARM_ROUNDS,
    Arguments,
    Section,
    check,
    header_pairs,
    keys,
)


def make_producer(args: Arguments) -> Any:
    """librdkafka's defaults under aiokafka's names."""
    return args.client.AIOKafkaProducer(
        bootstrap_servers=args.config["bootstrap.servers"],
        acks="all",
        enable_idempotence=False,
        compression_type=None,
        linger_ms=int(args.config.get("linger.ms", 5)),
        max_batch_size=1_000_000,
    )


def make_consumer(args: Arguments) -> Any:
    return args.client.AIOKafkaConsumer(
        bootstrap_servers=args.config["bootstrap.servers"],
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        check_crcs=False,
    )


# --- producers ----------------------------------------------------------------------------


def run_sending(
    args: Arguments, send_batch: Callable[[Any], Awaitable[list[Any]]]
) -> dict[str, float]:
    """``send_batch`` returns the futures of CHUNK records; this awaits them together."""

    async def run() -> dict[str, float]:
        producer = make_producer(args)
        await producer.start()
        try:
            await asyncio.gather(*await send_batch(producer))
            section = Section()
            for _ in range(args.messages // CHUNK):
                outcomes = [await future for future in await send_batch(producer)]
                check("outcomes", len(outcomes), CHUNK)
            return section.report(args.messages, CHUNK + args.messages)
        finally:
            await producer.stop()

    return asyncio.run(run())


def send(args: Arguments) -> dict[str, float]:
    topic, values = args.topic, args.values()

    async def send_batch(producer: Any) -> list[Any]:
        return [await producer.send(topic, value) for value in values]

    return run_sending(args, send_batch)


def send_headers(args: Arguments) -> dict[str, float]:
    topic = args.topic
    records = list(zip(args.values(), keys(), header_pairs(), strict=True))

    async def send_batch(producer: Any) -> list[Any]:
        return [
            await producer.send(topic, value, key, headers=headers)
            for value, key, headers in records
        ]

    return run_sending(args, send_batch)


def send_arrow(args: Arguments) -> dict[str, float]:
    import pyarrow as pa

    topic = args.topic
    batch = pa.record_batch({"value": pa.array(args.values(), pa.binary())})

    async def send_batch(producer: Any) -> list[Any]:
        return [await producer.send(topic, value) for value in batch["value"].to_pylist()]

    return run_sending(args, send_batch)


async def time_each(
    args: Arguments, exchange: Callable[[bytes], Awaitable[object]]
) -> dict[str, float]:
    values = args.values()
    for value in islice(values, WARM_ROUNDS):
        await exchange(value)
    latencies = []
    section = Section()
    for value in islice(cycle(values), args.messages):
        start = time.perf_counter()
        await exchange(value)
        latencies.append(time.perf_counter() - start)
    return section.report(args.messages, WARM_ROUNDS + args.messages, latencies)


def send_and_wait(args: Arguments) -> dict[str, float]:
    async def run() -> dict[str, float]:
        producer = make_producer(args)
        await producer.start()
        try:
            return await time_each(args, lambda value: producer.send_and_wait(args.topic, value))
        finally:
            await producer.stop()

    return asyncio.run(run())


def end_to_end(args: Arguments) -> dict[str, float]:
    async def run() -> dict[str, float]:
        producer, consumer = make_producer(args), make_consumer(args)
        await producer.start()
        await consumer.start()
        try:
            partition = args.client.TopicPartition(args.topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_end(partition)
            await consumer.position(partition)

            async def exchange(value: bytes) -> None:
                await producer.send(args.topic, value)
                record = await asyncio.wait_for(consumer.getone(), TIMEOUT)
                check("a record", record.value, value)

            return await time_each(args, exchange)
        finally:
            await consumer.stop()
            await producer.stop()

    return asyncio.run(run())


# --- consumers ----------------------------------------------------------------------------


def run_reading(args: Arguments, take: Callable[[list[Any]], int]) -> dict[str, float]:
    """``take`` gets the records of a ``getmany()`` and returns the size of the last value."""

    async def read_all(consumer: Any, messages: int) -> int:
        left, size = messages, 0
        while left > 0:
            found = await consumer.getmany(timeout_ms=1000, max_records=min(CHUNK, left))
            records = [record for of_partition in found.values() for record in of_partition]
            if records:
                size = take(records)
                left -= len(records)
        return size

    async def run() -> dict[str, float]:
        partition_of = args.client.TopicPartition
        consumer = make_consumer(args)
        await consumer.start()
        try:
            consumer.assign([partition_of(f"{args.topic}-warm", 0)])
            await read_all(consumer, CHUNK)
            partitions = [partition_of(args.topic, p) for p in range(args.partitions)]
            section = Section()
            consumer.assign(partitions)
            size = await read_all(consumer, args.messages)
            result = section.report(args.messages)
            check("bytes of the last value", size, args.value_size)
            positions = [await consumer.position(partition) for partition in partitions]
            check("records read", sum(positions), args.messages)
            return result
        finally:
            await consumer.stop()

    return asyncio.run(run())


def getmany(args: Arguments) -> dict[str, float]:
    def take(records: list[Any]) -> int:
        values = [record.value for record in records]
        return len(values[-1])

    return run_reading(args, take)


def getmany_arrow(args: Arguments) -> dict[str, float]:
    from clients._arrow import of_records

    def take(records: list[Any]) -> int:
        rows = of_records(records)
        check("columns", rows.schema.names, SPARK_COLUMNS)
        return len(rows["value"][-1].as_py())

    return run_reading(args, take)
