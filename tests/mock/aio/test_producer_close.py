"""AsyncProducer: its end."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from event_loops import Loop, eager_task, run_in
from live import live_before
from machine import WAIT_S
from outcomes import PURGED, code_of, open_files

from cykafka import KafkaError, KafkaException, TopicPartition
from cykafka.aio import AsyncConsumer, AsyncProducer
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
    assert all(item.error() is None for item in run(main(), reports))


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
    exits = iter([SystemExit(3)])

    def stats(_: str) -> None:
        for exit in exits:
            raise exit

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
    assert loop.run_until_complete(task) is False
    assert code_of(future.exception()) in PURGED  # type: ignore[arg-type]
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
    assert "the transaction's commit failed" in line


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
    handles = live_before()["handles"]
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


def test_tasks_that_begin_at_once_can_close(
    run: Run, unreachable: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(eager_task)  # type: ignore[arg-type]
        empty, full = AsyncProducer(unreachable), AsyncProducer(unreachable)
        future = full.produce(topic, "a")
        try:
            assert await asyncio.gather(empty.close(), empty.close()) == [True, True]
            assert await full.close(0.05) is False
        finally:
            loop.set_task_factory(None)
        assert code_of(future.exception()) in PURGED

    run(main())


def test_task_factory_that_raises_does_not_prevent_the_close(
    run: Run, quick: dict[str, Any]
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise LookupError("from the task factory")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        producer = AsyncProducer(quick)
        loop.set_task_factory(refuse)
        try:
            assert await producer.close() is True
        finally:
            loop.set_task_factory(None)

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


def test_close_during_a_commit_of_several_steps_waits_for_it(
    run: Run, mock_cluster: MockCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    mock_cluster.create_topic(topic)
    config = {"bootstrap.servers": mock_cluster.bootstrap_servers, "linger.ms": 0, "log_level": 2}

    async def main() -> None:
        for number in range(5):
            producer = AsyncProducer(config, **{"transactional.id": f"slow-{number}"})
            await producer.init_transactions()
            producer.begin_transaction()
            future = producer.produce(topic, "a")
            await producer.flush()
            mock_cluster.set_rtt(250)  # more than two slices of a transaction call
            mock_cluster.start_request_tracking()
            mock_cluster.clear_requests()
            committing = asyncio.create_task(producer.commit_transaction())
            await asyncio.to_thread(mock_cluster.wait_for_requests, "EndTxn", timeout=WAIT_S)
            await asyncio.sleep(0.04 * number)
            closed = await producer.close()
            await asyncio.wait([committing, future])
            mock_cluster.set_rtt(0)
            assert (committing.exception(), future.exception(), closed) == (None, None, True)

    run(main())
    assert caplog.messages == []


def test_close_while_another_task_sends_offsets_ends_the_transaction(
    run: Run, mock_cluster: MockCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    mock_cluster.create_topic(topic)
    config = {"bootstrap.servers": mock_cluster.bootstrap_servers, "linger.ms": 0, "log_level": 2}
    consumer = AsyncConsumer({**config, "group.id": "reader"})

    async def main() -> None:
        producer = AsyncProducer(config, **{"transactional.id": "sender"})
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.produce(topic, "a")
        consumer.assign([TopicPartition(topic, 0, 0)])
        group = consumer.consumer_group_metadata()
        mock_cluster.set_rtt(300)
        sending = asyncio.create_task(
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], group)
        )
        await asyncio.sleep(0.05)
        assert await producer.close() is True
        await asyncio.wait([sending])
        mock_cluster.set_rtt(0)
        await consumer.close()

    run(main())
    assert caplog.messages == []
