"""Consume, transform, produce: the output has every record once despite killed workers."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Read, Unique
from machine import WAIT_S

RECORDS = 2_000
PARTITIONS = 4

# It prints each step of a transaction, so that the test can kill it at any step.
WORKER = """
import json, sys
servers, source, sink, group, protocol, config = sys.argv[1:]
consumer = kafka.Consumer({
    "bootstrap.servers": servers, "group.id": group, "group.protocol": protocol,
    "enable.auto.commit": False, "auto.offset.reset": "earliest", **json.loads(config)})
producer = kafka.Producer({
    "bootstrap.servers": servers, "transactional.id": f"{group}-worker", "linger.ms": 0})
producer.init_transactions(30)
consumer.subscribe([source])
print("ready", flush=True)
while True:
    messages = [m for m in consumer.consume(50, 0.2)]
    if not messages:
        print("idle", flush=True)
        continue
    for m in messages:
        if m.error():
            raise kafka.KafkaException(m.error())
    producer.begin_transaction()
    for m in messages:
        producer.produce(sink, str(2 * int(m.value())), partition=m.partition())
    print("produced", flush=True)
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30)
    print("offsets", flush=True)
    producer.commit_transaction(30)
    print("committed", flush=True)
"""


def read_committed_offsets(kafka: Any, consumer: Any, topic: str) -> int:
    partitions = [kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
    return sum(max(p.offset, 0) for p in consumer.committed(partitions, WAIT_S))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_record_is_transformed_once_across_crashes(
    kafka: Any,
    cluster: Any,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    unique: Unique,
    script_command: Callable[..., list[str]],
    read: Read,
    protocol: str,
) -> None:
    source, sink, group = unique("source"), unique("sink"), unique("group")
    cluster.create_topic(source, PARTITIONS)
    cluster.create_topic(sink, PARTITIONS)
    producer = make_producer()
    for number in range(RECORDS):
        producer.produce(source, str(number), partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    # In a classic group the next worker takes over the place of a static member at once. In a
    # KIP-848 group it waits until the broker misses the heartbeats of the dead one.
    config = {"group.instance.id": "worker"} if protocol == "classic" else {}
    chance = random.Random(protocol)
    # An open transaction with offsets would block a consumer that reads committed offsets.
    watcher = make_consumer({"group.id": group, "isolation.level": "read_uncommitted"})
    kills: Counter[str] = Counter()
    deadline = time.monotonic() + 100

    while read_committed_offsets(kafka, watcher, source) < RECORDS:
        assert time.monotonic() < deadline, f"not done in time; killed after {kills}"
        worker = subprocess.Popen(
            script_command(
                WORKER,
                cluster.bootstrap_servers,
                source,
                sink,
                group,
                protocol,
                json.dumps(config),
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert worker.stdout is not None
            left = chance.randrange(1, 40)
            for line in worker.stdout:
                left -= line != "idle\n"
                done = read_committed_offsets(kafka, watcher, source) >= RECORDS
                if left == 0 or done:
                    kills[line.strip()] += not done
                    break
        finally:
            worker.kill()
            worker.communicate()

    assert len(kills) > 1, "all kills came at the same step"
    result = make_consumer({"isolation.level": "read_committed"})
    result.assign([kafka.TopicPartition(sink, p, 0) for p in range(PARTITIONS)])
    values = Counter(int(message.value()) for message in read(result, RECORDS))
    assert result.consume(1, 0.5) == []
    assert values == Counter(2 * number for number in range(RECORDS))
