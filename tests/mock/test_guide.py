"""The Python of README and the guides runs and does what they say."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixture_types import MakeConsumer, MakeProducer, Unique
from guides import ROOT, blocks
from machine import WAIT_S

from cykafka import Consumer, DeliveryError, KafkaError, Producer, TopicPartition

pytestmark = pytest.mark.ours


class Reading:
    """A consumer whose batches() end after `count` records."""

    def __init__(self, consumer: Any, count: int) -> None:
        self._consumer = consumer
        self._count = count
        self.commits_left = -1

    def batches(self, max_messages: int, timeout: float = 1.0) -> Iterator[Any]:
        while self._count > 0:
            batch = self._consumer.consume_batch(min(max_messages, self._count), WAIT_S)
            assert len(batch), "records are missing"
            self._count -= len(batch)
            yield batch

    def commit(self, *arguments: Any, **keywords: Any) -> None:
        self.commits_left -= 1
        if self.commits_left == 0:
            raise SystemExit("crashed")
        self._consumer.commit(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


@pytest.fixture(scope="module")
def guide() -> dict[str, Any]:
    """The names that the guide defines."""
    names: dict[str, Any] = {}
    for block in blocks("docs/batches.md"):
        exec(compile(block, "docs/batches.md", "exec"), names)
    return names


@pytest.fixture
def reading(make_consumer: MakeConsumer) -> Callable[..., Reading]:
    def reading(topic: str, count: int, config: dict[str, Any] | None = None) -> Reading:
        # On the mock a classic group does not readmit a member for a while.
        consumer = make_consumer({"group.protocol": "consumer", **(config or {})})
        consumer.subscribe([topic])
        return Reading(consumer, count)

    return reading


PAGES = [
    *("README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
]


@pytest.mark.parametrize("page", PAGES)
def test_python_of_each_page_compiles(page: str) -> None:
    for block in blocks(page):
        compile(block, page, "exec")


@pytest.mark.parametrize("page", PAGES)
def test_links_of_each_page_have_a_target(page: str) -> None:
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!https?://)([^)#]*)(?:#[^)]*)?\)", (ROOT / page).read_text())
    assert [link for link in links if link and not (folder / link).exists()] == []


def test_readme(cluster: Any) -> None:
    class Seen(Exception):
        pass

    lines: list[tuple[Any, ...]] = []
    readers = 0

    def show(*arguments: Any) -> None:
        lines.append(arguments)
        if reading:
            raise Seen  # else it would never end

    names: dict[str, Any] = {"print": show}
    pages = ("README.md", "docs/reading.md", "docs/switching.md", "docs/testing.md")
    for block in (block for page in pages for block in blocks(page)):
        if "KafkaCluster" in block:  # tests/broker runs it
            continue
        reading = "subscribe(" in block
        readers += reading
        source = block.replace("localhost:9092", cluster.bootstrap_servers)
        source = source.replace('"group.id"', '"group.protocol": "consumer", "group.id"')
        try:
            exec(compile(source, "README.md", "exec"), names)
        except Seen:
            assert reading

    assert readers == 3
    assert sum("orders [" in str(line[0]) for line in lines) == 1000
    assert [line[2] for line in lines if len(line) == 4] == [b"web"] * 2  # headers by batches()


def test_ingest(guide: Any, make_producer: MakeProducer, topic: str, reading: Any) -> None:
    rows = ({"id": n, "user": f"u{n % 7}"} for n in range(2_500))

    assert guide["ingest"](make_producer(), topic, rows, size=100) == 2_500

    (batch,) = reading(topic, 2_500).batches(10_000)
    assert sorted(json.loads(value)["id"] for value in batch.values()) == list(range(2_500))
    assert set(batch.header("source")) == {b"import"}
    assert set(batch.keys()) == {b"u%d" % n for n in range(7)}


def test_ingest_resends_records_that_timed_out(guide: Any, topic: str) -> None:
    class Flaky:
        """A producer whose first batch loses two records."""

        def __init__(self) -> None:
            self.sent: list[list[str]] = []

        def publish(self, topic: str, values: list[str], **columns: Any) -> Flaky:
            self.sent.append(values)
            return self

        def wait(self) -> None:
            if len(self.sent) == 1:
                lost = KafkaError(KafkaError._MSG_TIMED_OUT)
                raise DeliveryError(lost, {1: lost, 3: lost})

    producer = Flaky()
    rows = [{"user": "u", "id": n} for n in range(5)]

    assert guide["ingest"](producer, topic, rows) == 5
    assert producer.sent[1:] == [[json.dumps(rows[1]), json.dumps(rows[3])]]


def test_ingest_does_not_resend_permanent_failures(
    guide: Any, make_producer: MakeProducer, topic: str
) -> None:
    rows = [{"user": "u", "text": "x" * 2_000_000}]

    with pytest.raises(DeliveryError, match="MSG_SIZE_TOO_LARGE"):
        guide["ingest"](make_producer(), topic, rows)


def test_handle(guide: Any, make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer()

    async def serve() -> list[tuple[int, int]]:
        return await asyncio.gather(*(guide["handle"](producer, b"%d" % n) for n in range(100)))

    assert len(set(asyncio.run(serve()))) == 100


def test_parquet_round_trips(
    guide: Any, make_producer: MakeProducer, topic: str, reading: Any, tmp_path: Path
) -> None:
    users = [f"u{n % 9}" for n in range(3_000)]
    events = [f'{{"n": {n}}}' for n in range(3_000)]
    pq.write_table(pa.table({"user": users, "event": events}), tmp_path / "out.parquet")

    guide["publish_file"](make_producer(), topic, tmp_path / "out.parquet")
    guide["write_file"](reading(topic, 3_000), tmp_path / "back.parquet", 3_000)

    back = pq.read_table(tmp_path / "back.parquet")
    assert back.column_names == ["key", "value", "timestamp", "headers"]
    assert sorted(
        zip(*(back[name].to_pylist() for name in ("key", "value")), strict=True)
    ) == sorted((user.encode(), event.encode()) for user, event in zip(users, events, strict=True))


def test_polars_and_duckdb_read_a_batch(
    guide: Any, make_producer: MakeProducer, topic: str, reading: Any
) -> None:
    make_producer().publish(topic, ["a", "bbb", None], partitions=[0, 1, 1]).wait(WAIT_S)
    (batch,) = reading(topic, 3).batches(10)

    assert guide["per_partition"](batch) == [(0, 1), (1, 2)]
    assert guide["largest"](batch) == 3


def test_copy(guide: Any, make_producer: MakeProducer, topic: str, reading: Any) -> None:
    producer = make_producer()
    columns = {"keys": ["k", None], "headers": [{"h": b"1"}, None], "timestamps": [1000, 2000]}
    producer.publish(topic, ["a", None], partitions=[2, 3], **columns).wait(WAIT_S)

    guide["copy"](reading(topic, 2), producer)

    (batch,) = reading(topic, 4).batches(10)
    rows = [
        (m.partition(), m.key(), m.value(), m.headers(), m.timestamp()[1])
        for m in sorted(batch, key=lambda m: (m.partition(), m.offset()))
    ]
    assert rows[0] == rows[1] == (2, b"k", b"a", [("h", b"1")], 1000)
    assert rows[2] == rows[3] == (3, None, None, None, 2000)


def test_archive_is_complete_after_a_crash(
    guide: Any,
    make_producer: MakeProducer,
    topic: str,
    reading: Any,
    tmp_path: Path,
    unique: Unique,
) -> None:
    make_producer().publish(topic, [str(n) for n in range(500)], partitions=0).wait(WAIT_S)
    group = {"group.id": unique("archive")}
    path = tmp_path / "archive"
    crashing = reading(topic, 500, group)
    crashing.batches = lambda *_, **__: Reading.batches(crashing, 100)
    crashing.commits_left = 3

    with pytest.raises(SystemExit, match="crashed"):
        guide["archive"](crashing, path)
    crashing.close()
    guide["archive"](reading(topic, 300, group), path)

    twice = [str(n) for n in range(200, 300)]
    lines = path.read_text().split()
    assert sorted(lines, key=int) == sorted([*map(str, range(500)), *twice], key=int)


def test_rows_and_word_counts_are_published(
    guide: Any, make_producer: MakeProducer, topic: str, reading: Any
) -> None:
    producer = make_producer({"partitioner": "random"})
    floats = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    structured = np.zeros(2, dtype=[("a", "i4"), ("b", "f8")])

    assert len(guide["publish_rows"](producer, topic, structured)) == 2
    for rows in (floats, floats[::2]):
        delivery = guide["publish_rows"](producer, topic, rows)
        delivery.wait(WAIT_S)
        assert len(delivery) == len(rows)
    guide["publish_words"](producer, topic, ["ab", "c"]).wait(WAIT_S)

    (batch,) = reading(topic, 10).batches(10)
    assert sorted(map(len, batch.values())) == [1, 2, 12, 12, *[24] * 6]
    only = [row for row in range(10) if len(batch.values()[row]) == 24]
    back = guide["rows_of"](batch[only[0] : only[0] + 1], 24).view(np.float64)
    assert back.tolist()[0] in floats.tolist()
    assert guide["lateness"](batch, batch.timestamps[0])[0] == 0


class Transactional(Producer):
    """A producer that records how its transactions end."""

    calls: list[str]

    def commit_transaction(self, timeout: float | None = None) -> None:
        self.calls.append("commit")
        super().commit_transaction(timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        self.calls.append("abort")
        super().abort_transaction(timeout)


@contextlib.contextmanager
def tracked(cluster: Any) -> Iterator[None]:
    """Track the cluster's requests inside the block only."""
    cluster.start_request_tracking()
    try:
        yield
    finally:
        cluster.stop_request_tracking()


