"""The transactional sink: retried batches, zombies, and visibility to readers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the group spark is not installed")

import pyarrow as pa
import pyspark
from machine import WAIT_S
from spark_tasks import QUERY, rows, write_task

import cykafka
from cykafka.spark.clients import producers
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.records.outcome import JobHandling
from cykafka.spark.sink import transactions
from cykafka.spark.sink.writing import KafkaWriteError, Written


@pytest.fixture(autouse=True)
def pool() -> Iterator[producers.ProducerPool]:
    yield producers._pool
    producers._pool.close()
    transactions._had_nothing.clear()


@pytest.fixture
def marked(cluster: Any, topic: str, prefix: str) -> Callable[..., None]:
    """Write the mark of a task directly: its offset and its text."""

    def marked(offset: int, text: str) -> None:
        with cykafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"{prefix}-{QUERY}-0"}
        ) as consumer:
            place = cykafka.TopicPartition(topic, 0, offset, metadata=text)
            consumer.commit(offsets=[place], asynchronous=False)

    return marked


@pytest.fixture
def committed(make_consumer: Callable[..., Any]) -> Callable[[str], list[str]]:
    """The values of a topic that a reader with this isolation level sees, in order."""

    def committed(topic: str, isolation_level: str = "read_committed") -> list[str]:
        consumer = make_consumer(
            {"isolation.level": isolation_level, "enable.partition.eof": True}
        )
        consumer.assign([cykafka.TopicPartition(topic, number, 0) for number in range(4)])
        values, ends = [], 0
        while ends < 4:
            message = consumer.poll(WAIT_S)
            assert message is not None, "the reader did not reach the end of the partition in time"
            if message.error() is None:
                values.append(message.value().decode())
            else:
                ends += 1
        return sorted(values)

    return committed


@pytest.fixture
def prefix(unique: Callable[[str], str]) -> str:
    return unique("tx")


@pytest.fixture
def task(cluster: Any, topic: str, prefix: str) -> Callable[..., Any]:
    """Run one task of a micro-batch in this process, like Spark's workers."""

    def task(values: Any, batch: int = 0, task: int = 0, **options: Any) -> Written:
        place = {key: options.pop(key) for key in ("run", "attempt") if key in options}
        given = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": topic,
            "transactional": "true",
            "transactionalIdPrefix": prefix,
            **options,
        }
        batches = values
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            batches = [rows(values[:1]), rows(values[1:])]
        return write_task(given, batches, batch=batch, task=task, **place)

    return task


def test_batches_are_written_in_transactions(task: Any, topic: str, committed: Any) -> None:
    for batch in range(3):
        for number in range(2):
            written = task([f"{batch}-{number}-a", f"{batch}-{number}-b"], batch, number)
            assert (written.records, written.skipped) == (2, False)

    expected = [
        f"{batch}-{number}-{letter}"
        for batch in range(3)
        for number in range(2)
        for letter in "ab"
    ]
    assert committed(topic) == expected


