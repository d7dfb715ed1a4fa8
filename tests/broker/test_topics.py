"""Topics that are created, grow, are deleted and recreated while clients use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fixture_types import Fill, MakeConsumer, MakeProducer, Read, Unique, WaitUntil
from machine import WAIT_S

# How often clients refresh their metadata. The default is every five minutes.
REFRESH = {"topic.metadata.refresh.interval.ms": 100, "metadata.max.age.ms": 1000}


def partitions_of(consumer: Any) -> set[tuple[str, int]]:
    return {(partition.topic, partition.partition) for partition in consumer.assignment()}


def test_error_cb_gets_the_deletion_of_a_topic_being_read(
    make_consumer: MakeConsumer,
    kafka: Any,
    topic: str,
    fill: Fill,
    delete_topic: Callable[[str], None],
    wait_until: WaitUntil,
) -> None:
    fill(topic, 3)
    # A new topic may be missing from metadata for a while: this long until that is an error.
    errors: list[Any] = []
    consumer = make_consumer(
        {**REFRESH, "topic.metadata.propagation.max.ms": 200, "error_cb": errors.append}
    )
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    assert [m.offset() for m in consumer.consume(3, WAIT_S)] == [0, 1, 2]

    delete_topic(topic)

    wait_until(
        lambda: kafka.KafkaError.UNKNOWN_TOPIC_OR_PART in {error.code() for error in errors},
        lambda: consumer.poll(0.1),
    )
    assert all(topic in error.str() for error in errors)
    assert not any(error.fatal() for error in errors)


def test_subscription_to_a_missing_topic_is_an_error_message(
    make_consumer: MakeConsumer, kafka: Any, unique: Unique
) -> None:
    name = unique("missing")
    consumer = make_consumer(REFRESH)

    consumer.subscribe([name])

    message = consumer.poll(WAIT_S)
    assert message.error() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert message.topic() == name


def test_subscribed_topic_is_read_once_it_appears(
    make_consumer: MakeConsumer,
    kafka: Any,
    cluster: Any,
    unique: Unique,
    fill: Fill,
    wait_until: WaitUntil,
) -> None:
    name = unique("later")
    consumer = make_consumer(REFRESH)
    consumer.subscribe([name])
    consumer.poll(0.3)

    cluster.create_topic(name, 1)
    fill(name, 1)

    values: list[Any] = []
    wait_until(
        lambda: values,
        lambda: values.extend(m.value() for m in consumer.consume(1, 0.2) if not m.error()),
    )
    assert values == [b"0"]


def test_recreated_topic_is_read_from_its_start(
    make_consumer: MakeConsumer,
    make_producer: MakeProducer,
    kafka: Any,
    cluster: Any,
    topic: str,
    fill: Fill,
    delete_topic: Callable[[str], None],
    wait_until: WaitUntil,
) -> None:
    fill(topic, 5)
    consumer = make_consumer({**REFRESH, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert [m.value() for m in consumer.consume(5, WAIT_S)] == [b"0", b"1", b"2", b"3", b"4"]

    delete_topic(topic)
    wait_until(lambda: not consumer.list_topics(topic, WAIT_S).topics[topic].partitions, int)
    cluster.create_topic(topic, 4)
    producer = make_producer()
    for number in range(3):
        producer.produce(topic, f"new-{number}", partition=0)
    assert producer.flush(WAIT_S) == 0

    # The error may name the deletion, or only an offset out of range.
    values: list[Any] = []
    wait_until(
        lambda: b"new-2" in values,
        lambda: values.extend(m.value() for m in consumer.consume(1, 0.2) if not m.error()),
        20,
    )
    assert values == [b"new-0", b"new-1", b"new-2"]


def test_producer_continues_after_its_topic_was_recreated(
    make_producer: MakeProducer,
    kafka: Any,
    cluster: Any,
    topic: str,
    delete_topic: Callable[[str], None],
    wait_until: WaitUntil,
) -> None:
    reports: list[Any] = []
    # Otherwise a metadata refresh of the producer would recreate the topic.
    producer = make_producer({**REFRESH, "allow.auto.create.topics": False})
    producer.produce(topic, b"old", partition=0)
    assert producer.flush(WAIT_S) == 0
    delete_topic(topic)
    wait_until(lambda: topic not in producer.list_topics(timeout=WAIT_S).topics, int)
    cluster.create_topic(topic, 4)

    producer.produce(
        topic, b"new", partition=0, on_delivery=lambda e, m: reports.append((e, m.offset()))
    )

    assert producer.flush(WAIT_S) == 0
    assert reports == [(None, 0)]


def test_producer_finds_partitions_that_were_added(
    make_producer: MakeProducer,
    topic: str,
    add_partitions: Callable[[str, int], None],
    wait_until: WaitUntil,
) -> None:
    used: set[int] = set()
    producer = make_producer(
        {**REFRESH, "partitioner": "random", "sticky.partitioning.linger.ms": 0}
    )

    def produce() -> None:
        producer.produce(topic, on_delivery=lambda error, m: used.add(m.partition()))
        assert producer.flush(WAIT_S) == 0

    wait_until(lambda: used == {0, 1, 2, 3}, produce)
    add_partitions(topic, 6)

    wait_until(lambda: used == {0, 1, 2, 3, 4, 5}, produce)


def test_member_is_given_partitions_that_were_added(
    make_consumer: MakeConsumer,
    topic: str,
    add_partitions: Callable[[str, int], None],
    fill: Fill,
    wait_until: WaitUntil,
    read: Read,
) -> None:
    consumer = make_consumer({**REFRESH, "group.protocol": "classic"})
    consumer.subscribe([topic])
    wait_until(lambda: len(consumer.assignment()) == 4, lambda: consumer.poll(0.1))

    add_partitions(topic, 6)
    wait_until(lambda: len(consumer.assignment()) == 6, lambda: consumer.poll(0.1))

    fill(topic, 3, partition=5)
    assert [(m.partition(), m.value()) for m in read(consumer, 3)] == [
        (5, b"0"),
        (5, b"1"),
        (5, b"2"),
    ]


def test_no_record_is_lost_when_partitions_are_added_meanwhile(
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    add_partitions: Callable[[str, int], None],
    wait_until: WaitUntil,
    read: Read,
) -> None:
    # The consumer also reads records from before the assignment of a new partition. The group has
    # no offset there, and the reset is to the earliest.
    consumer = make_consumer({**REFRESH, "enable.auto.commit": True})
    consumer.subscribe([topic])
    producer = make_producer({**REFRESH, "partitioner": "random"})
    sent: list[bytes] = []
    messages: list[Any] = []

    def work() -> None:
        for _ in range(20):
            sent.append(str(len(sent)).encode())
            producer.produce(topic, sent[-1])
        assert producer.flush(WAIT_S) == 0
        messages.extend(consumer.consume(100, 0.05))

    def partitions() -> int:
        return len({message.partition() for message in messages})

    wait_until(lambda: partitions() == 4, work)
    add_partitions(topic, 8)
    wait_until(lambda: partitions() == 8, work, 20)
    messages += read(consumer, len(sent) - len(messages))

    assert sorted(m.value() for m in messages) == sorted(sent)


def test_pattern_subscription_adds_new_topics(
    make_consumer: MakeConsumer,
    cluster: Any,
    unique: Unique,
    fill: Fill,
    wait_until: WaitUntil,
    read: Read,
) -> None:
    prefix, other = unique("pattern"), unique("other")
    first, second = f"{prefix}.a", f"{prefix}.b"
    cluster.create_topic(first, 1)
    cluster.create_topic(other, 1)
    consumer = make_consumer(REFRESH)
    consumer.subscribe([f"^{prefix}\\..*"])
    wait_until(lambda: partitions_of(consumer) == {(first, 0)}, lambda: consumer.poll(0.1))

    cluster.create_topic(second, 2)

    wait_until(
        lambda: partitions_of(consumer) == {(first, 0), (second, 0), (second, 1)},
        lambda: consumer.poll(0.1),
    )
    fill(other, 1)
    fill(second, 2)
    assert {(m.topic(), m.value()) for m in read(consumer, 2)} == {(second, b"0"), (second, b"1")}


def test_pattern_subscription_drops_deleted_topics(
    make_consumer: MakeConsumer,
    cluster: Any,
    unique: Unique,
    delete_topic: Callable[[str], None],
    wait_until: WaitUntil,
) -> None:
    prefix = unique("pattern")
    topics = [f"{prefix}.a", f"{prefix}.b"]
    for name in topics:
        cluster.create_topic(name, 1)
    consumer = make_consumer(REFRESH)
    consumer.subscribe([f"^{prefix}\\..*"])
    wait_until(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(0.1))

    delete_topic(topics[1])

    wait_until(lambda: partitions_of(consumer) == {(topics[0], 0)}, lambda: consumer.poll(0.1))


def test_consume_gathers_from_many_partitions(
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    cluster: Any,
    unique: Unique,
    read: Read,
) -> None:
    name = unique("wide")
    cluster.create_topic(name, 60)
    producer = make_producer({"linger.ms": 50})
    for number in range(6000):
        producer.produce(name, str(number), partition=number % 60)
    assert producer.flush(WAIT_S) == 0
    consumer = make_consumer({"group.protocol": "consumer"})
    consumer.subscribe([name])

    messages = read(consumer, 6000)

    assert sorted(int(m.value()) for m in messages) == list(range(6000))
    for partition in range(60):
        found = [m.offset() for m in messages if m.partition() == partition]
        assert found == list(range(100))
