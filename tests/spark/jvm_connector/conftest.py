"""Topics with every kind of record, and the two connectors that read and write them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S

T0 = 1_700_000_000_000  # ms; records this old must not be deleted
KEPT = {"retention.ms": -1}
JVM, OURS = "kafka", "cykafka"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="session")
def cluster(tidy: Any) -> Any:
    """A broker that compacts without delay."""
    return tidy


@pytest.fixture(scope="session", autouse=True)
def jvm_connector(jvm_jars: Any) -> None:
    """Skip unless the session has `format("kafka")`."""
    from cykafka.testing.plugin import no_broker

    if isinstance(jvm_jars, Exception):
        no_broker(jvm_jars)


@dataclass(frozen=True)
class Topics:
    """Names of the topics.

    Attributes
    ----------
    mixed : str
        Four partitions; 0 and 1 have 60 records each, with every kind of key, value and headers, a
        second apart from T0 on; 2 has one record, 3 has none.
    empty : str
        Two partitions without records.
    shrunk : str
        One partition; of its 50 records the first 20 are deleted.
    compacted : str
        One partition with gaps.
    codecs : str
        A partition for each of CODECS.
    large : str
        One partition with three values of 5 MB.
    stamped : str
        One partition; the broker sets the timestamps.
    committed : str
        One partition: a transaction, plain records, an aborted transaction, another transaction,
        and at the end an aborted one.
    pending : str
        One partition: 5 records, and 5 more of a transaction that never ends.
    prefix : str
        The prefix of all names.
    """

    prefix: str

    def __getattr__(self, name: str) -> str:
        if name not in ("mixed", "empty", "shrunk", "compacted", "codecs", "large", "stamped",
                        "committed", "pending"):  # fmt: skip
            raise AttributeError(name)
        return f"{self.prefix}-{name}"


@pytest.fixture(scope="session")
def topics(cluster: Any, unique: Callable[[str], str]) -> Iterator[Topics]:
    import cykafka
    from cykafka.admin import AdminClient

    names = Topics(unique("like"))
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}

    def transactional(name: str) -> cykafka.Producer:
        config = {"transactional.id": unique(name), "transaction.timeout.ms": 600_000}
        producer = cykafka.Producer({**servers, **config})
        producer.init_transactions(WAIT_S)
        return producer

    with ExitStack() as clients:
        producer = clients.enter_context(cykafka.Producer(servers))

        def put(
            topic: str, count: int, by: cykafka.Producer = producer, partition: int = 0
        ) -> None:
            for number in range(count):
                by.produce(
                    topic,
                    f"{'plain' if by is producer else 'sent'}-{number}",
                    f"k{number}",
                    partition,
                )
            assert by.flush(WAIT_S) == 0

        cluster.create_topic(names.compacted, 1, config=COMPACTED)
        for number in range(60):
            producer.produce(names.compacted, f"v{number}", "abcdef"[number % 6], 0)

        cluster.create_topic(names.mixed, 4, config=KEPT)
        for partition, count in ((0, 60), (1, 60), (2, 1)):
            for number in range(count):
                producer.produce(names.mixed, partition=partition, **odd_record(partition, number))
        cluster.create_topic(names.empty, 2)

        cluster.create_topic(names.shrunk, 1, config=KEPT)
        put(names.shrunk, 50)
        with AdminClient(servers) as admin:
            before = cykafka.TopicPartition(names.shrunk, 0, 20)
            for future in admin.delete_records([before]).values():
                future.result()

        cluster.create_topic(names.codecs, len(CODECS))
        for partition, codec in enumerate(CODECS):
            with cykafka.Producer(
                {**servers, "compression.type": codec, "linger.ms": 50}
            ) as packer:
                for number in range(200):
                    packer.produce(names.codecs, f"{number:05}" * 100, f"{codec}", partition)
                assert packer.flush(WAIT_S) == 0

        cluster.create_topic(names.large, 1, config={"max.message.bytes": 8_000_000})
        with cykafka.Producer({**servers, "message.max.bytes": 8_000_000}) as sender:
            for number in range(3):
                sender.produce(names.large, bytes([number]) * 5_000_000, f"{number}", 0)
            assert sender.flush(WAIT_S) == 0

        cluster.create_topic(names.stamped, 1, config={"message.timestamp.type": "LogAppendTime"})
        put(names.stamped, 5)

        cluster.create_topic(names.committed, 1)
        with transactional("committed") as by:
            for end in ("commit", None, "abort", "commit", "abort"):
                if end is None:
                    put(names.committed, 5)
                    continue
                by.begin_transaction()
                put(names.committed, 5, by)
                (by.commit_transaction if end == "commit" else by.abort_transaction)(WAIT_S)

        cluster.create_topic(names.pending, 1)
        put(names.pending, 5)
        by = clients.enter_context(transactional("pending"))
        by.begin_transaction()
        put(names.pending, 5, by)

        assert producer.flush(WAIT_S) == 0
        _await_gaps(names.compacted, producer, servers)
        yield names
        # In a whole run the broker aborts this transaction earlier, because it is open too long.
        with suppress(cykafka.KafkaException):
            by.abort_transaction(WAIT_S)


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": 100,
    "min.cleanable.dirty.ratio": 0.001,
    "max.compaction.lag.ms": 100,
}


def odd_record(partition: int, number: int) -> dict[str, Any]:
    """A record; five kinds of keys, seven of values, six of headers, in all combinations."""
    keys = (None, b"", b"\x00\xff", b"key", f"k{number}".encode())
    values = (None, b"", bytes(range(256)), b"value", "\u043c\u0438\u0440".encode(), b"x" * 5000)
    headers: Sequence[Any] = (
        None,
        [("a", b"1")],
        [("a", None), ("b", b"")],
        [("a", b"1"), ("a", b"2"), ("b", None), ("a", b"1")],
        [("\u0438\u043c\u044f", bytes(range(256)))],
        [("", b"x"), ("long" * 100, b"y" * 1000)],
    )
    return {
        "key": keys[number % 5],
        "value": (*values, f"{partition}-{number}".encode())[number % 7],
        "headers": headers[number // 2 % 6],
        "timestamp": T0 + 1000 * number + partition,
    }


def _await_gaps(topic: str, producer: Any, servers: dict[str, Any]) -> None:
    """Write to a compacted topic until it has gaps, and wait until compaction is complete."""
    import cykafka

    config = {"bootstrap.servers": servers["bootstrap.servers"], "group.id": "gaps"}
    deadline = time.monotonic() + WAIT_S
    with cykafka.Consumer({**config, "enable.partition.eof": True, "log_level": 3}) as consumer:

        def offsets() -> list[int]:
            consumer.assign([cykafka.TopicPartition(topic, 0, 0)])
            found = []
            while (message := consumer.poll(WAIT_S)).error() is None:
                found.append(message.offset())
            return found

        # Only closed segments are compacted, and a later record closes a segment.
        while (found := offsets())[0] != 54:
            producer.produce(topic, "filler", "filler", 0)
            assert producer.flush(WAIT_S) == 0
            assert time.monotonic() < deadline, "the log was not compacted"
            time.sleep(0.1)
        # Of the fillers, the last one stays, and the last one of the earlier segments.
        while len(found) > 8:
            assert time.monotonic() < deadline, "the log was not compacted to its end"
            time.sleep(0.1)
            found = offsets()


@pytest.fixture(scope="session")
def read(spark: Any, cluster: Any) -> Callable[..., Any]:
    """Make a batch DataFrame of one of the connectors with these options."""

    def read(connector: str, **options: Any) -> Any:
        reader = spark.read.format(connector)
        reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), option_text(value))
        return reader.load()

    return read


def option_text(value: Any) -> Any:
    """The text of an option; offsets and partitions become JSON."""
    return json.dumps(value) if isinstance(value, dict) else value


@pytest.fixture(scope="session")
def same(read: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Read with both connectors, check that the rows are identical, and return them.

    The options are keyword arguments, with ``__`` for a dot, offsets as dicts.
    """

    def same(**options: Any) -> list[Any]:
        theirs, ours = (read(connector, **options) for connector in (JVM, OURS))
        assert ours.schema == theirs.schema
        expected, found = in_order(theirs.collect()), in_order(ours.collect())
        assert places(found) == places(expected)
        for got, wanted in zip(found, expected, strict=True):
            assert got == wanted
        return expected

    return same


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def places(rows: list[Any]) -> list[tuple[str, int, int]]:
    return [(row.topic, row.partition, row.offset) for row in rows]


