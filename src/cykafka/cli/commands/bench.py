"""``cykafka bench``: measures how fast a cluster takes records, returns them and passes one on."""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Annotated, Literal

from cyclopts import App, Parameter, validators
from cyclopts.types import PositiveInt

from cykafka import Consumer, Delivery, KafkaError, Message, Producer, TopicPartition
from cykafka.admin import NewTopic
from cykafka.cli.cluster.administration import Cluster, Json, Outcomes, administration
from cykafka.cli.cluster.connection import ConnectionOptions
from cykafka.cli.terminal.failures import EXIT_STATUS_HELP, Failed, UsageError, reason
from cykafka.cli.terminal.output import show
from cykafka.cli.terminal.parameters import plain
from cykafka.cli.terminal.progress import Meter

__all__ = ["bench", "percentile"]

_EPILOGUE = (
    "examples:\n\n"
    "* ``cykafka bench``\n"
    "* ``cykafka bench --records 5000000 --size 1000 -X compression.type=lz4 -X acks=1``\n"
    "* ``cykafka bench --only round-trip --json``\n\n" + EXIT_STATUS_HELP
)

_Phase = Literal["produce", "consume", "round-trip"]
_PHASES: tuple[_Phase, ...] = ("produce", "consume", "round-trip")
_CHUNK = 1_000
_CHUNK_BYTES = 1_000_000
_POOL_BYTES = 4_000_000
_READ = 10_000
_SLICE_S = 0.1


@dataclass
class Result:
    """The measurements of one phase.

    Parameters
    ----------
    latencies : list of float
        Seconds.
    """

    phase: str
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def row(self) -> tuple[object, ...]:
        """Return the table's cells."""
        seconds = max(self.seconds, 1e-9)
        times = sorted(self.latencies)
        return (
            self.phase,
            self.records,
            round(seconds, 3),
            round(self.records / seconds),
            round(self.bytes / seconds / 1e6, 2),
            *(_ms(percentile(times, share)) for share in (0.5, 0.99, 1.0)),
        )


_COLUMNS = ("phase", "records", "seconds", "records_per_s", "mb_per_s", "p50_ms", "p99_ms",
            "max_ms")  # fmt: skip


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value that a share of the values does not exceed, or None without values.

    Parameters
    ----------
    ordered : sequence of float
        Sorted.
    share : float
        From 0 to 1.
    """
    if not ordered:
        return None
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


bench = App(name="bench", help_epilogue=_EPILOGUE)


@bench.default
def measure(
    *,
    topic: Annotated[str | None, Parameter(metavar="NAME")] = None,
    only: Annotated[tuple[_Phase, ...], plain()] = (),
    records: Annotated[PositiveInt, Parameter(metavar="N")] = 500_000,
    size: Annotated[
        int, Parameter(metavar="BYTES", validator=validators.Number(gte=1, lte=1_000_000_000))
    ] = 100,
    round_trips: Annotated[PositiveInt, Parameter(metavar="N")] = 1_000,
    partitions: Annotated[PositiveInt, Parameter(metavar="N")] = 4,
    replication_factor: Annotated[PositiveInt | None, Parameter(metavar="N")] = None,
    quiet: Annotated[bool, plain("-q")] = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Measure how fast the cluster takes and returns records.

    Three phases: produce sends records of random bytes in batches; consume reads them; round-trip
    sends one record after the other, and waits until a consumer has it. The latency of produce is
    the time from the sending of a batch of at most 1,000 records to the last acknowledgment. The
    latency of round-trip is the time from the sending of a record to its arrival.

    Without --topic the command creates a topic, and deletes it at the end.

    Parameters
    ----------
    topic : str
        an existing topic to use; the records of the benchmark stay in it
    only : list of str
        only this phase; repeatable. consume alone reads what --topic has
    records : int
        records of produce and consume
    size : int
        bytes of each record's value
    round_trips : int
        records of round-trip
    partitions : int
        partitions of the created topic
    replication_factor : int
        replicas of the created topic (default: that of the brokers)
    quiet : bool
        no progress
    """
    phases = tuple(phase for phase in _PHASES if not only or phase in only)
    if topic is None and "consume" in phases and "produce" not in phases:
        raise UsageError("--only consume needs the records of a --topic")
    results = []
    outcomes = Outcomes()
    with (
        administration(connection) as cluster,
        _open_topic(cluster, topic, partitions, replication_factor, outcomes) as name,
    ):
        starts = {partition: begin for partition, (begin, _) in _ends(cluster, name).items()}
        if "produce" in phases:
            starts = {partition: end for partition, (_, end) in _ends(cluster, name).items()}
            results.append(_produce(cluster, name, records, size, quiet))
        if "consume" in phases:
            results.append(_consume(cluster, name, starts, records, quiet))
        if "round-trip" in phases:
            results.append(_measure_round_trips(cluster, name, round_trips, size, quiet))
    show(_COLUMNS, [result.row() for result in results], as_json=json)
    return outcomes.status


