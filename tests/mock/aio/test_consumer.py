"""AsyncConsumer: messages, rebalances, offsets and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from event_loops import eager_task, run_in
from fixture_types import Unique
from live import live_before
from machine import WAIT_S

from cykafka import KafkaException, Producer, TopicPartition
from cykafka.aio import AIOConsumer, AsyncConsumer
from cykafka.error import ClosedError, ForkedError
from cykafka.testing import MockCluster, live_handles

pytestmark = pytest.mark.ours

Run = Callable[..., Any]


def send(settings: dict[str, Any], topic: str, count: int, partition: int = 0) -> None:
    with Producer({"bootstrap.servers": settings["bootstrap.servers"]}) as producer:
        producer.publish(topic, [str(number) for number in range(count)], partitions=partition)


def assigned(reading: dict[str, Any], topic: str, **config: Any) -> AsyncConsumer:
    """A consumer of partition 0."""
    consumer = AsyncConsumer({**reading, **config})
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


# -- messages


def test_iteration_gives_the_messages_and_ends_with_the_close(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        send(reading, topic, 200)
        consumer = assigned(reading, topic)
        offsets = []
        async for message in consumer:
            offsets.append(message.offset())
            if len(offsets) == 200:
                asyncio.get_running_loop().call_soon(asyncio.create_task, consumer.close())
        assert offsets == list(range(200))
        await consumer.close()

    run(main())


def test_batches_give_the_records_and_end_with_the_close(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        send(reading, topic, 200)
        consumer = assigned(reading, topic)
        count = 0
        async for batch in consumer.batches(30):
            assert 0 < len(batch) <= 30
            count += len(batch)
            if count == 200:
                closing = asyncio.create_task(consumer.close())
        await closing
        assert count == 200

    run(main())


def test_batches_go_on_after_an_error(run: Run, reading: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        send(reading, topic, 10)
        async with AsyncConsumer({**reading, "auto.offset.reset": "error"}) as consumer:
            batches = consumer.batches()
            consumer.assign([TopicPartition(topic, 0, 99)])
            with pytest.raises(KafkaException, match="_AUTO_OFFSET_RESET"):
                await anext(batches)
            consumer.assign([TopicPartition(topic, 0, 0)])
            assert list((await anext(batches)).offsets) == list(range(10))
            with pytest.raises(ValueError, match="max_messages"):
                consumer.batches(0)
        with pytest.raises(ClosedError):
            consumer.batches()

    run(main())


def test_consume_gives_what_is_there(run: Run, reading: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        send(reading, topic, 50)
        async with assigned(reading, topic) as consumer:
            got: list[Any] = []
            while len(got) < 50:
                got += await consumer.consume(20)
            assert [message.offset() for message in got] == list(range(50))
            assert await consumer.consume(20, timeout=0) == []
            assert await consumer.consume(20, timeout=0.0104) == []

    run(main())


@pytest.mark.parametrize("timeout", [0, 0.0104, 0.1004, 0.25])
def test_poll_without_messages_ends_with_its_timeout(
    run: Run, reading: dict[str, Any], topic: str, timeout: float
) -> None:
    async def main() -> None:
        async with assigned(reading, topic) as consumer:
            begun = time.perf_counter()
            assert await consumer.poll(timeout) is None
            assert timeout - 0.002 <= time.perf_counter() - begun < timeout + 2

    run(main())


@pytest.mark.parametrize("call", ["poll", "consume", "batch"])
def test_cancelled_reads_lose_no_message(
    run: Run, reading: dict[str, Any], topic: str, call: str
) -> None:
    count = 1500
    rng = random.Random(call)

    async def main() -> None:
        async with assigned(reading, topic) as consumer:
            sending = asyncio.create_task(asyncio.to_thread(send, reading, topic, count))
            offsets: list[int | None] = []

            async def read() -> list[int | None]:
                if call == "poll":
                    message = await consumer.poll()
                    assert message is not None
                    return [message.offset()]
                if call == "consume":
                    return [item.offset() for item in await consumer.consume(3)]
                return list((await consumer.consume_batch(3)).offsets)

            while len(offsets) < count:
                task = asyncio.create_task(read())
                # Cancel it after some turns of the loop, or after some time.
                if rng.random() < 0.5:
                    for _ in range(rng.randrange(4)):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
                    if not task.cancelled():
                        offsets += task.result()
                else:
                    with contextlib.suppress(TimeoutError):
                        offsets += await asyncio.wait_for(task, rng.random() * 0.002)
            await sending
            assert offsets == list(range(count))

    run(main())


def test_each_message_goes_to_one_of_the_tasks_that_wait(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with assigned(reading, topic) as consumer:
            offsets: list[int | None] = []

            async def read() -> None:
                for _ in range(20):
                    message = await consumer.poll()
                    assert message is not None
                    offsets.append(message.offset())

            tasks = [asyncio.create_task(read()) for _ in range(20)]
            await asyncio.sleep(0)
            await asyncio.to_thread(send, reading, topic, 400)
            await asyncio.gather(*tasks)
            assert sorted(offsets, key=str) == sorted(range(400), key=str)

    run(main())


@pytest.mark.parametrize("call", ["poll", "consume", "consume_batch"])
def test_tasks_that_wait_are_served_in_their_order(
    run: Run, reading: dict[str, Any], topic: str, call: str
) -> None:
    async def main() -> None:
        counts = [0] * 8
        async with assigned(reading, topic) as consumer:

            async def work(number: int) -> None:
                while sum(counts) < 800:
                    await (consumer.poll() if call == "poll" else getattr(consumer, call)(1))
                    counts[number] += 1

            tasks = [asyncio.create_task(work(number)) for number in range(8)]
            await asyncio.sleep(0)
            send(reading, topic, 807)  # the last call of each
            await asyncio.gather(*tasks)
        assert max(counts) - min(counts) <= 1

    run(main())


def test_resume_wakes_the_reader(run: Run, reading: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        send(reading, topic, 5)
        async with assigned(reading, topic) as consumer:
            message = await consumer.poll()
            assert message is not None
            consumer.pause([TopicPartition(topic, 0)])
            task = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0.05)
            assert not task.done()
            consumer.resume([TopicPartition(topic, 0)])
            message = await task
            assert message is not None
            assert message.offset() == 1

    run(main())


def test_idle_consumer_uses_no_processor_time(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> float:
        async with assigned(reading, topic, **{"fetch.wait.max.ms": 500}) as consumer:
            assert await consumer.poll(0.5) is None
            task = asyncio.create_task(consumer.poll())
            loop = asyncio.get_running_loop()
            turns = 0

            def count() -> None:
                nonlocal turns
                turns += 1

            await asyncio.sleep(0)
            begun = time.thread_time()
            loop.call_later(1, count)
            while not turns:
                await asyncio.sleep(0.5)
            used = time.thread_time() - begun
            task.cancel()
        return used

    assert run(main()) < 0.02


def test_idle_consumer_stays_in_its_group(run: Run, reading: dict[str, Any], topic: str) -> None:
    """librdkafka leaves a group whose application has not polled for max.poll.interval.ms."""

    async def main() -> None:
        config = {**reading, "max.poll.interval.ms": 1000, "session.timeout.ms": 1000}
        config["heartbeat.interval.ms"] = 200
        async with AsyncConsumer(config) as consumer:
            consumer.subscribe([topic])
            assert await consumer.poll(0.5) is None
            assert await consumer.poll(3) is None
            assert len(consumer.assignment()) == 4

    run(main())


# -- rebalances


def test_coroutine_callbacks_end_before_messages_are_handed_over(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        send(reading, topic, 5)
        events: list[Any] = []

        async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
            events.append(("assign", len(partitions)))
            await asyncio.sleep(0.05)
            events.append("assigned")

        async def on_revoke(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
            events.append(("revoke", len(partitions)))
            committed = await consumer.commit(offsets=[TopicPartition(topic, 0, 5)])
            events.append(committed[0].offset)

        async with AsyncConsumer(reading) as consumer:
            consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
            for _ in range(5):
                message = await consumer.poll()
                assert message is not None
                events.append(message.offset())
        assert events == [("assign", 4), "assigned", 0, 1, 2, 3, 4, ("revoke", 4), 5]
        async with AsyncConsumer(reading) as other:
            committed = await other.committed([TopicPartition(topic, 0)])
            assert committed[0].offset == 5

    run(main())


def test_exception_of_a_coroutine_callback_is_raised_once(
    run: Run, reading: dict[str, Any], topic: str, wait_for: Callable[..., Any]
) -> None:
    async def main() -> None:
        send(reading, topic, 1)

        async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            raise ArithmeticError("mine")

        async with AsyncConsumer(reading) as consumer:
            consumer.subscribe([topic], on_assign=on_assign)
            tasks = [asyncio.create_task(consumer.poll()) for _ in range(4)]
            await wait_for(lambda: sum(task.done() for task in tasks) == 2)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            # The assignment follows the protocol all the same, so one got the message.
            assert sorted(type(end).__name__ for end in ends) == [
                "ArithmeticError",
                "CancelledError",
                "CancelledError",
                "Message",
            ]

    run(main())


def test_exception_of_a_coroutine_callback_survives_the_cancelled_poll(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        entered, leave = asyncio.Event(), asyncio.Event()

        async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
            entered.set()
            await leave.wait()
            raise ArithmeticError("mine")

        async with AsyncConsumer(reading) as consumer:
            consumer.subscribe([topic], on_assign=on_assign)
            task = asyncio.create_task(consumer.poll())
            await entered.wait()
            task.cancel()
            await asyncio.wait([task])
            leave.set()
            await asyncio.sleep(0.01)
            with pytest.raises(ArithmeticError):
                await consumer.poll()
            assert await consumer.poll(0.05) is None
            assert len(consumer.assignment()) == 4

    run(main())


def test_callback_whose_task_is_cancelled_before_it_begins_still_runs(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        send(reading, topic, 1)
        seen = []

        async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
            seen.append(len(partitions))

        async with AsyncConsumer(reading) as consumer:
            consumer.subscribe([topic], on_assign=on_assign)
            polling = asyncio.create_task(consumer.poll())
            while consumer._following is None:
                await asyncio.sleep(0)
            assert seen == []
            consumer._following.cancel()
            message = await polling
            assert message is not None
            assert message.offset() == 0
            assert seen == [4]

    run(main())


def test_callback_object_with_a_coroutine_call_is_awaited(
    run: Run, reading: dict[str, Any], topic: str, wait_for: Callable[..., Any]
) -> None:
    class OnAssign:
        seen = 0

        async def __call__(self, _: Any, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            self.seen += len(partitions)

    async def main() -> None:
        callback = OnAssign()
        async with AsyncConsumer(reading) as consumer:
            consumer.subscribe([topic], on_assign=callback)
            task = asyncio.create_task(consumer.poll())
            await wait_for(lambda: callback.seen == 4)
            task.cancel()

    run(main())


def test_rebalance_callback_can_neither_wait_for_messages_nor_close(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        raised: list[str] = []

        async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
            for call in (consumer.poll, consumer.consume, consumer.close):
                with pytest.raises(RuntimeError) as error:
                    await call()  # type: ignore[operator]
                raised.append(str(error.value))

        async with AsyncConsumer(reading) as consumer:
            consumer.subscribe([topic], on_assign=on_assign)
            while not raised:
                assert await consumer.poll(0.1) is None
        assert len(raised) == 3

    run(main())


@pytest.mark.parametrize("pause", [False, True])
def test_coroutine_callbacks_run_where_tasks_begin_at_once(
    run: Run, reading: dict[str, Any], topic: str, pause: bool
) -> None:
    async def main() -> None:
        send(reading, topic, 3)
        counts = []

        async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
            if pause:
                await asyncio.sleep(0.01)
            counts.append(len(partitions))

        loop = asyncio.get_running_loop()
        loop.set_task_factory(eager_task)  # type: ignore[arg-type]
        try:
            async with AsyncConsumer(reading) as consumer:
                consumer.subscribe([topic], on_assign=on_assign)
                for offset in range(3):
                    message = await consumer.poll(WAIT_S / 2)
                    assert message is not None
                    assert message.offset() == offset
        finally:
            loop.set_task_factory(None)
        assert counts == [4]

    run(main())


def test_callback_of_a_closed_loop_holds_up_no_other_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop], reading: dict[str, Any], topic: str
) -> None:
    send(reading, topic, 3)
    consumer = AsyncConsumer(reading)

    async def on_assign(consumer: AsyncConsumer, partitions: Any) -> None:
        loop.stop()
        await asyncio.sleep(WAIT_S)

    consumer.subscribe([topic], on_assign=on_assign)
    loop = new_loop()
    polling = loop.create_task(consumer.poll())
    loop.run_forever()
    loop.close()
    assert not polling.done()

    async def go_on() -> None:
        message = await consumer.poll(WAIT_S)
        assert message is not None
        assert message.offset() == 0
        assert await consumer.close(WAIT_S) is True

    run_in(new_loop, asyncio.wait_for(go_on(), WAIT_S))


def test_close_in_a_closed_loop_is_ended_by_the_next(
    new_loop: Callable[[], asyncio.AbstractEventLoop], reading: dict[str, Any], topic: str
) -> None:
    consumer = AsyncConsumer(reading)

    async def on_revoke(consumer: AsyncConsumer, partitions: Any) -> None:
        loop.stop()
        await asyncio.sleep(WAIT_S)

    async def read_and_close() -> None:
        while not consumer.assignment():
            await consumer.poll(0.05)
        await consumer.close()

    consumer.subscribe([topic], on_revoke=on_revoke)
    loop = new_loop()
    closing = loop.create_task(read_and_close())
    loop.run_forever()
    loop.close()
    assert not closing.done()

    assert run_in(new_loop, consumer.close()) is False
    assert run_in(new_loop, consumer.close()) is False
    with pytest.raises(ClosedError):
        consumer.assignment()


# -- offsets


def test_offsets_and_metadata_are_awaited(run: Run, reading: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        send(reading, topic, 20)
        place = TopicPartition(topic, 0)
        async with assigned(reading, topic) as consumer:
            message = await consumer.poll()
            assert message is not None
            assert (await consumer.commit(message))[0].offset == 1
            assert (await consumer.committed([place]))[0].offset == 1
            assert await consumer.get_watermark_offsets(place) == (0, 20)
            await consumer.seek(TopicPartition(topic, 0, 15))
            message = await consumer.poll()
            assert message is not None
            assert message.offset() == 15
            assert topic in (await consumer.list_topics()).topics

    run(main())


def test_cancelled_requests_leave_nothing_behind(
    run: Run, reading: dict[str, Any], topic: str, wait_for: Callable[..., Any]
) -> None:
    """Neither threads nor descriptors, and later requests answer."""
    rng = random.Random(5)

    async def main() -> None:
        send(reading, topic, 20)
        place = TopicPartition(topic, 0)
        async with assigned(reading, topic) as consumer:
            assert await consumer.poll() is not None
            await consumer.committed([place])
            files = len(os.listdir("/proc/self/fd"))
            for number in range(200):
                steps = (
                    consumer.committed([place]),
                    consumer.get_watermark_offsets(place),
                    consumer.list_topics(topic),
                    consumer.commit(offsets=[TopicPartition(topic, 0, number)]),
                    consumer.seek(TopicPartition(topic, 0, 3)),
                )
                chosen = rng.choice(range(len(steps)))
                for item in steps:
                    if item is not steps[chosen]:
                        item.close()
                task = asyncio.create_task(steps[chosen])
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
                await asyncio.sleep(rng.random() * 0.001)
                task.cancel()
                await asyncio.wait([task])
            await consumer.seek(TopicPartition(topic, 0, 7))
            message = await consumer.poll()
            assert message is not None
            assert message.offset() == 7
            await wait_for(lambda: len(os.listdir("/proc/self/fd")) <= files + 1)

    run(main())


def test_requests_end_with_their_timeout_when_no_broker_answers(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        with MockCluster() as gone:
            servers = gone.bootstrap_servers
        config = {**reading, "bootstrap.servers": servers}
        async with AsyncConsumer(config) as consumer:
            place = TopicPartition(topic, 0)
            begun = time.perf_counter()
            for call in (
                consumer.committed([place], 0.1),
                consumer.list_topics(timeout=0.1),
                consumer.get_watermark_offsets(place, 0.1),
                consumer.poll(0.1),
            ):
                with contextlib.suppress(KafkaException):
                    assert await call is None
            assert 0.3 < time.perf_counter() - begun < 10
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.list_topics(timeout=1), 0.05)

    run(main())


# -- close()


def test_close_ends_the_calls_of_other_tasks(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(reading)
        consumer.subscribe([topic])

        async def iterate() -> str:
            async for _ in consumer:
                pass
            return "ended"

        async def iterate_batches() -> str:
            async for _ in consumer.batches():
                pass
            return "ended"

        tasks = [
            asyncio.create_task(item)
            for item in (iterate(), iterate_batches(), consumer.poll(), consumer.consume(3))
        ]
        await asyncio.sleep(0.05)
        both = await asyncio.gather(consumer.close(), consumer.close())
        assert both == [True, True]
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert ends[:2] == ["ended", "ended"]
        assert [type(end) for end in ends[2:]] == [ClosedError, ClosedError]
        assert await consumer.close() is True
        with pytest.raises(ClosedError):
            await consumer.poll()

    run(main())


def test_nan_is_no_timeout(run: Run, reading: dict[str, Any]) -> None:
    async def main() -> None:
        async with AsyncConsumer(reading) as consumer:
            for call in (consumer.poll, consumer.close):
                with pytest.raises(ValueError, match="nan is not a number"):
                    await call(float("nan"))
            with pytest.raises(ValueError, match="nan is not a number"):
                await consumer.consume(1, float("nan"))
            assert await consumer.poll(0) is None

    run(main())


def test_calls_end_before_a_slow_close(run: Run, reading: dict[str, Any], topic: str) -> None:
    """The closing loop may use the consumer, but the program's calls must not."""

    async def main() -> None:
        with MockCluster() as own:
            own.create_topic(topic, 1)
            consumer = AsyncConsumer({**reading, "bootstrap.servers": own.bootstrap_servers})
            consumer.subscribe([topic])
            while not consumer.assignment():
                assert await consumer.poll(0.05) is None
            polling = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0)
            own.set_rtt(1000)
            closing = asyncio.create_task(consumer.close())
            with pytest.raises(ClosedError):
                await polling
            with pytest.raises(ClosedError):
                await consumer.poll(0)
            assert not closing.done()
            own.set_rtt(0)
            await closing

    run(main())