@pytest.fixture
def transactional(cluster: Any, unique: Unique) -> Iterator[Transactional]:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
    with Transactional(config, **{"transactional.id": unique("transform")}) as producer:
        producer.calls = []
        yield producer


class Ending(Consumer):
    """A consumer whose batches end after `count` records."""

    count: int

    def batches(self, *arguments: Any) -> Iterator[Any]:
        return Reading(self, self.count).batches(*arguments)


@pytest.fixture
def ending(cluster: Any, unique: Unique) -> Iterator[Callable[[str, int], Ending]]:
    with contextlib.ExitStack() as stack:

        def ending(topic: str, count: int) -> Ending:
            consumer = stack.enter_context(
                Ending(
                    {
                        "bootstrap.servers": cluster.bootstrap_servers,
                        "group.id": unique("group"),
                        "group.protocol": "consumer",
                        "auto.offset.reset": "earliest",
                        "enable.auto.commit": False,
                    }
                )
            )
            consumer.count = count
            consumer.subscribe([topic])
            return consumer

        yield ending


def test_transform(
    guide: Any,
    make_producer: MakeProducer,
    topic: str,
    reading: Any,
    ending: Any,
    transactional: Transactional,
    cluster: Any,
    unique: Unique,
) -> None:
    target = unique("transformed")
    cluster.create_topic(target, 1)
    make_producer().publish(topic, ["a", "b", "c"], partitions=[0, 1, 1]).wait(WAIT_S)
    consumer = ending(topic, 3)

    with tracked(cluster):
        guide["transform"](consumer, transactional, target, bytes.upper)
        # The mock accepts the offsets of a transaction, but does not apply them.
        assert cluster.requests("TxnOffsetCommit")

    (batch,) = reading(target, 3).batches(10)
    assert sorted(batch.values()) == [b"A", b"B", b"C"]
    positions = consumer.position(consumer.assignment())
    assert {
        position.partition: position.offset for position in positions if position.offset >= 0
    } == {0: 1, 1: 2}
    assert set(transactional.calls) == {"commit"}


