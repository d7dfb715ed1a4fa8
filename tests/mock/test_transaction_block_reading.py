"""`with producer.transaction(consumer):` never commits records without their source offsets.

The mock does not apply a transaction's offsets, so the tests check which offsets were sent.
"""
# ruff: noqa: PT012 -- the end of the block raises, not a statement in it

from __future__ import annotations

from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read, WaitUntil
from machine import WAIT_S

from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours


@pytest.fixture
def filled(topic: str, fill: Fill) -> str:
    fill(topic, 20)
    return topic


@pytest.fixture
def assigned(kafka: Any, make_consumer: MakeConsumer, filled: str) -> Any:
    """A consumer that reads from offset 5, in a group without committed offsets."""
    consumer = make_consumer({"auto.offset.reset": "latest"})
    consumer.assign([kafka.TopicPartition(filled, 0, 5)])
    return consumer


@pytest.fixture
def step(
    kafka: Any,
    mock_cluster: MockCluster,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
) -> tuple[Any, Any]:
    """A producer and a consumer on their own cluster, with six records in the topic "in"."""
    servers = {"bootstrap.servers": mock_cluster.bootstrap_servers}
    mock_cluster.create_topic("in", 1)
    producer = make_transactional(**servers)
    consumer = make_consumer(servers)
    consumer.assign([kafka.TopicPartition("in", 0, 0)])
    with producer.transaction():
        for number in range(6):
            producer.produce("in", str(number), partition=0)
    return producer, consumer


def offsets_of(messages: list[Any]) -> list[int]:
    return [message.offset() for message in messages]


def run(
    producer: Any, consumer: Any, topic: str, messages: list[Any], timeout: float = WAIT_S
) -> None:
    with producer.transaction(consumer, timeout=timeout):
        for message in messages:
            producer.produce(topic, message.value())


def test_block_is_refused_after_reading_past_a_commit_that_timed_out(
    kafka: Any, mock_cluster: MockCluster, step: tuple[Any, Any], read: Read
) -> None:
    producer, consumer = step

    first = read(consumer, 2)
    with (
        pytest.raises(kafka.KafkaException) as caught,
        producer.transaction(consumer, timeout=0.3),
    ):
        producer.produce("out", first[0].value())
        assert producer.flush(WAIT_S) == 0
        mock_cluster.push_request_errors("EndTxn", [kafka.KafkaError.CONCURRENT_TRANSACTIONS] * 60)
    assert caught.value.args[0].retriable()
    mock_cluster.clear_request_errors("EndTxn")
    later = read(consumer, 2)

    with pytest.raises(kafka.KafkaException) as caught, producer.transaction(consumer):
        pytest.fail("it has begun")
    assert caught.value.args[0] == kafka.KafkaError._RETRY
    assert caught.value.args[0].retriable()

    # The consumer has seeked back, so the next round reads everything again.
    again = read(consumer, 2)
    assert again[0].offset() < later[0].offset()
    run(producer, consumer, "out", again)


def test_failed_assign_keeps_the_read_offsets(
    kafka: Any, step: tuple[Any, Any], read: Read
) -> None:
    producer, consumer = step
    messages = read(consumer, 2)
    twice = [kafka.TopicPartition("in", 0, 3)] * 2

    with pytest.raises(kafka.KafkaException, match="set assignment"):
        consumer.assign(twice)

    # The messages can still be committed, and a failed block still knows the offset to seek to.
    with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
        raise ZeroDivisionError
    assert offsets_of(read(consumer, 2)) == offsets_of(messages)
    run(producer, consumer, "out", messages)


def test_block_without_reads_after_a_failed_block_is_allowed(
    kafka: Any, mock_cluster: MockCluster, step: tuple[Any, Any], read: Read
) -> None:
    producer, consumer = step

    with (
        pytest.raises(kafka.KafkaException),
        producer.transaction(consumer, timeout=0.3),
    ):
        producer.produce("out", read(consumer, 2)[0].value())
        assert producer.flush(WAIT_S) == 0
        mock_cluster.push_request_errors("EndTxn", [kafka.KafkaError.CONCURRENT_TRANSACTIONS] * 60)
    mock_cluster.clear_request_errors("EndTxn")

    with producer.transaction(consumer):
        assert offsets_of(read(consumer, 2)) == [0, 1]