@contextmanager
def _open_topic(
    cluster: Cluster,
    topic: str | None,
    partitions: int,
    replication_factor: int | None,
    outcomes: Outcomes,
) -> Iterator[str]:
    """Open the topic to use: an existing topic, or a new one, deleted at the end."""
    if topic is not None:
        if topic not in cluster.metadata.topics:
            raise Failed(
                f"topic {topic!r} does not exist; without --topic the benchmark creates one"
            )
        yield topic
        return
    name = f"cykafka-bench-{secrets.token_hex(4)}"
    created = cluster.admin.create_topics(
        [NewTopic(name, partitions, replication_factor or -1)],
        request_timeout=cluster.timeout,
        operation_timeout=cluster.timeout,
    )[name]
    try:
        if (error := created.exception()) is not None:
            raise Failed(f"cannot create the benchmark topic: {reason(error)}; use --topic")
        _await_leaders(cluster, name, partitions)
        yield name
    finally:
        # Ctrl-C may have ended the wait for the response; then the topic may exist anyway.
        if not (created.done() and created.exception()):
            _delete(cluster, name, outcomes)


def _delete(cluster: Cluster, name: str, outcomes: Outcomes) -> None:
    deleted = cluster.admin.delete_topics([name], request_timeout=cluster.timeout)[name]
    try:
        outcomes.wait_for(f"delete topic {name}", deleted)
    except KeyboardInterrupt:
        outcomes.fail(f"delete topic {name}", "interrupted; use cykafka topics delete")
        raise


def _await_leaders(cluster: Cluster, name: str, partitions: int) -> None:
    """Wait until the brokers know the new topic."""
    deadline = time.monotonic() + cluster.timeout
    while True:
        cluster.refresh()
        found = cluster.metadata.topics.get(name)
        leaders = [partition.leader for partition in found.partitions.values()] if found else []
        if sum(leader >= 0 for leader in leaders) == partitions:
            return
        if time.monotonic() >= deadline:
            raise Failed(f"topic {name} has no leaders after {cluster.timeout:g} s")
        cluster.admin.poll(_SLICE_S)


def _ends(cluster: Cluster, name: str) -> dict[TopicPartition, tuple[int, int]]:
    outcomes = Outcomes()
    count = cluster.counts()[name]
    ends = cluster.ends([TopicPartition(name, number) for number in range(count)], outcomes)
    if outcomes.failures:
        raise Failed(f"topic {name} is not ready for a benchmark")
    return ends


