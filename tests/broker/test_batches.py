"""Batches from a real broker: compression, timestamps, aborted records, rebalances."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S

pytestmark = pytest.mark.ours

COUNT = 20_000


def write(producer: Any, topic: str, values: list[bytes], commit: bool) -> None:
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    # The records leave the queue before the end, because an abort purges queued ones.
    assert producer.flush(WAIT_S) == 0
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_round_trip_with_every_codec(
    kafka: Any, cluster: Any, make_producer: MakeProducer,
    make_consumer: MakeConsumer, unique: Unique, codec: str,
) -> None:  # fmt: skip
    topic = unique("topic")
    cluster.create_topic(topic, 3)
    producer = make_producer({"compression.type": codec, "linger.ms": 20})
    for number in range(COUNT):
        headers = [("number", str(number).encode())] if number % 2 else None
        producer.produce(topic, f"value-{number}", str(number), number % 3, headers=headers,
                         timestamp=1_700_000_000_000 + number, timeout=WAIT_S)  # fmt: skip
    assert producer.flush(WAIT_S) == 0
    consumer = make_consumer()
    consumer.assign([kafka.TopicPartition(topic, number, 0) for number in range(3)])

    batches = []
    for batch in consumer.batches(3000, 1.0):
        batches.append(batch)
        if sum(map(len, batches)) == COUNT:
            break
    consumer.close()

    seen: dict[int, int] = dict.fromkeys(range(3), 0)
    for batch in batches:
        columns = (
            *(batch.keys(), batch.values(), batch.header("number"), batch.timestamps),
            *(batch.partitions, batch.offsets, batch.leader_epochs),
        )
        for row in zip(*columns, strict=True):
            key, value, header, timestamp, partition, offset, epoch = row
            number = int(key)
            assert value == b"value-" + key
            assert header == (key if number % 2 else None)
            assert timestamp == 1_700_000_000_000 + number
            assert (partition, offset) == (number % 3, seen[partition])
            assert epoch >= 0
            seen[partition] += 1


def test_aborted_records_are_in_no_batch(
    kafka: Any, make_producer: MakeProducer, make_consumer: MakeConsumer, topic: str,
    unique: Unique,
) -> None:  # fmt: skip
    producer = make_producer({"transactional.id": unique("transaction")})
    producer.init_transactions(WAIT_S)
    wanted = []
    for number in range(6):
        values = [b"%d-%d" % (number, i) for i in range(50)]
        write(producer, topic, values, commit=number % 2 == 0)
        if number % 2 == 0:
            wanted += values
    consumer = make_consumer({"isolation.level": "read_committed"})
    consumer.assign([kafka.TopicPartition(topic, number, 0) for number in range(2)])

    batch = consumer.consume_batch(len(wanted), WAIT_S)

    assert sorted(batch.values()) == sorted(wanted)
    assert not consumer.consume_batch(1000, 1.0)
    # Each transaction has 25 records and a marker per partition. The position is after them all.
    positions = consumer.position(consumer.assignment())
    assert [position.offset for position in positions] == [6 * 26] * 2
    batch.detach()
    results = consumer.commit(batch, asynchronous=False)
    assert [result.offset for result in results] == [5 * 26 - 1] * 2


def test_commit_of_a_batch_from_a_revoked_partition_does_no_harm(
    kafka: Any, cluster: Any, make_producer: MakeProducer,
    make_consumer: MakeConsumer, unique: Unique,
    wait_until: WaitUntil,
) -> None:  # fmt: skip
    topic, group = unique("topic"), unique("group")
    cluster.create_topic(topic, 2)
    producer = make_producer()
    for number in range(200):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(WAIT_S) == 0
    config = {"group.id": group, "group.protocol": "consumer", "enable.auto.offset.store": False}
    first, second = make_consumer(config), make_consumer(config)
    revoked: list[int] = []
    first.subscribe(
        [topic], on_revoke=lambda _, partitions: revoked.extend(p.partition for p in partitions)
    )
    batch = first.consume_batch(200, WAIT_S)
    assert len(batch) == 200
    stop = threading.Event()
    joined = threading.Event()

    def join() -> None:
        second.subscribe([topic], on_assign=lambda *_: joined.set())
        while not stop.is_set():
            second.consume_batch(10, 0.1)

    thread = threading.Thread(target=join)
    thread.start()
    try:
        wait_until(lambda: revoked and joined.is_set(), lambda: first.consume_batch(10, 0.1),
                   WAIT_S)  # fmt: skip
        # The offset of the kept partition is stored. The revoked partition is skipped.
        first.store_offsets(batch)
        results = first.commit(asynchronous=False)
        assert {(r.partition, r.offset) for r in results} == {(1 - revoked[0], 100)}
        assert sorted(batch.values(), key=int) == [str(n).encode() for n in range(200)]
    finally:
        stop.set()
        thread.join(WAIT_S)
