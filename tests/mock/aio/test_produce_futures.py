"""The futures of AsyncProducer.produce()."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from machine import WAIT_S

from cykafka import KafkaError, KafkaException
from cykafka.aio import AsyncProducer

pytestmark = pytest.mark.ours

Run = Callable[..., Any]

# How far the record is when the test begins.
PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"


@pytest.fixture(params=[PENDING, DELIVERED])
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sent(quick: dict[str, Any], slow: dict[str, Any], topic: str) -> Any:
    """A context whose call sends a record. PENDING: its outcome comes soon."""

    @asynccontextmanager
    async def context(state: str) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        async with AsyncProducer(slow if state == FAILED else quick) as producer:

            async def send() -> Any:
                future = producer.produce(topic, "v")
                if state == FAILED:
                    producer.purge()
                if state != PENDING:
                    await producer.flush()
                return future

            yield send

    return context


def test_it_passes_for_asyncios_future(run: Run, sent: Any, state: str) -> None:
    async def main() -> None:
        async with sent(state) as send:
            future = await send()
            assert isinstance(future, asyncio.Future)
            assert asyncio.isfuture(future)
            assert asyncio.ensure_future(future) is future
            assert future.get_loop() is asyncio.get_running_loop()
            assert future.done() or state == PENDING
            assert future.cancelled() is False
            assert repr(future).startswith("<Future ")
            assert weakref.ref(future)() is future
            assert {future: 1}[future] == 1
            future.note = "mine"
            assert future.note == "mine"
            with pytest.raises(AttributeError):
                future.no_such_name  # noqa: B018
            await future
            assert future.note == "mine"
            del future.note
            assert not hasattr(future, "note")
            assert not callable(future)

    run(main())


def test_failure_raises_wherever_it_is_asked_for(run: Run, sent: Any) -> None:
    async def main() -> None:
        async with sent(FAILED) as send:
            future = await send()
            assert future.done()
            assert not future.cancelled()
            error = future.exception()
            assert error.args[0] == KafkaError._PURGE_QUEUE
            with pytest.raises(KafkaException) as raised:
                await future
            assert raised.value is error
            with pytest.raises(KafkaException):
                future.result()
            (gathered,) = await asyncio.gather(future, return_exceptions=True)
            assert gathered is error

    run(main())


def test_failure_that_nobody_asks_for_is_reported(run: Run, sent: Any) -> None:
    reports: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
        async with sent(FAILED) as send:
            await send()
            gc.collect()

    run(main())
    assert [report["message"] for report in reports] == ["Future exception was never retrieved"]


def test_loop_runs_until_it_is_complete(quick: dict[str, Any], topic: str) -> None:
    loop = asyncio.new_event_loop()
    try:

        async def begin() -> tuple[AsyncProducer, Any]:
            producer = AsyncProducer(quick)
            return producer, producer.produce(topic, "v")

        producer, future = loop.run_until_complete(begin())
        assert loop.run_until_complete(future).value() == b"v"
        loop.run_until_complete(producer.close())
    finally:
        loop.close()


def test_cancellation_reaches_everyone_and_not_the_record(
    run: Run, slow: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async def wait(future: Any) -> None:
            await future

        async with AsyncProducer(slow) as producer:
            future = producer.produce(topic, "v", partition=0)
            calls: list[Any] = []
            future.add_done_callback(calls.append)
            waiter = asyncio.create_task(wait(future))
            await asyncio.sleep(0)
            assert future.cancel("stop") is True
            assert future.cancelled()
            assert future.done()
            with pytest.raises(asyncio.CancelledError, match="stop"):
                await waiter
            with pytest.raises(asyncio.CancelledError):
                future.result()
            assert calls == [future]
            assert future.cancel() is False
            assert await producer.flush() == 0
            following = producer.produce(topic, "w", partition=0)
            await producer.flush()
            assert (await following).offset() == 1

    run(main())


def test_outcome_that_another_one_has_set_before_the_record(
    run: Run, slow: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with AsyncProducer(slow) as producer:
            future: Any = producer.produce(topic, "v")
            future.set_result("mine")
            producer.purge()
            await producer.flush()
            assert await future == "mine"

    with caplog.at_level(logging.WARNING, "cykafka"):
        run(main())
    assert [record.getMessage() for record in caplog.records] == [
        f"a record to {topic} failed: Local: Purged in queue"
    ]


def test_garbage_collector_frees_a_cycle_through_it(run: Run, sent: Any, state: str) -> None:
    async def main() -> None:
        async with sent(state) as send:
            future = await send()
            message = await future
            message.set_value([future])
            gone = weakref.ref(future)
            del future, message
            await asyncio.sleep(0)  # the call that has woken this task holds it
            assert gone() is not None
            gc.collect()
            assert gone() is None

    run(main())


@pytest.mark.parametrize("state", [DELIVERED, FAILED])
def test_garbage_collector_frees_a_cycle_through_the_loop(
    quick: dict[str, Any], slow: dict[str, Any], topic: str, state: str
) -> None:
    """Nobody has asked for the futures, which the loop keeps."""

    class App:
        def __init__(self) -> None:
            self.futures: list[Any] = []

        def handle(self, loop: Any, report: Any) -> None:
            self.futures.append(report)

    async def main() -> weakref.ref[App]:
        app = App()
        asyncio.get_running_loop().set_exception_handler(app.handle)
        async with AsyncProducer(slow if state == FAILED else quick) as producer:
            app.futures += [producer.produce(topic, "v") for _ in range(3)]
            if state == FAILED:
                producer.purge()
            await producer.flush()
        return weakref.ref(app)

    gone = asyncio.run(main())
    gc.collect()
    assert gone() is None


# A recorded warning would keep the producer.
@pytest.mark.filterwarnings("ignore:.*was never closed")
def test_garbage_collector_frees_the_future_of_a_dropped_record(
    slow: dict[str, Any], topic: str
) -> None:
    class Held:
        pass

    async def main() -> weakref.ref[Held]:
        held: Any = Held()
        asyncio.get_running_loop().set_exception_handler(lambda *_: held)
        held.future = AsyncProducer(slow).produce(topic, "v")
        return weakref.ref(held)

    gone = asyncio.run(main())
    deadline = time.monotonic() + WAIT_S
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert gone() is None


def test_collector_that_sends_while_waiting_records_are_queued(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(settings, **{"queue.buffering.max.messages": 5}) as producer:
            sent: list[Any] = []
            left = 200

            def collected(phase: str, _: Any) -> None:
                nonlocal left
                if phase == "start" and left:
                    left -= 1
                    sent.append(producer.produce(topic, "collected"))

            before = gc.get_threshold()
            gc.callbacks.append(collected)
            gc.set_threshold(1)
            try:
                futures = [producer.produce(topic, "v") for _ in range(100)]
                await asyncio.gather(*futures)
            finally:
                gc.set_threshold(*before)
                gc.callbacks.remove(collected)
            assert left < 200
            await asyncio.gather(*sent)

    run(main())