def test_block_is_refused_after_reading_past_a_failed_seek_back(
    kafka: Any, mock_cluster: MockCluster, step: tuple[Any, Any], read: Read
) -> None:
    producer, consumer = step

    first = read(consumer, 2)
    with pytest.raises(LookupError), producer.transaction(consumer, timeout=0.5):
        mock_cluster.push_request_errors("OffsetFetch", [kafka.KafkaError.NOT_COORDINATOR] * 200)
        raise LookupError
    mock_cluster.clear_request_errors("OffsetFetch")
    read(consumer, 2)

    with pytest.raises(kafka.KafkaException) as caught, producer.transaction(consumer):
        pytest.fail("it has begun")
    assert caught.value.args[0].retriable()
    again = read(consumer, 2)
    assert offsets_of(again) == offsets_of(first)
    run(producer, consumer, "out", again)


def test_block_is_refused_if_partitions_were_revoked_after_reading(
    kafka: Any,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    filled: str,
    read: Read,
    wait_until: WaitUntil,
) -> None:
    producer = make_transactional()
    consumer = make_consumer()
    revoked: list[Any] = []
    consumer.subscribe([filled], on_revoke=lambda _, partitions: revoked.extend(partitions))
    read(consumer, 5)
    consumer.unsubscribe()
    wait_until(lambda: revoked, lambda: consumer.poll(0.1))

    with pytest.raises(kafka.KafkaException) as caught, producer.transaction(consumer):
        pytest.fail("it has begun")
    assert caught.value.args[0] == kafka.KafkaError._ASSIGNMENT_LOST
    assert caught.value.args[0].retriable()

    # The consumer has seeked back, so the next block does not raise.
    with producer.transaction(consumer):
        pass


def test_messages_that_were_never_returned_do_not_count_as_read(
    kafka: Any,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    filled: str,
    read: Read,
    wait_until: WaitUntil,
) -> None:
    class Stop(Exception):
        pass

    raising: list[bool] = []

    def stats(_: str) -> None:
        if raising:
            raising.clear()
            raise Stop

    def gather() -> None:
        raising.append(True)
        with pytest.raises(Stop):
            consumer.consume(100, WAIT_S)

    producer = make_transactional()
    consumer = make_consumer({"statistics.interval.ms": 20, "stats_cb": stats})
    partition = kafka.TopicPartition(filled, 0, 5)
    consumer.assign([partition])
    wait_until(lambda: consumer.position([partition])[0].offset == 5, gather)

    with pytest.raises(LookupError), producer.transaction(consumer):
        raise LookupError
    messages = read(consumer, 1)
    assert offsets_of(messages) == [5]
    run(producer, consumer, filled, messages)
    consumer.seek(kafka.TopicPartition(filled, 0, 7))
    gather()
    consumer.unassign()
    with producer.transaction(consumer):
        pass


def test_revoked_partitions_without_new_reads_do_not_abort_the_block(
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    filled: str,
    read: Read,
    wait_until: WaitUntil,
) -> None:
    producer = make_transactional()
    consumer = make_consumer()
    revoked: list[Any] = []
    consumer.subscribe([filled], on_revoke=lambda _, partitions: revoked.extend(partitions))
    run(producer, consumer, filled, read(consumer, 5))
    consumer.unsubscribe()
    wait_until(lambda: revoked, lambda: consumer.poll(0.1))

    with producer.transaction(consumer):
        pass


@pytest.mark.parametrize("in_the_block", [True, False])
@pytest.mark.parametrize("change", ["seek", "assign", "unassign", "incremental_unassign"])
def test_moving_away_from_read_messages_aborts_the_block(
    kafka: Any,
    make_transactional: MakeProducer,
    assigned: Any,
    filled: str,
    read: Read,
    change: str,
    in_the_block: bool,
) -> None:
    producer = make_transactional()
    reports: list[Any] = []

    def give_up() -> None:
        if change == "seek":
            assigned.seek(kafka.TopicPartition(filled, 0, 15))
        elif change == "assign":
            assigned.assign([kafka.TopicPartition(filled, 0, 15)])
        elif change == "unassign":
            assigned.unassign()
        else:
            assigned.unassign()
            assigned.incremental_assign([kafka.TopicPartition(filled, 0, 5)])
            read(assigned, 5)
            assigned.incremental_unassign([kafka.TopicPartition(filled, 0)])

    messages = read(assigned, 5)
    if not in_the_block:
        give_up()
    with pytest.raises(kafka.KafkaException) as caught, producer.transaction(assigned):
        assert in_the_block
        for message in messages:
            producer.produce(
                filled, message.value(), on_delivery=lambda error, _: reports.append(error)
            )
        give_up()

    assert caught.value.args[0] == kafka.KafkaError._STATE
    assert f"{filled} [0]" in caught.value.args[0].str()
    assert caught.value.args[0].txn_requires_abort() == in_the_block
    assert caught.value.args[0].retriable() != in_the_block
    if change == "seek":  # still assigned
        assert offsets_of(read(assigned, 5)) == offsets_of(messages)


