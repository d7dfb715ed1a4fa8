"""Transactions of AsyncProducer: calls that are cancelled at any moment, and blocks."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fixture_types import Unique
from machine import WAIT_S

from cykafka import KafkaError, KafkaException, TopicPartition
from cykafka.aio import AsyncConsumer, AsyncProducer
from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

Run = Callable[..., Any]


async def until_done(
    call: Callable[[], Coroutine[Any, Any, None]], rng: random.Random, longest: float
) -> int:
    """Make a call, cancel it and repeat it, until it succeeds. The number of cancellations."""
    for number in range(100):
        task = asyncio.create_task(call())
        if number == 0 and rng.random() < 0.5:
            await asyncio.sleep(0)  # the call has begun, and has no answer yet
        else:
            await asyncio.wait([task], timeout=rng.random() * longest * (1 + number))
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
            return number
    raise AssertionError("it never ends")


def test_transaction_calls_are_awaited(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(transactional) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            future = producer.produce(topic, "a", partition=0)
            await producer.commit_transaction()
            assert (await future).offset() == 0
            producer.begin_transaction()
            future = producer.produce(topic, "b", partition=0)
            await producer.abort_transaction()
            assert future.done()
            future.exception()

    run(main())


@pytest.mark.parametrize("ending", ["abort", "block", "cancelled commit"])
def test_loop_reports_no_records_that_the_program_has_aborted(
    run: Run,
    transactional: dict[str, Any],
    topic: str,
    caplog: pytest.LogCaptureFixture,
    ending: str,
) -> None:
    class OwnError(Exception):
        pass

    settings = {**transactional, "linger.ms": 30_000, "queue.buffering.max.messages": 3}

    def produce(producer: AsyncProducer) -> None:
        futures = [producer.produce(topic, "a") for _ in range(5)]  # two wait for room
        futures[0].cancel()

    async def failed(producer: AsyncProducer) -> None:
        async with producer.transaction():
            produce(producer)
            raise OwnError

    async def cancelled(producer: AsyncProducer) -> None:
        async with producer.transaction():
            produce(producer)
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    async def main() -> None:
        async with AsyncProducer(settings) as producer:
            await producer.init_transactions()
            if ending == "abort":
                producer.begin_transaction()
                produce(producer)
                await producer.abort_transaction()
            elif ending == "block":
                with pytest.raises(OwnError):
                    await failed(producer)
            else:
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.create_task(cancelled(producer))

    run(main())
    assert not caplog.records


def test_cancelled_calls_can_be_repeated(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    rng = random.Random(3)

    async def main() -> int:
        cancelled = 0
        async with AsyncProducer(transactional) as producer:
            cancelled += await until_done(producer.init_transactions, rng, 0.002)
            for number in range(25):
                producer.begin_transaction()
                future = producer.produce(topic, "a", partition=0)
                end = (
                    producer.abort_transaction if number % 3 == 2 else producer.commit_transaction
                )
                cancelled += await until_done(end, rng, 0.003)
                await asyncio.wait([future])
                if number % 3 != 2:
                    assert future.result().error() is None
                else:
                    future.exception()
        return cancelled

    assert run(main()) > 0


def test_block_commits(run: Run, transactional: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(transactional) as producer:
            for number in range(3):
                async with producer.transaction() as same:
                    assert same is producer
                    futures = [producer.produce(topic, "a", partition=0) for _ in range(5)]
                offsets = [(await future).offset() for future in futures]
                first = 6 * number  # behind each transaction the commit marker takes an offset
                assert offsets == list(range(first, first + 5))

    run(main())


def test_block_that_raises_aborts(run: Run, transactional: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer({**transactional, "linger.ms": 5000}) as producer:
            futures = []

            async def block() -> None:
                async with producer.transaction():
                    futures.append(producer.produce(topic, "a"))
                    raise ArithmeticError("mine")

            with pytest.raises(ArithmeticError):
                await block()
            with pytest.raises(KafkaException) as raised:
                await futures[0]
            assert raised.value.args[0].code() == KafkaError._PURGE_QUEUE

    run(main())


def test_blocks_cancelled_at_any_moment_leave_a_usable_producer(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    rng = random.Random(11)
    config = {**transactional, "queue.buffering.max.messages": 4}

    async def main() -> tuple[int, int]:
        done = cancelled = 0
        async with AsyncProducer(config) as producer:

            async def block() -> None:
                async with producer.transaction():
                    for future in [producer.produce(topic, "a") for _ in range(8)]:
                        future.add_done_callback(lambda item: item.cancelled() or item.exception())
                    await producer.publish(topic, ["b"] * 8)

            for _ in range(60):
                task = asyncio.create_task(block())
                if rng.random() < 0.3:
                    for _ in range(rng.randrange(8)):
                        await asyncio.sleep(0)
                else:
                    await asyncio.wait([task], timeout=rng.random() * 0.02)
                task.cancel()
                await asyncio.wait([task])
                if task.cancelled():
                    cancelled += 1
                else:
                    task.result()
                    done += 1
            async with asyncio.timeout(WAIT_S):
                await block()  # the producer is usable
        return done, cancelled

    done, cancelled = run(main())
    assert done + cancelled == 60
    assert cancelled > 0


def test_block_cancelled_while_it_registers_begins_no_transaction(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(transactional) as producer:

            async def block() -> None:
                async with producer.transaction():
                    raise AssertionError("it has begun")

            task = asyncio.create_task(block())
            for _ in range(2):
                await asyncio.sleep(0)
            task.cancel()  # during init_transactions(), which cannot be left
            await asyncio.wait([task])
            assert task.cancelled()
            async with producer.transaction():
                pass

    run(main())


def test_calls_end_with_their_timeout_when_the_broker_is_gone(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        with MockCluster() as own:
            own.create_topic(topic, 1)
            config = {**transactional, "bootstrap.servers": own.bootstrap_servers}
            producer = AsyncProducer(config)
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.produce(topic, "a")
        begun = time.perf_counter()
        with pytest.raises(KafkaException) as raised:
            await producer.commit_transaction(0.3)
        assert raised.value.args[0].retriable()
        assert 0.25 < time.perf_counter() - begun < 5
        # The commit can only be resumed; close() tries it until its timeout.
        begun = time.perf_counter()
        assert await producer.close(0.3) is False
        assert time.perf_counter() - begun < 5

    run(main())


def test_close_aborts_an_open_transaction_within_its_timeout(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        with MockCluster() as own:
            own.create_topic(topic, 1)
            config = {**transactional, "bootstrap.servers": own.bootstrap_servers}
            producer = AsyncProducer(config)
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.produce(topic, "a")
        begun = time.perf_counter()
        assert await producer.close(0.3) is False
        assert time.perf_counter() - begun < 5

    run(main())


def test_loop_that_is_closed_in_a_block_leaves_a_usable_producer(
    new_loop: Callable[[], Any], transactional: dict[str, Any], topic: str
) -> None:
    from event_loops import run_in

    producer = AsyncProducer(transactional)

    async def block() -> None:
        async with producer.transaction():
            await producer.produce(topic, "a")
            entered.set()
            await asyncio.sleep(WAIT_S)

    async def begin() -> None:
        tasks.append(asyncio.create_task(block()))
        await entered.wait()

    entered = asyncio.Event()
    tasks: list[Any] = []
    loop = new_loop()
    loop.run_until_complete(begin())
    loop.set_exception_handler(lambda *_: None)  # the task is destroyed while it is pending
    loop.close()
    tasks.clear()
    gc.collect()  # frees the task, and so ends the block

    async def again() -> None:
        async with producer.transaction():
            await producer.produce(topic, "b")
        await producer.close()

    run_in(new_loop, again())


def test_transaction_with_a_record_that_is_refused_late_is_not_committed(
    run: Run, transactional: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(transactional, **{"queue.buffering.max.messages": 2}) as producer:
            refused: list[asyncio.Future[Any]] = []

            async def send() -> None:
                async with producer.transaction():
                    sent = [producer.produce(topic, "a", partition=0) for _ in range(3)]
                    refused.append(producer.produce(topic, b"x" * 2_000_000, partition=0))
                    await asyncio.gather(*sent)

            with pytest.raises(KafkaException, match=r"1 record\(s\) .* were refused after"):
                await send()
            with pytest.raises(KafkaException) as error:
                await refused[0]
            assert error.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
            async with producer.transaction():  # the next one is complete
                assert (await producer.produce(topic, "b", partition=0)).value() == b"b"

    run(main())


def test_block_ends_if_its_producer_is_closed(
    run: Run, settings: dict[str, Any], transactional: dict[str, Any], topic: str, unique: Unique
) -> None:
    reading = {
        **settings,
        "group.id": unique("group"),
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }

    async def main() -> None:
        async with AsyncProducer(settings) as plain:
            await plain.publish(topic, ["a"] * 10, partitions=0)
        producer = AsyncProducer(transactional)
        async with AsyncConsumer(reading) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])

            async def send() -> None:
                async with producer.transaction(consumer):
                    assert await consumer.consume(1, WAIT_S)
                    await producer.close()
                    producer.produce(topic, "b")

            with pytest.raises(RuntimeError, match="closed"):
                await send()

    run(main())


def test_cancellation_counts_more_than_the_failure_of_the_call(
    run: Run, unreachable: dict[str, Any]
) -> None:
    async def main() -> None:
        async with AsyncProducer(unreachable, **{"transactional.id": "lost"}) as producer:
            # The call ends with a failure after 0.09 s.
            initializing = asyncio.create_task(producer.init_transactions(0.09))
            await asyncio.sleep(0.01)
            initializing.cancel()
            await asyncio.wait([initializing])
            assert initializing.cancelled()

    run(main())