@pytest.fixture
def twins(cluster: Any, unique: Callable[[str], str]) -> Callable[..., dict[str, str]]:
    """Make a topic for each connector."""

    def twins(partitions: int, config: dict[str, Any] | None = None) -> dict[str, str]:
        names = {connector: unique(connector) for connector in (JVM, OURS)}
        for name in names.values():
            cluster.create_topic(name, partitions, config=config)
        return names

    return twins


@pytest.fixture
def write(cluster: Any) -> Callable[..., None]:
    """Write a DataFrame with one of the connectors, in one task, so that the order is defined."""

    def write(connector: str, frame: Any, **options: Any) -> None:
        writer = frame.coalesce(1).write.format(connector).mode("append")
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        writer.save()

    return write


@pytest.fixture
def stored(read: Callable[..., Any]) -> Callable[[str], list[tuple[Any, ...]]]:
    """All records of a topic in order, without timestamps."""

    def stored(topic: str) -> list[tuple[Any, ...]]:
        rows = in_order(read(JVM, subscribe=topic, includeHeaders="true").collect())
        return [(r.partition, r.offset, r.key, r.value, r.headers, r.timestampType) for r in rows]

    return stored


@pytest.fixture
def stream(spark: Any, cluster: Any, tmp_path: Path, stop_queries: None) -> Callable[..., Stream]:
    """Make a stream of the connectors into its own table; see Stream."""

    def stream(name: str, **options: Any) -> Stream:
        base = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        texts = {key.replace("__", "."): option_text(value) for key, value in options.items()}
        return Stream(spark, tmp_path / name, {**base, **texts})

    return stream


