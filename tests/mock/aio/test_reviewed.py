"""What a review of cykafka.aio has found, each with the case that failed before."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S

from cykafka import KafkaError, KafkaException, TopicPartition
from cykafka.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer

pytestmark = pytest.mark.ours

Run = Callable[..., Any]


@pytest.fixture
def config(cluster: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


@pytest.fixture
def transactional(config: dict[str, Any], unique: Callable[[str], str]) -> dict[str, Any]:
    return {**config, "transactional.id": unique("transaction")}


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


def test_record_that_waits_for_room_is_a_copy(
    run: Run, config: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(config, **{"queue.buffering.max.messages": 1}) as producer:
            buffer, headers = bytearray(b"first"), [("name", b"first")]
            futures = [producer.produce(topic, "a", partition=0)]
            futures.append(producer.produce(topic, buffer, partition=0, headers=headers))
            buffer[:] = b"later"
            headers[:] = [("name", b"later")]
            message = (await asyncio.gather(*futures))[1]
            assert (message.value(), message.headers()) == (b"first", [("name", b"first")])

    run(main())


def test_block_ends_if_its_producer_is_closed(
    run: Run,
    config: dict[str, Any],
    transactional: dict[str, Any],
    topic: str,
    unique: Callable[[str], str],
) -> None:
    reading = {
        **config,
        "group.id": unique("group"),
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }

    async def main() -> None:
        async with AsyncProducer(config) as plain:
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


def test_consume_of_nothing_returns_at_once(
    run: Run, config: dict[str, Any], unique: Callable[[str], str]
) -> None:
    async def main() -> None:
        async with AsyncConsumer(config, **{"group.id": unique("group")}) as consumer:
            assert await consumer.consume(0) == []

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


def test_closes_at_the_same_time_have_one_result(
    run: Run, config: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(config)
        future = producer.produce(topic, "a")
        assert await asyncio.gather(producer.close(), producer.close(5)) == [True, True]
        assert await producer.close() is True
        assert (await future).error() is None

    run(main())


def test_callback_that_raises_during_the_close_loses_no_record(
    run: Run, config: dict[str, Any], topic: str
) -> None:
    def stats(_: str) -> None:
        raise EOFError

    async def main() -> list[Any]:
        producer = AsyncProducer(
            config, **{"statistics.interval.ms": 10, "stats_cb": stats, "linger.ms": 100}
        )
        futures = [producer.produce(topic, "a") for _ in range(1000)]
        with contextlib.suppress(EOFError):  # raised by the close, after it has flushed
            await producer.close()
        return await asyncio.gather(*futures)

    reports: list[dict[str, Any]] = []
    assert all(each.error() is None for each in run(main(), reports))


def test_admin_client_blocks_no_loop(run: Run, config: dict[str, Any]) -> None:
    async def main() -> None:
        admin = AsyncAdminClient(config)
        assert await admin.cluster_id(WAIT_S)
        for blocking in (admin.poll, admin.list_groups):
            with pytest.raises(TypeError, match="would block"):
                blocking()
        with pytest.raises(TypeError, match="async with"), admin:
            pass
        assert await admin.close() is True

    run(main())