def test_exceptions_of_callbacks_in_close_are_raised_without_delay(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        send(reading, topic, 3)

        def on_commit(error: Any, partitions: Any) -> None:
            raise ArithmeticError("commit")

        async def on_revoke(consumer: AsyncConsumer, partitions: Any) -> None:
            raise LookupError("revoke")

        config = {**reading, "enable.auto.commit": True, "on_commit": on_commit}
        consumer = AsyncConsumer(config)
        consumer.subscribe([topic], on_revoke=on_revoke)
        for _ in range(3):
            assert await consumer.poll() is not None
        with pytest.raises((ArithmeticError, LookupError)) as raised:
            await consumer.close()
        chained = {type(raised.value), type(raised.value.__context__)}
        assert chained == {ArithmeticError, LookupError}
        assert "closed" in repr(consumer)

    run(main())


def test_cancelled_close_frees_a_consumer_whose_callback_still_runs(
    run: Run, reading: dict[str, Any], topic: str, wait_for: Callable[..., Any]
) -> None:
    async def main() -> None:
        handles = live_before()["handles"]
        entered, leave = asyncio.Event(), asyncio.Event()

        async def on_revoke(consumer: AsyncConsumer, partitions: Any) -> None:
            entered.set()
            await leave.wait()

        consumer = AsyncConsumer(reading)
        consumer.subscribe([topic], on_revoke=on_revoke)
        while len(consumer.assignment()) < 4:
            assert await consumer.poll(0.05) is None
        task = asyncio.create_task(consumer.close())
        await entered.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert await consumer.close() is False
        assert "closed" in repr(consumer)
        # The thread that completes the leave ends, although the callback has not.
        # Clients of earlier tests may be freed meanwhile.
        await wait_for(lambda: live_handles()["handles"] <= handles)
        leave.set()

    run(main())


def test_close_with_a_timeout_does_not_wait_for_a_coordinator(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        with MockCluster() as own:
            own.create_topic(topic, 2)
            config = {**reading, "bootstrap.servers": own.bootstrap_servers}
            consumer = AsyncConsumer({**config, "session.timeout.ms": 3000})
            consumer.subscribe([topic])
            while len(consumer.assignment()) < 2:
                assert await consumer.poll(0.05) is None
            committing = asyncio.create_task(
                consumer.commit(offsets=[TopicPartition(topic, 0, 1)])
            )
        begun = time.perf_counter()
        await consumer.close(0.1)
        assert time.perf_counter() - begun < 3
        await asyncio.wait([committing])
        assert isinstance(committing.exception(), ClosedError)

    run(main())


def test_fork_during_an_await_leaves_the_consumer_to_the_parent(
    reading: dict[str, Any],
) -> None:
    begins, goes_on = threading.Event(), threading.Event()

    class HeldUp(asyncio.SelectorEventLoop):
        def add_reader(self, *args: Any) -> None:
            begins.set()
            goes_on.wait(WAIT_S)  # the watch's lock is held
            super().add_reader(*args)

    consumer = AsyncConsumer(reading)

    async def use() -> None:
        with pytest.raises(ForkedError):
            await consumer.commit()
        await consumer.close()

    thread = threading.Thread(target=lambda: run_in(HeldUp, consumer.poll(0.01)))
    thread.start()
    begins.wait(WAIT_S)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(int(WAIT_S))
            asyncio.run(use())
            code = 7
        finally:
            os._exit(code)
    goes_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    asyncio.run(consumer.close())


def test_consume_of_nothing_returns_at_once(
    run: Run, settings: dict[str, Any], unique: Unique
) -> None:
    async def main() -> None:
        async with AsyncConsumer(settings, **{"group.id": unique("group")}) as consumer:
            assert await consumer.consume(0) == []

    run(main())


def test_thousand_commits_at_once_cost_no_descriptor(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        send(reading, topic, 1)
        async with assigned(reading, topic) as consumer:
            message = await consumer.poll(WAIT_S)
            assert message is not None
            await consumer.commit(message)  # connects, and makes the pipe
            before = len(os.listdir("/proc/self/fd"))
            commits = [asyncio.create_task(consumer.commit(message)) for _ in range(1000)]
            await asyncio.sleep(0)
            assert len(os.listdir("/proc/self/fd")) <= before + 1
            for done in await asyncio.gather(*commits):
                assert done == [TopicPartition(topic, 0, 1)]

    run(main())


def test_lag_and_watermarks_of_all_partitions(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        send(reading, topic, 10)
        async with assigned(reading, topic) as consumer:
            assert await consumer.watermarks() == {TopicPartition(topic, 0): (0, 10)}
            assert list((await consumer.lag(timeout=WAIT_S)).values()) == [10]
            left = 4
            while left:
                left -= len(await consumer.consume(left))
            assert await consumer.lag() == {TopicPartition(topic, 0): 6}

    run(main())


def test_cancelled_lag_leaves_a_usable_consumer(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        with MockCluster() as own:
            own.create_topic(topic, 1)
            async with assigned(
                {**reading, "bootstrap.servers": own.bootstrap_servers}, topic
            ) as consumer:
                assert await consumer.lag() == {TopicPartition(topic, 0): 0}
                own.set_rtt(500)
                asking = asyncio.create_task(consumer.lag())
                await asyncio.wait([asking], timeout=0.05)
                asking.cancel()
                await asyncio.wait([asking])
                assert asking.cancelled()
                own.set_rtt(0)
                assert await consumer.lag() == {TopicPartition(topic, 0): 0}

    run(main())


# -- AIOConsumer


def test_errors_of_aio_consumer_are_those_of_confluent_kafka(
    run: Run, reading: dict[str, Any]
) -> None:
    async def main() -> None:
        consumer = AIOConsumer(reading)
        for number in (-100, 1_000_001):
            with pytest.raises(ValueError, match=r"^num_messages must be between 0 and 1000000"):
                await consumer.consume(number, 0)
        await consumer.close()
        for call in (consumer.poll, consumer.consume, consumer.assignment, consumer.commit):
            with pytest.raises(RuntimeError) as raised:
                await call()  # type: ignore[operator]
            assert str(raised.value) == "Consumer closed"

    run(main())


def test_aio_consumer_reads_and_closes(run: Run, reading: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        send(reading, topic, 10)
        consumer = AIOConsumer(reading)
        seen = []

        async def on_assign(given: AIOConsumer, partitions: list[TopicPartition]) -> None:
            seen.append(given)

        await consumer.subscribe([topic], on_assign=on_assign)
        messages = await consumer.consume(10, timeout=WAIT_S)
        assert [message.offset() for message in messages] == list(range(10))
        assert await consumer.consume(5, timeout=0.0504) == []
        assert seen == [consumer]
        await consumer.close()

    run(main())


def test_aio_consumer_keeps_what_a_cancelled_call_has_gathered(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        consumer = AIOConsumer(reading)
        await consumer.assign([TopicPartition(topic, 0, 0)])
        gathering = asyncio.create_task(consumer.consume(10))
        send(reading, topic, 8)
        while (await consumer.get_watermark_offsets(TopicPartition(topic, 0), cached=True))[1] < 8:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # the messages are in librdkafka; the loop takes them
        gathering.cancel()
        await asyncio.wait([gathering])
        assert gathering.cancelled()
        # They do not count as read.
        assert (await consumer.position([TopicPartition(topic, 0)]))[0].offset <= 0
        # A smaller call is content with them.
        messages = await asyncio.wait_for(consumer.consume(5, -1), WAIT_S)
        assert [message.offset() for message in messages] == list(range(5))
        messages = await consumer.consume(5, 0.05)
        assert [message.offset() for message in messages] == list(range(5, 8))
        await consumer.close()

    run(main())


def test_aio_consumer_gathers_more_than_one_step(
    run: Run, reading: dict[str, Any], topic: str
) -> None:
    count = 40_000

    async def main() -> None:
        send(reading, topic, count)
        consumer = AIOConsumer(reading)
        await consumer.assign([TopicPartition(topic, 0, 0)])
        assert len(await consumer.consume(count, WAIT_S)) == count
        await consumer.close()

    run(main())
