"""Watermarks and lag of many partitions at once; iteration, subscription, configuration."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, RunScript
from machine import WAIT_S

from cykafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition, Watermarks

pytestmark = pytest.mark.ours


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address without a listener, reserved so that no other program can listen there."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def partitions_of(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers or range(4)]


def test_watermarks_of_many_partitions(consumer: Any, topic: str, fill: Fill) -> None:
    fill(topic, 10)
    fill(topic, 3, partition=2)

    found = consumer.watermarks(partitions_of(topic), timeout=WAIT_S)

    assert {key.partition: ends for key, ends in found.items()} == {
        0: Watermarks(0, 10),
        1: Watermarks(0, 0),
        2: Watermarks(0, 3),
        3: Watermarks(0, 0),
    }
    assert [key.error for key in found] == [None] * 4
    assert found[TopicPartition(topic, 2)].high == 3


def test_connection_lost_during_watermarks_fails_its_partitions(
    mock_cluster_factory: Callable[..., Any], make_consumer: MakeConsumer
) -> None:
    """librdkafka then omits the partitions without an answer, and reports no error."""
    cluster = mock_cluster_factory(brokers=3)
    cluster.create_topic("t", 3)
    for number in range(3):
        cluster.set_partition_leader("t", number, number + 1)
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    consumer = make_consumer({**servers, "log_level": 0})
    assert [key.error for key in consumer.watermarks(partitions_of("t", 0, 1, 2), WAIT_S)] == [
        None
    ] * 3
    cluster.set_rtt(1500, 2)
    breaking = threading.Timer(0.5, lambda: cluster.broker_down(2))
    breaking.start()
    found = consumer.watermarks(partitions_of("t", 0, 1, 2), WAIT_S)
    breaking.join()

    (broken,) = (key for key in found if key.partition == 1)
    assert broken.error is not None
    assert found[broken] == Watermarks(OFFSET_INVALID, OFFSET_INVALID)
    assert [key.partition for key in found if key.error is None] == [0, 2]


def test_new_leaders_are_found_at_once(
    consumer: Any, cluster: Any, topic: str, fill: Fill
) -> None:
    fill(topic, 5)
    for number in range(4):
        cluster.set_partition_leader(topic, number, None)
    leaderless = consumer.watermarks(partitions_of(topic), WAIT_S)
    assert all(key.error is not None for key in leaderless)

    for number in range(4):
        cluster.set_partition_leader(topic, number, 1)
    found = consumer.watermarks(partitions_of(topic), WAIT_S)

    # By itself librdkafka would refresh the topic's metadata only after five minutes.
    assert [key.error for key in found] == [None] * 4
    assert found[TopicPartition(topic, 0)] == Watermarks(0, 5)


def test_watermarks_are_those_of_a_single_partition(consumer: Any, topic: str, fill: Fill) -> None:
    fill(topic, 5)
    (partition,) = partitions_of(topic, 0)

    (ends,) = consumer.watermarks([partition, partition], WAIT_S).values()

    assert ends == consumer.get_watermark_offsets(partition, WAIT_S) == (0, 5)


def test_watermarks_take_two_requests_per_broker(consumer: Any, cluster: Any, topic: str) -> None:
    consumer.list_topics(timeout=WAIT_S)

    cluster.start_request_tracking()
    try:
        consumer.watermarks(partitions_of(topic), timeout=WAIT_S)
        requests = cluster.requests("ListOffsets")
    finally:
        cluster.stop_request_tracking()

    assert len(requests) == 2


def test_watermarks_are_a_named_tuple() -> None:
    ends = Watermarks(low=1, high=5)

    assert (ends.low, ends.high) == ends == (1, 5)
    assert pickle.loads(pickle.dumps(ends)) == ends
    assert repr(ends) == "Watermarks(low=1, high=5)"


def test_watermarks_default_to_the_assignment(consumer: Any, topic: str) -> None:
    assert consumer.watermarks() == {}
    assert consumer.lag() == {}

    consumer.assign(partitions_of(topic, 1, 3))

    assert sorted(key.partition for key in consumer.watermarks(timeout=WAIT_S)) == [1, 3]


def test_watermarks_name_the_missing_partition(consumer: Any, topic: str, fill: Fill) -> None:
    fill(topic, 2)

    found = consumer.watermarks(partitions_of(topic, 0, 99), WAIT_S)

    good, bad = found
    assert (good.error, found[good]) == (None, (0, 2))
    assert bad.error is not None
    assert bad.error.code() == KafkaError._UNKNOWN_PARTITION
    assert found[bad] == (OFFSET_INVALID, OFFSET_INVALID)
    assert consumer.lag(partitions_of(topic, 0, 99), WAIT_S) == {good: 2, bad: None}


def test_watermarks_check_their_arguments(consumer: Any, topic: str) -> None:
    with pytest.raises(TypeError, match=r"partitions\[0\]: expected a TopicPartition"):
        consumer.watermarks([(topic, 0)])
    with pytest.raises(KafkaException) as caught:
        consumer.watermarks([TopicPartition(topic)], WAIT_S)
    assert caught.value.args[0].code() == KafkaError._INVALID_ARG
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.watermarks(partitions_of(topic))


def test_watermarks_time_out(make_consumer: MakeConsumer, topic: str, dead_address: str) -> None:
    consumer = make_consumer({"bootstrap.servers": dead_address, "log_level": 0})

    with pytest.raises(KafkaException) as caught:
        consumer.watermarks(partitions_of(topic), timeout=0.3)

    assert caught.value.args[0].code() == KafkaError._TIMED_OUT


def test_watermarks_end_when_another_thread_closes(
    make_consumer: MakeConsumer, topic: str, dead_address: str
) -> None:
    consumer = make_consumer({"bootstrap.servers": dead_address, "log_level": 0})
    closing = threading.Timer(0.3, consumer.close)
    closing.start()

    with pytest.raises(RuntimeError, match="clos"):
        consumer.watermarks(partitions_of(topic))

    closing.join(WAIT_S)
    assert not closing.is_alive()


def test_watermarks_end_when_a_signal_handler_closes(run_script: RunScript) -> None:
    done = run_script(
        """
        import signal
        consumer = kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g",
                                   "log_level": 0})
        signal.signal(signal.SIGALRM, lambda number, frame: consumer.close())
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            consumer.watermarks([kafka.TopicPartition("topic", 0)])
        except RuntimeError as error:
            print(error)
        try:
            consumer.poll(0)
        except RuntimeError as error:
            print(error)
        """
    )

    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert found == ["Consumer closed", "Consumer closed"]


def test_lag_counts_from_position_then_commit_then_reset(
    make_consumer: MakeConsumer, topic: str, fill: Fill
) -> None:
    for number in range(3):
        fill(topic, 10, partition=number)
    consumer = make_consumer({"auto.offset.reset": "earliest"})
    consumer.commit(
        offsets=[TopicPartition(topic, 0, 9), TopicPartition(topic, 1, 6)], asynchronous=False
    )
    consumer.assign([TopicPartition(topic, 0, 2)])
    consumer.consume(2, WAIT_S)

    lag = consumer.lag(partitions_of(topic), WAIT_S)

    # Partition 0 has position 4, 1 has commit 6, 2 counts from the start, 3 is empty.
    assert {key.partition: left for key, left in lag.items()} == {0: 6, 1: 4, 2: 10, 3: 0}
    assert consumer.lag(timeout=WAIT_S) == {TopicPartition(topic, 0): 6}


@pytest.mark.parametrize(
    ("reset", "left"), [("smallest", 10), ("latest", 0), (None, 0), ("error", None)]
)
def test_lag_of_a_new_group_counts_from_its_reset_offset(
    make_consumer: MakeConsumer, topic: str, fill: Fill, reset: str, left: int | None
) -> None:
    fill(topic, 10)
    consumer = make_consumer({"auto.offset.reset": reset})

    assert list(consumer.lag(partitions_of(topic, 0), WAIT_S).values()) == [left]


def test_lag_is_never_negative(make_consumer: MakeConsumer, topic: str, fill: Fill) -> None:
    fill(topic, 3)
    consumer = make_consumer()
    consumer.commit(offsets=[TopicPartition(topic, 0, 50)], asynchronous=False)

    assert consumer.lag(partitions_of(topic, 0), WAIT_S) == {TopicPartition(topic, 0): 0}


def test_iteration_yields_messages_and_ends_at_close(
    consumer: Any, topic: str, fill: Fill
) -> None:
    fill(topic, 5)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []

    for message in consumer:
        values.append(message.value())
        if len(values) == 5:
            consumer.close()

    assert values == [b"0", b"1", b"2", b"3", b"4"]


def test_iteration_skips_partition_eof(
    make_consumer: MakeConsumer, topic: str, fill: Fill
) -> None:
    fill(topic, 2)
    fill(topic, 2, partition=1)
    consumer = make_consumer({"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])

    messages = [next(consumer) for _ in range(4)]

    assert [message.error() for message in messages] == [None] * 4


def test_iteration_ends_when_another_thread_closes(consumer: Any, topic: str) -> None:
    consumer.assign([TopicPartition(topic, 0, 0)])
    closing = threading.Timer(0.3, consumer.close)
    closing.start()

    assert list(consumer) == []

    closing.join(WAIT_S)


def test_iteration_of_a_closed_consumer_is_refused(consumer: Any) -> None:
    consumer.close()

    with pytest.raises(RuntimeError, match=r"^Consumer closed"):
        iter(consumer)


def test_iteration_raises_errors_and_continues_after_them(
    make_consumer: MakeConsumer, topic: str, fill: Fill
) -> None:
    fill(topic, 2)
    consumer = make_consumer({"auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 99), TopicPartition(topic, 1, 0)])
    fill(topic, 1, partition=1)
    seen = []

    for _ in range(2):
        try:
            seen.append(next(consumer).value())
        except KafkaException as exception:
            seen.append(exception.args[0].code())

    assert sorted(seen, key=str) == sorted([KafkaError._AUTO_OFFSET_RESET, b"0"], key=str)


def test_iteration_raises_the_exception_of_a_callback(
    make_consumer: MakeConsumer, topic: str
) -> None:
    consumer = make_consumer()

    def assigned(consumer: Any, partitions: Any) -> None:
        raise LookupError("in a callback")

    consumer.subscribe([topic], on_assign=assigned)

    with pytest.raises(LookupError, match="in a callback"):
        next(consumer)


def test_iteration_of_a_subclass_uses_its_poll(
    kafka: Any, cluster: Any, topic: str, fill: Fill
) -> None:
    fill(topic, 1)

    class Loud(kafka.Consumer):  # type: ignore[misc]
        def poll(self, timeout: Any = None) -> Any:
            message = super().poll(timeout)
            message.set_value(message.value() + b"!")
            return message

    with Loud({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "loud"}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert next(consumer).value() == b"0!"


def test_subscription_returns_the_subscribed_topics(consumer: Any, topic: str) -> None:
    assert consumer.subscription() == []

    consumer.subscribe([topic, "^none-like-this.*"])
    assert sorted(consumer.subscription()) == sorted([topic, "^none-like-this.*"])

    consumer.unsubscribe()
    assert consumer.subscription() == []


def test_zero_timeouts_are_safe(
    kafka: Any, cluster: Any, topic: str, run_script: RunScript
) -> None:
    process = run_script(
        """
        import contextlib, sys
        from cykafka.admin import AdminClient, OffsetSpec
        servers, topic = sys.argv[1:]
        with kafka.Consumer({"bootstrap.servers": servers, "group.id": "g"}) as consumer:
            for number in range(200):
                for name in topic, "unknown":
                    with contextlib.suppress(kafka.KafkaException):
                        consumer.watermarks([kafka.TopicPartition(name, number % 4)], timeout=0)
        with AdminClient({"bootstrap.servers": servers}) as admin:
            for number in range(200):
                partition = kafka.TopicPartition(topic, number % 4)
                admin.list_offsets({partition: OffsetSpec.latest()}, request_timeout=0)
        """,
        cluster.bootstrap_servers,
        topic,
    )

    assert process.returncode == 0, process.stderr
