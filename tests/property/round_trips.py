"""Batches out and back: generated records, the forms of publish(), and the expected records.

The tests use it on the mock cluster (test_batch_round_trip.py here) and on real Kafka
(tests/broker).
"""

from __future__ import annotations

import array
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import pyarrow as pa
from machine import WAIT_S

import cykafka
from cykafka.testing import MockCluster
from cykafka.testing.kafka import RealCluster

ALPHABET = "abc \u00e9\u4e2d\U0001f600\n"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Headers = list[tuple[str, bytes | None]] | None


@dataclass
class Records:
    """Columns of records as they must arrive."""

    values: list[bytes | None]
    keys: list[bytes | None]
    headers: list[Headers]
    timestamps: list[int]

    def __len__(self) -> int:
        return len(self.values)


def some_bytes(random: random.Random, small: bool) -> bytes | None:
    """A null, an empty value, a few bytes (often the same), text, or a borrowable length."""
    kind = random.random()
    if kind < 0.1:
        return None
    if kind < 0.2:
        return b""
    if kind < 0.5:
        return random.choice([b"same", b"\0", b"\xff\0"])
    if kind < 0.8:
        return "".join(random.choices(ALPHABET, k=random.randrange(4 if small else 12))).encode()
    if kind < 0.99:
        return random.randbytes(random.randrange(6 if small else 100))
    return random.randbytes(20 if small else 2000)


def generated(count: int, seed: int, small: bool) -> Records:
    """Records of any or only small lengths, with nulls, empties, duplicates and unicode."""
    chance = random.Random(seed)

    def some() -> bytes | None:
        return some_bytes(chance, small)

    headers: list[Headers] = []
    for _ in range(count):
        pairs = [(chance.choice(["h", "h", "\u00e9", ""]), some()) for _ in range(2)]
        headers.append(chance.choice([None, pairs[:1], pairs]))
    return Records(
        [some() for _ in range(count)],
        [some() for _ in range(count)],
        headers,
        # Kafka refuses timestamps in the future.
        [chance.randrange(1, 1_700_000_000_000) for _ in range(count)],
    )


def texts(column: list[bytes | None]) -> list[Any]:
    """The same column, with valid UTF-8 as str."""

    def text(item: bytes | None) -> Any:
        try:
            return None if item is None else item.decode()
        except UnicodeDecodeError:
            return item

    return [text(item) for item in column]


def mixed(column: list[bytes | None]) -> list[Any]:
    """The same column, with items of different types."""
    types: list[Callable[[bytes], Any]] = [bytes, bytearray, memoryview]
    return [item if item is None else types[i % 3](item) for i, item in enumerate(column)]


Publish = Callable[[cykafka.Producer, str, Records], cykafka.Delivery]


def as_lists(producer: cykafka.Producer, topic: str, records: Records) -> cykafka.Delivery:
    return producer.publish(
        topic,
        records.values,
        keys=texts(records.keys),
        headers=records.headers,
        timestamps=records.timestamps,
        partitions=0,
    )


def as_tuples_of_anything(
    producer: cykafka.Producer, topic: str, records: Records
) -> cykafka.Delivery:
    return producer.publish(
        [topic] * len(records),
        tuple(mixed(records.values)),
        keys=tuple(mixed(records.keys)),
        headers=[pairs if pairs is None else tuple(pairs) for pairs in records.headers],
        timestamps=array.array("q", records.timestamps),
        partitions=[0] * len(records),
    )


def without_headers(producer: cykafka.Producer, topic: str, records: Records) -> cykafka.Delivery:
    records.headers = [None] * len(records)
    records.timestamps = []
    return producer.publish(topic, texts(records.values), keys=records.keys, partitions=0)


def as_named_headers(producer: cykafka.Producer, topic: str, records: Records) -> cykafka.Delivery:
    columns = {"one": "1", "keys": records.keys, "values": pa.array(records.values, pa.binary())}
    records.headers = [
        [("one", b"1"), ("keys", key), ("values", value)]
        for key, value in zip(records.keys, records.values, strict=True)
    ]
    return producer.publish(
        topic,
        records.values,
        keys=records.keys,
        headers=columns,
        timestamps=numpy.array(records.timestamps, numpy.int64),
        partitions=numpy.zeros(len(records), numpy.int32),
    )