def test_transform_aborts_if_a_record_is_refused(
    guide: Any,
    make_producer: MakeProducer,
    topic: str,
    ending: Any,
    transactional: Transactional,
    cluster: Any,
) -> None:
    make_producer().publish(topic, ["a", "b"], partitions=0).wait(WAIT_S)

    with tracked(cluster):
        with pytest.raises(DeliveryError, match="1 of 2 record"):
            guide["transform"](
                ending(topic, 2),
                transactional,
                topic,
                lambda v: v * (2_000_000 if v == b"b" else 1),
            )
        assert not cluster.requests("TxnOffsetCommit")

    assert transactional.calls == ["abort"]


# -- docs/asyncio.md


@pytest.fixture(scope="module")
def aio_guide() -> dict[str, Any]:
    """The names that the page defines."""
    names: dict[str, Any] = {"print": lambda *_: None}
    for block in blocks("docs/asyncio.md"):
        exec(compile(block, "docs/asyncio.md", "exec"), names)
    return names


def test_asyncio_guide_sends_and_reads(
    aio_guide: dict[str, Any], cluster: Any, topic: str, unique: Unique
) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    reader = {**config, "group.id": unique("group"), "auto.offset.reset": "earliest"}
    orders = [b"%d" % n for n in range(100)]
    found: list[bytes] = []

    async def work(values: list[bytes]) -> None:
        found.extend(values)
        if len(found) == 201:
            raise EOFError

    async def main() -> None:
        await aio_guide["send"](config, topic, orders)
        with pytest.raises(EOFError):
            await aio_guide["read"](reader, topic, work)

    asyncio.run(asyncio.wait_for(main(), WAIT_S))
    assert sorted(found) == sorted([orders[0], *orders, *orders])


