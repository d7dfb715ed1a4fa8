"""The consumer of confluent_kafka's API. cykafka and confluent_kafka run the same lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clients._section import CHUNK, SPARK_COLUMNS, Arguments, Section, check, wait_idle


def run(
    args: Arguments, read_all: Callable[[Any, int], int], *, prefetch: bool = False
) -> dict[str, float]:
    """Read the warm-up topic, then all partitions; check the positions."""
    client = args.client
    consumer = client.Consumer(args.config)
    warm = client.TopicPartition(f"{args.topic}-warm", 0, client.OFFSET_BEGINNING)
    partitions = [
        client.TopicPartition(args.topic, p, client.OFFSET_BEGINNING)
        for p in range(args.partitions)
    ]
    consumer.assign([warm])
    read_all(consumer, CHUNK)
    section = Section()
    consumer.assign(partitions)
    if prefetch:
        wait_idle()
        section = Section()
    size = read_all(consumer, args.messages)
    result = section.report(args.messages)
    check("bytes of the last value", size, args.value_size)
    positions = consumer.position(consumer.assignment())
    check("records read", sum(max(p.offset, 0) for p in positions), args.messages)
    consumer.close()
    return result


def consume(args: Arguments) -> dict[str, float]:
    """``consume(10_000)`` and each ``value()``."""

    def read_all(consumer: Any, messages: int) -> int:
        left = messages
        size = 0
        while left:
            batch = consumer.consume(min(CHUNK, left), timeout=1.0)
            for message in batch:
                value = message.value()
            left -= len(batch)
            if batch:
                size = len(value)
        return size

    return run(args, read_all)


def poll_each(consumer: Any, messages: int) -> int:
    left = messages
    while left:
        message = consumer.poll(1.0)
        if message is None:
            continue
        value = message.value()
        left -= 1
    return len(value)


def poll(args: Arguments) -> dict[str, float]:
    """``poll()`` and each ``value()``."""
    return run(args, poll_each)


def poll_prefetched(args: Arguments) -> dict[str, float]:
    """The same. All records are fetched before the first poll, so the CPU's caches are cold."""
    return run(args, poll_each, prefetch=True)


def consume_arrow(args: Arguments) -> dict[str, float]:
    """``consume(10_000)``, then Spark's columns from Python lists with pyarrow."""
    from clients._arrow import record_batch

    def read_all(consumer: Any, messages: int) -> int:
        left = messages
        size = 0
        while left:
            batch = consumer.consume(min(CHUNK, left), timeout=1.0)
            if not batch:
                continue
            stamps = [message.timestamp() for message in batch]
            columns = {
                "key": [message.key() for message in batch],
                "value": [message.value() for message in batch],
                "topic": [message.topic() for message in batch],
                "partition": [message.partition() for message in batch],
                "offset": [message.offset() for message in batch],
                "timestamp": [stamp[1] for stamp in stamps],
                "timestampType": [stamp[0] for stamp in stamps],
            }
            rows = record_batch(columns)
            left -= rows.num_rows
            size = len(rows["value"][-1].as_py())
        check("columns", rows.schema.names, SPARK_COLUMNS)
        return size

    return run(args, read_all)