@dataclass(frozen=True)
class Stream:
    """A stream with checkpoint and table that either connector can continue."""

    spark: Any
    folder: Path
    options: dict[str, Any]

    def start(self, connector: str, trigger: dict[str, Any] | None = None, **more: Any) -> Any:
        """Start the query."""
        source = self.spark.readStream.format(connector).options(**{**self.options, **more})
        writer = source.load().coalesce(2).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        writer = writer.option("path", str(self.folder / "table"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, connector: str, **more: Any) -> None:
        """Process the available records in micro-batches, and end."""
        query = self.start(connector, {"availableNow": True}, **more)
        assert query.awaitTermination(120), "the stream does not end"

    def rows(self) -> list[Any]:
        """The rows of the table, by Spark's own list of its files."""
        return in_order(self.spark.read.parquet(str(self.folder / "table")).collect())

    def ends(self) -> list[dict[str, Any]]:
        """The end offsets of each micro-batch in the checkpoint."""
        logs = sorted(
            (self.folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name)
        )
        return [json.loads(log.read_text().splitlines()[-1]) for log in logs]

    def forget_last_commit(self) -> None:
        """Restore the state of a kill during the last micro-batch."""
        last = len(self.ends()) - 1
        for log in ("checkpoint/commits", "table/_spark_metadata"):
            (self.folder / log / f".{last}.crc").unlink(missing_ok=True)
            (self.folder / log / str(last)).unlink()