def _produce(cluster: Cluster, name: str, records: int, size: int, quiet: bool) -> Result:
    result = Result("produce")
    chunk = max(min(_CHUNK, _CHUNK_BYTES // size), 1)
    # More than a batch; otherwise zstd would detect the repeated records.
    copies = max(_POOL_BYTES // (chunk * size), 1)
    pool = memoryview(os.urandom(copies * chunk * size))
    flying: deque[Delivery] = deque()
    meter = Meter("produce", records, shown=not quiet)
    producer = cluster.brokers.producer()
    cluster.brokers.tell = meter.warn

    def settle(delivery: Delivery) -> None:
        if delivery.failed:
            error = next(iter(delivery.errors.values()))
            raise Failed(f"{delivery.failed:,} records were not delivered: {error.str()}")
        result.records += len(delivery)
        result.bytes += len(delivery) * size
        meter.add(len(delivery), len(delivery) * size, result.records)

    def send(start: int, count: int) -> None:
        values = pool[start : start + count * size].cast("B", (count, size))
        began = time.perf_counter()
        delivery = producer.publish(name, values)
        delivery.add_done_callback(lambda _: result.latencies.append(time.perf_counter() - began))
        flying.append(delivery)

    try:
        with meter:
            started = time.perf_counter()
            left = records
            starts = cycle(range(0, len(pool), chunk * size))
            while left or flying:
                if left:
                    send(next(starts), min(chunk, left))
                    left -= min(chunk, left)
                producer.poll(0 if left else _SLICE_S)
                while flying and flying[0].done:
                    settle(flying.popleft())
            result.seconds = time.perf_counter() - started
    except BaseException:
        producer.purge()  # otherwise the close would wait for the records
        raise
    finally:
        cluster.brokers.tell = None
        producer.close()
    return result


def _consume(
    cluster: Cluster, name: str, starts: dict[TopicPartition, int], records: int, quiet: bool
) -> Result:
    result = Result("consume")
    ends = {partition: end for partition, (_, end) in _ends(cluster, name).items()}
    wanted = min(records, sum(ends[partition] - start for partition, start in starts.items()))
    if not wanted:
        raise Failed(f"topic {name} has no records to consume")
    meter = Meter("consume", wanted, shown=not quiet)
    consumer = _consumer(cluster, **{"enable.partition.eof": True})
    cluster.brokers.tell = meter.warn
    # Compacted topics and transactions have fewer records than offsets.
    finished: set[int | None] = set()
    try:
        consumer.assign(
            [
                TopicPartition(partition.topic, partition.partition, start)
                for partition, start in starts.items()
            ]
        )
        started = time.perf_counter()
        heard = time.monotonic()
        with meter:
            while result.records < wanted and len(finished) < len(starts):
                batch = consumer.consume_batch(min(_READ, wanted - result.records), _SLICE_S)
                for message in batch.errors:
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        finished.add(message.partition())
                    else:
                        _raise_permanent(error)
                if batch:
                    heard = time.monotonic()
                    count = sum(map(len, filter(None, batch.values())))
                    result.records += len(batch)
                    result.bytes += count
                    result.seconds = time.perf_counter() - started
                    meter.add(len(batch), count, result.records)
                elif time.monotonic() >= heard + cluster.timeout:
                    raise Failed(f"no record arrived for {cluster.timeout:g} s")
    finally:
        cluster.brokers.tell = None
        consumer.close()
    return result


def _consumer(cluster: Cluster, **properties: object) -> Consumer:
    """Create a consumer that reads only its assigned partitions, and never commits."""
    settings = {"group.id": "cykafka-bench", "enable.auto.commit": False, **properties}
    return cluster.brokers.consumer(**settings)


def _raise_permanent(error: KafkaError | None) -> None:
    if error is not None and not error.retriable():
        raise Failed(error.str())


def _measure_round_trips(
    cluster: Cluster, name: str, count: int, size: int, quiet: bool
) -> Result:
    result = Result("round-trip")
    meter = Meter("round-trip", count, shown=not quiet)
    partition = TopicPartition(name, 0)
    value = os.urandom(size)
    marker = secrets.token_bytes(8)
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = cluster.brokers.producer(**{"linger.ms": 0})
    consumer = _consumer(cluster)
    try:
        end = _ends(cluster, name)[partition][1]
        consumer.assign([TopicPartition(name, 0, end)])
        with meter:
            began = time.perf_counter()
            # The first record also waits for connections, so its latency is ignored.
            for number in range(count + 1):
                if number == 1:
                    began = time.perf_counter()
                sent = time.perf_counter()
                key = marker + number.to_bytes(8)
                producer.produce(name, value, key, partition=0, on_delivery=on_delivery)
                _await_record(cluster, producer, consumer, key, failures)
                if number:
                    result.latencies.append(time.perf_counter() - sent)
                    result.records += 1
                    result.bytes += size
                    meter.add(1, size, number)
            result.seconds = time.perf_counter() - began
    except BaseException:
        producer.purge()
        raise
    finally:
        producer.close()
        consumer.close()
    return result


def _await_record(
    cluster: Cluster,
    producer: Producer,
    consumer: Consumer,
    key: bytes,
    failures: Sequence[KafkaError],
) -> None:
    """Read until the record with this key arrives."""
    deadline = time.monotonic() + cluster.timeout
    while True:
        message = consumer.poll(_SLICE_S)
        producer.poll(0)
        if failures:
            raise Failed(f"a record was not delivered: {failures[0].str()}")
        if message is not None and message.error() is not None:
            _raise_permanent(message.error())
        elif message is not None and message.key() == key:
            return
        if time.monotonic() >= deadline:
            raise Failed(f"a record has not arrived within {cluster.timeout:g} s")
