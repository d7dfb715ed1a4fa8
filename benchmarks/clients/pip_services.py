"""A queue of pip_services4_kafka: ours and the published package run the same lines.

Only ours has ``send_batch()``; the published package sends the same envelopes one by one.
"""

from __future__ import annotations

import sys
import threading
import uuid
from contextlib import suppress
from typing import Any

from pip_services4_commons.errors import InvalidStateException
from pip_services4_components.config import ConfigParams
from pip_services4_messaging.queues import IMessageReceiver, MessageEnvelope

from clients._section import (
    CHUNK,
    TIMEOUT,
    WARM_ROUNDS,
    Arguments,
    Section,
    check,
    keys,
    time_each,
    types,
)
from pip_services4_kafka.queues import KafkaMessageQueue


def open_queue(args: Arguments, topic: str, *, own_group: bool = True) -> Any:
    """A queue that reads the topic from its beginning, in a new group."""
    is_ours = args.client.__name__ == "cykafka"
    check("pip_services4_kafka on cykafka", "cykafka" in sys.modules, is_ours)
    properties = dict(args.config)
    servers = properties.pop("bootstrap.servers")
    config = {
        "topic": topic,
        "group_id": f"bench-{uuid.uuid4()}",
        "from_beginning": True,
        "connection.uri": f"kafka://{servers}",
        "options.connect_timeout": int(TIMEOUT * 1000),
    }
    # The queue sets its own group and commits. The published package ignores options.kafka.
    for name in properties.keys() - {"group.id", "enable.auto.commit"}:
        config[f"options.kafka.{name}"] = properties[name]
    queue = KafkaMessageQueue()
    queue.configure(ConfigParams(config))
    queue.open(None)
    return queue


def envelopes(args: Arguments) -> list[Any]:
    """CHUNK envelopes, as records with a key and two headers."""
    made = []
    for value, key, kind in zip(args.values(), keys(), types(), strict=True):
        envelope = MessageEnvelope(None, kind.decode(), None)
        envelope.message = value
        envelope.message_id = envelope.trace_id = key.decode()
        made.append(envelope)
    return made


def close(queue: Any) -> None:
    """Close the queue. Ignores the published package's failure to unsubscribe.

    That package closes its connection first.
    """
    with suppress(InvalidStateException):
        queue.close(None)


# --- sending ------------------------------------------------------------------------------


def send_batch(args: Arguments) -> dict[str, float]:
    """``send_batch()`` of CHUNK envelopes, which returns when all are stored."""
    queue, batch = open_queue(args, args.topic), envelopes(args)
    queue.send_batch(None, batch)
    section = Section()
    for _ in range(args.messages // CHUNK):
        queue.send_batch(None, batch)
    result = section.report(args.messages, CHUNK + args.messages)
    close(queue)
    return result


def send_all(args: Arguments) -> dict[str, float]:
    """``send()`` of each envelope."""
    queue, batch = open_queue(args, args.topic), envelopes(args)
    for envelope in batch[:WARM_ROUNDS]:
        queue.send(None, envelope)
    section = Section()
    for _ in range(args.messages // CHUNK):
        for envelope in batch:
            queue.send(None, envelope)
    return section.report(args.messages, WARM_ROUNDS + args.messages)


def send(args: Arguments) -> dict[str, float]:
    """Time each ``send()``."""
    queue = open_queue(args, args.topic)
    return time_each(args, lambda envelope: queue.send(None, envelope), envelopes(args))


# --- receiving ----------------------------------------------------------------------------


class Receiver(IMessageReceiver):
    """A receiver that reads each body and sets an event after the last message."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.body = b""
        self.done = threading.Event()

    def receive_message(self, envelope: Any, queue: Any) -> None:
        self.body = envelope.message
        self.left -= 1
        if not self.left:
            self.done.set()


def read_all(args: Arguments, topic: str, messages: int) -> tuple[Any, Receiver]:
    queue, receiver = open_queue(args, topic), Receiver(messages)
    queue.begin_listen(None, receiver)
    receiver.done.wait()
    return queue, receiver


def listen(args: Arguments) -> dict[str, float]:
    """Open the queue and ``begin_listen()`` until all messages have come."""
    queue, _ = read_all(args, f"{args.topic}-warm", CHUNK)
    close(queue)
    section = Section()
    queue, receiver = read_all(args, args.topic, args.messages)
    result = section.report(args.messages)
    check("bytes of the last value", len(receiver.body), args.value_size)
    close(queue)
    check("records left", receiver.left, 0)
    return result


def receive(args: Arguments) -> dict[str, float]:
    """Produce a record with a plain producer without waiting, then ``receive()`` it."""
    queue = open_queue(args, args.topic)
    config = {key: args.config[key] for key in ("bootstrap.servers", "linger.ms")}
    producer = args.client.Producer(config)
    topic = args.topic
    # The published package cannot read a record without key or headers.
    rest = {"key": b"id", "headers": {"message_type": b"type", "trace_id": b"trace"}}

    def exchange(value: bytes) -> None:
        producer.produce(topic, value, **rest)
        envelope = queue.receive(None, TIMEOUT * 1000)
        check("a message", None if envelope is None else envelope.message, value)
        producer.poll(0)

    result = time_each(args, exchange)
    producer.flush()
    close(queue)
    return result
