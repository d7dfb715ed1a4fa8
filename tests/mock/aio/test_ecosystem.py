"""cykafka.aio with anyio, in debug mode, and under random cancellations."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from machine import WAIT_S

from cykafka import KafkaException, TopicPartition
from cykafka.aio import AsyncConsumer, AsyncProducer

pytestmark = pytest.mark.ours

Run = Callable[..., Any]


def test_cancel_scopes_of_anyio_end_every_call(
    new_loop: Callable[[], Any],
    reading: dict[str, Any],
    transactional: dict[str, Any],
    topic: str,
) -> None:
    async def main() -> None:
        async with AsyncConsumer(reading) as consumer, AsyncProducer(transactional) as producer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            for call in (consumer.poll, consumer.consume, consumer.consume_batch):
                with anyio.move_on_after(0.02) as scope:
                    await call()  # type: ignore[operator]
                assert scope.cancelled_caught
            with anyio.move_on_after(0.01):
                async with producer.transaction():
                    await producer.produce(topic, "a", partition=0)
                    await anyio.sleep(WAIT_S)
            async with producer.transaction():
                for _ in range(2):
                    await producer.produce(topic, "b", partition=0)
            got: list[Any] = []

            async def read() -> None:
                got.append(await consumer.poll())

            async with anyio.create_task_group() as group:
                group.start_soon(read)
                group.start_soon(read)
            assert len(got) == 2

            async def fail() -> None:
                async with anyio.create_task_group() as group:
                    group.start_soon(consumer.poll)
                    raise ArithmeticError("mine")

            with pytest.raises(ExceptionGroup) as raised:
                await fail()
            assert [type(item) for item in raised.value.exceptions] == [ArithmeticError]

    anyio.run(main, backend_options={"loop_factory": new_loop})


@pytest.mark.alone
def test_debug_mode_reports_no_slow_callback(
    run: Run, reading: dict[str, Any], quick: dict[str, Any], topic: str, caplog: Any
) -> None:
    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = 1.0  # 0.1 is for an idle machine
        async with AsyncProducer(quick) as producer, AsyncConsumer(reading) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            await producer.publish(topic, ["a"] * 50_000, partitions=0)
            for _ in range(20):
                await asyncio.gather(*[producer.produce(topic, "a", partition=0) for _ in "12345"])
            left = 50_100
            while left:
                left -= len(await consumer.consume_batch())

    with caplog.at_level(logging.WARNING, "asyncio"):
        run(main())
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_random_cancellations_leave_one_outcome_per_record(
    run: Run, reading: dict[str, Any], quick: dict[str, Any], topic: str, seed: int
) -> None:
    """Producers and readers are cancelled at random moments. Each record that was sent is read
    exactly once, and no other."""
    rng = random.Random(seed)
    rounds = 120

    async def main() -> None:
        outcomes: dict[str, list[str]] = {}
        read: list[str] = []
        over = asyncio.Event()

        def note(value: str, future: asyncio.Future[Any]) -> None:
            if not future.cancelled():
                outcomes[value].append("failed" if future.exception() else "sent")

        async def send(producer: AsyncProducer, number: int) -> None:
            if number % 2:
                values = [f"{number}-{item}" for item in range(rng.randrange(1, 60))]
                for value in values:
                    outcomes[value] = []
                try:
                    delivery = await producer.publish(topic, values, partitions=0)
                except (asyncio.CancelledError, KafkaException) as raised:
                    delivery = raised.delivery  # type: ignore[union-attr]
                    await asyncio.shield(settle(delivery, values))
                    raise
                await settle(delivery, values)
                return
            futures = []
            for item in range(rng.randrange(1, 30)):
                value = f"{number}-{item}"
                outcomes[value] = []
                future = producer.produce(topic, value, partition=0)
                future.add_done_callback(lambda done, value=value: note(value, done))
                futures.append(asyncio.shield(future))
                if rng.random() < 0.2:
                    await asyncio.sleep(0)
            await asyncio.gather(*futures)

        async def settle(delivery: Any, values: list[str]) -> None:
            while not delivery.done:
                await asyncio.sleep(0.002)
            failed = set(delivery.errors)
            for index, value in enumerate(values):
                outcomes[value].append("failed" if index in failed else "sent")

        async def poll(consumer: AsyncConsumer) -> None:
            while not over.is_set():
                task = asyncio.create_task(consumer.poll())
                await asyncio.wait([task], timeout=rng.random() * 0.003)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    message = task.result()
                    assert message is not None
                    read.append((message.value() or b"").decode())

        limits = {"queue.buffering.max.messages": 25}
        async with AsyncConsumer(reading) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            readers = [asyncio.create_task(poll(consumer)) for _ in range(3)]
            async with AsyncProducer(quick, **limits) as producer:
                tasks = []
                for number in range(rounds):
                    task = asyncio.create_task(send(producer, number))
                    tasks.append(task)
                    if rng.random() < 0.5:
                        asyncio.get_running_loop().call_later(rng.random() * 0.02, task.cancel)
                    await asyncio.sleep(rng.random() * 0.004)
                await asyncio.wait(tasks)
            await asyncio.sleep(0)  # for the callbacks of the last futures
            sent = sorted(value for value, item in outcomes.items() if item == ["sent"])
            async with asyncio.timeout(WAIT_S):
                while len(read) < len(sent):
                    await asyncio.sleep(0.01)
            over.set()
            await asyncio.gather(*readers)
            assert {len(value) for value in outcomes.values()} == {1}
            assert sorted(read) == sent
            assert sum(task.cancelled() for task in tasks) > 0

    run(main())
