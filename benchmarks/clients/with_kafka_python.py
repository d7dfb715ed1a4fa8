"""kafka-python: ``send()`` with a flush after 10,000 records, and ``poll()``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from clients._section import (
    CALL,
    CHUNK,
    SPARK_COLUMNS,
    TIMEOUT,
    Arguments,
    Section,
    check,
    header_pairs,
    keys,
    time_each,
)

# This client cannot read the mock's answer to newer ApiVersions requests.
API_VERSION = (2, 3)


def make_producer(args: Arguments) -> Any:
    """librdkafka's defaults under kafka-python's names."""
    return args.client.KafkaProducer(
        bootstrap_servers=args.config["bootstrap.servers"],
        api_version=API_VERSION,
        acks="all",
        enable_idempotence=False,
        compression_type=None,
        linger_ms=int(args.config.get("linger.ms", 5)),
        batch_size=1_000_000,
    )


def make_consumer(args: Arguments) -> Any:
    return args.client.KafkaConsumer(
        bootstrap_servers=args.config["bootstrap.servers"],
        api_version=API_VERSION,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        check_crcs=False,
    )


# --- producers ----------------------------------------------------------------------------


def run_sending(args: Arguments, send_batch: Callable[[Any], list[Any]]) -> dict[str, float]:
    """``send_batch`` returns the futures of CHUNK records; a flush completes them."""

    def send_all(producer: Any, messages: int) -> None:
        for _ in range(messages // CHUNK):
            futures = send_batch(producer)
            producer.flush()
            check("records sent", sum(future.succeeded() for future in futures), CHUNK)

    producer = make_producer(args)
    send_all(producer, CHUNK)
    section = Section()
    send_all(producer, args.messages)
    result = section.report(args.messages, CHUNK + args.messages)
    producer.close()
    return result


def send(args: Arguments) -> dict[str, float]:
    topic, values = args.topic, args.values()
    return run_sending(args, lambda producer: [producer.send(topic, value) for value in values])


def send_calls(args: Arguments) -> dict[str, float]:
    """A flush after each 500 records."""
    topic, values = args.topic, args.values()

    def send_chunk(producer: Any) -> list[Any]:
        futures = []
        for number, value in enumerate(values, 1):
            futures.append(producer.send(topic, value))
            if number % CALL == 0:
                producer.flush()
        return futures

    return run_sending(args, send_chunk)


def send_headers(args: Arguments) -> dict[str, float]:
    topic = args.topic
    records = list(zip(args.values(), keys(), header_pairs(), strict=True))
    return run_sending(
        args,
        lambda producer: [
            producer.send(topic, value, key, headers=headers) for value, key, headers in records
        ],
    )


def send_arrow(args: Arguments) -> dict[str, float]:
    import pyarrow as pa

    topic = args.topic
    batch = pa.record_batch({"value": pa.array(args.values(), pa.binary())})
    return run_sending(
        args,
        lambda producer: [producer.send(topic, value) for value in batch["value"].to_pylist()],
    )


def send_and_get(args: Arguments) -> dict[str, float]:
    producer = make_producer(args)
    topic = args.topic

    def exchange(value: bytes) -> None:
        producer.send(topic, value).get(TIMEOUT)

    result = time_each(args, exchange)
    producer.close()
    return result


def end_to_end(args: Arguments) -> dict[str, float]:
    producer, consumer = make_producer(args), make_consumer(args)
    partition = args.client.TopicPartition(args.topic, 0)
    consumer.assign([partition])
    consumer.seek_to_end(partition)
    consumer.position(partition)
    topic = args.topic
    poll = partial(consumer.poll, timeout_ms=int(TIMEOUT * 1000))

    def exchange(value: bytes) -> None:
        producer.send(topic, value)
        found = poll()
        check("a record", [record.value for record in found.get(partition, [])], [value])

    result = time_each(args, exchange)
    consumer.close()
    producer.close()
    return result


# --- consumers ----------------------------------------------------------------------------


def run_reading(args: Arguments, take: Callable[[list[Any]], int]) -> dict[str, float]:
    """``take`` gets the records of a ``poll()`` and returns the size of the last value."""

    def read_all(consumer: Any, messages: int) -> int:
        left, size = messages, 0
        while left > 0:
            found = consumer.poll(timeout_ms=1000, max_records=min(CHUNK, left))
            records = [record for of_partition in found.values() for record in of_partition]
            if records:
                size = take(records)
                left -= len(records)
        return size

    partition_of = args.client.TopicPartition
    consumer = make_consumer(args)
    consumer.assign([partition_of(f"{args.topic}-warm", 0)])
    read_all(consumer, CHUNK)
    partitions = [partition_of(args.topic, p) for p in range(args.partitions)]
    section = Section()
    consumer.assign(partitions)
    size = read_all(consumer, args.messages)
    result = section.report(args.messages)
    check("bytes of the last value", size, args.value_size)
    read = sum(consumer.position(partition) for partition in partitions)
    check("records read", read, args.messages)
    consumer.close()
    return result


def iterate(args: Arguments) -> dict[str, float]:
    """``for record in consumer``, each value read."""
    consumer = make_consumer(args)
    partition_of = args.client.TopicPartition
    consumer.assign([partition_of(args.topic, p) for p in range(args.partitions)])

    def read_all(messages: int) -> int:
        left, size = messages, 0
        for record in consumer:
            size = len(record.value)
            left -= 1
            if not left:
                return size
        return 0

    read_all(CHUNK)
    section = Section()
    size = read_all(args.messages - CHUNK)
    result = section.report(args.messages - CHUNK)
    check("bytes of the last value", size, args.value_size)
    consumer.close()
    return result


def poll(args: Arguments) -> dict[str, float]:
    def take(records: list[Any]) -> int:
        values = [record.value for record in records]
        return len(values[-1])

    return run_reading(args, take)


def poll_arrow(args: Arguments) -> dict[str, float]:
    from clients._arrow import of_records

    def take(records: list[Any]) -> int:
        rows = of_records(records)
        check("columns", rows.schema.names, SPARK_COLUMNS)
        return len(rows["value"][-1].as_py())

    return run_reading(args, take)
