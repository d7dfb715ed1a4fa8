"""Several event loops use one client, each in its own thread."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from event_loops import run_in
from machine import WAIT_S

from cykafka import KafkaException, TopicPartition
from cykafka.admin import OffsetSpec
from cykafka.aio import AsyncAdminClient, AsyncProducer

pytestmark = pytest.mark.ours

Run = Callable[..., Any]
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@contextmanager
def running(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Iterator[None]:
    """Run a coroutine in a thread; the end of the block waits for it. Does not close the loop."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            loop.run_until_complete(asyncio.wait_for(work, WAIT_S))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(WAIT_S)
    assert not thread.is_alive()
    assert failures == []


# -- loops that begin, end and move


def test_loops_of_several_threads_share_a_producer_with_a_full_queue(
    new_loop: NewLoop, quick: dict[str, Any], topic: str
) -> None:
    """Each record has one outcome, and the records of each loop keep their order."""
    producer = AsyncProducer(quick, **{"queue.buffering.max.messages": 7})
    failures: list[BaseException] = []
    offsets: dict[int, list[int]] = {}

    async def send(number: int) -> None:
        futures = [producer.produce(topic, f"{number}", partition=0) for _ in range(400)]
        offsets[number] = [(await future).offset() or 0 for future in futures]

    def work(number: int) -> None:
        try:
            run_in(new_loop, send(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run_in(new_loop, producer.close())

    assert failures == []
    assert all(each == sorted(each) for each in offsets.values())
    assert sorted(itertools.chain(*offsets.values())) == list(range(1600))


def test_loop_that_ends_with_records_in_flight_hands_the_serving_on(
    new_loop: NewLoop, settings: dict[str, Any], topic: str
) -> None:
    producer = AsyncProducer(settings, **{"linger.ms": 500})
    waiting = threading.Event()
    over = threading.Event()
    failures: list[BaseException] = []

    async def second() -> None:
        future = producer.produce(topic, "b")
        waiting.set()
        await future

    def work() -> None:
        try:
            run_in(new_loop, second())
        except BaseException as error:
            failures.append(error)
        over.set()

    async def first() -> None:
        producer.produce(topic, "a")
        await asyncio.sleep(0)  # until this loop serves
        thread.start()
        await asyncio.to_thread(waiting.wait)

    thread = threading.Thread(target=work)
    run_in(new_loop, first())  # closes the loop
    assert over.wait(20)
    thread.join()
    run_in(new_loop, producer.close())
    assert failures == []


def test_records_that_wait_are_sent_after_the_loop_of_the_others_is_closed(
    new_loop: NewLoop, settings: dict[str, Any], topic: str
) -> None:
    producer = AsyncProducer(settings, **{"linger.ms": 300, "queue.buffering.max.messages": 3})

    async def first() -> None:
        for _ in range(3):
            producer.produce(topic, "a", partition=0)

    async def second() -> None:
        assert (await producer.produce(topic, "b", partition=0)).offset() == 3
        await producer.close()

    run_in(new_loop, first())
    run_in(new_loop, second())


def test_record_of_another_threads_loop(run: Run, slow: dict[str, Any], topic: str) -> None:
    """Its callbacks run in its loop, whoever serves."""

    async def main() -> None:
        async with AsyncProducer({**slow, "linger.ms": 50}) as producer:
            threads: list[int] = []

            async def other() -> bytes:
                future = producer.produce(topic, "v")
                future.add_done_callback(lambda _: threads.append(threading.get_ident()))
                value = (await future).value()
                await asyncio.sleep(0)
                assert threads == [threading.get_ident()]
                return bytes(value or b"")

            own = producer.produce(topic, "v")
            loop = asyncio.get_running_loop()
            assert await loop.run_in_executor(None, lambda: asyncio.run(other())) == b"v"
            await own

    run(main())


def test_loop_that_moved_to_another_thread_gets_its_own_records_only(
    slow: dict[str, Any], topic: str
) -> None:
    """Its records are in flight while it runs in another thread, and another loop in its first."""
    loop = asyncio.new_event_loop()
    other = asyncio.new_event_loop()

    async def begin() -> tuple[AsyncProducer, Any]:
        producer = AsyncProducer(slow)
        return producer, producer.produce(topic, "a")

    async def wait(future: Any) -> bytes:
        running.set()
        return bytes((await future).value())

    async def send() -> None:
        with pytest.raises(asyncio.InvalidStateError):
            mine.result()
        future = producer.produce(topic, "b")
        assert future.get_loop() is other
        await producer.flush()
        assert (await future).value() == b"b"

    running = threading.Event()
    producer, mine = loop.run_until_complete(begin())
    results: list[bytes] = []
    thread = threading.Thread(
        target=lambda: results.append(loop.run_until_complete(wait(mine))), daemon=True
    )
    thread.start()
    try:
        assert running.wait(WAIT_S)
        with pytest.raises(RuntimeError, match="no running event loop"):
            producer.produce(topic, "c")
        other.run_until_complete(send())
        thread.join(WAIT_S)
        assert results == [b"a"]
        other.run_until_complete(producer.close())
    finally:
        other.close()
        if not thread.is_alive():
            loop.close()


def test_timed_flush_ends_while_other_loops_send(slow: dict[str, Any], topic: str) -> None:
    """The queue never becomes empty."""
    stop = threading.Event()

    async def send(producer: AsyncProducer) -> None:
        while not stop.is_set():
            if len(producer) < 20_000:
                for _ in range(100):
                    producer.produce(topic, "v")
            await asyncio.sleep(0)

    async def main() -> float:
        async with AsyncProducer({**slow, "linger.ms": 1}) as producer:
            threads = [
                threading.Thread(target=lambda: asyncio.run(send(producer))) for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            longest = 0.0
            try:
                for _ in range(20):
                    began = time.monotonic()
                    await producer.flush(0.01)
                    longest = max(longest, time.monotonic() - began)
            finally:
                stop.set()
                while any(thread.is_alive() for thread in threads):
                    await asyncio.sleep(0.01)
            return longest

    assert asyncio.run(main()) < WAIT_S


# -- the serving loop does not serve


def test_loop_that_stops_unclosed_does_not_hold_up_the_others(
    new_loop: NewLoop, slow: dict[str, Any], topic: str
) -> None:
    """Its own record gets its outcome when it runs again."""
    producer = AsyncProducer(slow)
    first = new_loop()
    serves, awaits = threading.Event(), threading.Event()
    futures: list[Any] = []

    async def begin() -> None:
        futures.append(producer.produce(topic, "a"))
        await asyncio.sleep(0)
        serves.set()
        await asyncio.to_thread(awaits.wait, WAIT_S)

    async def other() -> None:
        with running(first, begin()):
            assert serves.wait(WAIT_S)
            future = producer.produce(topic, "b")
            awaits.set()
        producer.purge()
        with pytest.raises(KafkaException, match="Purged"):
            await future

    async def go_on() -> None:
        with pytest.raises(KafkaException, match="Purged"):
            await futures[0]
        await producer.close()

    try:
        run_in(new_loop, other())
        first.run_until_complete(asyncio.wait_for(go_on(), WAIT_S))
    finally:
        first.close()


async def record(producer: AsyncProducer, topic: str) -> None:
    assert (await producer.produce(topic, "b")).value() == b"b"


async def flush(producer: AsyncProducer, topic: str) -> None:
    future = producer.produce(topic, "b")
    assert await producer.flush() == 0
    assert future.done()


async def batch(producer: AsyncProducer, topic: str) -> None:
    assert len(await producer.publish(topic, ["b", "c"])) == 2


async def metadata(producer: AsyncProducer, topic: str) -> None:
    assert topic in (await producer.list_topics()).topics


@pytest.mark.parametrize("work", [record, flush, batch, metadata])
def test_blocked_loop_does_not_hold_up_the_others(
    new_loop: NewLoop,
    quick: dict[str, Any],
    topic: str,
    work: Callable[..., Coroutine[Any, Any, None]],
) -> None:
    producer = AsyncProducer(quick)
    serves, go_on = threading.Event(), threading.Event()

    async def first() -> None:
        future = producer.produce(topic, "a")
        await future  # it goes on serving
        future = producer.produce(topic, "a")
        serves.set()
        assert go_on.wait(WAIT_S)  # blocks the loop
        await future

    async def other() -> None:
        assert serves.wait(WAIT_S)
        try:
            await work(producer, topic)
        finally:
            go_on.set()

    with running(loop := new_loop(), first()):
        run_in(new_loop, other())
    loop.close()
    run_in(new_loop, producer.close())


# -- the outcomes of other loops


async def serve_and_close(
    producer: AsyncProducer,
    topic: str,
    loop: asyncio.AbstractEventLoop,
    other: Coroutine[Any, Any, None],
    sent: threading.Event,
    served: threading.Event,
) -> None:
    """Serve the records of a coroutine of another loop, which sets `sent` and awaits `served`."""
    producer.produce(topic, "first")  # from now on this loop serves
    with running(loop, other):
        assert sent.wait(WAIT_S)
        await producer.flush()
        served.set()
    await producer.close()


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the calls of other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.cnt = 0

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        self.cnt += 1
        return super().call_soon_threadsafe(callback, *args, context=context)


def test_outcomes_of_another_loop_cost_it_one_call(slow: dict[str, Any], topic: str) -> None:
    producer = AsyncProducer(slow)
    loop = CountingLoop()
    sent, served = threading.Event(), threading.Event()

    async def other() -> None:
        futures = [producer.produce(topic, str(number)) for number in range(1000)]
        before = loop.cnt
        sent.set()
        assert served.wait(WAIT_S)  # blocks the loop, so that the outcomes gather
        assert loop.cnt <= before + 2  # the outcomes, and the serving, which is handed on
        assert [int((await future).value()) for future in futures] == list(range(1000))

    asyncio.run(serve_and_close(producer, topic, loop, other(), sent, served))
    loop.close()


def test_loop_reports_what_its_future_raises_and_sets_the_others(
    slow: dict[str, Any], topic: str
) -> None:
    class Raising(asyncio.Future[Any]):
        def set_result(self, result: Any) -> None:
            super().set_result(result)
            raise ArithmeticError

    producer = AsyncProducer(slow)
    loop = asyncio.new_event_loop()
    reports: list[Any] = []
    loop.set_exception_handler(lambda _, report: reports.append(report["exception"]))
    sent, served = threading.Event(), threading.Event()

    async def other() -> None:
        futures = [producer.produce(topic, str(number)) for number in range(4)]
        loop.create_future = lambda: Raising(loop=loop)  # type: ignore[method-assign]
        for future in futures[:2]:
            future.cancelled()
            assert not future._asyncio_future_blocking
            assert repr(future).startswith("<Raising pending")  # the future is made
        del loop.create_future  # type: ignore[method-assign]
        sent.set()
        assert served.wait(WAIT_S)
        assert [int((await future).value()) for future in futures] == list(range(4))

    asyncio.run(serve_and_close(producer, topic, loop, other(), sent, served))
    loop.close()
    assert [type(report) for report in reports] == [ArithmeticError] * 2


def test_failures_that_a_closed_loop_has_not_set_are_logged(
    slow: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(asyncio.SelectorEventLoop):
        """Ends before it hears of anything."""

        def call_soon_threadsafe(self, *_: Any, **__: Any) -> Any:
            if self.is_closed():
                raise RuntimeError("Event loop is closed")

    producer = AsyncProducer(slow)
    loop = Deaf()
    sent, purged = threading.Event(), threading.Event()

    async def other() -> None:
        producer.produce(topic, "a")
        sent.set()
        assert purged.wait(WAIT_S)
        producer.produce(topic, "b")

    async def main() -> None:
        futures = [producer.produce(topic, "first")]  # from now on this loop serves
        with running(loop, other()):
            assert sent.wait(WAIT_S)
            producer.purge()
            await producer.flush()
            futures.append(producer.produce(topic, "second"))
            purged.set()
        loop.close()
        assert caplog.messages == []
        producer.purge()
        await producer.flush()
        for future in futures:
            with pytest.raises(KafkaException, match="Purged"):
                await future
        await producer.close()

    with caplog.at_level(logging.WARNING, "cykafka"):
        asyncio.run(main())
    failed = f"a record to {topic} failed: Local: Purged in queue"
    assert caplog.messages == [failed] * 2


class LateLoop(asyncio.SelectorEventLoop):
    """Another thread's outcomes take a while to arrive."""

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        if getattr(callback, "__name__", "") == "_set_left":
            return super().call_soon_threadsafe(self.call_later, 0.2, callback, *args)
        return super().call_soon_threadsafe(callback, *args, context=context)


def test_flush_waits_for_outcomes_that_another_loop_hands_over(
    slow: dict[str, Any], topic: str
) -> None:
    producer = AsyncProducer(slow)
    loop = LateLoop()
    sent, served = threading.Event(), threading.Event()

    async def other() -> None:
        future = producer.produce(topic, "a")
        sent.set()
        assert served.wait(WAIT_S)
        assert len(producer) == 0
        assert await producer.flush(0) == 1
        assert not future.done()
        assert await producer.flush() == 0
        assert future.done()

    asyncio.run(serve_and_close(producer, topic, loop, other(), sent, served))
    loop.close()


@pytest.mark.parametrize("is_told", [False, True])
def test_signal_handler_that_raises_loses_no_outcome(
    slow: dict[str, Any], topic: str, is_told: bool
) -> None:
    class Interrupted(asyncio.SelectorEventLoop):
        """A signal handler raises while another thread hands over outcomes, once."""

        is_over = False

        def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
            if getattr(callback, "__name__", "") == "_set_left" and not self.is_over:
                self.is_over = True
                if is_told:
                    super().call_soon_threadsafe(callback, *args, context=context)
                    assert done.wait(WAIT_S)
                raise KeyboardInterrupt
            return super().call_soon_threadsafe(callback, *args, context=context)

    producer = AsyncProducer(slow)
    serves, sent, done = (threading.Event() for _ in range(3))
    loop, first = Interrupted(), asyncio.new_event_loop()

    async def other() -> None:
        assert serves.wait(WAIT_S)
        future = producer.produce(topic, "a")
        sent.set()
        assert (await future).value() == b"a"
        done.set()

    async def begin() -> None:
        producer.produce(topic, "first")
        serves.set()
        assert sent.wait(WAIT_S)
        await producer.flush()
        await asyncio.sleep(WAIT_S)

    with running(loop, other()):
        with pytest.raises(KeyboardInterrupt):
            first.run_until_complete(begin())
        assert done.wait(WAIT_S)
        first.run_until_complete(producer.close())
    tasks = asyncio.all_tasks(first)
    for task in tasks:
        task.cancel()
    first.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    first.close()
    loop.close()


def test_event_after_a_callback_that_raises_in_a_replaced_loop_is_served(
    quick: dict[str, Any], topic: str
) -> None:
    blocked, go_on, over = (threading.Event() for _ in range(3))
    calls: list[float] = []
    reports: list[Any] = []

    def stats(_: str) -> None:
        calls.append(time.monotonic())
        if len(calls) == 1:
            blocked.set()
            assert go_on.wait(WAIT_S)
            raise ArithmeticError

    # The next statistics would make the loop serve again.
    producer = AsyncProducer(quick, **{"stats_cb": stats, "statistics.interval.ms": 4000})
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, report: reports.append(report["exception"]))

    async def first() -> None:
        await producer.produce(topic, "a")  # from now on this loop serves
        await asyncio.to_thread(over.wait, WAIT_S)

    async def other() -> None:
        await asyncio.to_thread(blocked.wait, WAIT_S)
        future = producer.produce(topic, "b")
        await asyncio.sleep(1.5)  # this loop takes over, and takes the report in
        assert not future.done()
        go_on.set()
        try:
            await asyncio.wait_for(future, WAIT_S)
            assert len(calls) == 1
        finally:
            over.set()

    with running(loop, first()):
        asyncio.run(other())
    loop.close()
    asyncio.run(producer.close())
    assert [type(report) for report in reports] == [ArithmeticError]


# -- what belongs to a loop


def test_closed_loops_are_freed_while_their_client_is_used(
    settings: dict[str, Any], topic: str
) -> None:
    producer = AsyncProducer(settings, **{"linger.ms": 20})
    loops: list[weakref.ref[Any]] = []

    async def leave_a_record() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        producer.produce(topic, "left")

    async def main() -> None:
        async with producer:
            own = producer.produce(topic, "v")
            for _ in range(5):
                await asyncio.to_thread(asyncio.run, leave_a_record())
            await own
            await producer.flush()
            await producer.produce(topic, "v")
            gc.collect()
            assert [loop() for loop in loops] == [None] * 5

    asyncio.run(main())


def test_answer_of_another_loops_request_touches_no_timer_of_it(
    settings: dict[str, Any], topic: str
) -> None:
    threads: set[bool] = set()

    class Own(asyncio.SelectorEventLoop):
        def _timer_handle_cancelled(self, handle: Any) -> None:
            threads.add(self._thread_id == threading.get_ident())  # type: ignore[attr-defined]
            super()._timer_handle_cancelled(handle)  # type: ignore[misc]

    async def ask(times: int) -> None:
        for _ in range(times):
            for future in admin.list_offsets(wanted).values():
                await future

    async def main() -> None:
        await admin.list_topics(topic)  # makes it
        with running(loop, ask(50)):
            while not threads:
                await ask(1)
            await ask(50)
        await admin.close()

    wanted = {TopicPartition(topic, 0): OffsetSpec.latest()}
    admin = AsyncAdminClient(settings)
    loop = Own()
    asyncio.run(main())
    loop.close()
    assert threads == {True}
