"""Executors read exactly to the end of a range, with gaps, losses and silent brokers."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from new_partitions import add_partitions  # noqa: E402
from spark_consumers import close_consumers  # noqa: E402

from cykafka import KafkaException, Producer  # noqa: E402
from cykafka.spark.clients import consumers  # noqa: E402
from cykafka.spark.clients.consumers import consumer_config  # noqa: E402
from cykafka.spark.source import worker  # noqa: E402
from cykafka.spark.source.offsets import PartitionRange  # noqa: E402
from cykafka.spark.source.read_options import DataLossError, ReadOptions  # noqa: E402
from cykafka.spark.source.worker import read_ranges  # noqa: E402

Read = Callable[..., list[tuple[int, int]]]


@pytest.fixture
def options(cluster: Any) -> Callable[..., ReadOptions]:
    def make(**given: str) -> ReadOptions:
        base = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "any"}
        return ReadOptions.of({**base, **given}, "batch")

    return make


@pytest.fixture
def read(options: Any) -> Iterator[Read]:
    """Read ranges of a topic; return (partition, offset) of each record, in order."""

    def read(topic: str, *ranges: tuple[int, int, int], **given: str) -> list[tuple[int, int]]:
        parts = [PartitionRange(topic, *part) for part in ranges]
        out: list[tuple[int, int]] = []
        for item in read_ranges(parts, options(**given), ("partition", "offset"), lambda at: at):
            columns = item.to_pydict()
            out += zip(columns["partition"], columns["offset"], strict=True)
        return out

    yield read
    close_consumers()


@pytest.fixture
def single(cluster: Any, unique: Any) -> Callable[..., str]:
    """Make a topic of one partition with these settings."""

    def make(**config: str) -> str:
        name = unique("single")
        cluster.create_topic(name, 1, config=config)
        return name

    return make


def test_times_beyond_those_of_spark_are_null_with_one_warning(
    read: Read, cluster: Any, options: Any, single: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = single(**{"retention.ms": -1, "message.timestamp.after.max.ms": 2**63 - 1})
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for at in (1_000, 10**16, 10**16 + 1):
            producer.produce(topic, b"x", partition=0, timestamp=at)

    times = []
    part = PartitionRange(topic, 0, 0, 3)
    for rows in read_ranges([part], options(), ("offset", "timestamp"), lambda rows: rows):
        times += rows["timestamp"].cast(pa.int64()).to_pylist()

    assert times == [1_000_000, None, None]
    (warning,) = (text for text in caplog.messages if "beyond the times of Spark" in text)
    assert f"{topic} [0]: the record of offset 1 has the time {10**16} ms" in warning


def test_range_ends_exactly_at_its_end(read: Read, topic: str, fill: Any) -> None:
    fill(topic, 100, 0)
    fill(topic, 100, 1)

    assert read(topic, (0, 3, 7)) == [(0, 3), (0, 4), (0, 5), (0, 6)]
    both = read(topic, (0, 90, 100), (1, 0, 5))
    assert sorted(both) == [
        *((0, offset) for offset in range(90, 100)),
        *((1, offset) for offset in range(5)),
    ]
    assert read(topic, (2, 0, 0)) == []


def test_partition_finished_early_is_read_by_the_next_task(
    read: Read, topic: str, fill: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BATCH_ROWS", 10)
    fill(topic, 20, 0)
    fill(topic, 200, 1)
    assert len(read(topic, (0, 0, 10), (1, 0, 200))) == 210

    assert read(topic, (0, 10, 20), **{"kafkaConsumer.pollTimeoutMs": "10000"}) == [
        (0, offset) for offset in range(10, 20)
    ]


def test_consumer_stays_open_between_tasks(read: Read, topic: str, fill: Any) -> None:
    fill(topic, 10, 0)
    read(topic, (0, 0, 5))
    (before,) = consumers._kept.values()
    read(topic, (0, 5, 10))
    (after,) = consumers._kept.values()

    assert after.consumer is before.consumer
    assert after.consumer.configuration()["group.id"] == "spark-kafka-source-executor"
    assert after.consumer.assignment() == []


def test_group_of_executors_has_the_prefix(read: Read, topic: str, fill: Any) -> None:
    fill(topic, 1, 0)
    assert read(topic, (0, 0, 1), groupIdPrefix="mine") == [(0, 0)]
    (kept,) = consumers._kept.values()
    assert kept.consumer.configuration()["group.id"] == "mine-executor"


def test_unfinished_task_leaves_the_consumer_usable(
    options: Any, topic: str, fill: Any, read: Read
) -> None:
    fill(topic, 30_000, 0)
    parts = [PartitionRange(topic, 0, 0, 30_000)]
    batches = read_ranges(parts, options(), ("offset",), lambda at: at)
    assert next(batches).num_rows == 10_000
    batches.close()  # type: ignore[attr-defined]

    assert [at for _, at in read(topic, (0, 29_990, 30_000))] == list(range(29_990, 30_000))
    assert len(consumers._kept) == 1


def test_offsets_of_transaction_markers_at_the_end_are_no_loss(
    read: Read, single: Any, cluster: Any, unique: Any
) -> None:
    name = single()
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": unique("t")}
    with Producer(config) as producer:
        producer.init_transactions()
        for commit in (True, False, True, False):
            producer.begin_transaction()
            for _ in range(3):
                producer.produce(name, b"x")
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)()
    # The markers have the offsets 3, 7, 11 and 15.
    committed = [(0, offset) for offset in (0, 1, 2, 8, 9, 10)]
    aborted = [(0, offset) for offset in (4, 5, 6, 12, 13, 14)]

    began = time.monotonic()
    assert read(name, (0, 0, 16)) == sorted(committed + aborted)
    level = {"kafka.isolation.level": "read_committed"}
    assert read(name, (0, 0, 16), **level) == committed
    assert read(name, (0, 0, 4), **level) == committed[:3]
    assert read(name, (0, 3, 8), **level) == []
    assert read(name, (0, 11, 16), **level) == []
    assert read(name, (0, 15, 16)) == []
    assert time.monotonic() - began < 10


def test_range_without_records_ends_when_a_later_record_arrives(
    read: Read, single: Any, cluster: Any, unique: Any
) -> None:
    name = single()
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": unique("t")}
    with Producer(config) as producer:
        producer.init_transactions()
        for commit in (False, True):
            producer.begin_transaction()
            producer.produce(name, b"x")
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)()

    assert read(name, (0, 0, 2), **{"kafka.isolation.level": "read_committed"}) == []


def test_compacted_records_are_no_loss(read: Read, single: Any, producer: Any) -> None:
    name = single(
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        }
    )
    deadline = time.monotonic() + 60
    sent = 0
    while True:
        producer.produce(name, b"x", key=b"same")
        producer.flush()
        sent += 1
        offsets = [at for _, at in read(name, (0, 0, sent))]
        if 0 not in offsets:  # the cleaner has run
            break
        assert time.monotonic() < deadline, "the broker has not compacted"
        time.sleep(0.2)  # segments need a minimum age

    assert offsets[-1] == sent - 1
    assert read(name, (0, 0, 1)) == []


def test_aged_out_offsets_are_a_loss(
    read: Read, single: Any, fill: Any, delete_before: Any, caplog: Any
) -> None:
    name = single()
    fill(name, 10)
    delete_before(name, 0, 6)

    with pytest.raises(DataLossError, match="failOnDataLoss to false") as caught:
        read(name, (0, 2, 8))
    assert f"{name} [0]: offsets 2 to 5 are gone: the partition begins at 6" in str(caught.value)
    assert not consumers._kept  # a failed consumer is not reused

    assert read(name, (0, 2, 8), failOnDataLoss="false") == [(0, 6), (0, 7)]
    assert read(name, (0, 2, 5), failOnDataLoss="false") == []
    assert f"{name} [0]: offsets 2 to 5 are gone" in "\n".join(caplog.messages)


def test_offsets_after_the_end_are_a_loss(
    read: Read, single: Any, fill: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(worker, "LOOK_AFTER_S", 0.1)
    monkeypatch.setattr(worker, "LOOK_AGAIN_S", 0.1)
    name = single()
    fill(name, 10)

    # At a position at the end the broker is silent. After the end it returns an error.
    for start in (8, 15):
        with pytest.raises(DataLossError, match="the partition ends at 10"):
            read(name, (0, start, 20))
    assert read(name, (0, 8, 20), failOnDataLoss="false") == [(0, 8), (0, 9)]
    assert read(name, (0, 15, 20), failOnDataLoss="false") == []


def test_lost_range_does_not_stop_the_others(
    read: Read, topic: str, fill: Any, delete_before: Any
) -> None:
    fill(topic, 10, 0)
    fill(topic, 10, 1)
    delete_before(topic, 0, 5)

    rows = read(topic, (0, 0, 10), (1, 0, 10), failOnDataLoss="false")

    assert sorted(rows) == [*((0, at) for at in range(5, 10)), *((1, at) for at in range(10))]


def test_deleted_topic_is_a_loss(
    read: Read, single: Any, fill: Any, delete_topic: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(worker, "LOOK_AFTER_S", 0.1)
    monkeypatch.setattr(worker, "LOOK_AGAIN_S", 0.1)
    name = single()
    fill(name, 10)
    assert len(read(name, (0, 0, 5))) == 5
    delete_topic(name)

    with pytest.raises(DataLossError, match=rf"{name} \[0\]: offsets 5 to 9 are gone"):
        read(name, (0, 5, 10))
    assert read(name, (0, 5, 10), failOnDataLoss="false") == []


def test_consumer_that_knew_the_old_topic_reads_the_recreated_one(
    read: Read, single: Any, fill: Any, delete_topic: Any, cluster: Any
) -> None:
    name = single()
    fill(name, 10)
    assert len(read(name, (0, 0, 10))) == 10
    delete_topic(name)
    cluster.create_topic(name, 2)
    fill(name, 3, 0)
    fill(name, 3, 1)

    assert read(name, (0, 0, 3)) == [(0, 0), (0, 1), (0, 2)]
    assert read(name, (1, 0, 3)) == [(1, 0), (1, 1), (1, 2)]


def test_added_partitions_are_read_without_delay(
    read: Read, single: Any, fill: Any, admin: Any
) -> None:
    name = single()
    fill(name, 1)
    assert len(read(name, (0, 0, 1))) == 1
    add_partitions(admin, name, 3)
    fill(name, 5, 2)

    assert len(read(name, (2, 0, 5))) == 5


def test_timeout_error_names_the_missing_offsets(read: Read, single: Any, fill: Any) -> None:
    name = single()
    fill(name, 10)

    with pytest.raises(TimeoutError, match=r"kafkaConsumer\.pollTimeoutMs") as caught:
        read(name, (0, 5, 11), **{"kafkaConsumer.pollTimeoutMs": "2500"})

    assert f"{name} [0]: no record of the offsets 10 to " in str(caught.value)
    assert "within 2.5 s" in str(caught.value)


def test_unreachable_brokers_time_out(read: Read, options: Any, unique: Any) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafkaConsumer.pollTimeoutMs": "500"}
    with pytest.raises((KafkaException, TimeoutError)):
        read(unique("nowhere"), (0, 0, 1), **given)


def test_options_are_pickled_and_their_secrets_are_not_printed(options: Any) -> None:
    made = options(**{"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.password": "do-not-tell"})

    again = pickle.loads(pickle.dumps(made))

    assert again == made
    assert again.kafka["sasl.password"] == "do-not-tell"
    assert "do-not-tell" not in repr(again)
    assert "do-not-tell" not in str(consumer_config(again.kafka, "g"))
