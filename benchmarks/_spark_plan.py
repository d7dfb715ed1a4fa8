"""The cost of the planner on the driver, with many partitions and simulated brokers."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from _figures import Result
from cykafka import TopicPartition
from cykafka.spark.clients.consumers import OpenConsumer
from cykafka.spark.source.planner import Planner, tasks_of
from cykafka.spark.source.read_options import ReadOptions
from cykafka.spark.source.stream import StreamPlan

TOPICS = 10
REPEATS = 5
RECORDS = 1_000_000
"""New records in each partition."""


class FakeConsumer:
    """A consumer with prepared answers of a cluster."""

    def __init__(self, partitions: int) -> None:
        each = partitions // TOPICS
        self.names = [f"topic-{number}" for number in range(TOPICS)]
        self._topics = {
            name: SimpleNamespace(error=None, partitions=dict.fromkeys(range(each)))
            for name in self.names
        }
        self._ends = {
            (name, number): SimpleNamespace(low=0, high=RECORDS + number)
            for name in self.names
            for number in range(each)
        }

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return SimpleNamespace(topics=self._topics)

    def watermarks(self, asked: list[TopicPartition], timeout: float = -1) -> dict[Any, Any]:
        return {each: self._ends[each.topic, each.partition] for each in asked}

    def poll(self, timeout: float) -> None: ...

    def opened(self) -> OpenConsumer:
        return OpenConsumer({}, make=lambda _: self)  # type: ignore[arg-type, return-value]

    def __len__(self) -> int:
        return len(self._ends)

    def close(self) -> None:
        pass


def plan_ms(kind: str, partitions: int) -> Result:
    """The median time from the brokers' answers to tasks, ms, for a batch or a micro-batch."""
    fake = FakeConsumer(partitions)
    given = {
        "kafka.bootstrap.servers": "nowhere:9092",
        "subscribe": ",".join(fake.names),
        "startingOffsets": "earliest",
    }
    work = {"batch": _batch, "micro-batch": _micro_batch}[kind](given, fake)
    took = []
    tasks = 0
    for _ in range(REPEATS):
        start = time.perf_counter()
        tasks = work()
        took.append((time.perf_counter() - start) * 1000)
    return {"plan_ms": statistics.median(took), "tasks": tasks, "rows": 0, "wall": 1}


def _batch(given: dict[str, str], fake: FakeConsumer) -> Callable[[], int]:
    planner = Planner(ReadOptions.of(given, "batch"))
    planner._open = fake.opened()
    return lambda: len(tasks_of(planner.batch_ranges(), planner.options))


def _micro_batch(given: dict[str, str], fake: FakeConsumer) -> Callable[[], int]:
    """Plan with a limit, and with the JSON that Spark passes in both directions."""
    limit = len(fake) * RECORDS // 10
    plan = StreamPlan(ReadOptions.of({**given, "maxOffsetsPerTrigger": str(limit)}, "stream"))
    plan.planner._open = fake.opened()
    start = json.dumps(plan.initial())

    def work() -> int:
        end = json.dumps(plan.latest(json.loads(start), limited=True))
        ranges = plan.ranges(json.loads(start), json.loads(end))
        return len(tasks_of(ranges, plan.options))

    return work
