"""kafka-python 0.9.5's API on cykafka: ``send_messages()`` and the iteration."""

from __future__ import annotations

from typing import Any

from clients._section import CALL, CHUNK, Arguments, Section, check, time_each


def make_producer(args: Arguments) -> Any:
    from cykafka.compat.kafka_python import KafkaClient, SimpleProducer

    client = KafkaClient(args.config["bootstrap.servers"])
    return SimpleProducer(client, req_acks=-1)  # librdkafka's default


def send_messages(args: Arguments) -> dict[str, float]:
    """500 a call; each call returns when they are stored."""
    topic, values = args.topic.encode(), args.values()
    calls = [values[first : first + CALL] for first in range(0, CHUNK, CALL)]
    producer = make_producer(args)

    def send_all(messages: int) -> None:
        for _ in range(messages // CHUNK):
            for call in calls:
                (response,) = producer.send_messages(topic, *call)
                check("error", response.error, 0)

    send_all(CHUNK)
    section = Section()
    send_all(args.messages)
    result = section.report(args.messages, CHUNK + args.messages)
    producer.client.close()
    return result


def send_one(args: Arguments) -> dict[str, float]:
    producer = make_producer(args)
    topic = args.topic.encode()
    result = time_each(args, lambda value: producer.send_messages(topic, value))
    producer.client.close()
    return result


def iterate(args: Arguments) -> dict[str, float]:
    """``for message in KafkaConsumer``, each value read."""
    from cykafka.compat.kafka_python import KafkaConsumer

    consumer = KafkaConsumer(
        args.topic,
        bootstrap_servers=args.config["bootstrap.servers"],
        auto_offset_reset="smallest",
    )

    def read_all(messages: int) -> int:
        left, size = messages, 0
        for message in consumer:
            size = len(message.value)
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
