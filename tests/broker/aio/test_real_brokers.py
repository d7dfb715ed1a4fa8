"""cykafka.aio on real brokers: exactly once, rebalances and administration."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Unique
from machine import WAIT_S

from cykafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from cykafka.admin import NewTopic
from cykafka.aio import AsyncAdminClient, AsyncConsumer, AsyncProducer
from cykafka.error import ClosedError

pytestmark = pytest.mark.ours

Run = Callable[..., Any]

PROTOCOLS = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


def committed_values(servers: str, topic: str) -> list[bytes]:
    """The committed records of a topic, read to its end."""
    config = {
        "bootstrap.servers": servers,
        "group.id": "reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    values = []
    with Consumer(config) as consumer:
        partitions = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
        places = [TopicPartition(topic, number, 0) for number in partitions]
        consumer.assign(places)
        ends = {
            place.partition: consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places
        }
        while any(
            place.offset < ends[place.partition]
            for place in consumer.position(places)
            if ends[place.partition]
        ):
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                values.append(message.value() or b"")
    return values


def test_pipe_with_random_cancellations_copies_each_record_once(
    run: Run, cluster: Any, topic: str, unique: Unique
) -> None:
    """Each round is cancelled at a random moment: in the block, at its begin or at its end."""
    servers = cluster.bootstrap_servers
    output = unique("output")
    cluster.create_topic(output, 2)
    count = 300
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.publish(topic, [str(number) for number in range(count)])
    rng = random.Random(17)
    reading = {
        "bootstrap.servers": servers,
        "group.id": unique("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 20,
    }
    writing = {
        "bootstrap.servers": servers,
        "transactional.id": unique("transaction"),
        "linger.ms": 0,
    }

    async def main() -> int:
        cancelled = 0

        async def copy(consumer: AsyncConsumer, producer: AsyncProducer) -> None:
            async with producer.transaction(consumer):
                for message in await consumer.consume(rng.randrange(1, 40), timeout=1):
                    assert message.error() is None
                    future = producer.produce(output, message.value(), partition=rng.randrange(2))
                    future.add_done_callback(lambda item: item.cancelled() or item.exception())

        async def left(consumer: AsyncConsumer) -> int:
            places = [TopicPartition(topic, number) for number in range(4)]
            try:
                done = await consumer.committed(places, 1)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._TIMED_OUT:
                    raise
                # Offsets are in the transaction that a cancelled commit has left. The next block
                # completes it.
                return count
            return count - sum(max(place.offset, 0) for place in done)

        async with AsyncConsumer(reading) as consumer, AsyncProducer(writing) as producer:
            consumer.subscribe([topic])
            while len(consumer.assignment()) < 4:
                await consumer.poll(0.05)
            # What was read before the first block.
            for number in range(4):
                await consumer.seek(TopicPartition(topic, number, 0))
            while await left(consumer):
                task = asyncio.create_task(copy(consumer, producer))
                await asyncio.wait([task], timeout=rng.random() * rng.choice((0.01, 0.15)))
                task.cancel()
                await asyncio.wait([task])
                if task.cancelled():
                    cancelled += 1
                else:
                    try:
                        task.result()
                    except KafkaException as error:
                        # The consumer has sought back, or the transaction lacks records.
                        if error.args[0].fatal():
                            raise
            async with producer.transaction(consumer):
                pass  # completes what the last cancellation left
        return cancelled

    cancelled = run(main())
    values = committed_values(servers, output)
    assert sorted(values, key=int) == [str(number).encode() for number in range(count)]
    assert cancelled > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rebalances_with_coroutine_callbacks_lose_and_repeat_no_record(
    run: Run, cluster: Any, unique: Unique, protocol: str
) -> None:
    """Each consumer commits in on_revoke what it has read. So its successor repeats nothing."""
    topic = unique("topic")
    cluster.create_topic(topic, 6)
    servers = cluster.bootstrap_servers
    config = {
        "bootstrap.servers": servers,
        "group.id": unique("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 20,
        **PROTOCOLS[protocol],
    }
    if protocol != "consumer":
        config["heartbeat.interval.ms"] = 200
    count = 600

    async def main() -> None:
        seen: list[int] = []
        revoked = assigned = 0

        async def read(consumer: AsyncConsumer) -> None:
            positions: dict[tuple[str, int], int] = {}

            async def on_assign(_: AsyncConsumer, partitions: list[TopicPartition]) -> None:
                nonlocal assigned
                await asyncio.sleep(0.01)
                assigned += len(partitions)

            async def on_revoke(_: AsyncConsumer, partitions: list[TopicPartition]) -> None:
                nonlocal revoked
                revoked += len(partitions)
                done = [
                    TopicPartition(*key, positions.pop(key))
                    for key in [(partition.topic, partition.partition) for partition in partitions]
                    if key in positions
                ]
                if done:
                    await consumer.commit(offsets=done)

            consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
            try:
                while True:
                    message = await consumer.poll()
                    assert message is not None
                    assert message.error() is None
                    seen.append(int(message.value() or b""))
                    place = (message.topic() or "", message.partition() or 0)
                    positions[place] = (message.offset() or 0) + 1
            except ClosedError:
                pass

        async with AsyncProducer({"bootstrap.servers": servers, "linger.ms": 0}) as producer:

            async def send(first: int, last: int) -> None:
                await producer.publish(topic, [str(number) for number in range(first, last)])

            async def reach(number: int) -> None:
                async with asyncio.timeout(WAIT_S):
                    while len(seen) < number:
                        await asyncio.sleep(0.02)

            one, two = AsyncConsumer(config), AsyncConsumer(config)
            first = asyncio.create_task(read(one))
            await send(0, 200)
            await reach(200)
            second = asyncio.create_task(read(two))
            async with asyncio.timeout(WAIT_S):
                while not two.assignment():
                    await asyncio.sleep(0.02)
            await send(200, 400)
            await reach(400)
            await one.close()
            await first
            await send(400, count)
            await reach(count)
            await two.close()
            await second
        assert sorted(seen) == list(range(count))
        assert revoked >= 9
        assert assigned >= revoked

    run(main())


def test_transaction_commits_offsets_with_the_records(
    run: Run, cluster: Any, topic: str, unique: Unique
) -> None:
    servers = cluster.bootstrap_servers

    async def main() -> None:
        writing = {"bootstrap.servers": servers, "transactional.id": unique("transaction")}
        reading = {"bootstrap.servers": servers, "group.id": unique("group")}
        async with AsyncConsumer(reading) as consumer, AsyncProducer(writing) as producer:
            consumer.subscribe([topic])
            while not consumer.assignment():
                await consumer.poll(0.05)
            await producer.init_transactions(WAIT_S)
            producer.begin_transaction()
            future = producer.produce(topic, "a")
            place = TopicPartition(topic, 0, 7)
            metadata = consumer.consumer_group_metadata()
            await producer.send_offsets_to_transaction([place], metadata, WAIT_S)
            await producer.commit_transaction(WAIT_S)
            assert (await future).error() is None
            committed = await consumer.committed([TopicPartition(topic, 0)], WAIT_S)
            assert committed[0].offset == 7

    run(main())


def test_admin_requests_are_awaited(run: Run, cluster: Any, unique: Unique) -> None:
    async def main() -> None:
        servers = cluster.bootstrap_servers
        async with AsyncAdminClient({"bootstrap.servers": servers}) as admin:
            names = [unique("made") for _ in range(3)]
            made = admin.create_topics([NewTopic(name, 2, 1) for name in names])
            await asyncio.gather(*made.values())
            async with asyncio.timeout(WAIT_S):  # brokers learn of them a little later
                while not set(names) <= set((await admin.list_topics(timeout=WAIT_S)).topics):
                    await asyncio.sleep(0.02)
            # A cancelled future does not disturb the others.
            described = [admin.describe_cluster() for _ in range(20)]
            described[3].cancel()
            nodes = await asyncio.gather(*described, return_exceptions=True)
            assert isinstance(nodes[3], asyncio.CancelledError)
            assert all(not isinstance(node, Exception) for node in nodes[:3])
            with pytest.raises(KafkaException):
                await admin.create_topics([NewTopic(names[0], 2, 1)])[names[0]]
            await asyncio.gather(*admin.delete_topics(names).values())
            waiting = admin.describe_cluster()
        with pytest.raises(KafkaException):
            await waiting

    run(main())


def test_records_survive_the_death_of_a_broker(run: Run, three: Any, unique: Unique) -> None:
    topic = unique("topic")
    three.create_topic(topic, 3, replication_factor=3)

    async def main() -> None:
        config = {
            "bootstrap.servers": three.bootstrap_servers,
            "linger.ms": 0,
            "queue.buffering.max.messages": 50,
        }
        async with AsyncProducer(config) as producer:
            first = await producer.produce(topic, "0")
            assert first.error() is None
            futures = [producer.produce(topic, str(number)) for number in range(1, 300)]
            await asyncio.to_thread(three.nodes[0].kill)
            futures += [producer.produce(topic, str(number)) for number in range(300, 600)]
            messages = await asyncio.gather(*futures)
        assert all(message.error() is None for message in messages)

    run(main())