def test_a_batch_that_was_written_is_skipped_by_the_same_worker(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    task(["a", "b"], 0)
    task(["c", "d"], 1)
    written = task(["c", "d"], 1)

    assert (written.records, written.skipped) == (2, True)
    assert len(pool) == 1
    assert task(["e"], 2).skipped is False
    assert committed(topic) == ["a", "b", "c", "d", "e"]


def test_a_batch_that_was_written_is_skipped_by_another_worker(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    task(["a", "b"], 0)
    pool.close()
    assert task(["a", "b"], 0).skipped is True
    # The producer that found the written batch continues.
    assert task(["c", "d"], 1).skipped is False
    pool.close()
    assert task(["c", "d"], 1).skipped is True
    assert committed(topic) == ["a", "b", "c", "d"]


def test_failed_task_writes_nothing_and_its_retry_writes_all(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    def failing() -> Iterator[Any]:
        yield rows(["a", "b"])
        raise ZeroDivisionError

    task(["0"], 0)
    with pytest.raises(ZeroDivisionError):
        task(failing(), 1)
    assert len(pool) == 0
    assert committed(topic) == ["0"]

    assert task(["a", "b"], 1).skipped is False
    assert committed(topic) == ["0", "a", "b"]


def test_a_record_that_fails_aborts_its_task(task: Any, topic: str, committed: Any) -> None:
    bad = iter([rows(["a", "b"]), rows(["x" * 3_000_000])])
    with pytest.raises(KafkaWriteError, match="MSG_SIZE_TOO_LARGE"):
        task(bad, 0)
    assert committed(topic) == []

    task(["a", "b"], 0)
    assert committed(topic) == ["a", "b"]


@pytest.fixture
def strict(cluster: Any, unique: Any) -> str:
    """A topic of four partitions that refuses large records."""
    name = unique("strict")
    cluster.create_topic(name, 4, config={"max.message.bytes": 20_000})
    return str(name)


@pytest.fixture
def sourced(
    cluster: Any, strict: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Written]:
    """Run a task whose rows have sources; dead letters are the texts of their offsets."""

    def letters(self: Any, refused: Any, form: str) -> Iterator[Any]:
        numbers = [record.offset for record in refused]
        values = [f"{'x' * 30_000 * (form == 'whole')}{number}" for number in numbers]
        if numbers:
            none = pa.nulls(len(numbers), pa.binary())
            yield with_sources(rows(values).append_column("key", none), numbers)

    target = JobHandling.letters_to.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(JobHandling, "letters", letters)
    monkeypatch.setattr(
        JobHandling,
        "letters_to",
        property(lambda self: (to := target(self)) and replace(to, headers=None)),
    )

    def sourced(values: list[str], batch: int = 0, **keys: Any) -> Written:
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topics": "source",
                 "to": strict, "checkpoint": "/c", **keys}  # fmt: skip
        config: Any = load(JOBS["mirror"], None, given, {})
        sink = {
            **config.copy_options(), "topic": strict,
            "transactional": "true", "transactionalIdPrefix": prefix,
        }  # fmt: skip
        half = len(values) // 2
        batches = [
            with_sources(rows(part, number % 4), range(first, first + len(part)))
            for number, (first, part) in enumerate(((0, values[:half]), (half, values[half:])))
        ]
        return write_task(sink, batches, batch=batch, handling=JobHandling.of(config))

    return sourced


def with_sources(batch: Any, numbers: Any) -> Any:
    place = [{"topic": "source", "partition": 0, "offset": number} for number in numbers]
    kind = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    return batch.append_column("source", pa.array(place, kind))


LARGE = "x" * 30_000


def test_refused_records_are_left_out_of_a_transaction(
    sourced: Callable[..., Written], strict: str, committed: Any, pool: producers.ProducerPool
) -> None:
    values = [LARGE if number in (3, 4, 37) else f"{number:02}" for number in range(40)]
    expected = [value for value in values if value != LARGE]

    written = sourced(values, on_refused="skip")
    again = sourced(values, on_refused="skip")
    pool.close()
    third = sourced(values, on_refused="skip")

    assert (written.records, written.settled, written.refused) == (37, 3, ())
    assert [(written.records, written.settled, written.skipped) for written in (again, third)] == [
        (37, 3, True)
    ] * 2
    assert committed(strict) == expected
    assert sourced(["next", "one"], 1).records == 2


def test_dead_letters_are_in_the_same_transaction(
    sourced: Callable[..., Written], cluster: Any, strict: str, committed: Any
) -> None:
    dead = f"{strict}.dead"
    cluster.create_topic(dead, 4, config={"max.message.bytes": 20_000})
    values = [LARGE if number == 7 else str(number) for number in range(10)]

    written = sourced(values, dead_letter_topic=dead)

    assert (written.records, written.settled, written.refused) == (9, 1, ())
    assert committed(strict) == [str(number) for number in range(10) if number != 7]
    assert committed(dead) == ["7"], "the letter without its value"


def test_refused_record_stops_a_transaction(
    sourced: Callable[..., Written], strict: str, committed: Any
) -> None:
    values = ["a", LARGE, "b", LARGE]

    written = sourced(values)

    assert (written.records, written.settled) == (0, 0)
    assert [(record.offset, record.target) for record in written.refused] == [(1, strict)]
    assert "MSG_SIZE_TOO_LARGE" in written.refused[0].error
    assert committed(strict) == []
    assert sourced(values, on_refused="skip").settled == 2
    assert committed(strict) == ["a", "b"]


def test_requests_of_a_transaction_may_be_too_large(
    sourced: Callable[..., Written], strict: str, committed: Any
) -> None:
    values = [f"{number:03}" + "x" * 500 for number in range(100)]

    written = sourced(values)

    assert (written.records, written.settled, written.refused) == (100, 0, ())
    assert committed(strict) == values


def test_many_refused_records_end_a_transaction(
    sourced: Callable[..., Written], committed: Any, strict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_MOST_REFUSED", 2)

    with pytest.raises(KafkaWriteError, match=r"more than 2 records.*offset 0 of source \[0\]"):
        sourced([LARGE] * 6, on_refused="skip")

    assert committed(strict) == []


def test_record_that_brokers_refuse_fails_a_transaction_at_once(task: Any, strict: str) -> None:
    """librdkafka sends no more records of the transaction, nor does it report them."""
    given = {"topic": strict, "kafka.batch.num.messages": "1", "kafka.linger.ms": "0"}
    began = time.monotonic()

    with pytest.raises(
        KafkaWriteError, match=r"records could not.*: .*MSG_SIZE_TOO_LARGE"
    ) as caught:
        task([rows(["0", "1", "2", LARGE, LARGE, *map(str, range(15))])], **given)

    assert time.monotonic() - began < 60, "it waited for delivery.timeout.ms"
    assert str(caught.value).index("MSG_SIZE_TOO_LARGE") < str(caught.value).index("PURGE")


def test_readers_see_a_task_only_after_it_ended(task: Any, topic: str, committed: Any) -> None:
    def seen() -> Iterator[Any]:
        yield rows(["a"])
        yield rows(["b"])
        assert committed(topic) == []
        yield rows(["c"])

    task(seen(), 0)
    assert committed(topic) == ["a", "b", "c"]


def test_a_zombie_is_fenced(
    task: Any, topic: str, make_consumer: Callable[..., Any], committed: Any, pool: Any
) -> None:
    """A task moves to another worker while its first attempt still writes."""
    other = producers.ProducerPool()
    uncommitted = make_consumer({"isolation.level": "read_uncommitted"})
    uncommitted.assign([cykafka.TopicPartition(topic, 0, 0)])

    def taken_over() -> Iterator[Any]:
        yield rows(["zombie"])
        arrived = uncommitted.poll(WAIT_S)
        assert arrived is not None
        assert arrived.value() == b"zombie"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cykafka.spark.sink.transactions.borrow_producer", other.borrow_producer)
            patch.setattr("cykafka.spark.sink.transactions.return_producer", other.return_producer)
            assert task(["a", "b"], 0).skipped is False
        yield rows(["zombie"])

    try:
        with pytest.raises(KafkaWriteError, match=r"(?i)fenced"):
            task(taken_over(), 0)
    finally:
        other.close()

    assert committed(topic) == ["a", "b"]


def test_fenced_worker_starts_again_with_a_new_producer(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    """Tasks change workers between batches. The producers stay open in each worker."""
    other = producers.ProducerPool()

    def elsewhere(*args: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cykafka.spark.sink.transactions.borrow_producer", other.borrow_producer)
            patch.setattr("cykafka.spark.sink.transactions.return_producer", other.return_producer)
            return task(*args)

    try:
        task(["a"], 0)
        elsewhere(["b"], 1)
        task(["c"], 2)
        elsewhere(["d"], 3)
        assert elsewhere(["d"], 3).skipped is True
        assert task(["d"], 3).skipped is True
        task(["e"], 4)
    finally:
        other.close()

    assert committed(topic) == ["a", "b", "c", "d", "e"]


def test_batch_with_another_partitioning_is_refused(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    task(["a", "b", "c"], 0)
    for again in (["a", "b"], ["a", "b", "cc"]):
        with pytest.raises(KafkaWriteError, match="same partitioning"):
            task(again, 0)
    pool.close()
    with pytest.raises(KafkaWriteError, match="task 0 had 3 record"):
        task(["a", "b"], 0)
    assert committed(topic) == ["a", "b", "c"]


def test_batch_of_the_same_size_with_other_rows_is_refused(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    """All rows have one size, or tasks have swapped partitions."""
    task(["a1", "a2"], 0, 0)
    for kept in (True, False):
        if not kept:
            pool.close()
        with pytest.raises(KafkaWriteError, match="the task has different records of the same"):
            task(["b1", "b2"], 0, 0)
        # The same values in another partition of the topic.
        with pytest.raises(KafkaWriteError, match="the task has different records of the same"):
            task([rows(["a1", "a2"], 1)], 0, 0)
    assert committed(topic) == ["a1", "a2"]


def test_the_same_rows_in_another_order_are_skipped(task: Any, topic: str, committed: Any) -> None:
    # A shuffle returns rows in any order.
    task([rows(["a", "b", "c"]), rows(["d", "dd"])], 0)
    assert task([rows(["dd"]), rows(["c", "a"]), rows(["b", "d"])], 0).skipped is True
    assert committed(topic) == ["a", "b", "c", "d", "dd"]


def test_retried_task_that_lost_its_rows_is_refused(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    """Another task may have its rows now, and would write them again."""
    task(["a", "b"], 0)
    for kept in (True, False):
        if not kept:
            pool.close()
        with pytest.raises(
            KafkaWriteError, match=r"had 2 record\(s\) .*; now the task has 0 record\(s\) of 0"
        ):
            task([], 0, run="again")
    with pytest.raises(KafkaWriteError, match="now the task has 0"):
        task([], 0, run=None)
    assert committed(topic) == ["a", "b"]


def test_task_without_rows_fences_earlier_attempts(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    def zombie() -> Iterator[Any]:
        yield rows(["zombie"])
        assert task([], 0, run="again").records == 0
        yield rows(["zombie"])

    with pytest.raises(KafkaWriteError, match=r"(?i)fenced"):
        task(zombie(), 0)
    assert committed(topic) == []
    task(["a"], 1, run="again")
    assert committed(topic) == ["a"]


def test_task_without_rows_checks_once_per_run(
    task: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    began = transactions._begin
    monkeypatch.setattr(
        transactions, "_begin", lambda *args: begun.append(args[0].place.batch) or began(*args)
    )
    for batch in (3, 4):
        task([], batch)
    task([], 5, attempt=1)
    task([], 4, run="again")
    task([], 5, run="again")
    task([], 5, 1, run="again")
    assert begun == [3, 5, 4, 5]


def test_a_mark_with_an_unknown_hash_is_refused_for_its_own_batch(
    task: Any, topic: str, committed: Any, marked: Any
) -> None:
    marked(7, '{"batch": 7, "records": 2, "bytes": 3, "hash": "xxh9:00"}')
    with pytest.raises(KafkaWriteError, match=r"another hash \(xxh9\): finish the batch"):
        task(["a", "bb"], 7)
    assert task(["c"], 8).skipped is False
    assert committed(topic) == ["c"]


@pytest.mark.parametrize("text", ["", "hello", "[]", "7", '{"records": 1}', '{"bytes": null}'])
def test_invalid_mark_is_refused(task: Any, marked: Any, text: str) -> None:
    marked(0, text)
    with pytest.raises(KafkaWriteError, match="has offsets that another program committed"):
        task(["a"], 1)


def test_an_old_checkpoint_is_refused(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    for batch in range(3):
        task([str(batch)], batch)
    for kept in (True, False):
        if not kept:
            pool.close()
        with pytest.raises(KafkaWriteError, match="the checkpoint is an old one"):
            task(["1"], 1)
    assert committed(topic) == ["0", "1", "2"]


def test_a_task_without_rows_writes_nothing(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    assert task([], 0).records == 0
    assert len(pool) == 0
    assert task(iter([rows([])]), 1).records == 0
    task(["a"], 2)
    assert task([], 3, run="again").records == 0
    assert len(pool) == 1
    task(["b"], 3)
    assert committed(topic) == ["a", "b"]


def test_next_attempt_finds_a_commit_whose_answer_was_lost(
    task: Any, topic: str, committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers commit, but their answer is lost."""
    real = transactions.borrow_producer

    class Deaf:
        def __init__(self, producer: Any) -> None:
            self._producer = producer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._producer, name)

        def commit_transaction(self) -> None:
            self._producer.commit_transaction()
            raise cykafka.KafkaException(cykafka.KafkaError(cykafka.KafkaError._TIMED_OUT))

    def borrow_producer(config: Any) -> Any:
        borrowed = real(config)
        borrowed.producer = Deaf(borrowed.producer)
        return borrowed

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "borrow_producer", borrow_producer)
        with pytest.raises(KafkaWriteError, match="_TIMED_OUT"):
            task(["a", "b"], 0)
    assert task(["a", "b"], 0, attempt=1).skipped is True
    assert committed(topic) == ["a", "b"]


def test_more_tasks_than_open_producers_are_written(
    task: Any, topic: str, committed: Any, pool: producers.ProducerPool
) -> None:
    tasks = producers.MAX_OPEN + 3
    for batch in range(2):
        for number in range(tasks):
            assert task([f"{batch}-{number}"], batch, number).skipped is False
    for number in range(tasks):
        assert task([f"1-{number}"], 1, number).skipped is True
    assert len(pool) == producers.MAX_OPEN
    assert committed(topic) == sorted(f"{b}-{number}" for b in range(2) for number in range(tasks))


def test_topics_from_the_column_have_marks_too(
    cluster: Any, task: Any, topic: str, committed: Any, unique: Any, pool: producers.ProducerPool
) -> None:
    other = unique("other")
    cluster.create_topic(other, 4)

    for batch, name in enumerate((topic, other, topic)):
        task(iter([rows([f"{batch}"], topic=name)]), batch, topic=None)
    pool.close()
    assert task(iter([rows(["2"], topic=topic)]), 2, topic=None).skipped is True
    pool.close()
    task(iter([rows(["3"], topic=other)]), 3, topic=None)
    assert committed(topic) == ["0", "2"]
    assert committed(other) == ["1", "3"]


def test_transactional_sink_requires_a_task_context() -> None:
    with pytest.raises(KafkaWriteError, match="does not pass the number of the micro-batch"):
        transactions.Place.here()


# -- with Spark


POISON = "poison"


@pytest.fixture
def query(spark: Any, cluster: Any, topic: str, prefix: str, tmp_path: Path) -> Callable[..., Any]:
    """Start or restart a stream with two tasks and one file per batch."""

    def query(**options: str) -> Any:
        source = spark.readStream.format("text").option("maxFilesPerTrigger", "1")
        frame = source.load(str(tmp_path / "in")).repartition(2, "value")
        flag = str(tmp_path / POISON)

        @pyspark.sql.functions.udf("string", useArrow=False)
        def checked(value: str) -> str:
            # The task with this row fails as long as the file exists.
            if value.endswith("c") and os.path.exists(flag):
                raise ValueError(POISON)
            return value

        writer = frame.select(checked("value").alias("value")).writeStream.format("cykafka")
        given = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": topic,
            "transactional": "true",
            "transactionalIdPrefix": prefix,
            "checkpointLocation": str(tmp_path / "checkpoint"),
            **options,
        }
        return writer.options(**given).trigger(availableNow=True).start()

    return query


def fill(folder: Path, *names: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("".join(f"{name}-{letter}\n" for letter in "abcdefgh"))
    return [f"{name}-{letter}" for name in names for letter in "abcdefgh"]


def test_batch_whose_commit_spark_forgot_is_written_once(
    query: Any, topic: str, committed: Any, tmp_path: Path, stop_queries: None
) -> None:
    # This simulates a crash between the last task's end and the commit in the checkpoint.
    expected = fill(tmp_path / "in", "0", "1")
    assert query().awaitTermination(120)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    expected += fill(tmp_path / "in", "2")
    again = query()
    assert again.awaitTermination(120)

    assert again.lastProgress["batchId"] == 2
    assert committed(topic) == expected
    assert committed(topic, "read_uncommitted") == expected


def test_batch_with_one_failed_task_is_written_once(
    query: Any, topic: str, committed: Any, tmp_path: Path, stop_queries: None
) -> None:
    expected = fill(tmp_path / "in", "0")
    assert query().awaitTermination(120)
    expected += fill(tmp_path / "in", "1")
    (tmp_path / POISON).touch()
    with pytest.raises(Exception, match=POISON):
        query().awaitTermination(120)
    # One of the two tasks may have ended before. No row of the other one is visible.
    assert set(expected[:8]) <= set(committed(topic)) < set(expected)

    (tmp_path / POISON).unlink()
    assert query().awaitTermination(120)
    assert committed(topic) == expected
