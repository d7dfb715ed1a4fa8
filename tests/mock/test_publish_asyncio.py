"""Awaiting a delivery: the event loop serves the producer, as other threads and loops may."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import threading
import time
from typing import Any

import pytest
from fixture_types import MakeProducer
from live import live_before
from machine import WAIT_S, wake_up_s

from cykafka import Delivery, DeliveryError, KafkaError
from cykafka.testing import live_handles

pytestmark = pytest.mark.ours


def run(coroutine: Any) -> Any:
    """Run a coroutine in a new loop; a hang fails."""
    return asyncio.run(asyncio.wait_for(coroutine, WAIT_S))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_await_serves_the_producer(producer: Any, topic: str) -> None:
    async def main() -> Delivery:
        before = threading.active_count()
        delivery = producer.publish(topic, ["a"] * 100, partitions=0)
        await delivery
        assert threading.active_count() == before
        return delivery

    delivery = run(main())
    assert list(delivery.offsets) == list(range(100))


def test_await_of_a_finished_delivery_returns_at_once(producer: Any, topic: str) -> None:
    delivery = producer.publish(topic, ["a"])
    delivery.wait(WAIT_S)

    async def main() -> None:
        assert await delivery is None
        assert await delivery is None

    run(main())


def test_await_raises_like_wait(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"linger.ms": 60_000})

    async def main() -> None:
        delivery = producer.publish(topic, ["a"] * 3)
        asyncio.get_running_loop().call_later(0.05, producer.purge)
        with pytest.raises(DeliveryError) as raised:
            await delivery
        assert raised.value.delivery is delivery
        assert {error.code() for error in raised.value.failures.values()} == {
            KafkaError._PURGE_QUEUE
        }

    run(main())


@pytest.mark.alone
def test_many_awaits_at_once_are_quick(producer: Any, topic: str) -> None:
    async def one() -> float:
        started = time.perf_counter()
        await producer.publish(topic, ["a"])
        return time.perf_counter() - started

    async def main() -> tuple[list[float], float]:
        await one()
        times = [await one() for _ in range(30)]
        started = time.perf_counter()
        await asyncio.gather(*[one() for _ in range(200)])
        return times, time.perf_counter() - started

    times, together = run(main())
    # A waiting thread also checks every 100 ms; awaits must not depend on that.
    late = 4 * wake_up_s()
    assert sorted(times)[15] < 0.05 + late
    assert together < 5 + 200 * late


@pytest.mark.alone
def test_await_with_a_polling_thread_ends_at_once(producer: Any, topic: str) -> None:
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            producer.poll(1)

    poller = threading.Thread(target=poll)
    poller.start()

    async def main() -> list[float]:
        times = []
        for _ in range(30):
            started = time.perf_counter()
            await producer.publish(topic, ["a"])
            times.append(time.perf_counter() - started)
        return times

    try:
        assert sorted(run(main()))[15] < 0.05 + 4 * wake_up_s()
    finally:
        over.set()
        poller.join()


def test_cancelled_await_leaks_nothing(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"linger.ms": 60_000})
    before = live_before()["deliveries"]

    async def main() -> None:
        delivery = producer.publish(topic, ["a"])
        for _ in range(50):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(delivery, 0.001)
        files = open_files()
        for _ in range(50):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(delivery, 0.001)
        assert open_files() == files

    run(main())
    producer.purge()
    producer.flush(WAIT_S)
    gc.collect()
    assert live_handles()["deliveries"] == before


def test_failures_after_a_cancelled_await_are_counted(
    make_producer: MakeProducer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = make_producer({"linger.ms": 60_000})

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(producer.publish(topic, ["a"] * 7), 0.001)

    run(main())
    gc.collect()
    producer.purge()
    with caplog.at_level(logging.WARNING, "cykafka"):
        producer.close()

    assert [record.args[1] for record in caplog.records if "check them;" in record.msg] == [7]


def test_cancelled_await_removes_no_other_callback(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer({"linger.ms": 60_000})
    calls: list[Any] = []

    class EqualToAll:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            return True

        def __call__(self, delivery: Any) -> None:
            calls.append(delivery)

    async def main() -> Any:
        delivery = producer.publish(topic, ["a"])
        delivery.add_done_callback(EqualToAll())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(delivery, 0.001)
        return delivery

    delivery = run(main())
    producer.purge()
    producer.flush(WAIT_S)
    assert calls == [delivery]


def test_callbacks_run_while_the_loop_serves(make_producer: MakeProducer, topic: str) -> None:
    calls: list[Any] = []
    producer = make_producer(on_delivery=lambda error, message: calls.append(message.value()))

    async def main() -> None:
        producer.produce(topic, "single", partition=0)
        await producer.publish(topic, ["a"], partitions=0)

    run(main())
    assert calls == [b"single"]


def test_callback_that_raises_does_not_keep_the_loop_from_serving(
    make_producer: MakeProducer, topic: str
) -> None:
    def fail(error: Any, message: Any) -> None:
        raise ArithmeticError("mine")

    producer = make_producer(on_delivery=fail)
    calls: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: calls.append(context))
        for _ in range(5):
            producer.produce(topic, "single", partition=0)
        await producer.publish(topic, ["a"], partitions=0)
        await producer.publish(topic, ["a"], partitions=0)

    run(main())
    for _ in range(5):  # serves reports that arrived after the last await
        with contextlib.suppress(ArithmeticError):
            producer.flush(WAIT_S)
    assert calls
    assert {type(context["exception"]) for context in calls} == {ArithmeticError}


def test_producer_closed_by_another_thread_ends_the_await(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer({"linger.ms": 300})

    async def main() -> None:
        delivery = producer.publish(topic, ["a"] * 3)
        closer = threading.Thread(target=producer.close)
        asyncio.get_running_loop().call_later(0.05, closer.start)
        await delivery
        await asyncio.to_thread(closer.join)
        assert delivery.failed == 0

    run(main())


def test_producer_closed_in_the_loop_ends_the_await(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer({"linger.ms": 300})

    async def main() -> None:
        delivery = producer.publish(topic, ["a"] * 3)
        asyncio.get_running_loop().call_later(0.05, producer.close)
        await delivery

    run(main())


def test_close_raises_the_interrupt_of_the_loop(
    make_producer: MakeProducer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = make_producer({"linger.ms": 300})

    async def main() -> None:
        loop = asyncio.get_running_loop()
        call_soon_threadsafe = loop.call_soon_threadsafe

        def interrupted(callback: Any, *args: Any, **kwargs: Any) -> Any:
            if callback.__name__ == "_unread":  # the last callback that close() schedules
                raise KeyboardInterrupt
            return call_soon_threadsafe(callback, *args, **kwargs)

        delivery = producer.publish(topic, ["a"])
        waiting = asyncio.ensure_future(delivery)
        await asyncio.sleep(0)
        monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.close()
        monkeypatch.undo()
        await waiting

    handles = live_before()["handles"]
    run(main())
    assert "closed" in repr(producer)
    assert live_handles()["handles"] == handles - 1


@pytest.mark.parametrize("call", ["produce", "poll"])
def test_signal_handler_at_the_end_of_close_sees_a_closed_producer(
    make_producer: MakeProducer, topic: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The reports in flight already have outcomes, so a new record would never get one."""
    producer = make_producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    reports: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        call_soon_threadsafe = loop.call_soon_threadsafe

        def use(callback: Any, *args: Any, **kwargs: Any) -> Any:
            if callback.__name__ == "_unread":
                if call == "produce":
                    producer.produce(
                        topic, b"x", on_delivery=lambda *report: reports.append(report)
                    )
                else:
                    producer.poll(0)
            return call_soon_threadsafe(callback, *args, **kwargs)

        waiting = asyncio.ensure_future(producer.publish(topic, ["a"]))
        await asyncio.sleep(0)
        monkeypatch.setattr(loop, "call_soon_threadsafe", use)
        with pytest.raises(RuntimeError, match=r"^Producer has been closed"):
            producer.close(timeout=0)
        monkeypatch.undo()
        with pytest.raises(DeliveryError):
            await waiting

    before = live_before()
    run(main())
    assert reports == []
    assert live_handles()["reports"] == before["reports"]


def test_files_are_closed_with_the_producer(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer()
    gc.collect()
    files = open_files()

    async def main(producer: Any) -> None:
        await producer.publish(topic, ["a"])

    for _ in range(20):
        other = make_producer()
        run(main(other))
        other.close()
        del other
    del producer
    gc.collect()

    # The number of connections varies, also those of brokers. Leaks of each producer would be 20.
    assert open_files() < files + 10


def test_closed_loop_does_no_harm(producer: Any, topic: str) -> None:
    loop = asyncio.new_event_loop()
    stuck = producer.publish(topic, ["a"]).__await__()

    async def begin() -> None:
        stuck.send(None)

    loop.run_until_complete(begin())
    loop.close()

    async def main() -> None:
        await producer.publish(topic, ["b"])

    run(main())
    producer.flush(WAIT_S)
    stuck.close()
    run(main())
