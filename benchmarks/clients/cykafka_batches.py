"""cykafka's batch API: publish(), publish_arrow(), and consume_batch() with or without Arrow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from clients import confluent_consuming
from clients._section import (
    CHUNK,
    SPARK_COLUMNS,
    TIMEOUT,
    Arguments,
    Section,
    check,
    header_pairs,
    keys,
    time_each,
    types,
)
from clients.confluent_producing import open_reader, read_one


def run(
    args: Arguments, publish_batch: Callable[[Any], Any], *, held: bool = True
) -> dict[str, float]:
    """Publish batches and check every outcome; without ``held``, only flush."""
    producer = args.client.Producer(args.config)
    settle([publish_batch(producer)])
    section = Section()
    deliveries = []
    for _ in range(args.messages // CHUNK):
        delivery = publish_batch(producer)
        if held:
            deliveries.append(delivery)
    if held:
        settle(deliveries)
    else:
        producer.flush()
    result = section.report(args.messages, CHUNK + args.messages)
    check("deliveries held", len(deliveries), args.messages // CHUNK if held else 0)
    producer.close()
    return result


def settle(deliveries: list[Any]) -> None:
    for delivery in deliveries:
        delivery.wait()
        check("failed records", delivery.failed, 0)
        check("offsets", len(delivery.offsets), CHUNK)


def publish(args: Arguments) -> dict[str, float]:
    values = args.values()
    return run(args, lambda producer: producer.publish(args.topic, values))


def publish_unheld(args: Arguments) -> dict[str, float]:
    """Drop each Delivery at once."""
    values = args.values()
    return run(args, lambda producer: producer.publish(args.topic, values), held=False)


def publish_tuple(args: Arguments) -> dict[str, float]:
    """Publish a tuple: it is immutable, so publish() borrows it; it copies a list to a tuple."""
    values = tuple(args.values())
    return run(args, lambda producer: producer.publish(args.topic, values))


def publish_tuple_unheld(args: Arguments) -> dict[str, float]:
    values = tuple(args.values())
    return run(args, lambda producer: producer.publish(args.topic, values), held=False)


def publish_headers(args: Arguments) -> dict[str, float]:
    """Headers as columns: a mapping from name to values."""
    values, record_keys = args.values(), keys()
    headers = {"message_type": types(), "trace_id": record_keys}
    return run(
        args,
        lambda producer: producer.publish(args.topic, values, keys=record_keys, headers=headers),
    )


def publish_header_pairs(args: Arguments) -> dict[str, float]:
    """Headers as confluent_kafka's users have them: a list of pairs for each record."""
    values, record_keys, headers = args.values(), keys(), header_pairs()
    return run(
        args,
        lambda producer: producer.publish(args.topic, values, keys=record_keys, headers=headers),
    )


def publish_arrow(args: Arguments) -> dict[str, float]:
    import pyarrow as pa

    batch = pa.record_batch({"value": pa.array(args.values(), pa.binary())})
    return run(args, lambda producer: producer.publish_arrow(args.topic, batch, value="value"))


def publish_one(args: Arguments) -> dict[str, float]:
    """Publish one record and wait for it."""
    producer = args.client.Producer(args.config)
    topic = args.topic

    def exchange(value: bytes) -> None:
        producer.publish(topic, [value]).wait()

    result = time_each(args, exchange)
    producer.close()
    return result


def end_to_end(args: Arguments) -> dict[str, float]:
    """Publish a record without waiting, then poll it."""
    consumer = open_reader(args)
    producer = args.client.Producer(args.config)
    read = partial(read_one, consumer)
    topic = args.topic

    def exchange(value: bytes) -> None:
        producer.publish(topic, [value])
        read(value)
        producer.poll(0)

    result = time_each(args, exchange)
    producer.flush(TIMEOUT)
    producer.close()
    consumer.close()
    return result


def consume_batch(args: Arguments) -> dict[str, float]:
    """``consume_batch(10_000)`` and its values as a list of bytes."""

    def read_all(consumer: Any, messages: int) -> int:
        left = messages
        size = 0
        while left:
            batch = consumer.consume_batch(min(CHUNK, left), timeout=1.0)
            values = batch.values()
            left -= len(values)
            if values:
                size = len(values[-1])
        return size

    return confluent_consuming.run(args, read_all)


def consume_arrow(args: Arguments) -> dict[str, float]:
    """``consume_batch(10_000)`` as a pyarrow RecordBatch of Spark's columns."""
    import pyarrow as pa

    def read_all(consumer: Any, messages: int) -> int:
        left = messages
        size = 0
        while left:
            batch = consumer.consume_batch(min(CHUNK, left), timeout=1.0)
            if not len(batch):
                continue
            rows = pa.record_batch(batch)
            left -= rows.num_rows
            size = len(rows["value"][-1].as_py())
        check("columns", rows.schema.names, SPARK_COLUMNS)
        return size

    return confluent_consuming.run(args, read_all)
