"""The examples of confluent_kafka's documentation, as our own programs.

Each test shows one documented way to use the client, from the oldest documentation (0.9, 0.11) to
the newest, in the style of an application.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from fixture_types import Fill, Unique, WaitUntil
from machine import WAIT_S


@pytest.fixture
def servers(cluster: Any) -> str:
    address: str = cluster.bootstrap_servers
    return address


@pytest.fixture
def base(servers: str, unique: Unique) -> dict[str, Any]:
    """The configuration of a consumer that joins its group without delay."""
    return {
        "bootstrap.servers": servers,
        "group.id": unique("group"),
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 20,
    }


def test_producer_loop_serves_reports_while_it_produces(
    kafka: Any, servers: str, topic: str
) -> None:
    lines: list[str] = []

    def report(error: Any, message: Any) -> None:
        if error is not None:
            lines.append(f"failed: {error}")
        else:
            lines.append(f"{message.topic()} [{message.partition()}] {message.value().decode()}")

    producer = kafka.Producer({"bootstrap.servers": servers})
    for line in ("one", "two", "three"):
        producer.poll(0)
        producer.produce(topic, line.encode("utf-8"), partition=0, callback=report)
    producer.flush()
    producer.close()

    assert lines == [f"{topic} [0] {word}" for word in ("one", "two", "three")]


def test_producer_retries_after_a_full_queue(kafka: Any, servers: str, topic: str) -> None:
    delivered: list[bytes] = []
    producer = kafka.Producer(
        {"bootstrap.servers": servers, "queue.buffering.max.messages": 5, "linger.ms": 1}
    )
    for number in range(50):
        while True:
            try:
                producer.produce(
                    topic,
                    str(number),
                    partition=0,
                    on_delivery=lambda error, message: delivered.append(message.value()),
                )
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(WAIT_S) == 0
    producer.close()

    assert delivered == [str(number).encode() for number in range(50)]


def test_producer_callback_keeps_its_state(kafka: Any, servers: str, topic: str) -> None:
    acknowledged: dict[int, int] = {}
    with kafka.Producer({"bootstrap.servers": servers}) as producer:
        for number in range(3):
            producer.produce(
                topic,
                key=str(number),
                value="x",
                partition=0,
                on_delivery=lambda error, message, number=number: acknowledged.update(
                    {number: message.offset()}
                ),
            )

    assert acknowledged == {0: 0, 1: 1, 2: 2}


def test_consumer_loop_distinguishes_errors_from_messages(
    kafka: Any, base: dict[str, Any], topic: str, fill: Fill
) -> None:
    fill(topic, 3)
    values: list[str] = []
    ends: set[int] = set()
    consumer = kafka.Consumer({**base, "enable.partition.eof": True})
    try:
        consumer.subscribe([topic])
        while len(ends) < 4:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                if message.error().code() != kafka.KafkaError._PARTITION_EOF:
                    raise kafka.KafkaException(message.error())
                ends.add(message.partition())
            else:
                values.append(message.value().decode("utf-8"))
    finally:
        consumer.close()

    assert values == ["0", "1", "2"]


def test_consumer_commits_every_few_messages(
    kafka: Any, base: dict[str, Any], topic: str, fill: Fill
) -> None:
    fill(topic, 12)
    commits: list[tuple[Any, list[Any]]] = []
    consumer = kafka.Consumer(
        {
            **base,
            "enable.auto.commit": False,
            "on_commit": lambda error, partitions: commits.append((error, partitions)),
        }
    )
    consumer.subscribe([topic])
    count = 0
    while count < 12:
        message = consumer.poll(WAIT_S)
        assert message.error() is None
        count += 1
        if count % 5 == 0:
            consumer.commit(asynchronous=True)
    (last,) = [p for p in consumer.commit(asynchronous=False) if p.partition == 0]
    consumer.poll(0.1)
    consumer.close()

    assert [error for error, _ in commits] == [None, None]
    # A commit may include messages that were read after its call. The last one has all of them.
    offsets = [p.offset for _, partitions in commits for p in partitions if p.partition == 0]
    assert offsets[-1] >= 10
    assert last.offset == 12


def test_consumer_stores_offsets_after_processing(
    kafka: Any, base: dict[str, Any], topic: str, fill: Fill
) -> None:
    fill(topic, 4)
    config = {**base, "enable.auto.offset.store": False, "enable.auto.commit": True}
    with kafka.Consumer(config) as consumer:
        consumer.subscribe([topic])
        for _ in range(3):
            message = consumer.poll(WAIT_S)
        consumer.store_offsets(message)
        consumer.poll(WAIT_S)  # read, but not processed

    with kafka.Consumer(config) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(WAIT_S).value() == b"3"


def test_consumer_prints_assignment_statistics_and_logs(
    kafka: Any,
    base: dict[str, Any],
    topic: str,
    fill: Fill,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(topic, 1)
    logger = logging.getLogger("consumer-example")
    assignments: list[list[Any]] = []
    statistics: list[dict[str, Any]] = []
    values: list[bytes] = []
    config = {
        **base,
        "statistics.interval.ms": 50,
        "stats_cb": lambda text: statistics.append(json.loads(text)),
        "debug": "cgrp",
    }

    def read(consumer: Any) -> None:
        message = consumer.poll(timeout=0.1)
        if message is not None:
            values.append(message.value())

    with caplog.at_level(logging.DEBUG, logger="consumer-example"):
        consumer = kafka.Consumer(config, logger=logger)
        consumer.subscribe([topic], on_assign=lambda _, partitions: assignments.append(partitions))
        wait_until(
            lambda: values and any(topic in report["topics"] for report in statistics),
            lambda: read(consumer),
        )
        consumer.close()

    assert [len(partitions) for partitions in assignments] == [4]
    assert values == [b"0"]
    assert any(record.name == "consumer-example" for record in caplog.records)


def test_read_process_write_in_transactions(
    kafka: Any,
    servers: str,
    base: dict[str, Any],
    cluster: Any,
    topic: str,
    unique: Unique,
    fill: Fill,
) -> None:
    fill(topic, 6)
    target = unique("target")
    cluster.create_topic(target, 4)
    consumer = kafka.Consumer({**base, "enable.auto.commit": False})
    producer = kafka.Producer({"bootstrap.servers": servers, "transactional.id": unique("eos")})
    producer.init_transactions()
    consumer.subscribe([topic])
    producer.begin_transaction()
    done = 0
    while done < 6:
        producer.poll(0)
        message = consumer.poll(1.0)
        if message is None:
            continue
        producer.produce(target, message.value() + b"!", message.key(), partition=0)
        done += 1
        if done % 3 == 0:
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
            )
            producer.commit_transaction()
            producer.begin_transaction()
    producer.abort_transaction()
    producer.close()
    consumer.close()

    with kafka.Consumer(base) as reader:
        reader.assign([kafka.TopicPartition(target, 0)])
        assert [reader.poll(WAIT_S).value() for _ in range(6)] == [
            f"{number}!".encode() for number in range(6)
        ]


def test_failed_transaction_is_handled_by_the_errors_flags(
    kafka: Any, servers: str, topic: str, unique: Unique
) -> None:
    producer = kafka.Producer({"bootstrap.servers": servers, "transactional.id": unique("eos")})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"lost")
    producer.purge()
    decisions = []
    while "committed" not in decisions:
        try:
            producer.commit_transaction(WAIT_S)
            decisions.append("committed")
        except kafka.KafkaException as exception:
            error = exception.args[0]
            if error.retriable():
                decisions.append("retry")
            elif error.txn_requires_abort():
                decisions.append("abort")
                producer.abort_transaction(WAIT_S)
                producer.begin_transaction()
            else:
                raise
    producer.close()

    assert decisions == ["abort", "committed"]


def test_metadata_is_listed(kafka: Any, servers: str, topic: str) -> None:
    with kafka.Producer({"bootstrap.servers": servers}) as producer:
        metadata = producer.list_topics(timeout=WAIT_S)

    lines = [f"{len(metadata.brokers)} brokers"]
    lines += [
        f'"{t}" with {len(t.partitions)} partition(s)'
        for t in metadata.topics.values()
        if t.error is None and t.topic == topic
    ]
    lines += [
        f"partition {p.id} leader {p.leader} replicas {list(p.replicas)} isrs {list(p.isrs)}"
        for p in metadata.topics[topic].partitions.values()
        if p.error is None
    ]
    assert lines == [
        "1 brokers",
        f'"{topic}" with 4 partition(s)',
        *[f"partition {number} leader 1 replicas [1] isrs [1]" for number in range(4)],
    ]


def test_lag_is_watermark_minus_position(
    kafka: Any, base: dict[str, Any], topic: str, fill: Fill
) -> None:
    fill(topic, 8)
    with kafka.Consumer({**base, "enable.auto.commit": False}) as consumer:
        partition = kafka.TopicPartition(topic, 0)
        consumer.commit(offsets=[kafka.TopicPartition(topic, 0, 5)], asynchronous=False)
        (committed,) = consumer.committed([partition], timeout=WAIT_S)
        low, high = consumer.get_watermark_offsets(partition, timeout=WAIT_S, cached=False)

    assert (low, high - committed.offset) == (0, 3)


def test_consumer_of_version_0_9(
    kafka: Any, servers: str, topic: str, unique: Unique, fill: Fill
) -> None:
    fill(topic, 2)
    commits: list[tuple[Any, list[Any]]] = []
    config = {
        "bootstrap.servers": servers,
        "group.id": unique("group"),
        "session.timeout.ms": 6000,
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 20,
        "on_commit": lambda error, partitions: commits.append((error, partitions)),
        "default.topic.config": {"auto.offset.reset": "smallest"},
    }
    consumer = kafka.Consumer(**config)
    consumer.subscribe([topic])
    messages = [consumer.poll(timeout=WAIT_S) for _ in range(2)]

    consumer.commit(messages[0], **{"async": False})
    consumer.commit(messages[1], **{"async": True})
    while not commits:
        consumer.poll(0.1)
    consumer.close()

    assert [m.value() for m in messages] == [b"0", b"1"]
    ((error, (partition,)),) = commits
    assert error is None
    assert (partition.topic, partition.offset) == (topic, 2)


def test_producer_of_version_0_9(kafka: Any, servers: str, topic: str) -> None:
    delivered: list[tuple[Any, Any]] = []
    config = {
        "bootstrap.servers": servers,
        "on_delivery": lambda error, message: delivered.append((error, message.value())),
        "default.topic.config": {"acks": "all"},
    }
    producer = kafka.Producer(**config)
    producer.produce(topic, "value", "key")
    while len(producer) > 0:
        producer.poll(0.1)
    producer.close()

    assert delivered == [(None, b"value")]