def test_seek_before_the_first_read_is_allowed(
    kafka: Any, make_transactional: MakeProducer, assigned: Any, filled: str, read: Read
) -> None:
    producer = make_transactional()
    run(producer, assigned, filled, read(assigned, 5))
    assigned.seek(kafka.TopicPartition(filled, 0, 15))

    with producer.transaction(assigned):
        messages = read(assigned, 5)
    assert offsets_of(messages) == [15, 16, 17, 18, 19]


@pytest.mark.parametrize("call", ["poll", "consume", "consume_batch"])
def test_failed_first_block_seeks_back_to_the_first_message_read(
    make_transactional: MakeProducer, assigned: Any, call: str
) -> None:
    producer = make_transactional()

    def three() -> list[int]:
        if call == "poll":
            return [assigned.poll(WAIT_S).offset() for _ in range(3)]
        if call == "consume":
            return offsets_of(assigned.consume(3, WAIT_S))
        return offsets_of(list(assigned.consume_batch(3, WAIT_S)))

    assert three() == [5, 6, 7]
    assert three() == [8, 9, 10]

    for _ in range(2):
        with pytest.raises(LookupError), producer.transaction(assigned):
            raise LookupError
        assert three() == [5, 6, 7]


def test_failed_first_block_of_a_latest_consumer_skips_no_message(
    kafka: Any,
    make_transactional: MakeProducer,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    filled: str,
    wait_until: WaitUntil,
) -> None:
    producer, writer = make_transactional(), make_producer()
    consumer = make_consumer({"auto.offset.reset": "latest"})
    consumer.assign([kafka.TopicPartition(filled, p) for p in range(4)])
    got: list[Any] = []

    def send_and_read() -> None:
        writer.produce(filled, b"new", partition=0)
        assert writer.flush(WAIT_S) == 0
        got.extend(consumer.consume(1, 0.2))

    wait_until(lambda: got, send_and_read)

    with pytest.raises(LookupError), producer.transaction(consumer):
        raise LookupError

    assert consumer.poll(WAIT_S).offset() == got[0].offset() >= 20


def test_failed_block_seeks_back_to_the_last_committed_offset(
    make_transactional: MakeProducer, assigned: Any, filled: str, read: Read
) -> None:
    producer = make_transactional()
    run(producer, assigned, filled, read(assigned, 5))
    read(assigned, 5)

    with pytest.raises(LookupError), producer.transaction(assigned):
        raise LookupError

    # The mock has not applied the transaction's offsets, so the group has none.
    assert offsets_of(read(assigned, 1)) == [10]


@pytest.mark.parametrize("failing", ["init_transactions", "the commit before", "begin"])
def test_messages_read_before_a_block_that_cannot_begin_are_read_again(
    kafka: Any,
    mock_cluster: MockCluster,
    step: tuple[Any, Any],
    make_transactional: MakeProducer,
    read: Read,
    failing: str,
) -> None:
    producer, consumer = step
    servers = {"bootstrap.servers": mock_cluster.bootstrap_servers}
    if failing == "init_transactions":
        producer = make_transactional(**servers)
        mock_cluster.push_request_errors(
            "InitProducerId", [kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS] * 60
        )
    elif failing == "begin":
        producer.begin_transaction()  # the program's own
    else:
        with pytest.raises(kafka.KafkaException), producer.transaction(timeout=0.3):
            producer.produce("out", b"x")
            assert producer.flush(WAIT_S) == 0
            mock_cluster.push_request_errors(
                "EndTxn", [kafka.KafkaError.CONCURRENT_TRANSACTIONS] * 600
            )

    first = read(consumer, 2)
    with (
        pytest.raises(kafka.KafkaException) as caught,
        producer.transaction(consumer, timeout=0.5),
    ):
        pytest.fail("it has begun")
    if failing != "begin":
        assert caught.value.args[0].retriable()

    mock_cluster.clear_request_errors("InitProducerId")
    mock_cluster.clear_request_errors("EndTxn")
    if failing == "begin":
        producer.abort_transaction(WAIT_S)
    with producer.transaction(consumer, timeout=WAIT_S):
        again = read(consumer, 2)
        producer.produce("out", again[0].value())
    assert offsets_of(again) == offsets_of(first) == [0, 1]


def test_block_that_refuses_its_consumer_does_not_seek(
    kafka: Any,
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    filled: str,
    read: Read,
) -> None:
    consumer = make_consumer({"enable.auto.commit": True})
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])
    read(consumer, 2)

    with pytest.raises(ValueError, match=r"enable\.auto\.commit"):
        make_transactional().transaction(consumer).__enter__()

    assert offsets_of(read(consumer, 2)) == [2, 3]
