"""Offsets: stored, committed, queried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, RunScript, Unique, WaitUntil
from machine import WAIT_S
from relay import (
    LIST_OFFSETS,
    METADATA,
    OFFSET_FETCH,
    ReplacingRelay,
    StallingRelay,
    serving,
)


@pytest.fixture
def partition(kafka: Any, topic: str, fill: Fill) -> Any:
    """A partition that holds ten messages."""
    fill(topic, 10)
    return kafka.TopicPartition(topic, 0)


def committed(consumer: Any, partition: Any) -> int:
    (found,) = consumer.committed([partition], timeout=WAIT_S)
    assert found.error is None
    offset: int = found.offset
    return offset


def test_commit_of_a_message_stores_the_offset_after_it(consumer: Any, partition: Any) -> None:
    consumer.assign([partition])
    message = consumer.consume(3, WAIT_S)[-1]

    (done,) = consumer.commit(message=message, asynchronous=False)

    assert (done.topic, done.partition, done.offset) == (partition.topic, 0, 3)
    assert done.error is None
    assert committed(consumer, partition) == 3


def test_commit_takes_the_message_by_position(consumer: Any, partition: Any) -> None:
    consumer.assign([partition])

    assert consumer.commit(consumer.poll(WAIT_S), asynchronous=False)[0].offset == 1


def test_commit_of_offsets_stores_them_with_their_metadata(
    consumer: Any, kafka: Any, partition: Any
) -> None:
    offset = kafka.TopicPartition(partition.topic, 0, 5, "a note")

    (done,) = consumer.commit(offsets=[offset], asynchronous=False)

    assert done.offset == 5
    (found,) = consumer.committed([partition], timeout=WAIT_S)
    assert (found.offset, found.metadata) == (5, "a note")


def test_commit_without_arguments_commits_the_read_messages(consumer: Any, partition: Any) -> None:
    consumer.assign([partition])
    consumer.consume(4, WAIT_S)

    (done,) = consumer.commit(asynchronous=False)

    assert done.offset == 4
    assert committed(consumer, partition) == 4


def test_commit_without_read_messages_is_an_error(consumer: Any, kafka: Any) -> None:
    with pytest.raises(kafka.KafkaException) as caught:
        consumer.commit(asynchronous=False)

    assert caught.value.args[0] == kafka.KafkaError._NO_OFFSET


def test_commit_is_asynchronous_by_default_and_reports(
    make_consumer: MakeConsumer, kafka: Any, partition: Any, wait_until: WaitUntil
) -> None:
    reports: list[tuple[Any, Any]] = []
    consumer = make_consumer({"on_commit": lambda *report: reports.append(report)})
    offset = kafka.TopicPartition(partition.topic, 0, 6)

    assert consumer.commit(offsets=[offset]) is None
    wait_until(lambda: reports, lambda: consumer.poll(0.1))

    ((error, (done,)),) = reports
    assert error is None
    assert (done.topic, done.partition, done.offset, done.error) == (partition.topic, 0, 6, None)


def test_commit_accepts_the_old_name_of_asynchronous(
    make_consumer: MakeConsumer, kafka: Any, partition: Any, wait_until: WaitUntil
) -> None:
    reports: list[tuple[Any, Any]] = []
    consumer = make_consumer({"on_commit": lambda *report: reports.append(report)})
    offsets = [kafka.TopicPartition(partition.topic, 0, 6)]

    assert consumer.commit(offsets=offsets, **{"async": True}) is None
    wait_until(lambda: reports, lambda: consumer.poll(0.1))
    assert consumer.commit(offsets=offsets, **{"async": False})[0].offset == 6


def test_commit_reports_a_failure_to_on_commit(
    make_consumer: MakeConsumer, kafka: Any, wait_until: WaitUntil
) -> None:
    reports: list[tuple[Any, Any]] = []
    consumer = make_consumer({"on_commit": lambda *report: reports.append(report)})

    consumer.commit()
    wait_until(lambda: reports, lambda: consumer.poll(0.1))

    assert reports[0][0] == kafka.KafkaError._NO_OFFSET


def test_commit_synchronous_is_answered_and_not_reported(
    make_consumer: MakeConsumer, kafka: Any, partition: Any, wait_until: WaitUntil
) -> None:
    reports: list[tuple[Any, Any]] = []
    consumer = make_consumer({"on_commit": lambda *report: reports.append(report)})

    consumer.commit(offsets=[kafka.TopicPartition(partition.topic, 0, 2)], asynchronous=False)
    consumer.commit(offsets=[kafka.TopicPartition(partition.topic, 0, 3)])
    wait_until(lambda: reports, lambda: consumer.poll(0.1))

    assert [(error, ps[0].offset) for error, ps in reports] == [(None, 3)]


@pytest.mark.parametrize("method", ["commit", "store_offsets"])
def test_message_and_offsets_exclude_each_other(
    make_consumer: MakeConsumer, kafka: Any, method: str
) -> None:
    consumer = make_consumer({"enable.auto.offset.store": False})
    message = kafka.Message(topic="any", partition=0, offset=1)

    with pytest.raises(ValueError, match="mutually exclusive"):
        getattr(consumer, method)(message=message, offsets=[kafka.TopicPartition("any", 0, 1)])


@pytest.mark.parametrize("method", ["commit", "store_offsets"])
def test_event_has_no_offset_to_store(
    make_consumer: MakeConsumer, kafka: Any, topic: str, method: str
) -> None:
    consumer = make_consumer({"enable.partition.eof": True, "enable.auto.offset.store": False})
    consumer.assign([kafka.TopicPartition(topic, 0)])
    end = consumer.poll(WAIT_S)

    with pytest.raises(kafka.KafkaException) as caught:
        getattr(consumer, method)(message=end)

    assert caught.value.args[0] == kafka.KafkaError._INVALID_ARG


def test_commit_commits_the_stored_offsets(
    make_consumer: MakeConsumer, kafka: Any, partition: Any
) -> None:
    consumer = make_consumer({"enable.auto.offset.store": False})
    consumer.assign([partition])
    messages = consumer.consume(5, WAIT_S)
    with pytest.raises(kafka.KafkaException) as caught:
        consumer.commit(asynchronous=False)
    assert caught.value.args[0] == kafka.KafkaError._NO_OFFSET

    assert consumer.store_offsets(message=messages[1]) is None
    assert consumer.commit(asynchronous=False)[0].offset == 2

    consumer.store_offsets(offsets=[kafka.TopicPartition(partition.topic, 0, 4)])
    assert consumer.commit(asynchronous=False)[0].offset == 4


def test_store_offsets_with_automatic_storing_is_an_error(
    consumer: Any, kafka: Any, partition: Any
) -> None:
    consumer.assign([partition])
    message = consumer.poll(WAIT_S)

    with pytest.raises(kafka.KafkaException) as caught:
        consumer.store_offsets(message)

    assert caught.value.args[0] == kafka.KafkaError._INVALID_ARG


def test_store_offsets_of_a_partition_not_assigned_is_an_error(
    make_consumer: MakeConsumer, kafka: Any, partition: Any
) -> None:
    consumer = make_consumer({"enable.auto.offset.store": False})
    consumer.assign([partition])

    with pytest.raises(kafka.KafkaException) as caught:
        consumer.store_offsets(offsets=[kafka.TopicPartition(partition.topic, 3, 1)])

    assert caught.value.args[0] == kafka.KafkaError._STATE


def test_store_offsets_without_arguments_is_an_error(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer({"enable.auto.offset.store": False})

    with pytest.raises(ValueError, match="message or offsets"):
        consumer.store_offsets()


def test_auto_commit_keeps_the_position_over_close(
    make_consumer: MakeConsumer, partition: Any, unique: Unique
) -> None:
    config = {"group.id": unique("group"), "enable.auto.commit": True}
    first = make_consumer(config)
    first.assign([partition])
    assert [m.offset() for m in first.consume(4, WAIT_S)] == [0, 1, 2, 3]
    first.close()

    second = make_consumer(config)
    second.assign([partition])

    assert second.poll(WAIT_S).offset() == 4


def test_committed_before_any_commit_is_invalid(consumer: Any, kafka: Any, partition: Any) -> None:
    assert committed(consumer, partition) == kafka.OFFSET_INVALID


def test_position_is_the_next_message(consumer: Any, kafka: Any, partition: Any) -> None:
    other = kafka.TopicPartition(partition.topic, 1)
    consumer.assign([partition])
    assert consumer.position([partition])[0].offset == kafka.OFFSET_INVALID

    consumer.consume(4, WAIT_S)
    here, unread = consumer.position([partition, other])

    assert (here.topic, here.partition, here.offset) == (partition.topic, 0, 4)
    assert unread.offset == kafka.OFFSET_INVALID


def test_watermarks_are_the_first_and_the_next_offset(
    consumer: Any, kafka: Any, partition: Any
) -> None:
    assert consumer.get_watermark_offsets(partition, timeout=WAIT_S) == (0, 10)
    empty = kafka.TopicPartition(partition.topic, 1)
    assert consumer.get_watermark_offsets(empty, WAIT_S) == (0, 0)


def test_cached_watermarks_come_with_the_messages(
    consumer: Any, kafka: Any, partition: Any
) -> None:
    unknown = (kafka.OFFSET_INVALID, kafka.OFFSET_INVALID)
    assert consumer.get_watermark_offsets(partition, cached=True) == unknown
    consumer.assign([partition])
    consumer.poll(WAIT_S)

    assert consumer.get_watermark_offsets(partition, cached=True)[1] == 10


def test_watermarks_of_an_unknown_partition_are_an_error(
    consumer: Any, kafka: Any, partition: Any
) -> None:
    with pytest.raises(kafka.KafkaException) as caught:
        consumer.get_watermark_offsets(kafka.TopicPartition(partition.topic, 99), timeout=WAIT_S)

    assert caught.value.args[0] == kafka.KafkaError._UNKNOWN_PARTITION


def test_offsets_for_times_answers_per_partition(
    consumer: Any, kafka: Any, partition: Any
) -> None:
    # The mock has no lookup by time: it knows only the two ends. So this checks only the form of
    # the answer.
    asked = [kafka.TopicPartition(partition.topic, number, 1234) for number in (0, 1)]

    answer = consumer.offsets_for_times(asked, timeout=WAIT_S)

    assert answer == asked
    assert {p.error for p in answer} == {None}
    assert [p.offset for p in asked] == [1234, 1234]


def test_empty_metadata_is_an_empty_text(consumer: Any, kafka: Any, partition: Any) -> None:
    given = kafka.TopicPartition(partition.topic, partition.partition, 3, metadata="")

    (committed,) = consumer.commit(offsets=[given], asynchronous=False)
    assert committed.metadata == ""

    (committed,) = consumer.committed([partition], WAIT_S)
    assert (committed.offset, committed.metadata) == (3, "")


@pytest.mark.parametrize("fields", [{}, {"topic": "t"}, {"topic": "t", "partition": 0}], ids=repr)
def test_store_offsets_without_an_offset_raises_librdkafkas_error(
    make_consumer: MakeConsumer, kafka: Any, fields: dict[str, Any]
) -> None:
    consumer = make_consumer({"enable.auto.offset.store": False})

    with pytest.raises(kafka.KafkaException) as caught:
        consumer.store_offsets(message=kafka.Message(**fields))

    assert caught.value.args[0] == kafka.KafkaError._UNKNOWN_PARTITION
    assert caught.value.args[0].str().startswith("StoreOffsets failed: Local: Unknown partition")


@pytest.mark.ours
def test_store_offsets_without_an_offset_keeps_the_stored_offset(
    make_consumer: MakeConsumer, kafka: Any, partition: Any
) -> None:
    """confluent_kafka sets the offset to a special value with another meaning, or crashes."""
    consumer = make_consumer({"enable.auto.offset.store": False})
    consumer.assign([partition])
    consumer.store_offsets(offsets=[kafka.TopicPartition(partition.topic, partition.partition, 2)])

    with pytest.raises(kafka.KafkaException):
        consumer.store_offsets(message=kafka.Message(partition.topic, partition.partition))

    (committed,) = consumer.commit(asynchronous=False)
    assert committed.offset == 2


# confluent_kafka raises SystemError for a message without a topic.
@pytest.mark.ours
def test_commit_of_a_message_without_an_offset_is_librdkafkas_answer(
    make_consumer: MakeConsumer, kafka: Any, wait_until: WaitUntil
) -> None:
    calls: list[Any] = []
    consumer = make_consumer(on_commit=lambda error, offsets: calls.append(error))

    with pytest.raises(kafka.KafkaException) as caught:
        consumer.commit(message=kafka.Message(), asynchronous=False)
    assert caught.value.args[0] == kafka.KafkaError._NO_OFFSET

    assert consumer.commit(message=kafka.Message("t")) is None
    wait_until(lambda: calls, lambda: consumer.poll(0.1))
    assert calls == [kafka.KafkaError._NO_OFFSET]


@pytest.mark.parametrize("method", ["store_offsets", "commit"])
def test_error_for_a_message_with_an_error_names_it_and_the_call(
    make_consumer: MakeConsumer, kafka: Any, method: str
) -> None:
    message = kafka.Message("t", 0, 5, error=kafka.KafkaError(3))

    with pytest.raises(kafka.KafkaException) as caught:
        getattr(make_consumer(), method)(message=message)

    assert caught.value.args[0] == kafka.KafkaError._INVALID_ARG
    assert caught.value.args[0].str() == (
        f"Cannot {method.partition('_')[0]} offsets for message with error: "
        "'Broker: Unknown topic or partition'"
    )


@pytest.mark.ours
@pytest.mark.usefixtures("no_threads")
def test_error_of_a_call_that_cannot_start_a_thread_is_retriable(
    cluster: Any, topic: str, run_script: RunScript
) -> None:
    done = run_script(
        """
        import os, pathlib, sys
        servers, topic = sys.argv[1:]
        consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "threads"})
        partitions = [kafka.TopicPartition(topic, 0)]
        consumer.committed(partitions, 20)

        no_threads = pathlib.Path(os.environ["NO_THREADS"])
        no_threads.touch()
        try:
            consumer.committed(partitions, 20)
        except kafka.KafkaException as exception:
            error = exception.args[0]
        no_threads.unlink()
        print(error.name(), error.retriable())
        print(len(consumer.committed(partitions, 20)))
        consumer.close()
        """,
        cluster.bootstrap_servers,
        topic,
    )
    assert (done.returncode, done.stdout) == (0, "_CRIT_SYS_RESOURCE True\n1\n"), done.stderr


@pytest.mark.ours
@pytest.mark.parametrize("then", ["seek", "assign"])
def test_seek_that_was_cancelled_does_not_move_a_later_position(
    cluster: Any, topic: str, run_script: RunScript, preload: Callable[[str], None], then: str
) -> None:
    preload("late_seek")
    done = run_script(
        """
        import asyncio, sys
        from cykafka import Producer, TopicPartition
        from cykafka.aio import AsyncConsumer
        servers, topic, then = sys.argv[1:]
        with Producer({"bootstrap.servers": servers}) as producer:
            producer.publish(topic, ["value"] * 20, partitions=0).wait()

        async def main():
            config = {"bootstrap.servers": servers, "group.id": "late"}
            async with AsyncConsumer(config) as consumer:
                consumer.assign([TopicPartition(topic, 0, 0)])
                await consumer.poll()
                cancelled = asyncio.ensure_future(consumer.seek(TopicPartition(topic, 0, 3)))
                await asyncio.sleep(0.1)
                cancelled.cancel()
                await asyncio.wait([cancelled])
                place = TopicPartition(topic, 0, 7)
                if then == "seek":
                    await consumer.seek(place)
                else:
                    consumer.assign([place])
                await asyncio.sleep(0.6)
                print((await consumer.poll()).offset())

        asyncio.run(main())
        """,
        cluster.bootstrap_servers,
        topic,
        then,
    )
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr


@pytest.mark.ours
def test_cut_response_with_committed_offsets_is_an_error(
    kafka: Any, cluster: Any, topic: str, make_consumer: MakeConsumer
) -> None:
    with serving(ReplacingRelay(cluster.bootstrap_servers, OFFSET_FETCH, b"\0")) as relay:
        consumer = make_consumer({"bootstrap.servers": relay.bootstrap_servers, "group.id": topic})
        consumer.assign([kafka.TopicPartition(topic, 0)])

        error = consumer.poll(WAIT_S).error()

        assert error.code() == kafka.KafkaError._UNDERFLOW
        assert "committed offsets" in error.str()
        consumer.close()


@pytest.mark.ours
@pytest.mark.parametrize(
    ("number", "question"),
    [
        (OFFSET_FETCH, lambda consumer, partition: consumer.committed([partition], WAIT_S)),
        (
            LIST_OFFSETS,
            lambda consumer, partition: consumer.offsets_for_times([partition], WAIT_S),
        ),
        (
            LIST_OFFSETS,
            lambda consumer, partition: consumer.get_watermark_offsets(partition, WAIT_S),
        ),
        (LIST_OFFSETS, lambda consumer, partition: consumer.watermarks([partition], WAIT_S)),
        (METADATA, lambda consumer, partition: consumer.list_topics(partition.topic, WAIT_S)),
    ],
    ids=["committed", "times", "watermarks", "many watermarks", "topics"],
)
def test_question_outlives_a_request_that_times_out(
    kafka: Any,
    cluster: Any,
    topic: str,
    make_consumer: MakeConsumer,
    number: int,
    question: Callable[[Any, Any], Any],
) -> None:
    partition = kafka.TopicPartition(topic, 0, 0)
    with serving(StallingRelay(cluster.bootstrap_servers, number)) as relay:
        consumer = make_consumer(
            {
                "bootstrap.servers": relay.bootstrap_servers,
                "socket.timeout.ms": 1000,
                "log_level": 0,
            }
        )
        question(consumer, partition)

        relay.stall_next()
        assert question(consumer, partition)

        assert relay.stalled
        relay.resume()
        consumer.close()
