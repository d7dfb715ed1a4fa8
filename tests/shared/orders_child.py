"""Make orders of a consumer's calls: the child process of `orders`, which an order may abort.

`python orders_child.py CONFIG` reads lines of orders from its standard input and answers each line
with "made". Without `bootstrap.servers` in CONFIG it uses a mock cluster of its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cykafka import Consumer, KafkaException, Producer, TopicPartition
from cykafka.testing import MockCluster

# The orders of a line run at the same time, because they wait more than they compute.
THREADS = 64
# The longest time of a line. Then the process ends, and prints what each thread does, s.
LIMIT_S = 100.0
# How long "settle" waits for an assignment, s.
SETTLE_S = 0.5

TOPICS = ["orders-a", "orders-b"]
SUBSCRIPTIONS = [TOPICS[:1], TOPICS[1:], TOPICS, ["^orders-.*"], ["orders-missing"], []]
PARTITIONS = [(topic, number) for topic in TOPICS for number in (0, 1)] + [
    ("orders-a", 7),
    ("orders-missing", 0),
]
numbers = itertools.count()


class Order:
    """One consumer, the calls that an order may make, and another member of its group."""

    def __init__(self, config: dict[str, Any], order: dict[str, Any]) -> None:
        self.config = {**config, "group.id": f"orders-{os.getpid()}-{next(numbers)}"}
        self.in_callbacks = {name: order[name] for name in ("on_assign", "on_revoke")}
        self.consumer = Consumer(self.config)
        self.other: Consumer | None = None

    def make(self, calls: list[list[Any]]) -> None:
        for name, *arguments in calls:
            # Each call may fail; none may crash, hang or fail otherwise.
            with contextlib.suppress(KafkaException, RuntimeError, ValueError):
                getattr(self, name)(*arguments)

    def end(self) -> None:
        for consumer in (self.consumer, self.other):
            if consumer is not None:
                consumer.close()

    def callback(self, name: str) -> Callable[..., None]:
        return lambda consumer, partitions: self.make(self.in_callbacks[name])

    # -- the calls

    def subscribe(self, which: int) -> None:
        callbacks = {
            name: self.callback(name) for name, calls in self.in_callbacks.items() if calls
        }
        self.consumer.subscribe(SUBSCRIPTIONS[which], **callbacks)

    def partitions(self, name: str, which: list[int], offset: int) -> None:
        """A call with partitions; no `which` means those that are assigned."""
        partitions = [TopicPartition(*PARTITIONS[item], offset) for item in which]
        getattr(self.consumer, name)(partitions or self.consumer.assignment())

    def plain(self, name: str) -> None:
        getattr(self.consumer, name)()

    def unsubscribe(self) -> None:
        self.consumer.unsubscribe()

    def seek(self, which: int, offset: int) -> None:
        # A partition that is never fetched would make it wait.
        partition = TopicPartition(*PARTITIONS[which], offset)
        if partition in self.consumer.assignment() and partition.topic in TOPICS:
            self.consumer.seek(partition)

    def commit(self, which: list[int], asynchronous: bool) -> None:
        offsets = [TopicPartition(*PARTITIONS[item], 1) for item in which] or None
        self.consumer.commit(offsets=offsets, asynchronous=asynchronous)

    def committed(self) -> None:
        self.consumer.committed(self.consumer.assignment(), 1)

    def poll(self, timeout: float) -> None:
        self.consumer.poll(timeout)

    def settle(self) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not self.consumer.assignment() and time.monotonic() < deadline:
            self.consumer.poll(0.02)

    def close(self, timeout: float | None) -> None:
        self.consumer.close() if timeout is None else self.consumer.close(timeout=timeout)

    def other_member(self) -> None:
        """Another member joins, or leaves."""
        if self.other is None:
            self.other = Consumer(self.config)
            self.other.subscribe(TOPICS)
            self.other.poll(0.02)
        else:
            self.other.close()
            self.other = None


def make(config: dict[str, Any], order: dict[str, Any]) -> None:
    made = Order(config, order)
    try:
        made.make(order["begin"] + order["calls"])
    finally:
        made.end()


def main() -> None:
    warnings.simplefilter("ignore", ResourceWarning)
    config = {"fetch.wait.max.ms": 10, "auto.offset.reset": "earliest", "log_level": 0}
    config |= json.loads(sys.argv[1])
    with contextlib.ExitStack() as stack:
        if "bootstrap.servers" not in config:
            cluster = stack.enter_context(MockCluster(group_consumer_heartbeat_interval_ms=100))
            for topic in TOPICS:
                cluster.create_topic(topic, 2)
            config["bootstrap.servers"] = cluster.bootstrap_servers
        with Producer({"bootstrap.servers": config["bootstrap.servers"]}) as producer:
            for topic, number in itertools.product(TOPICS, (0, 1)):
                producer.publish(topic, [b"value"] * 10, partitions=[number] * 10).wait()
        pool = stack.enter_context(ThreadPoolExecutor(THREADS))
        for line in sys.stdin:
            faulthandler.dump_traceback_later(LIMIT_S, exit=True)
            list(pool.map(lambda order: make(config, order), json.loads(line)))
            faulthandler.cancel_dump_traceback_later()
            print("made", flush=True)


if __name__ == "__main__":
    main()
