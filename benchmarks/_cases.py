"""The measured loops of the Python clients, one case per process.

    python _cases.py MODULE MODE TOPIC MESSAGES VALUE_SIZE PARTITIONS [KEY=VALUE ...]

MODULE is imported by name and nothing else depends on it: both clients run the same lines,
written as their users write them. Prints one JSON line, as the floor programs do.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

CHUNK = 10_000
"""Messages between two calls of ``poll(0)``, per ``consume()`` and of a warm-up."""
WARM_FLUSHES = 200


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    client: Any
    mode: str
    topic: str
    messages: int
    value_size: int
    partitions: int
    config: dict[str, str]

    @classmethod
    def parse(cls, words: list[str]) -> Arguments:
        module, mode, topic, messages, value_size, partitions, *pairs = words
        config = dict(pair.split("=", 1) for pair in pairs)
        return cls(
            importlib.import_module(module),
            mode,
            topic,
            int(messages),
            int(value_size),
            int(partitions),
            config,
        )

    def values(self) -> list[bytes]:
        """CHUNK distinct values of ``value_size`` bytes."""
        return [f"{i:0{self.value_size}d}"[-self.value_size :].encode() for i in range(CHUNK)]


class Section:
    """The measured section: from its construction to :meth:`report`."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._usage = getrusage(RUSAGE_SELF)

    def report(self, messages: int, latencies: list[float] | None = None) -> dict[str, Any]:
        usage = getrusage(RUSAGE_SELF)
        result: dict[str, Any] = {
            "messages": messages,
            "cpu_user": usage.ru_utime - self._usage.ru_utime,
            "cpu_sys": usage.ru_stime - self._usage.ru_stime,
            "wall": time.perf_counter() - self._wall,
            "peak_rss_kb": peak_rss_kb(),
        }
        if latencies:
            latencies.sort()
            result["p50_us"] = latencies[len(latencies) // 2] * 1e6
            result["p99_us"] = latencies[len(latencies) * 99 // 100] * 1e6
        return result


def peak_rss_kb() -> int:
    """The peak of this program alone: ``ru_maxrss`` would begin with its parent's."""
    match = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(match[1]) if match else 0


# --- producers ----------------------------------------------------------------------------


class Deliveries:
    """Counts delivery reports and fails on the first error."""

    def __init__(self, client: Any) -> None:
        self.count = 0
        self._exception = client.KafkaException

    def callback(self) -> Callable[[Any, Any], None]:
        """A plain function, as users write it."""
        exception = self._exception

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                raise exception(error)
            self.count += 1

        return on_delivery


def produce_later(producer: Any, topic: str, value: bytes, **options: Any) -> None:
    """Serves reports until the full queue has room."""
    while True:
        producer.poll(0.1)
        try:
            producer.produce(topic, value, **options)
            return
        except BufferError:
            continue


def produce_all(producer: Any, topic: str, values: list[bytes], messages: int) -> None:
    for _ in range(messages // CHUNK):
        for value in values:
            try:
                producer.produce(topic, value)
            except BufferError:
                produce_later(producer, topic, value)
        producer.poll(0)


def produce_all_on_delivery(
    producer: Any, topic: str, values: list[bytes], messages: int, on_delivery: Any
) -> None:
    for _ in range(messages // CHUNK):
        for value in values:
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
            except BufferError:
                produce_later(producer, topic, value, on_delivery=on_delivery)
        producer.poll(0)


def flush_each(producer: Any, topic: str, values: Iterator[bytes]) -> list[float]:
    latencies = []
    for value in values:
        start = time.perf_counter()
        producer.produce(topic, value)
        producer.flush()
        latencies.append(time.perf_counter() - start)
    return latencies


def flush_each_on_delivery(
    producer: Any, topic: str, values: Iterator[bytes], on_delivery: Any
) -> list[float]:
    latencies = []
    for value in values:
        start = time.perf_counter()
        producer.produce(topic, value, on_delivery=on_delivery)
        producer.flush()
        latencies.append(time.perf_counter() - start)
    return latencies


def end_offsets(args: Arguments) -> int:
    """The sum of the partitions' end offsets."""
    client = args.client
    consumer = client.Consumer(
        {"bootstrap.servers": args.config["bootstrap.servers"], "group.id": "bench"}
    )
    try:
        return sum(
            consumer.get_watermark_offsets(client.TopicPartition(args.topic, p), timeout=10)[1]
            for p in range(args.partitions)
        )
    finally:
        consumer.close()


def run_produce(args: Arguments) -> dict[str, Any]:
    before = end_offsets(args)
    deliveries = Deliveries(args.client)
    values = args.values()
    with_callback = args.mode.endswith("_on_delivery")
    options = (deliveries.callback(),) if with_callback else ()
    producer = args.client.Producer(args.config)
    latencies = None
    if args.mode.startswith("flush"):
        warm = WARM_FLUSHES
        each = flush_each_on_delivery if with_callback else flush_each
        each(producer, args.topic, islice(values, warm), *options)
        section = Section()
        latencies = each(producer, args.topic, islice(cycle(values), args.messages), *options)
    else:
        warm = CHUNK
        run = produce_all_on_delivery if with_callback else produce_all
        run(producer, args.topic, values, warm, *options)
        producer.flush()
        section = Section()
        run(producer, args.topic, values, args.messages, *options)
        producer.flush()
    result = section.report(args.messages, latencies)
    expected = warm + args.messages
    check("records in the broker", end_offsets(args) - before, expected)
    if with_callback:
        check("delivery reports", deliveries.count, expected)
    return result


# --- consumers ----------------------------------------------------------------------------


def consume_all(consumer: Any, messages: int) -> int:
    left = messages
    size = 0
    while left:
        batch = consumer.consume(min(CHUNK, left), timeout=1.0)
        for message in batch:
            value = message.value()
        left -= len(batch)
        if batch:
            size = len(value)
    return size


def poll_all(consumer: Any, messages: int) -> int:
    left = messages
    while left:
        message = consumer.poll(1.0)
        if message is None:
            continue
        value = message.value()
        left -= 1
    return len(value)


def run_consume(args: Arguments) -> dict[str, Any]:
    client = args.client
    read_all = poll_all if args.mode == "poll" else consume_all
    consumer = client.Consumer(args.config)
    warm = client.TopicPartition(f"{args.topic}-warm", 0, client.OFFSET_BEGINNING)
    partitions = [
        client.TopicPartition(args.topic, p, client.OFFSET_BEGINNING)
        for p in range(args.partitions)
    ]
    consumer.assign([warm])
    read_all(consumer, CHUNK)
    section = Section()
    consumer.assign(partitions)
    size = read_all(consumer, args.messages)
    result = section.report(args.messages)
    check("bytes of the last value", size, args.value_size)
    positions = consumer.position(consumer.assignment())
    check("records read", sum(max(p.offset, 0) for p in positions), args.messages)
    consumer.close()
    return result


MODES: dict[str, Callable[[Arguments], dict[str, Any]]] = {
    "produce": run_produce,
    "produce_on_delivery": run_produce,
    "flush": run_produce,
    "flush_on_delivery": run_produce,
    "consume": run_consume,
    "poll": run_consume,
}


def check(what: str, actual: int, expected: int) -> None:
    if actual != expected:
        sys.exit(f"{what}: expected {expected}, got {actual}")


def main() -> None:
    args = Arguments.parse(sys.argv[1:])
    result = MODES[args.mode](args)
    print(json.dumps({"librdkafka": args.client.libversion()[0], **result}))


if __name__ == "__main__":
    main()