def test_asyncio_guide_commits_when_partitions_are_revoked(
    aio_guide: dict[str, Any], cluster: Any, topic: str, unique: Unique
) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    reader = {**config, "group.id": unique("group"), "auto.offset.reset": "earliest"}

    handled: list[Any] = []

    async def handle(message: Any) -> None:
        if handled:
            raise EOFError  # this message is not committed
        handled.append(message)

    async def main() -> None:
        await aio_guide["send"](config, topic, [b"order"])
        with pytest.raises(EOFError):
            await aio_guide["read_with_callbacks"](reader, topic, handle)
        async with aio_guide["AsyncConsumer"](reader) as consumer:
            partitions = [
                TopicPartition(topic, partition)
                for partition in (await consumer.list_topics(topic)).topics[topic].partitions
            ]
            committed = await consumer.committed(partitions)
        assert [item.offset for item in committed if item.offset > 0] == [1]

    asyncio.run(asyncio.wait_for(main(), WAIT_S))


def test_asyncio_guide_pipes_in_transactions(
    aio_guide: dict[str, Any], cluster: Any, topic: str, unique: Unique
) -> None:
    target = unique("target")
    cluster.create_topic(target, 1)
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    reader = {**config, "group.id": unique("group"), "auto.offset.reset": "earliest"}

    async def main() -> list[bytes]:
        await aio_guide["send"](config, topic, [b"a", b"b"])
        await aio_guide["pipe"](config, topic, target, bytes.upper)
        async with aio_guide["AsyncConsumer"](reader) as consumer:
            consumer.assign([TopicPartition(target, 0, 0)])
            found: list[bytes] = []
            while len(found) < 5:
                found += [item.value() for item in await consumer.consume(5, 1)]
            return found

    assert sorted(asyncio.run(asyncio.wait_for(main(), WAIT_S))) == [b"A", b"A", b"A", b"B", b"B"]


def test_asyncio_guide_ends_a_service(
    aio_guide: dict[str, Any], cluster: Any, topic: str, unique: Unique
) -> None:
    target = unique("target")
    cluster.create_topic(target, 1)
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    reader = {**config, "group.id": unique("group"), "auto.offset.reset": "earliest"}

    async def handle(producer: Any, message: Any) -> None:
        producer.produce(target, message.value())
        os.kill(os.getpid(), signal.SIGTERM)

    async def main() -> None:
        await aio_guide["send"](config, topic, [b"order"])
        await aio_guide["serve"](config, reader, topic, handle)

    asyncio.run(asyncio.wait_for(main(), WAIT_S))
    with Consumer(reader) as consumer:
        partitions = [
            TopicPartition(topic, partition)
            for partition in consumer.list_topics(topic).topics[topic].partitions
        ]
        committed = sum(max(item.offset, 0) for item in consumer.committed(partitions))
        _, sent = consumer.get_watermark_offsets(TopicPartition(target, 0))
    assert 1 <= committed == sent <= 3
