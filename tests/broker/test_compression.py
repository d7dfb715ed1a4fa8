"""Compression: records of every codec round-trip, and the broker stores that codec."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from fixture_types import MakeProducer, Read, Unique, WaitUntil
from machine import WAIT_S

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]  # a batch names its codec by this position
VALUES = [b'{"sensor": "temperature", "unit": "celsius", "value": %d}' % n for n in range(1000)]

# flush() sends the gathered records. If compression makes a small batch no smaller, librdkafka
# sends the batch uncompressed.
LINGER_MS = 60_000

FETCH = 1


class Batch(NamedTuple):
    """A record batch as the broker stores it."""

    magic: int
    codec: str
    size: int


def stored_batches(address: str, topic: str) -> list[Batch]:
    """Fetch the stored batches of a topic's partition 0 with a handwritten request."""
    name = topic.encode()
    # Fetch, version 4: replica, wait in ms, minimum and maximum bytes, isolation level. Then
    # the topics, each with its partitions, and for each partition offset and maximum bytes.
    request = struct.pack("!hhihiiiibi", FETCH, 4, 1, -1, -1, 1000, 1, 1 << 24, 0, 1)
    request += struct.pack(f"!h{len(name)}siiqi", len(name), name, 1, 0, 0, 1 << 24)
    host, port = address.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), WAIT_S) as connection:
        connection.sendall(struct.pack("!i", len(request)) + request)
        stream = connection.makefile("rb")
        (length,) = struct.unpack("!i", stream.read(4))
        response = stream.read(length)
    # Correlation id, throttle time, one topic, its name, one partition, its number ...
    at = 4 + 4 + 4 + 2 + len(name) + 4 + 4
    error, _, _, aborted = struct.unpack_from("!hqqi", response, at)
    assert (error, aborted) == (0, -1)
    at += 2 + 8 + 8 + 4
    (left,) = struct.unpack_from("!i", response, at)
    records = response[at + 4 : at + 4 + left]
    batches = []
    while records:
        (size,) = struct.unpack_from("!i", records, 8)
        magic, attributes = records[16], struct.unpack_from("!h", records, 21)[0]
        batches.append(Batch(magic, CODECS[attributes & 7], 12 + size))
        records = records[12 + size :]
    return batches


@pytest.fixture
def topic(cluster: Any, unique: Unique) -> str:
    """A fresh topic of one partition."""
    name = unique("topic")
    cluster.create_topic(name, 1)
    return name


@pytest.fixture
def write(make_producer: MakeProducer, cluster: Any, topic: str) -> Callable[..., list[Batch]]:
    """Produce the values in one batch if it can hold them; return the stored batches."""

    def write(config: dict[str, Any], name: str = topic) -> list[Batch]:
        producer = make_producer({"linger.ms": LINGER_MS, **config})
        producer.list_topics(name, WAIT_S)  # else the partition gets the records one by one
        for value in VALUES:
            producer.produce(name, value, partition=0)
        assert producer.flush(WAIT_S) == 0
        return stored_batches(cluster.bootstrap_servers, name)

    return write


def values_of(consumer: Any, kafka: Any, topic: str, read: Read) -> list[bytes]:
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    return [message.value() for message in read(consumer, len(VALUES))]


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        ("none", -1),
        ("gzip", -1),
        ("gzip", 1),
        ("gzip", 9),
        ("snappy", -1),
        ("lz4", -1),
        ("lz4", 12),
        ("zstd", -1),
        ("zstd", 1),
        ("zstd", 12),
    ],
)
def test_codec_is_stored_and_records_round_trip(
    write: Callable[..., list[Batch]],
    consumer: Any,
    kafka: Any,
    topic: str,
    read: Read,
    codec: str,
    level: int,
) -> None:
    batches = write({"compression.type": codec, "compression.level": level})

    assert {(batch.magic, batch.codec) for batch in batches} == {(2, codec)}
    stored, given = sum(batch.size for batch in batches), sum(map(len, VALUES))
    assert stored > given if codec == "none" else stored < given / 3
    assert values_of(consumer, kafka, topic, read) == VALUES


def test_higher_level_compresses_more(
    write: Callable[..., list[Batch]], cluster: Any, unique: Unique
) -> None:
    sizes = []
    for level in (1, 9):
        name = unique("level")
        cluster.create_topic(name, 1)
        batches = write({"compression.type": "gzip", "compression.level": level}, name)
        sizes.append(sum(batch.size for batch in batches))

    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_compressed_by_the_broker_are_read(
    write: Callable[..., list[Batch]],
    consumer: Any,
    kafka: Any,
    cluster: Any,
    unique: Unique,
    read: Read,
    codec: str,
) -> None:
    name = unique("recompressed")
    kind = {"none": "uncompressed"}.get(codec, codec)
    cluster.create_topic(name, 1, config={"compression.type": kind})

    batches = write({"compression.type": "none" if codec != "none" else "gzip"}, name)

    assert {batch.codec for batch in batches} == {codec}
    assert values_of(consumer, kafka, name, read) == VALUES


def test_statistics_count_the_bytes_that_were_saved(
    make_producer: MakeProducer, topic: str, wait_until: WaitUntil
) -> None:
    statistics: list[dict[str, Any]] = []
    producer = make_producer(
        {
            "compression.type": "zstd",
            "linger.ms": LINGER_MS,
            "statistics.interval.ms": 50,
            "stats_cb": lambda text: statistics.append(json.loads(text)),
        }
    )
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0
    statistics.clear()

    wait_until(lambda: statistics, lambda: producer.poll(0.1))

    assert statistics[0]["txmsg_bytes"] == sum(map(len, VALUES))
    assert statistics[0]["tx_bytes"] < sum(map(len, VALUES)) / 3
