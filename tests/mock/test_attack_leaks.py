"""References to records that librdkafka drops at its destruction are freed."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from live import live_before
from machine import WAIT_S

pytestmark = pytest.mark.ours


class Callback:
    """A callback that a weak reference can watch."""

    def __init__(self, *held: Any) -> None:
        self.held = held

    def __call__(self, *_: Any) -> None: ...


def until_gone(before: dict[str, int], *refs: weakref.ref[Any]) -> None:
    from cykafka.testing import live_handles

    deadline = time.monotonic() + WAIT_S
    while live_handles() != before or any(ref() is not None for ref in refs):
        assert time.monotonic() < deadline, (live_handles(), before, [ref() for ref in refs])
        gc.collect()
        time.sleep(0.01)


@pytest.mark.parametrize("hidden", [False, True], ids=["__del__", "__dealloc__"])
def test_records_in_flight_are_released_although_purge_is_slow(
    kafka: ModuleType, cluster: Any, topic: str, hidden: bool
) -> None:
    from cykafka.testing import live_handles

    class Hiding(kafka.Producer):  # type: ignore[misc, name-defined]
        def __del__(self) -> None: ...

    before = live_before()
    made = Hiding if hidden else kafka.Producer
    producer = made(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "linger.ms": 300,
            "batch.size": 200_000_000,
            "message.max.bytes": 400_000_000,
            # librdkafka's thread compresses one batch for seconds, and cannot purge meanwhile.
            "compression.type": "zstd",
            "compression.level": 12,
        }
    )
    producer.list_topics(topic, WAIT_S)
    callback = Callback()
    watch = weakref.ref(callback)
    # The values are similar, so that compression takes long.
    block = os.urandom(4096)
    for number in range(48):
        value = b"".join(
            block[(number * 37 + i * 61) % 4000 :] + i.to_bytes(4) for i in range(400)
        )
        producer.produce(topic, value, partition=0, on_delivery=callback)
    del callback
    assert live_handles()["reports"] == before["reports"] + 48
    time.sleep(0.5)  # linger.ms, then compression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del producer
        gc.collect()

    until_gone(before, watch)


def test_producer_in_a_cycle_releases_records_in_flight(kafka: ModuleType, topic: str) -> None:

    before = live_before()
    producer = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    watch = weakref.ref(producer)
    for _ in range(2000):
        producer.produce(topic, b"x", on_delivery=Callback())
    cycle: list[Any] = [producer]
    cycle.append(cycle)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del producer, cycle
        gc.collect()

    until_gone(before, watch)


def dropped_by_oauth_cb(
    kafka: ModuleType, cluster: Any, fill: Callable[[Any], None], made: type[Any]
) -> None:
    """Make a client whose last reference is dropped on librdkafka's background thread."""
    dropping, dropped = threading.Event(), threading.Event()
    holder: list[Any] = []

    def token(_: str) -> tuple[str, float]:
        if dropping.is_set():
            holder.clear()
            dropped.set()
        return "token", time.time() + 2

    holder.append(
        made(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "log_level": 0,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                "oauth_cb": token,
            }
        )
    )
    fill(holder[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dropping.set()
        assert dropped.wait(WAIT_S)


@pytest.mark.parametrize("hidden", [False, True], ids=["__del__", "__dealloc__"])
def test_producer_dropped_on_the_background_thread_releases_everything(
    kafka: ModuleType, cluster: Any, topic: str, hidden: bool
) -> None:

    class Hiding(kafka.Producer):  # type: ignore[misc, name-defined]
        def __del__(self) -> None: ...

    refs: list[weakref.ref[Any]] = []

    def fill(producer: Any) -> None:
        for _ in range(100):
            callback = Callback()
            producer.produce(topic, b"x" * 100, on_delivery=callback)
        refs.append(weakref.ref(callback))
        values = [b"y" * 100 for _ in range(100)]
        delivery = producer.publish(topic, values)
        del delivery

    before = live_before()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dropped_by_oauth_cb(kafka, cluster, fill, Hiding if hidden else kafka.Producer)

    until_gone(before, *refs)


def test_background_thread_releases_tokens(kafka: ModuleType, cluster: Any) -> None:

    before = live_before()
    refs: list[weakref.ref[Any]] = []

    class Holding(kafka.Producer):  # type: ignore[misc, name-defined]
        def __init__(self, config: dict[str, Any]) -> None:
            token = Callback(config["oauth_cb"])
            refs.append(weakref.ref(token))
            super().__init__({**config, "oauth_cb": lambda words: token.held[0](words)})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dropped_by_oauth_cb(kafka, cluster, lambda producer: None, Holding)

    until_gone(before, *refs)
