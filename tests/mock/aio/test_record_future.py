"""RecordFuture: what produce() returns behaves as asyncio's Future."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
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


def test_it_can_be_awaited_again_and_by_several(run: Run, sent: Any, state: str) -> None:
    async def main() -> None:
        async def wait(future: Any) -> Any:
            return await future

        class Wrapped:
            def __init__(self, future: Any) -> None:
                self._future = future

            def __await__(self) -> Generator[Any, None, Any]:
                return (yield from self._future)

        async with sent(state) as send:
            future = await send()
            messages = await asyncio.gather(wait(future), wait(future), Wrapped(future), future)
            messages += [await future, future.result()]
            assert {id(message) for message in messages} == {id(messages[0])}
            assert messages[0].value() == b"v"
            assert future.exception() is None

    run(main())


def test_result_of_a_pending_record_is_not_ready(
    run: Run, slow: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(slow) as producer:
            future: Any = producer.produce(topic, "v")
            assert not future.done()
            with pytest.raises(asyncio.InvalidStateError):
                future.result()
            with pytest.raises(asyncio.InvalidStateError):
                future.exception()
            with pytest.raises(TypeError, match="await the future"):
                next(future)
            await producer.flush()
            assert future.result() is await future

    run(main())


def test_it_is_no_iterator_of_a_pending_record(run: Run, slow: dict[str, Any], topic: str) -> None:
    """An ``__await__()`` that returns the future, and not the future's iterator."""

    async def main() -> None:
        class Wrong:
            def __init__(self, future: Any) -> None:
                self._future = future

            def __await__(self) -> Any:
                return self._future

        async with AsyncProducer(slow) as producer:
            with pytest.raises(TypeError, match="await the future"):
                await Wrong(producer.produce(topic, "v"))

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


@pytest.mark.parametrize("state", [PENDING, DELIVERED, FAILED])
def test_callbacks_get_the_future_in_their_order_and_contexts(
    run: Run, sent: Any, state: str
) -> None:
    async def main() -> None:
        place = contextvars.ContextVar("place", default="none")
        calls: list[tuple[str, Any, str]] = []
        done = asyncio.Event()

        def note(name: str) -> Callable[[Any], None]:
            return lambda future: calls.append((name, future, place.get()))

        async with sent(state) as send:
            future = await send()
            context = contextvars.copy_context()
            context.run(place.set, "given")
            future.add_done_callback(note("a"), context=context)
            place.set("own")
            future.add_done_callback(note("b"))
            place.set("later")
            future.add_done_callback(lambda _: done.set())
            assert calls == []
            await asyncio.wait_for(done.wait(), WAIT_S)
            assert calls == [("a", future, "given"), ("b", future, "own")]
            assert all(found is future for _, found, _ in calls)
            if state == FAILED:
                future.exception()

    run(main())


@pytest.mark.parametrize("first", ["callback", "await"])
def test_callbacks_can_be_removed(run: Run, slow: dict[str, Any], topic: str, first: str) -> None:
    async def main() -> None:
        calls: list[str] = []

        async def wait(future: Any) -> None:
            await future

        def a(_: Any) -> None:
            calls.append("a")

        def b(_: Any) -> None:
            calls.append("b")

        async with AsyncProducer(slow) as producer:
            future = producer.produce(topic, "v")
            assert future.remove_done_callback(a) == 0
            if first == "await":  # asyncio's future is made before the callbacks come
                waiter = asyncio.create_task(wait(future))
                await asyncio.sleep(0)
            for fn in (a, b, a):
                future.add_done_callback(fn)
            assert future.remove_done_callback(a) == 2
            future.add_done_callback(b)
            await producer.flush()
            await asyncio.sleep(0)
            assert calls == ["b", "b"]
            assert future.remove_done_callback(b) == 0
            if first == "await":
                await waiter

    run(main())


def test_exception_of_a_callback_reaches_the_handler_of_the_loop(run: Run, sent: Any) -> None:
    reports: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
        async with sent(PENDING) as send:
            future = await send()
            future.add_done_callback(lambda _: 1 / 0)
            await future
            await asyncio.sleep(0)

    run(main())
    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]


