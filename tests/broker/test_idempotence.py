"""Idempotent producers: order, and each record once, while their connections break."""

from __future__ import annotations

from typing import Any

import pytest
from machine import WAIT_S
from relay import relay_before

from cykafka import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.ours

RECORDS, CUTS = 20_000, 10


def test_records_keep_their_order_and_are_there_once_when_connections_break(
    cluster: Any, topic: str
) -> None:
    delivered: list[int] = []
    with relay_before(cluster.bootstrap_servers) as relay:
        config = {
            "bootstrap.servers": relay.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 20,
            "reconnect.backoff.ms": 10,
            "retry.backoff.ms": 10,
            "log_level": 0,
        }
        with Producer(config) as producer:

            def note(error: Any, message: Any) -> None:
                assert error is None
                delivered.append(int(message.value()))

            for number in range(RECORDS):
                producer.produce(topic, str(number), partition=0, on_delivery=note)
                if number % (RECORDS // CUTS) == RECORDS // CUTS - 1:
                    before = len(delivered)
                    while len(delivered) == before:  # requests are on their way
                        producer.poll(0.01)
                    relay.cut()
            assert producer.flush(WAIT_S) == 0
    assert delivered == list(range(RECORDS))
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        while len(found) < RECORDS:
            found += [int(message.value()) for message in consumer.consume(RECORDS, WAIT_S)]
        assert found == list(range(RECORDS))
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)[1] == RECORDS
