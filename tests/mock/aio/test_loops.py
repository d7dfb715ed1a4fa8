"""A client belongs to one event loop at a time."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from event_loops import Loop, run_in
from machine import WAIT_S

from cykafka import KafkaException, Producer, TopicPartition
from cykafka.admin import OffsetSpec
from cykafka.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer

pytestmark = pytest.mark.ours

NewLoop = Callable[[], Loop]
ANOTHER_LOOP = "is used in another event loop"


def run_in_thread(new_loop: NewLoop, work: Awaitable[Any]) -> Awaitable[Any]:
    """Run a coroutine in a loop of another thread."""

    async def main() -> Any:
        return await work

    return asyncio.to_thread(run_in, new_loop, main())


# -- another loop while the first one is open


@pytest.mark.parametrize("use", ["produce", "publish", "flush", "list_topics", "close"])
def test_producer_refuses_a_second_loop(
    new_loop: NewLoop, slow: dict[str, Any], topic: str, use: str
) -> None:
    async def second() -> None:
        call: dict[str, Callable[[], Awaitable[Any]]] = {
            "produce": lambda: producer.produce(topic, "b", partition=0),
            "publish": lambda: producer.publish(topic, ["b"], partitions=[0]),
            "flush": producer.flush,
            "list_topics": producer.list_topics,
            "close": producer.close,
        }
        with pytest.raises(RuntimeError, match=ANOTHER_LOOP):
            await call[use]()

    async def first() -> None:
        producer.produce(topic, "a", partition=0)
        await run_in_thread(new_loop, second())
        future = producer.produce(topic, "c", partition=0)
        await producer.flush()
        assert (await future).offset() == 1  # the other loop has sent nothing
        await producer.close()

    producer = AsyncProducer(slow)
    run_in(new_loop, first())


@pytest.mark.parametrize("use", ["commit_transaction", "abort_transaction", "block"])
def test_transaction_refuses_a_second_loop(
    new_loop: NewLoop, transactional: dict[str, Any], topic: str, use: str
) -> None:
    async def block() -> None:
        async with producer.transaction():
            pytest.fail("it has begun")

    async def second() -> None:
        call = block if use == "block" else getattr(producer, use)
        with pytest.raises(RuntimeError, match=ANOTHER_LOOP):
            await call()

    async def first() -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        future = producer.produce(topic, "a")
        await run_in_thread(new_loop, second())
        await producer.commit_transaction()
        assert (await future).error() is None
        await producer.close()

    producer = AsyncProducer(transactional)
    run_in(new_loop, first())


@pytest.mark.parametrize("use", ["poll", "consume_batch", "commit", "committed", "close"])
def test_consumer_refuses_a_second_loop(
    new_loop: NewLoop, reading: dict[str, Any], topic: str, use: str
) -> None:
    async def second() -> None:
        call: dict[str, Callable[[], Awaitable[Any]]] = {
            "poll": consumer.poll,
            "consume_batch": consumer.consume_batch,
            "commit": lambda: consumer.commit(offsets=[TopicPartition(topic, 0, 7)]),
            "committed": lambda: consumer.committed([place]),
            "close": consumer.close,
        }
        with pytest.raises(RuntimeError, match=ANOTHER_LOOP):
            await call[use]()

    async def first() -> None:
        consumer.assign([place])
        assert await consumer.poll(0.01) is None
        await run_in_thread(new_loop, second())
        (committed,) = await consumer.committed([place])
        assert committed.offset != 7
        await consumer.close()

    place = TopicPartition(topic, 0, 0)
    consumer = AsyncConsumer(reading)
    run_in(new_loop, first())


def test_admin_client_refuses_a_second_loop(
    new_loop: NewLoop, settings: dict[str, Any], topic: str
) -> None:
    request = {TopicPartition(topic, 0): OffsetSpec.latest()}

    async def second() -> None:
        with pytest.raises(RuntimeError, match=ANOTHER_LOOP):
            admin.list_offsets(request)

    async def first() -> None:
        for future in admin.list_offsets(request).values():
            await future
        await run_in_thread(new_loop, second())
        await admin.close()

    admin = AsyncAdminClient(settings)
    run_in(new_loop, first())


def test_delivery_refuses_a_second_loop_only_while_the_first_one_awaits(
    new_loop: NewLoop, slow: dict[str, Any], topic: str
) -> None:
    async def refused() -> None:
        with pytest.raises(RuntimeError, match=ANOTHER_LOOP):
            await producer.publish(topic, ["b"])

    async def publish() -> None:
        delivery = producer.publish(topic, ["c"])
        await asyncio.to_thread(producer.flush)
        await delivery

    async def first() -> None:
        awaiting = asyncio.ensure_future(producer.publish(topic, ["a"]))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await run_in_thread(new_loop, refused())
        await asyncio.to_thread(producer.flush)
        await awaiting
        await run_in_thread(new_loop, publish())

    with Producer(slow) as producer:
        run_in(new_loop, first())


# -- one loop after another


def test_clients_work_in_several_runs_one_after_another(
    new_loop: NewLoop, quick: dict[str, Any], reading: dict[str, Any], topic: str
) -> None:
    producer, consumer = AsyncProducer(quick), AsyncConsumer(reading)
    admin = AsyncAdminClient(quick)
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])

    async def use(number: int) -> None:
        value = b"%d" % number
        assert (await producer.produce(topic, value, partition=0)).offset() == number
        message = await consumer.poll(WAIT_S)
        assert message is not None
        assert message.value() == value
        assert len(await consumer.committed([place])) == 1
        (found,) = admin.list_offsets({place: OffsetSpec.latest()}).values()
        assert (await found).offset == number + 1

    async def close() -> None:
        await admin.close()
        await consumer.close()
        assert await producer.close() is True

    for number in range(5):
        run_in(new_loop, use(number))
    run_in(new_loop, close())


def test_records_of_a_closed_loop_are_sent_in_their_order(
    new_loop: NewLoop, settings: dict[str, Any], topic: str
) -> None:
    """Some wait for room in the queue when their loop is closed."""
    producer = AsyncProducer(settings, **{"linger.ms": 300, "queue.buffering.max.messages": 3})

    async def first() -> None:
        for _ in range(5):
            producer.produce(topic, "a", partition=0)

    async def second() -> None:
        assert (await producer.produce(topic, "b", partition=0)).offset() == 5
        await producer.close()

    run_in(new_loop, first())
    run_in(new_loop, second())


def test_failure_of_a_closed_loops_record_is_logged(
    new_loop: NewLoop, slow: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    # The third record waits for room in the queue.
    producer = AsyncProducer(slow, **{"queue.buffering.max.messages": 2})

    async def first() -> None:
        for _ in range(3):
            producer.produce(topic, "a")

    async def second() -> None:
        producer.purge()
        future = producer.produce(topic, "b")
        await producer.flush()
        await future
        await producer.close()

    run_in(new_loop, first())
    with caplog.at_level(logging.WARNING, "cykafka"):
        run_in(new_loop, second())
    assert caplog.messages == [f"a record to {topic} failed: Local: Purged in queue"] * 3


def test_tasks_of_a_closed_loop_do_not_stand_in_line(
    reading: dict[str, Any], quick: dict[str, Any], topic: str
) -> None:
    consumer = AsyncConsumer(reading)
    consumer.assign([TopicPartition(topic, 0, 0)])

    async def wait() -> asyncio.Task[Any]:
        task = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0.01)
        return task

    loop = asyncio.new_event_loop()
    left = loop.run_until_complete(wait())
    loop.close()

    async def read() -> None:
        async with AsyncProducer(quick) as producer:
            await producer.produce(topic, "a", partition=0)
        message = await consumer.poll(WAIT_S)
        assert message is not None
        await consumer.close()

    asyncio.run(read())
    assert not left.done()
    left._log_destroy_pending = False  # type: ignore[attr-defined]


def test_loop_that_moves_to_another_thread_gets_its_outcomes(
    slow: dict[str, Any], topic: str
) -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> tuple[AsyncProducer, asyncio.Future[Any]]:
        producer = AsyncProducer(slow)
        return producer, producer.produce(topic, "a")

    async def end() -> None:
        await producer.flush()
        results.append((await future).value())
        await producer.close()

    producer, future = loop.run_until_complete(begin())
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: loop.run_until_complete(end()), daemon=True)
    thread.start()
    thread.join(WAIT_S)
    loop.close()
    assert results == [b"a"]


def test_outcome_that_another_thread_takes_reaches_the_loop(
    new_loop: NewLoop, slow: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        future = producer.produce(topic, "a")
        await asyncio.to_thread(producer._producer.flush, WAIT_S)
        assert (await future).value() == b"a"
        failing = producer.produce(topic, "b")
        await asyncio.to_thread(producer.purge)
        await asyncio.to_thread(producer._producer.flush, WAIT_S)
        with pytest.raises(KafkaException, match="Purged"):
            await failing
        await producer.close()

    producer = AsyncProducer(slow)
    run_in(new_loop, main())


def test_closed_loops_are_freed_by_the_next_one(settings: dict[str, Any], topic: str) -> None:
    producer = AsyncProducer(settings, **{"linger.ms": 20})
    loops: list[weakref.ref[Any]] = []

    async def leave_a_record() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        producer.produce(topic, "left")

    async def end() -> None:
        async with producer:
            await producer.flush()
            gc.collect()
            assert [loop() for loop in loops] == [None] * 5

    for _ in range(5):
        asyncio.run(leave_a_record())
    asyncio.run(end())