def test_asyncios_functions_take_it(run: Run, sent: Any, state: str) -> None:
    async def main() -> None:
        async with sent(state) as send:
            futures = [await send() for _ in range(5)]
            done, pending = await asyncio.wait(futures, timeout=WAIT_S)
            assert done == set(futures)
            assert not pending
            futures = [await send() for _ in range(5)]
            assert len([await each for each in asyncio.as_completed(futures)]) == 5
            for function in (
                lambda future: asyncio.wait_for(future, WAIT_S),
                asyncio.shield,
                asyncio.wrap_future,
                asyncio.gather,
            ):
                result = await function(await send())  # type: ignore[operator]
                if isinstance(result, list):
                    (result,) = result
                assert result.value() == b"v"
            async with asyncio.timeout(WAIT_S):
                assert (await (await send())).value() == b"v"

    run(main())


def test_callback_that_discards_the_future_from_a_set(run: Run, sent: Any) -> None:
    """The usual way to keep what is not done."""

    async def main() -> None:
        async with sent(PENDING) as send:
            kept = set()
            for _ in range(10):
                future = await send()
                kept.add(future)
                future.add_done_callback(kept.discard)
            await asyncio.wait(list(kept))
            await asyncio.sleep(0)
            assert kept == set()

    run(main())


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


def test_cancelled_waiter_cancels_the_future_as_asyncios(
    run: Run, slow: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async def wait(future: Any) -> None:
            await future

        async with AsyncProducer(slow) as producer:
            future = producer.produce(topic, "v")
            waiter = asyncio.create_task(wait(future))
            await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            assert future.cancelled()

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


def test_one_that_produce_has_not_made_does_no_harm(run: Run, sent: Any) -> None:
    async def main() -> None:
        async with sent(DELIVERED) as send:
            kind = type(await send())
            assert kind.__new__(kind).done() is False
            for use in (
                lambda empty: empty.result(),
                lambda empty: empty.get_loop(),
                lambda empty: empty.cancel(),
                lambda empty: empty.__await__(),
                lambda empty: empty.settle(None, None),
                lambda empty: empty.fail(None),
                repr,
            ):
                with pytest.raises(AttributeError):
                    use(kind.__new__(kind))
            empty = kind.__new__(kind)
            empty.add_done_callback(print)
            with pytest.raises(AttributeError):
                empty.remove_done_callback(print)

    run(main())


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


def test_loop_of_a_kept_future_is_freed(quick: dict[str, Any], topic: str) -> None:
    async def main() -> tuple[Any, Any]:
        async with AsyncProducer(quick) as producer:
            future = producer.produce(topic, "v")
            await producer.flush()
            return future, weakref.ref(asyncio.get_running_loop())

    future, loop = asyncio.run(main())
    gc.collect()
    assert loop() is None
    assert future.result().value() == b"v"
    assert repr(future).startswith("<Future finished result=")
    with pytest.raises(RuntimeError, match="does not exist any more"):
        future.get_loop()


def test_iterator_of_a_delivered_record_can_be_driven_by_hand(run: Run, sent: Any) -> None:
    async def main() -> None:
        async with sent(DELIVERED) as send:
            iterator: Any = (await send()).__await__()
            with pytest.raises(StopIteration) as end:
                iterator.send(None)
            assert end.value.value.value() == b"v"
            with pytest.raises(ZeroDivisionError):
                iterator.throw(ZeroDivisionError())
            with pytest.raises(ZeroDivisionError):
                iterator.throw(ZeroDivisionError)

    run(main())


def test_collector_that_sends_while_waiting_records_are_queued(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(settings, **{"queue.buffering.max.messages": 5}) as producer:
            sent: list[Any] = []
            left, own = 200, threading.get_ident()

            def collected(phase: str, _: Any) -> None:
                nonlocal left
                # A loop without readers has a thread of its own, which may collect, too.
                if phase == "start" and left and threading.get_ident() == own:
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
