"""A little application of kafka-python's time, beside brokers that restart."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from cykafka.compat.kafka_python import (
    KafkaClient,
    KafkaConsumer,
    KeyedProducer,
    MultiProcessConsumer,
    Murmur2Partitioner,
    SimpleProducer,
)
from cykafka.compat.kafka_python.common import ConsumerTimeout, KafkaError

# How long the brokers restart, s.
SECONDS = float(os.environ.get("CYKAFKA_TEST_SECONDS", "60"))
WAIT_S = 90


class Orders:
    """Sends numbered orders: by key and acknowledged, and in the background."""

    def __init__(self, client: KafkaClient) -> None:
        self.acknowledged: set[bytes] = set()
        self.stopping = threading.Event()
        self._client = client
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        keyed = KeyedProducer(
            self._client, req_acks=-1, ack_timeout=2000, partitioner=Murmur2Partitioner
        )
        background = SimpleProducer(
            self._client, req_acks=-1, async_=True, batch_send_every_t=0.2, async_stop_timeout=60
        )
        number = 0
        while not self.stopping.wait(0.005):
            value = b"%d" % number
            if number % 2:
                background.send_messages("orders", value)
                self.acknowledged.add(value)
            else:
                self._send(keyed, b"customer %d" % (number % 17), value)
            number += 1
        background.stop()

    def _send(self, producer: KeyedProducer, key: bytes, value: bytes) -> None:
        """As programs did: try again until it is sent."""
        while True:
            try:
                producer.send_messages("orders", key, value)
                self.acknowledged.add(value)
                return
            except KafkaError:
                time.sleep(0.2)


class Billing:
    """Reads with a KafkaConsumer and commits by hand; begins anew after an error."""

    def __init__(self, servers: str, done: Callable[[set[bytes]], bool]) -> None:
        self.seen: Counter[bytes] = Counter()
        self._servers = servers
        self._done = done
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        deadline = time.monotonic() + SECONDS + WAIT_S
        while not self._done(set(self.seen)) and time.monotonic() < deadline:
            consumer = None
            try:
                consumer = KafkaConsumer(
                    "orders",
                    bootstrap_servers=self._servers,
                    group_id="billing",
                    auto_offset_reset="smallest",
                    consumer_timeout_ms=1000,
                )
                self._read(consumer)
            except ConsumerTimeout:
                continue
            except KafkaError:
                time.sleep(0.2)
            finally:
                if consumer is not None:
                    consumer.close()

    def _read(self, consumer: KafkaConsumer) -> None:
        for count, message in enumerate(consumer):
            self.seen[message.value] += 1
            consumer.task_done(message)
            if count % 50 == 49:
                consumer.commit()


class Statistics:
    """Reads with two processes."""

    def __init__(self, client: KafkaClient, done: Callable[[set[bytes]], bool]) -> None:
        self.seen: Counter[bytes] = Counter()
        self.consumer = MultiProcessConsumer(client, "statistics", "orders", num_procs=2)
        self._done = done
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        deadline = time.monotonic() + SECONDS + WAIT_S
        while not self._done(set(self.seen)) and time.monotonic() < deadline:
            try:
                for item in self.consumer.get_messages(100, timeout=1):
                    self.seen[item.message.value] += 1
            except KafkaError:
                continue
        self.consumer.stop()


def test_application_loses_nothing_while_brokers_restart(
    kafka_cluster_factory: Callable[..., Any],
) -> None:
    cluster = kafka_cluster_factory(nodes=3)
    cluster.create_topic("orders", 4, replication_factor=3)
    client = KafkaClient(cluster.bootstrap_servers)
    orders = Orders(client)

    def done(seen: set[bytes]) -> bool:
        return not orders.thread.is_alive() and seen >= orders.acknowledged

    billing = Billing(cluster.bootstrap_servers, done)
    statistics = Statistics(client, done)
    for part in (orders, billing, statistics):
        part.thread.start()
    end = time.monotonic() + SECONDS
    turn = 0
    while time.monotonic() < end:
        node = cluster.nodes[turn % 3]
        node.kill() if turn % 2 else node.stop()
        time.sleep(1)
        node.start()
        statistics.consumer.procs[turn % 2].kill()
        time.sleep(2)
        turn += 1
    orders.stopping.set()
    for part in (orders, billing, statistics):
        part.thread.join(SECONDS + WAIT_S)
        assert not part.thread.is_alive()
    client.close()
    assert len(orders.acknowledged) > 100
    assert orders.acknowledged - set(billing.seen) == set()
    assert orders.acknowledged - set(statistics.seen) == set()
    # A sender that tries again repeats; a reader of its own repeats nothing that it got once.
    repeated = sum(count - 1 for count in statistics.seen.values())
    assert repeated < len(orders.acknowledged) / 2
