"""Share consumers. cykafka and confluent_kafka run the same lines, except for batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clients._section import CHUNK, Arguments, Section, check


def run(args: Arguments, read: Callable[[Any], tuple[int, int]]) -> dict[str, float]:
    """Read the warm-up topic, then the topic; commit the last acknowledgements."""
    consumer = args.client.ShareConsumer(args.config)
    consumer.subscribe([f"{args.topic}-warm"])
    read_all(consumer, CHUNK, read)
    section = Section()
    consumer.subscribe([args.topic])
    size = read_all(consumer, args.messages, read)
    result = section.report(args.messages)
    check("bytes of the last value", size, args.value_size)
    consumer.close()
    return result


def read_all(consumer: Any, messages: int, read: Callable[[Any], tuple[int, int]]) -> int:
    size = 0
    while messages > 0:
        count, length = read(consumer)
        messages -= count
        size = length or size
    check("records beyond the topic", messages, 0)
    failed = [error for error in consumer.commit_sync().values() if error is not None]
    check("failed commits", failed, [])
    return size


def poll(args: Arguments) -> dict[str, float]:
    """``poll()`` and each ``value()``."""

    def read(consumer: Any) -> tuple[int, int]:
        messages = consumer.poll(1.0)
        value = b""
        for message in messages:
            value = message.value()
        return len(messages), len(value)

    return run(args, read)


def poll_acknowledge(args: Arguments) -> dict[str, float]:
    """``poll()``, each ``value()``, and ``acknowledge()`` per message."""

    def read(consumer: Any) -> tuple[int, int]:
        messages = consumer.poll(1.0)
        value = b""
        for message in messages:
            value = message.value()
            consumer.acknowledge(message)
        return len(messages), len(value)

    return run(args, read)


def batches(args: Arguments) -> dict[str, float]:
    """``consume_batch()`` and its values as a list of bytes."""

    def read(consumer: Any) -> tuple[int, int]:
        values = consumer.consume_batch(1.0).values()
        return len(values), len(values[-1]) if values else 0

    return run(args, read)


def batches_acknowledge(args: Arguments) -> dict[str, float]:
    """The same, and ``acknowledge(batch)``."""

    def read(consumer: Any) -> tuple[int, int]:
        batch = consumer.consume_batch(1.0)
        values = batch.values()
        consumer.acknowledge(batch)
        return len(values), len(values[-1]) if values else 0

    return run(args, read)
