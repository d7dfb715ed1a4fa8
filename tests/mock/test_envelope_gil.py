"""Headers of envelopes are read without the GIL, so other Python threads run."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import MakeProducer

from cykafka.internal import EnvelopeCodec

pytestmark = pytest.mark.ours

COUNT = 100_000
TRIES = 5


class Envelope:
    def __init__(self, message: bytes) -> None:
        self._MessageEnvelope__reference: Any = None
        self.message_id: str | None = "id"
        self.trace_id: str | None = "trace"
        self.message_type: str | None = "type"
        self.message: bytes | None = message
        self.sent_time: Any = None


@pytest.fixture
def ticks() -> Iterator[Callable[[Callable[[], Any]], int]]:
    """Count how often another thread, which needs the GIL every ms, gets it during an action.

    The count is the best of several tries. The interpreter requests no thread switch meanwhile, so
    the other thread gets the GIL only if the action releases it.
    """
    count = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal count
        while not done.is_set():
            count += 1
            time.sleep(0.001)

    def during(action: Callable[[], Any]) -> int:
        found = []
        for _ in range(TRIES):
            before = count
            kept = action()
            found.append(count - before)
            del kept
        return max(found)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield during
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()


def batch_of(kafka: Any, make_producer: MakeProducer, consumer: Any, topic: str) -> Any:
    # Compressed, because the mock cluster keeps 5 MB of a partition.
    producer = make_producer({"compression.type": "lz4"})
    codec = EnvelopeCodec(Envelope)
    envelopes = [Envelope(b"body")] * COUNT
    codec.publish(producer, topic, envelopes, partition=0).wait(10)
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    batch = consumer.consume_batch(COUNT, 10)
    assert len(batch) == COUNT
    return batch


def test_work_that_holds_the_gil_is_detected(ticks: Any) -> None:
    assert ticks(lambda: sum(range(2_000_000))) == 0


def test_records_are_decoded_without_the_gil(
    kafka: Any, make_producer: MakeProducer, consumer: Any, topic: str, ticks: Any
) -> None:
    batch = batch_of(kafka, make_producer, consumer, topic)
    codec = EnvelopeCodec(Envelope)

    assert ticks(lambda: codec.decode(batch)) >= 3
