"""kafka-python 0.9.5's API on real brokers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Unique

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.ours)


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    """A client of the cluster."""
    from cykafka.compat.kafka_python import KafkaClient

    client = KafkaClient(cluster.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def group(unique: Unique) -> str:
    """A group that nobody used."""
    return unique("group")


@pytest.fixture
def send(client: Any, topic: str) -> Callable[..., list[bytes]]:
    """Send numbers to a partition of the topic, and return the messages."""
    from cykafka.compat.kafka_python import create_message
    from cykafka.compat.kafka_python.common import ProduceRequest

    def send(partition: int, numbers: Any) -> list[bytes]:
        messages = [b"%d" % number for number in numbers]
        request = ProduceRequest(topic.encode(), partition, [create_message(m) for m in messages])
        (response,) = client.send_produce_request([request])
        assert response.error == 0
        return messages

    return send


@pytest.fixture
def make_consumer(client: Any, topic: str) -> Iterator[Callable[..., Any]]:
    """Make consumers of the topic, SimpleConsumers by default, and stop them at the end."""
    from cykafka.compat.kafka_python import SimpleConsumer

    with contextlib.ExitStack() as stack:

        def make(kind: Any = SimpleConsumer, group: str | None = None, **options: Any) -> Any:
            consumer = kind(client, group, topic, **options)
            stack.callback(consumer.stop)
            return consumer

        yield make


@pytest.fixture
def values() -> Callable[[Any], list[bytes]]:
    """The values of OffsetAndMessages, or of KafkaMessages."""

    def values(messages: Any) -> list[bytes]:
        return [getattr(message, "message", message).value for message in messages]

    return values


@pytest.fixture
def read_records(
    cluster: Any, topic: str, read: Callable[..., list[Any]]
) -> Callable[[int], list[Any]]:
    """Read that many records of the topic with a Consumer."""
    import cykafka

    def read_records(count: int) -> list[Any]:
        config = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "any",
            "auto.offset.reset": "earliest",
        }
        with cykafka.Consumer(config) as consumer:
            consumer.assign([cykafka.TopicPartition(topic, number, 0) for number in range(4)])
            return read(consumer, count)

    return read_records
