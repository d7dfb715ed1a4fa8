"""AsyncShareConsumer: records, acknowledgements, cancellations and its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import Unique, WaitUntil
from live import live_before
from machine import WAIT_S

from cykafka import AcknowledgeType, ConcurrentModificationException, Producer, TopicPartition
from cykafka.aio import AsyncShareConsumer
from cykafka.error import ClosedError
from cykafka.testing import MockCluster, live_handles

pytestmark = pytest.mark.ours

Run = Callable[..., Any]
MakeShare = Callable[..., AsyncShareConsumer]


@pytest.fixture(scope="module")
def sharing() -> Iterator[MockCluster]:
    """A cluster whose share groups begin at the first record, with frequent heartbeats."""
    with MockCluster() as cluster:
        cluster.configure_share_groups(auto_offset_reset="earliest", heartbeat_interval_ms=100)
        yield cluster


@pytest.fixture
def place(sharing: MockCluster, unique: Unique) -> str:
    """A topic of one partition."""
    topic = unique("shared")
    sharing.create_topic(topic, 1)
    return topic


@pytest.fixture
def send(sharing: MockCluster, place: str) -> Iterator[Callable[..., None]]:
    with Producer({"bootstrap.servers": sharing.bootstrap_servers, "linger.ms": 0}) as producer:

        def send(*values: bytes) -> None:
            producer.publish(place, list(values), partitions=0).wait(WAIT_S)

        yield send


@pytest.fixture
def make(sharing: MockCluster, place: str) -> MakeShare:
    """Make members of one group, which are subscribed."""

    def make(**config: Any) -> AsyncShareConsumer:
        consumer = AsyncShareConsumer(
            {
                "bootstrap.servers": sharing.bootstrap_servers,
                "group.id": f"group-{place}",
                "log_level": 3,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        consumer.subscribe([place])
        return consumer

    return make


def test_batches_end_with_the_close(run: Run, make: MakeShare, send: Callable[..., None]) -> None:
    async def main() -> None:
        consumer = make()
        send(*[b"%d" % number for number in range(100)])
        values: list[bytes] = []
        async for batch in consumer.batches():
            values += batch.values()
            assert await consumer.commit() == {TopicPartition(consumer.subscription()[0], 0): None}
            if len(values) == 100:
                asyncio.get_running_loop().call_soon(asyncio.create_task, consumer.close())
        assert values == [b"%d" % number for number in range(100)]
        assert await consumer.close()

    run(main())


def test_messages_end_with_the_close(run: Run, make: MakeShare, send: Callable[..., None]) -> None:
    async def main() -> None:
        async with make() as consumer:
            send(b"a", b"b", b"c")
            values = []
            async for message in consumer:
                values.append(message.value())
                if len(values) == 3:
                    asyncio.get_running_loop().call_soon(asyncio.create_task, consumer.close())
            assert values == [b"a", b"b", b"c"]

    run(main())


def test_acknowledgements(run: Run, make: MakeShare, send: Callable[..., None]) -> None:
    reported: list[set[int]] = []

    async def on_acknowledged(offsets: dict[TopicPartition, set[int]], error: object) -> None:
        assert error is None
        reported.extend(offsets.values())

    async def main() -> None:
        async with make(share_acknowledgement_mode="explicit") as consumer:
            consumer.set_acknowledgement_commit_callback(on_acknowledged)
            send(b"accept", b"release", b"reject")
            batch = await consumer.consume_batch(WAIT_S)
            assert len(batch) == 3
            consumer.acknowledge(batch, rows=[0])
            consumer.acknowledge(batch, AcknowledgeType.RELEASE, rows=[1])
            message = batch[2]
            consumer.acknowledge_offset(
                message.topic(), message.partition(), message.offset(), AcknowledgeType.REJECT
            )
            (again,) = await consumer.poll(WAIT_S)
            assert (again.value(), again.delivery_count()) == (b"release", 2)
            consumer.acknowledge(again)
            assert set((await consumer.commit()).values()) == {None}
            assert len(await consumer.poll(0.5)) == 0
        assert set().union(*reported) == {0, 1, 2}

    run(main())


def test_other_tasks_run_while_a_consumer_waits(run: Run, make: MakeShare) -> None:
    async def main() -> None:
        async with make() as consumer:
            waiting = asyncio.create_task(consumer.consume_batch(1))
            rounds = 0
            while not waiting.done():
                await asyncio.sleep(0.01)
                rounds += 1
            assert len(await waiting) == 0
            assert rounds > 20

    run(main())


def test_a_second_task_is_refused(run: Run, make: MakeShare) -> None:
    async def main() -> None:
        async with make() as consumer:
            waiting = asyncio.create_task(consumer.consume_batch())
            await asyncio.sleep(0)
            for call in (consumer.poll(0), consumer.consume_batch(0), consumer.commit()):
                with pytest.raises(ConcurrentModificationException, match="another task uses"):
                    await call
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert len(await consumer.poll(0)) == 0

    run(main())


def test_cancelled_wait_loses_no_record(
    run: Run, make: MakeShare, send: Callable[..., None]
) -> None:
    """The records that come after a cancellation are delivered once."""

    async def main() -> None:
        async with make() as consumer:
            await consumer.poll(0.2)
            values: list[bytes] = []
            for number in range(20):
                waiting = asyncio.create_task(consumer.consume_batch())
                await asyncio.sleep(0.001 * number)
                send(b"%d" % number)
                await asyncio.sleep(0.001 * (number % 5))
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    values += (await waiting).values()
            while len(values) < 20:
                batch = await consumer.consume_batch(WAIT_S)
                assert set(batch.delivery_counts) == {1}
                values += batch.values()
            assert values == [b"%d" % number for number in range(20)]

    run(main())


def test_commit_continues_after_a_cancellation(
    run: Run, make: MakeShare, send: Callable[..., None], sharing: MockCluster
) -> None:
    async def main() -> None:
        async with make() as consumer:
            send(b"first")
            assert len(await consumer.poll(WAIT_S)) == 1
            sharing.set_rtt(500)
            try:
                committing = asyncio.create_task(consumer.commit())
                await asyncio.sleep(0.1)
                committing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await committing
                # It has accepted the record; a second commit has nothing to send. Its wait does
                # not block the loop.
                second = asyncio.create_task(consumer.commit())
                rounds = 0
                while not second.done():
                    await asyncio.sleep(0.01)
                    rounds += 1
                assert await second == {}
                assert rounds > 10
            finally:
                sharing.set_rtt(0)
            send(b"second")
            (message,) = await consumer.poll(WAIT_S)
            assert message.value() == b"second"

    run(main())


def test_failure_of_a_cancelled_commit_is_logged(
    run: Run, make: MakeShare, send: Callable[..., None], sharing: MockCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    async def main() -> None:
        consumer = make()
        send(b"record")
        assert len(await consumer.poll(WAIT_S)) == 1
        sharing.set_rtt(500)
        try:
            committing = asyncio.create_task(consumer.commit())
            await asyncio.sleep(0.1)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            await consumer.close(0.05)
            await asyncio.sleep(0.6)
        finally:
            sharing.set_rtt(0)

    run(main())  # the loop reports no exception that nobody has retrieved
    assert "a cancelled commit of a share consumer has failed" in caplog.text


def test_nan_is_no_timeout(run: Run, make: MakeShare, place: str) -> None:
    async def main() -> None:
        async with make() as consumer:
            for call in (consumer.poll, consumer.consume_batch, consumer.commit, consumer.close):
                with pytest.raises(ValueError, match="nan is not a number"):
                    await call(float("nan"))
            assert len(await consumer.poll(0)) == 0

    run(main())


def test_plain_calls_during_a_commit_are_refused(
    run: Run, make: MakeShare, send: Callable[..., None], sharing: MockCluster
) -> None:
    """They would block the loop."""

    async def main() -> None:
        async with make(share_acknowledgement_mode="explicit") as consumer:
            send(b"record")
            (message,) = await consumer.poll(WAIT_S)
            consumer.acknowledge(message)
            sharing.set_rtt(500)
            try:
                committing = asyncio.create_task(consumer.commit())
                await asyncio.sleep(0.1)
                for call in (
                    lambda: consumer.acknowledge(message),
                    lambda: consumer.subscribe(["topic"]),
                    consumer.subscription,
                    consumer.unsubscribe,
                ):
                    with pytest.raises(ConcurrentModificationException, match="in progress"):
                        call()
                assert set((await committing).values()) == {None}
            finally:
                sharing.set_rtt(0)

    run(main())


def test_close_ends_a_wait(run: Run, make: MakeShare, wait_until: WaitUntil) -> None:
    async def main() -> None:
        consumer = make()
        waiting = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0.05)
        assert await consumer.close(WAIT_S)
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await consumer.poll(0)
        assert await consumer.close(WAIT_S)

    before = live_before()
    run(main())
    wait_until(lambda: live_handles() == before)


def test_cancelled_close_closes_at_once(
    run: Run, make: MakeShare, send: Callable[..., None], sharing: MockCluster
) -> None:
    async def main() -> None:
        consumer = make()
        send(b"record")
        assert len(await consumer.poll(WAIT_S)) == 1
        sharing.set_rtt(1000)
        try:
            closing = asyncio.create_task(consumer.close())
            await asyncio.sleep(0.1)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert await consumer.close() is False
        finally:
            sharing.set_rtt(0)

    run(main())


def test_a_closed_loop_leaves_the_consumer_to_the_next(
    run: Run, make: MakeShare, send: Callable[..., None]
) -> None:
    consumers: list[AsyncShareConsumer] = []

    async def leave_a_task() -> None:
        consumer = make()
        consumers.append(consumer)
        await consumer.poll(0.1)

    async def read() -> None:
        send(b"record")
        async with consumers[0] as consumer:
            (message,) = await consumer.poll(WAIT_S)
            assert message.value() == b"record"

    run(leave_a_task())
    run(read())


def test_list_topics(run: Run, make: MakeShare, place: str) -> None:
    async def main() -> None:
        async with make() as consumer:
            assert place in (await consumer.list_topics(timeout=WAIT_S)).topics

    run(main())
