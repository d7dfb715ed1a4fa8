"""The producer of confluent_kafka's API. cykafka and confluent_kafka run the same lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from clients._section import (
    CALL,
    CHUNK,
    TIMEOUT,
    Arguments,
    Section,
    check,
    header_pairs,
    keys,
    time_each,
)


class Deliveries:
    """Counts delivery reports and fails on the first error."""

    def __init__(self, client: Any) -> None:
        self.count = 0
        self._exception = client.KafkaException

    def callback(self) -> Callable[[Any, Any], None]:
        """Return a plain function, as users write it."""
        exception = self._exception

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                raise exception(error)
            self.count += 1

        return on_delivery


def produce_later(producer: Any, topic: str, value: bytes, *rest: Any, **options: Any) -> None:
    """Serve reports until the full queue has room."""
    while True:
        producer.poll(0.1)
        try:
            producer.produce(topic, value, *rest, **options)
            return
        except BufferError:
            continue


def run(
    args: Arguments,
    send_all: Callable[[Any, int, Callable[[Any, Any], None]], None],
    *,
    reports: bool = True,
) -> dict[str, float]:
    """Warm up, send the messages, flush; check the reports."""
    deliveries = Deliveries(args.client)
    on_delivery = deliveries.callback()
    producer = args.client.Producer(args.config)
    send_all(producer, CHUNK, on_delivery)
    producer.flush()
    section = Section()
    send_all(producer, args.messages, on_delivery)
    producer.flush()
    produced = CHUNK + args.messages
    result = section.report(args.messages, produced)
    if reports:
        check("delivery reports", deliveries.count, produced)
    return result


def produce(args: Arguments) -> dict[str, float]:
    topic, values = args.topic, args.values()

    def send_all(producer: Any, messages: int, on_delivery: Any) -> None:
        for _ in range(messages // CHUNK):
            for value in values:
                try:
                    producer.produce(topic, value)
                except BufferError:
                    produce_later(producer, topic, value)
            producer.poll(0)

    return run(args, send_all, reports=False)


def produce_calls(args: Arguments) -> dict[str, float]:
    """A flush after each 500 messages, with ``on_delivery``."""
    topic, values = args.topic, args.values()

    def send_all(producer: Any, messages: int, on_delivery: Any) -> None:
        for _ in range(messages // CHUNK):
            for number, value in enumerate(values, 1):
                producer.produce(topic, value, on_delivery=on_delivery)
                if number % CALL == 0:
                    producer.flush()

    return run(args, send_all)


def produce_on_delivery(args: Arguments) -> dict[str, float]:
    topic, values = args.topic, args.values()

    def send_all(producer: Any, messages: int, on_delivery: Any) -> None:
        for _ in range(messages // CHUNK):
            for value in values:
                try:
                    producer.produce(topic, value, on_delivery=on_delivery)
                except BufferError:
                    produce_later(producer, topic, value, on_delivery=on_delivery)
            producer.poll(0)

    return run(args, send_all)


def produce_unserved(args: Arguments) -> dict[str, float]:
    """Serve no report before the last record is produced, so the CPU's caches are cold."""
    topic, values = args.topic, args.values()

    def send_all(producer: Any, messages: int, on_delivery: Any) -> None:
        for _ in range(messages // CHUNK):
            for value in values:
                producer.produce(topic, value, on_delivery=on_delivery)

    return run(args, send_all)


def produce_headers(args: Arguments) -> dict[str, float]:
    """With a key, two headers and ``on_delivery``."""
    topic = args.topic
    records = list(zip(args.values(), keys(), header_pairs(), strict=True))

    def send_all(producer: Any, messages: int, on_delivery: Any) -> None:
        for _ in range(messages // CHUNK):
            for value, key, headers in records:
                try:
                    producer.produce(topic, value, key, headers=headers, on_delivery=on_delivery)
                except BufferError:
                    produce_later(
                        producer, topic, value, key, headers=headers, on_delivery=on_delivery
                    )
            producer.poll(0)

    return run(args, send_all)


def produce_batch(args: Arguments) -> dict[str, float]:
    """``produce_batch(on_delivery=)``. Its dicts exist before the section, like other inputs."""
    topic = args.topic
    records = [{"value": value} for value in args.values()]

    def send_all(producer: Any, messages: int, on_delivery: Any) -> None:
        for _ in range(messages // CHUNK):
            batch = records
            while True:
                taken = producer.produce_batch(topic, batch, on_delivery=on_delivery)
                if taken == len(batch):
                    break
                # A full queue refuses the remaining records and marks them.
                batch = [record for record in batch if record.pop("_error", None) is not None]
                producer.poll(0.1)
            producer.poll(0)

    return run(args, send_all)


def produce_arrow(args: Arguments) -> dict[str, float]:
    """The code without an Arrow API: produce a column's values one by one as Python objects."""
    import pyarrow as pa

    topic = args.topic
    batch = pa.record_batch({"value": pa.array(args.values(), pa.binary())})

    def send_all(producer: Any, messages: int, on_delivery: Any) -> None:
        for _ in range(messages // CHUNK):
            for value in batch["value"].to_pylist():
                try:
                    producer.produce(topic, value, on_delivery=on_delivery)
                except BufferError:
                    produce_later(producer, topic, value, on_delivery=on_delivery)
            producer.poll(0)

    return run(args, send_all)


# --- one at a time ------------------------------------------------------------------------


def flush_each(args: Arguments) -> dict[str, float]:
    producer = args.client.Producer(args.config)
    topic = args.topic

    def exchange(value: bytes) -> None:
        producer.produce(topic, value)
        producer.flush()

    return time_each(args, exchange)


def flush_each_on_delivery(args: Arguments) -> dict[str, float]:
    deliveries = Deliveries(args.client)
    on_delivery = deliveries.callback()
    producer = args.client.Producer(args.config)
    topic = args.topic

    def exchange(value: bytes) -> None:
        producer.produce(topic, value, on_delivery=on_delivery)
        producer.flush()

    result = time_each(args, exchange)
    check("delivery reports", deliveries.count, result["produced"])
    return result


def open_reader(args: Arguments) -> Any:
    """Yield a consumer at the end of the topic's only partition."""
    client = args.client
    consumer = client.Consumer(args.config)
    partition = client.TopicPartition(args.topic, 0)
    partition.offset = consumer.get_watermark_offsets(partition, timeout=TIMEOUT)[1]
    consumer.assign([partition])
    return consumer


def read_one(consumer: Any, value: bytes) -> None:
    message = consumer.poll(TIMEOUT)
    check("a record", None if message is None else message.value(), value)


def end_to_end(args: Arguments) -> dict[str, float]:
    consumer = open_reader(args)
    producer = args.client.Producer(args.config)
    read = partial(read_one, consumer)
    topic = args.topic

    def exchange(value: bytes) -> None:
        producer.produce(topic, value)
        read(value)
        producer.poll(0)

    result = time_each(args, exchange)
    producer.flush()
    consumer.close()
    return result
