"""Statistics of real clients of real brokers: as objects, and as metrics."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cykafka import stats
from cykafka.stats.prometheus import StatisticsCollector

OFTEN = {"statistics.interval.ms": 50}
# librdkafka keeps the misspelled name of one field beside the right one; two others are unused.
NOT_OURS = {"commited_offset", "simple_cnt", "buf_grow"}  # codespell:ignore commited


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def collector(registry: CollectorRegistry) -> StatisticsCollector:
    return StatisticsCollector(registry=registry, partitions=True)


@pytest.fixture
def value(registry: CollectorRegistry) -> Callable[..., float]:
    """The sum of the series of a metric that have these labels."""

    def value(name: str, **labels: str) -> float:
        return sum(
            sample.value
            for family in text_string_to_metric_families(generate_latest(registry).decode())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    return value


def fields_of(value: Any, kind: Any) -> Iterator[tuple[str, str]]:
    """The fields of the JSON, with the name of the class that describes them."""
    if typing.get_origin(kind) is dict:
        for item in value.values():
            yield from fields_of(item, typing.get_args(kind)[1])
        return
    for described in typing.get_args(kind) or (kind,):  # X, or X | None
        if isinstance(described, type) and issubclass(described, msgspec.Struct):
            types = {field.encode_name: field.type for field in msgspec.structs.fields(described)}
            for name, item in value.items():
                yield described.__name__, name
                yield from fields_of(item, types.get(name))


def test_model_has_every_field_of_librdkafka(
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    wait_until: WaitUntil,
) -> None:
    texts: list[str] = []
    config = {**OFTEN, "stats_cb": texts.append}
    producer = make_transactional(**config)
    producer.init_transactions(WAIT_S)
    with producer.transaction():
        producer.produce(topic, "x")
    consumer = make_consumer(config)
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1))
    texts.clear()
    wait_until(lambda: texts, lambda: consumer.poll(0.05))
    of_consumer = len(texts)
    wait_until(lambda: len(texts) > of_consumer, lambda: producer.poll(0.05))

    found = {item for text in texts for item in fields_of(json.loads(text), stats.Statistics)}
    known = {
        (name, field.encode_name)
        for name in stats.__all__
        if name != "parse"
        for field in msgspec.structs.fields(getattr(stats, name))
    }

    assert {field for field in found - known if field[1] not in NOT_OURS} == set()
    fatal = {item for item in known if item[0] == "FatalError"} | {("Statistics", "fatal")}
    assert known - found == fatal


def test_metrics_count_the_records_of_producer_and_consumer(
    collector: StatisticsCollector,
    value: Callable[..., float],
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    wait_until: WaitUntil,
    unique: Unique,
) -> None:
    group = unique("group")
    producer = make_producer(collector.instrument({**OFTEN, "client.id": "orders"}))
    delivery = producer.publish(topic, [b"x" * 100] * 1000, partitions=1)
    delivery.wait(WAIT_S)
    sent = {"topic": topic, "client_id": "orders", "type": "producer", "group": ""}
    wait_until(
        lambda: value("cykafka_topic_sent_records_total", **sent) == 1000,
        lambda: producer.poll(0.05),
    )
    assert value("cykafka_topic_sent_bytes_total", **sent) >= 100_000
    assert value("cykafka_partition_sent_records_total", partition="1", **sent) == 1000
    assert value("cykafka_partition_sent_records_total", partition="0", **sent) == 0
    assert value("cykafka_topic_batch_records_sum", **sent) == 1000
    assert value("cykafka_broker_rtt_seconds_count", client_id="orders") > 0
    assert 0 < value("cykafka_broker_rtt_seconds_sum", client_id="orders") < WAIT_S
    assert value("cykafka_broker_up", client_id="orders") >= 1

    consumer = make_consumer(collector.instrument({**OFTEN, "group.id": group}))
    consumer.subscribe([topic])
    read: list[Any] = []
    wait_until(lambda: len(read) >= 600, lambda: read.extend(consumer.consume(600, 0.1)))
    consumer.commit(offsets=[_after(read[399])], asynchronous=False)
    received = {"topic": topic, "group": group, "type": "consumer"}

    def serve() -> None:  # callbacks run, records do not come
        consumer.pause(consumer.assignment())
        consumer.poll(0.05)

    wait_until(lambda: value("cykafka_topic_lag_records", **received) == 600, serve)
    assert value("cykafka_topic_stored_lag_records", **received) == 1000 - len(read)
    assert value("cykafka_partition_committed_offset", partition="1", **received) == 400
    assert value("cykafka_partition_high_watermark", partition="1", **received) == 1000
    assert value("cykafka_topic_received_records_total", **received) == 1000
    assert value("cykafka_group_rebalances_total", group=group) >= 1
    assert value("cykafka_group_assigned_partitions", group=group) == 4


def _after(message: Any) -> Any:
    from cykafka import TopicPartition

    return TopicPartition(message.topic(), message.partition(), message.offset() + 1)


def test_client_id_may_have_quotation_marks(
    collector: StatisticsCollector,
    value: Callable[..., float],
    make_producer: MakeProducer,
    wait_until: WaitUntil,
) -> None:
    name = 'DOMAIN\\user "a"'
    producer = make_producer(collector.instrument({**OFTEN, "client.id": name}))
    wait_until(
        lambda: value("cykafka_queue_limit_records", client_id=name), lambda: producer.poll(0.05)
    )

    assert value("cykafka_unreadable_statistics_total") == 0


def test_metrics_follow_a_transaction(
    collector: StatisticsCollector,
    value: Callable[..., float],
    make_transactional: MakeProducer,
    topic: str,
    wait_until: WaitUntil,
) -> None:
    producer = make_transactional(**collector.instrument(OFTEN))
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, "x")
    state = "cykafka_transaction_state"
    wait_until(lambda: value(state, state="InTransaction") == 1, lambda: producer.poll(0.05))
    producer.commit_transaction(WAIT_S)
    wait_until(lambda: value(state, state="Ready") == 1, lambda: producer.poll(0.05))

    assert value("cykafka_producer_id_assignments_total") == 1


def test_series_of_a_closed_client_vanish(
    registry: CollectorRegistry,
    value: Callable[..., float],
    make_producer: MakeProducer,
    wait_until: WaitUntil,
) -> None:
    collector = StatisticsCollector(registry=registry, stale_after=0.5)
    producer = make_producer(collector.instrument(OFTEN))
    limit = "cykafka_queue_limit_records"
    wait_until(lambda: value(limit) > 0, lambda: producer.poll(0.05))

    producer.close()

    wait_until(lambda: value(limit) == 0)
