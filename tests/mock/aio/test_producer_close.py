"""AsyncProducer: its end."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import types
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from event_loops import Loop, run_in
from machine import WAIT_S
from outcomes import PURGED, code_of, open_files

from cykafka import KafkaError, KafkaException
from cykafka.aio import AsyncProducer
from cykafka.error import ClosedError, ForkedError
from cykafka.testing import MockCluster, live_handles

pytestmark = pytest.mark.ours

Run = Callable[..., Any]
END_TXN = 26  # the key of the request


def test_close_waits_for_the_records_and_ends_all_calls(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(settings, **{"linger.ms": 100})
        future = producer.produce(topic, "a")
        serving = asyncio.create_task(producer.serve())
        flushing = asyncio.create_task(producer.flush())
        assert await producer.close() is True
        assert await producer.close() is True
        assert (await future).error() is None
        assert await flushing == 0
        await asyncio.wait([serving])
        assert serving.exception() is None or isinstance(serving.exception(), ClosedError)
        with pytest.raises(ClosedError):
            producer.produce(topic, "a")
        with pytest.raises(ClosedError):
            await producer.publish(topic, ["a"])

    run(main())


def test_close_is_not_held_up_by_tasks_that_go_on_producing(
    run: Run, quick: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(quick)

        async def produce() -> None:
            while True:
                futures = [producer.produce(topic, "a") for _ in range(3)]
                await asyncio.wait(futures)

        tasks = [asyncio.create_task(produce()) for _ in range(20)]
        await asyncio.sleep(0.05)
        assert await producer.close() is True
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} == {ClosedError}

    run(main())


def test_close_fails_the_records_at_its_timeout(
    run: Run, unreachable: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(unreachable, **{"queue.buffering.max.messages": 3})
        futures = [producer.produce(topic, "a") for _ in range(5)]
        begun = time.perf_counter()
        assert await producer.close(0.0504) is False
        assert time.perf_counter() - begun < 5
        ends = await asyncio.gather(*futures, return_exceptions=True)
        assert {code_of(end) for end in ends} <= PURGED

    run(main())


def test_cancelled_close_fails_the_records_and_closes(
    run: Run, unreachable: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(unreachable)
        future = producer.produce(topic, "a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.05)
        assert code_of(future.exception()) in PURGED
        assert "closed" in repr(producer)

    run(main())


def test_close_in_a_delivery_callback_closes(run: Run, quick: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        producer = AsyncProducer(quick)
        closing: list[asyncio.Task[bool]] = []
        future = producer.produce(topic, "a")
        future.add_done_callback(lambda _: closing.append(asyncio.create_task(producer.close())))
        await future
        await asyncio.sleep(0)
        assert await closing[0] is True

    run(main())


def test_files_are_closed_with_the_producer(run: Run, quick: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(quick) as producer:
            await producer.produce(topic, "a")
            await producer.list_topics(timeout=WAIT_S)

    run(main())
    files = open_files()
    for _ in range(20):
        run(main())
    # Threads free the clients, and end for loops without readers, after the close.
    deadline = time.monotonic() + WAIT_S
    while open_files() >= files + 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_files() < files + 8  # the number of the brokers' connections varies


def test_fork_in_a_coroutine_leaves_the_producer_to_the_parent(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(settings, **{"linger.ms": 100}) as producer:

            async def use() -> None:
                with pytest.raises(ForkedError):
                    producer.produce(topic, "b", partition=0)
                with pytest.raises(ForkedError):
                    await producer.publish(topic, ["b"])
                with pytest.raises(ForkedError):
                    await producer.list_topics()
                await producer.close()

            future = producer.produce(topic, "a", partition=0)
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    asyncio.run(asyncio.wait_for(use(), WAIT_S))
                    code = 7
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            assert (await future).offset() == 0

    run(main())


def test_closes_at_the_same_time_have_one_result(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(settings)
        future = producer.produce(topic, "a")
        assert await asyncio.gather(producer.close(), producer.close(5)) == [True, True]
        assert await producer.close() is True
        assert (await future).error() is None

    run(main())


def test_callback_that_raises_during_the_close_loses_no_record(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    def stats(_: str) -> None:
        raise EOFError

    async def main() -> list[Any]:
        producer = AsyncProducer(
            settings, **{"statistics.interval.ms": 10, "stats_cb": stats, "linger.ms": 100}
        )
        futures = [producer.produce(topic, "a") for _ in range(1000)]
        assert await producer.close() is True
        return await asyncio.gather(*futures)

    reports: list[dict[str, Any]] = []
    assert all(each.error() is None for each in run(main(), reports))


def test_close_counts_records_and_no_events(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(
            settings, **{"statistics.interval.ms": 5, "stats_cb": lambda _: None}
        )
        while len(producer) == 0:
            time.sleep(0.005)  # the loop must not serve them
        assert await producer.close(0) is True

    run(main())


def test_callback_that_raises_in_the_abort_of_a_close_loses_no_record(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    def stats(_: str) -> None:
        raise EOFError

    async def main() -> list[Any]:
        producer = AsyncProducer(transactional, **{"statistics.interval.ms": 1, "stats_cb": stats})
        await producer.init_transactions()
        producer.begin_transaction()
        futures = [producer.produce(topic, "a") for _ in range(100)]
        assert await producer.close() is True
        assert "closed" in repr(producer)
        return await asyncio.gather(*futures, return_exceptions=True)

    reports: list[dict[str, Any]] = []
    ends = run(main(), reports)
    assert len(ends) == 100
    assert {type(report["exception"]) for report in reports} == {EOFError}


def test_exceptions_of_callbacks_leave_the_calls_of_a_transaction_alone(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    def stats(_: str) -> None:
        raise EOFError

    async def main() -> None:
        producer = AsyncProducer(transactional, **{"statistics.interval.ms": 1, "stats_cb": stats})
        await producer.init_transactions()
        for _ in range(20):
            async with producer.transaction():
                producer.produce(topic, "a")
                await producer.flush()
        assert await producer.close() is True

    reports: list[dict[str, Any]] = []
    run(main(), reports)
    assert {type(report["exception"]) for report in reports} == {EOFError}


def test_event_that_close_itself_runs_reports_its_exception(
    run: Run, settings: dict[str, Any]
) -> None:
    def stats(_: str) -> None:
        raise EOFError

    async def main() -> None:
        producer = AsyncProducer(settings, **{"statistics.interval.ms": 5, "stats_cb": stats})
        while len(producer) == 0:
            time.sleep(0.005)  # the loop must not serve them
        assert await producer.close(0) is True
        assert await producer.close() is True

    reports: list[dict[str, Any]] = []
    run(main(), reports)
    assert {type(report["exception"]) for report in reports} == {EOFError}


def test_callback_that_exits_in_the_close_ends_the_loop_and_closes(
    run: Run, settings: dict[str, Any]
) -> None:
    producers: list[AsyncProducer] = []

    def stats(_: str) -> None:
        raise SystemExit(3)

    async def main() -> None:
        producer = AsyncProducer(settings, **{"statistics.interval.ms": 5, "stats_cb": stats})
        producers.append(producer)
        while len(producer) == 0:
            time.sleep(0.005)  # the loop must not serve them
        await producer.close(0)

    with pytest.raises(SystemExit):
        run(main(), [])
    assert "closed" in repr(producers[0])


def test_close_that_is_cancelled_before_it_begins_closes(
    run: Run, unreachable: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(unreachable)
        future = producer.produce(topic, "a")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_coro().__name__ in ("close", "_close"):  # type: ignore[union-attr]
                task.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert "closed" in repr(producer)
        assert code_of(future.exception()) in PURGED  # type: ignore[arg-type]

    run(main())


def test_close_whose_loop_is_closed_is_completed_by_another_loop(
    new_loop: Callable[[], Loop], unreachable: dict[str, Any], topic: str
) -> None:
    loop = new_loop()
    loop.set_exception_handler(lambda *_: None)  # "Task was destroyed but it is pending"
    producer = AsyncProducer(unreachable)

    async def begin() -> asyncio.Future[Any]:
        future = producer.produce(topic, "a")
        asyncio.create_task(producer.close())  # noqa: RUF006
        await asyncio.sleep(0.05)
        return future

    future = loop.run_until_complete(begin())
    loop.close()
    assert run_in(new_loop, producer.close()) is False
    assert "closed" in repr(producer)
    del future  # the closed loop cannot tell it


def test_close_of_a_coroutine_that_the_collector_frees_closes(
    new_loop: Callable[[], Loop], unreachable: dict[str, Any], topic: str
) -> None:
    loop = new_loop()
    producer = AsyncProducer(unreachable)

    async def begin() -> tuple[asyncio.Future[Any], asyncio.Task[bool]]:
        future = producer.produce(topic, "a")
        task = asyncio.create_task(producer.close())
        await asyncio.sleep(0.05)
        return future, task

    future, task = loop.run_until_complete(begin())
    assert producer._closing is not None
    closing = producer._closing.get_coro()
    assert closing is not None
    closing.close()
    assert "closed" in repr(producer)
    assert code_of(future.exception()) in PURGED  # type: ignore[arg-type]
    assert loop.run_until_complete(task) is False
    loop.close()


def test_fork_during_the_close_leaves_the_producer_to_the_parent(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(settings, **{"linger.ms": 200})
        future = producer.produce(topic, "a", partition=0)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(asyncio.wait_for(producer.close(), WAIT_S))
                code = 7
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert await closing is True
        assert (await future).offset() == 0

    run(main())


def test_commit_that_fails_in_the_close_is_logged(
    run: Run, transactional: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with MockCluster() as own:
            own.create_topic(topic, 1)
            config = {**transactional, "bootstrap.servers": own.bootstrap_servers, "log_level": 2}
            producer = AsyncProducer(config)
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.produce(topic, "a")
            errors = [KafkaError.COORDINATOR_LOAD_IN_PROGRESS] * 6
            own.push_request_errors(END_TXN, [*errors, KafkaError.INVALID_REQUEST])
            with pytest.raises(KafkaException):
                await producer.commit_transaction(0.15)
            assert await producer.close() is False

    run(main())
    (line,) = (record.getMessage() for record in caplog.records)
    assert "the commit of the transaction has failed" in line


def test_close_reports_no_records_of_the_transaction_that_it_aborts(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(transactional, **{"linger.ms": 30_000})
        await producer.init_transactions()
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, "a")
        assert await producer.close() is True

    run(main())


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "dropped"])
@pytest.mark.filterwarnings("ignore:.*was never closed")
def test_producer_with_records_that_waited_for_room_is_freed(
    run: Run, unreachable: dict[str, Any], topic: str, closes: bool
) -> None:
    handles = live_handles()["handles"]
    kept: list[weakref.ref[AsyncProducer]] = []

    async def main() -> None:
        producer = AsyncProducer(unreachable, **{"queue.buffering.max.messages": 3})
        kept.append(weakref.ref(producer._producer))  # type: ignore[arg-type]
        futures = [producer.produce(topic, "a") for _ in range(5)]
        if closes:
            await producer.close(0)
            await asyncio.gather(*futures, return_exceptions=True)

    run(main(), [])
    deadline = time.monotonic() + WAIT_S
    while live_handles()["handles"] > handles and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    gc.collect()
    assert kept[0]() is None
    # Clients of earlier tests may have been freed meanwhile.
    assert live_handles()["handles"] <= handles


def test_loops_of_several_threads_close_and_flush_one_producer(
    new_loop: Callable[[], Loop], unreachable: dict[str, Any], topic: str
) -> None:
    producer = AsyncProducer(unreachable)
    is_flushing, is_closing = threading.Event(), threading.Event()
    results: list[Any] = []

    async def second() -> None:
        future = producer.produce(topic, "a")
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        is_flushing.set()
        await asyncio.to_thread(is_closing.wait)
        results.append(await asyncio.gather(producer.close(), producer.close(0)))
        results.append(await flushing)
        assert code_of(future.exception()) in PURGED  # type: ignore[arg-type]

    async def first() -> None:
        await asyncio.to_thread(is_flushing.wait)
        closing = asyncio.create_task(producer.close(0.3))
        await asyncio.sleep(0.01)
        is_closing.set()
        assert await closing is False

    thread = threading.Thread(target=lambda: run_in(new_loop, second()))
    thread.start()
    run_in(new_loop, first())
    thread.join()
    assert results == [[False, False], 0]


def test_cancelled_close_of_one_loop_ends_the_others(
    new_loop: Callable[[], Loop], unreachable: dict[str, Any], topic: str
) -> None:
    producer = AsyncProducer(unreachable)
    is_closing = threading.Event()

    async def first() -> bool:
        producer.produce(topic, "a").add_done_callback(lambda future: future.exception())
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.05)
        is_closing.set()
        return await closing

    async def second() -> None:
        await asyncio.to_thread(is_closing.wait)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.05)
        assert "closed" in repr(producer)

    thread = threading.Thread(target=lambda: run_in(new_loop, second()))
    thread.start()
    assert run_in(new_loop, first()) is False
    thread.join()


def test_close_that_is_cancelled_while_another_thread_begins_it_closes(
    new_loop: Callable[[], Loop], unreachable: dict[str, Any], topic: str
) -> None:
    producer = AsyncProducer(unreachable)
    begins, goes_on = threading.Event(), threading.Event()

    def held_up(
        loop: Loop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        begins.set()
        goes_on.wait(WAIT_S)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def first() -> bool:
        producer.produce(topic, "a").add_done_callback(lambda future: future.exception())
        asyncio.get_running_loop().set_task_factory(held_up)
        try:
            return await producer.close()
        finally:
            asyncio.get_running_loop().set_task_factory(None)

    async def second() -> None:
        await asyncio.to_thread(begins.wait)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.sleep(0.01)
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await closing

    thread = threading.Thread(target=lambda: run_in(new_loop, second()))
    thread.start()
    assert run_in(new_loop, first()) is False
    thread.join()


def test_tasks_that_begin_at_once_can_close(
    run: Run, unreachable: dict[str, Any], topic: str
) -> None:
    @types.coroutine
    def rest(awaited: Any, coroutine: Coroutine[Any, Any, Any]) -> Any:
        while True:
            try:
                sent = yield awaited
            except BaseException as error:
                step = partial(coroutine.throw, error)
            else:
                step = partial(coroutine.send, sent)
            try:
                awaited = step()
            except StopIteration as end:
                return end.value

    def eager(
        loop: Loop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Future[Any]:
        """What asyncio.eager_task_factory of Python 3.12 does."""
        try:
            awaited = coroutine.send(None)
        except StopIteration as end:
            done = loop.create_future()
            done.set_result(end.value)
            return done
        return asyncio.Task(rest(awaited, coroutine), loop=loop, **options)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(eager)  # type: ignore[arg-type]
        empty, full = AsyncProducer(unreachable), AsyncProducer(unreachable)
        future = full.produce(topic, "a")
        try:
            assert await asyncio.gather(empty.close(), empty.close()) == [True, True]
            assert await full.close(0.05) is False
        finally:
            loop.set_task_factory(None)
        assert code_of(future.exception()) in PURGED

    run(main())


def test_commit_that_another_task_has_made_is_no_failure_of_the_close(
    run: Run, transactional: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        commits = 0
        for number in range(20):
            name = f"{transactional['transactional.id']}-{number}"
            producer = AsyncProducer(transactional, **{"transactional.id": name, "log_level": 2})
            await producer.init_transactions()
            producer.begin_transaction()
            futures = [producer.produce(topic, "a") for _ in range(10)]
            committing = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            closed = await producer.close()
            await asyncio.wait([committing, *futures])
            if committing.exception() is None:
                commits += 1
                assert closed is True
                assert [future.exception() for future in futures] == [None] * 10
            else:
                for future in futures:
                    future.exception()
        assert commits > 0

    run(main())
    assert caplog.messages == []