def as_numpy(producer: cykafka.Producer, topic: str, records: Records) -> cykafka.Delivery:
    """Fixed widths: byte strings lose their trailing NULs, rows of bytes keep them."""
    values = [(value or b"")[:20].rstrip(b"\0") for value in records.values]
    rows = numpy.frombuffer(
        b"".join(value.ljust(20, b"\xaa") for value in values), numpy.uint8
    ).reshape(-1, 20)
    records.values = values  # type: ignore[assignment]
    records.keys = [bytes(row) for row in rows]
    records.headers = [None] * len(records)
    return producer.publish(
        topic,
        numpy.array(values, "S20"),
        keys=rows,
        timestamps=numpy.array(records.timestamps, numpy.int64),
        partitions=0,
    )


def as_arrow(kind: pa.DataType) -> Publish:
    def publish(producer: cykafka.Producer, topic: str, records: Records) -> cykafka.Delivery:
        table = pa.table(
            {
                "key": pa.array(records.keys, kind),
                "value": pa.array(records.values, kind),
                "headers": pa.array(records.headers, HEADERS),
                "timestamp": pa.array(records.timestamps, pa.timestamp("ms")),
                "partition": pa.nulls(len(records), pa.int32()).fill_null(0),
            }
        )
        records.headers = [pairs or None for pairs in records.headers]
        # Use three chunks. The second one begins inside a byte of the bitmaps.
        cut = len(records) // 3
        return producer.publish_arrow(
            topic,
            pa.concat_tables([table[:cut], table[cut : 2 * cut], table[2 * cut :]]),
            key="key",
            headers="headers",
            timestamp="timestamp",
            partition="partition",
        )

    return publish


FORMS: dict[str, Publish] = {
    "lists": as_lists,
    "tuples of anything": as_tuples_of_anything,
    "without headers": without_headers,
    "named headers": as_named_headers,
    "numpy": as_numpy,
    "arrow": as_arrow(pa.binary()),
    "large arrow": as_arrow(pa.large_binary()),
    "arrow views": as_arrow(pa.binary_view()),
}


class Wire:
    """A producer with room for 1,000 records, and a consumer of its topic's only partition."""

    def __init__(self, cluster: MockCluster | RealCluster, topic: str) -> None:
        self.topic = topic
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        self.producer = cykafka.Producer(
            {**servers, "linger.ms": 5, "queue.buffering.max.messages": 1_000}
        )
        self.consumer = cykafka.Consumer({**servers, "group.id": topic, "fetch.wait.max.ms": 10})
        self.consumer.assign([cykafka.TopicPartition(topic, 0, cykafka.OFFSET_BEGINNING)])

    def close(self) -> None:
        self.producer.close()
        self.consumer.close()

    def check(self, form: str, count: int, seed: int, small: bool = False) -> None:
        """Send generated records in a form, and check that they arrive identical and in order."""
        records = generated(count, seed, small)
        delivery = FORMS[form](self.producer, self.topic, records)
        delivery.wait(WAIT_S)
        offsets = list(delivery.offsets)
        at = 0
        while at < count:
            batch = self.consumer.consume_batch(min(10_000, count - at), WAIT_S)
            assert batch, f"records are missing from {at} on"
            end = at + len(batch)
            assert list(batch.offsets) == offsets[at:end]
            assert batch.values() == records.values[at:end]
            assert batch.keys() == records.keys[at:end]
            assert batch.headers() == records.headers[at:end]
            if records.timestamps:
                assert list(batch.timestamps) == records.timestamps[at:end]
            arrow = pa.record_batch(batch.select("value", "offset", "key"))
            assert arrow.column("value").to_pylist() == records.values[at:end]
            assert arrow.column("offset").to_pylist() == offsets[at:end]
            assert arrow.column("key").to_pylist() == records.keys[at:end]
            at = end
