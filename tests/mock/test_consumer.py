"""Consumer: reading with a manual assignment, and its life."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, Read, Unique, WaitUntil
from machine import WAIT_S, wake_up_s

from cykafka.testing import MockCluster


@pytest.fixture
def assigned(consumer: Any, kafka: Any, topic: str, fill: Fill) -> Any:
    """A consumer at the start of a partition that holds ten messages."""
    fill(topic, 10)
    consumer.assign([kafka.TopicPartition(topic, 0, kafka.OFFSET_BEGINNING)])
    return consumer


def test_poll_returns_a_message(assigned: Any, kafka: Any, topic: str) -> None:
    before = time.time() * 1000 - 60_000

    message = assigned.poll(WAIT_S)

    assert message.error() is None
    assert (message.topic(), message.partition(), message.offset()) == (topic, 0, 0)
    assert (message.key(), message.value(), len(message)) == (b"key-0", b"0", 1)
    kind, when = message.timestamp()
    assert kind == kafka.TIMESTAMP_CREATE_TIME
    assert before < when < before + 120_000
    assert message.headers() is None
    assert message.latency() is None
    assert message.leader_epoch() == 0


@pytest.mark.ours
def test_first_request_of_a_new_consumer_makes_it_connect(make_consumer: MakeConsumer) -> None:
    """Without its own attempt to connect, every second call would wait 0.1 s."""
    waits = []
    for _ in range(20):
        consumer = make_consumer()
        begun = time.monotonic()
        consumer.cluster_id(WAIT_S)
        waits.append(time.monotonic() - begun)
    assert statistics.quantiles(waits)[2] < 0.09 + 4 * wake_up_s()


def test_poll_without_messages_returns_none_after_the_timeout(consumer: Any) -> None:
    start = time.monotonic()

    assert consumer.poll(0.2) is None

    assert 0.15 < time.monotonic() - start < 2
    assert consumer.poll(timeout=0) is None


def test_poll_without_timeout_waits_for_a_message(assigned: Any) -> None:
    assert assigned.poll().value() == b"0"
    assert assigned.poll(-1).value() == b"1"


@pytest.mark.ours
def test_poll_takes_none_for_no_timeout(assigned: Any) -> None:
    assert assigned.poll(timeout=None).value() == b"0"


def test_consume_returns_up_to_the_requested_number(assigned: Any) -> None:
    first = assigned.consume(4, WAIT_S)
    rest = assigned.consume(num_messages=100, timeout=0.5)

    assert [m.value() for m in first + rest] == [str(n).encode() for n in range(10)]


def test_consume_without_arguments_returns_one(assigned: Any) -> None:
    assert [m.value() for m in assigned.consume()] == [b"0"]


def test_consume_of_zero_messages_is_empty(assigned: Any) -> None:
    assert assigned.consume(0) == []
    assert assigned.consume(3, timeout=WAIT_S)[0].value() == b"0"


def test_consume_without_messages_is_empty_after_the_timeout(consumer: Any) -> None:
    start = time.monotonic()

    assert consumer.consume(5, timeout=0.2) == []

    assert 0.15 < time.monotonic() - start < 2


@pytest.mark.parametrize("count", [-1, 1_000_001])
def test_consume_of_an_impossible_number_is_rejected(consumer: Any, count: int) -> None:
    with pytest.raises(ValueError, match="num_messages"):
        consumer.consume(count, timeout=0)


def test_consume_full_batches_across_many_waits(assigned: Any, producer: Any, topic: str) -> None:
    # A batch must not come back short because the wait for it was cut into slices.
    import threading

    late = threading.Timer(0.6, lambda: producer.produce(topic, b"late", partition=0))
    late.start()

    values = [m.value() for m in assigned.consume(11, timeout=WAIT_S)]

    late.join()
    assert values == [str(n).encode() for n in range(10)] + [b"late"]


def test_assign_starts_at_the_given_offset(assigned: Any, kafka: Any, topic: str) -> None:
    assigned.assign([kafka.TopicPartition(topic, 0, 7)])

    assert [m.offset() for m in assigned.consume(3, WAIT_S)] == [7, 8, 9]


@pytest.mark.ours
@pytest.mark.parametrize("call", ["assign", "incremental_assign"])
def test_new_topics_do_not_wait_for_the_timer_of_unknown_topics(
    assigned: Any, kafka: Any, unique: Unique, fill: Fill, call: str
) -> None:
    """It runs once a second. (An offset to look up would wait 0.5 s in addition.)"""
    assert assigned.poll(WAIT_S) is not None
    assigned.unassign()
    waits = []
    for topic in [unique("new") for _ in range(9)]:
        fill(topic, 1)
        begun = time.monotonic()
        getattr(assigned, call)([kafka.TopicPartition(topic, 0, 0)])
        assert assigned.poll(WAIT_S).topic() == topic
        waits.append(time.monotonic() - begun)
        assigned.unassign()
    assert statistics.median(waits) < 0.2 + 4 * wake_up_s()


def test_assign_at_the_end_reads_later_messages(
    consumer: Any, kafka: Any, topic: str, fill: Fill, wait_until: WaitUntil
) -> None:
    fill(topic, 3)
    end = [kafka.TopicPartition(topic, 0, kafka.OFFSET_END)]
    consumer.assign(end)
    # Later messages are defined only once the position is known.
    wait_until(
        lambda: consumer.get_watermark_offsets(end[0], cached=True)[1] == 3,
        lambda: consumer.poll(0.05),
    )
    assert consumer.poll(0.1) is None

    fill(topic, 1)

    assert consumer.poll(WAIT_S).offset() == 3


def test_assignment_returns_the_assigned_partitions(consumer: Any, kafka: Any, topic: str) -> None:
    assert consumer.assignment() == []

    consumer.assign([kafka.TopicPartition(topic, 0, 3)])

    (partition,) = consumer.assignment()
    assert (partition.topic, partition.partition, partition.offset) == (topic, 0, 3)

    consumer.unassign()

    assert consumer.assignment() == []


def test_incremental_assignment_adds_and_removes(consumer: Any, kafka: Any, topic: str) -> None:
    first, second = kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 1)
    consumer.incremental_assign([first])

    consumer.incremental_assign([second])
    assert consumer.assignment() == [first, second]

    consumer.incremental_unassign([first])
    assert consumer.assignment() == [second]


def test_incremental_assignment_names_the_partition_in_conflict(
    consumer: Any, kafka: Any, topic: str
) -> None:
    first, second = kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 1)
    consumer.incremental_assign([first])

    with pytest.raises(kafka.KafkaException, match=topic) as caught:
        consumer.incremental_assign([first])
    assert caught.value.args[0] == kafka.KafkaError._CONFLICT

    with pytest.raises(kafka.KafkaException, match=topic) as caught:
        consumer.incremental_unassign([second])
    assert caught.value.args[0] == kafka.KafkaError._INVALID_ARG


def test_seek_moves_the_position(assigned: Any, kafka: Any, topic: str) -> None:
    assigned.consume(5, WAIT_S)

    assigned.seek(kafka.TopicPartition(topic, 0, 2))
    assert assigned.poll(WAIT_S).offset() == 2

    assigned.seek(kafka.TopicPartition(topic, 0, kafka.OFFSET_BEGINNING))
    assert assigned.poll(WAIT_S).offset() == 0


def test_seek_of_a_partition_not_assigned_is_an_error(
    assigned: Any, kafka: Any, topic: str
) -> None:
    with pytest.raises(kafka.KafkaException) as caught:
        assigned.seek(kafka.TopicPartition(topic, 3, 0))

    assert caught.value.args[0] == kafka.KafkaError._STATE


@pytest.mark.ours
def test_seek_waits_for_the_fetch_of_an_assigned_partition(
    make_consumer: MakeConsumer, kafka: Any, topic: str
) -> None:
    with MockCluster() as own:
        own.create_topic(topic, 1)
        with kafka.Producer({"bootstrap.servers": own.bootstrap_servers}) as producer:
            producer.publish(topic, ["a"] * 10)
        consumer = make_consumer({"bootstrap.servers": own.bootstrap_servers})
        own.set_rtt(200)
        # librdkafka requests the committed offset first.
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.seek(kafka.TopicPartition(topic, 0, 7))
        own.set_rtt(0)
        assert consumer.poll(WAIT_S).offset() == 7
        consumer.close()


@pytest.mark.ours
def test_seek_of_a_new_partition_keeps_the_messages_of_another(
    make_consumer: MakeConsumer, kafka: Any, topic: str
) -> None:
    with MockCluster() as own:
        own.create_topic(topic, 2)
        with kafka.Producer({"bootstrap.servers": own.bootstrap_servers}) as producer:
            producer.publish(topic, ["a"] * 20, partitions=[0, 1] * 10)
        consumer = make_consumer({"bootstrap.servers": own.bootstrap_servers})
        first = kafka.TopicPartition(topic, 0, 0)
        consumer.assign([first])
        assert consumer.poll(WAIT_S).offset() == 0  # more messages are in librdkafka
        own.set_rtt(200)
        consumer.incremental_assign([kafka.TopicPartition(topic, 1)])
        consumer.seek(kafka.TopicPartition(topic, 1, 7))
        own.set_rtt(0)
        seen = [consumer.poll(WAIT_S) for _ in range(9 + 3)]
        assert sorted((item.partition(), item.offset()) for item in seen) == (
            [(0, offset) for offset in range(1, 10)] + [(1, offset) for offset in (7, 8, 9)]
        )
        consumer.close()


@pytest.mark.ours
@pytest.mark.parametrize("offset", [-7, -3, -999, -1000, -1999, -2000])
def test_seek_to_an_invalid_offset_is_refused(
    assigned: Any, kafka: Any, topic: str, offset: int
) -> None:
    assigned.consume(5, WAIT_S)

    with pytest.raises(ValueError, match=f"offset {offset};.*OFFSET_BEGINNING.*OFFSET_END"):
        assigned.seek(kafka.TopicPartition(topic, 0, offset))

    assert assigned.poll(WAIT_S).offset() == 5


def test_seek_without_an_offset_goes_where_reading_begins(
    assigned: Any, kafka: Any, topic: str
) -> None:
    assert len(assigned.consume(5, WAIT_S)) == 5

    assigned.seek(kafka.TopicPartition(topic, 0))

    assert assigned.poll(WAIT_S).offset() == 0  # auto.offset.reset


@pytest.mark.ours
def test_seek_in_a_rebalance_callback_says_what_to_do(
    make_consumer: MakeConsumer, kafka: Any, mock_cluster: MockCluster, wait_until: WaitUntil
) -> None:
    mock_cluster.create_topic("t")
    texts: list[str] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        mock_cluster.set_rtt(500)  # seek() comes before the committed offset
        consumer.assign(partitions)
        with pytest.raises(kafka.KafkaException) as raised:
            consumer.seek(kafka.TopicPartition("t", 0, 0))
        texts.append(str(raised.value))
        mock_cluster.set_rtt(0)

    consumer = make_consumer({"bootstrap.servers": mock_cluster.bootstrap_servers})
    consumer.subscribe(["t"], on_assign=on_assign)
    wait_until(lambda: texts, lambda: consumer.poll(0.05))

    assert "give the offset to assign()" in texts[0]


def test_seek_to_the_last_records(assigned: Any, kafka: Any, topic: str, fill: Fill) -> None:
    assigned.consume(5, WAIT_S)
    end = assigned.get_watermark_offsets(kafka.TopicPartition(topic, 0), WAIT_S)[1]

    assigned.seek(kafka.TopicPartition(topic, 0, -2000 - 3))
    assert assigned.poll(WAIT_S).offset() == end - 3

    assigned.seek(kafka.TopicPartition(topic, 0, -2000 - 1_000_000))
    assert assigned.poll(WAIT_S).offset() == 0


def test_pause_holds_a_partition_until_resume(assigned: Any, kafka: Any, topic: str) -> None:
    partitions = [kafka.TopicPartition(topic, 0)]
    assert assigned.poll(WAIT_S).offset() == 0

    assigned.pause(partitions)
    assert assigned.poll(0.2) is None

    assigned.resume(partitions)
    assert assigned.poll(WAIT_S).offset() == 1


def test_partition_eof_is_an_event_if_enabled(
    make_consumer: MakeConsumer, kafka: Any, topic: str, fill: Fill
) -> None:
    fill(topic, 1)
    consumer = make_consumer({"enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(topic, 0)])

    message, end = consumer.poll(WAIT_S), consumer.poll(WAIT_S)

    assert message.error() is None
    assert end.error() == kafka.KafkaError._PARTITION_EOF
    assert (end.topic(), end.partition(), end.offset()) == (topic, 0, 1)
    assert end.key() is None


def test_consume_returns_partition_eof_too(
    make_consumer: MakeConsumer, kafka: Any, topic: str
) -> None:
    consumer = make_consumer({"enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(topic, 0)])

    (end,) = consumer.consume(1, WAIT_S)

    assert end.error().code() == kafka.KafkaError._PARTITION_EOF


def test_offset_reset_error_is_a_message(
    make_consumer: MakeConsumer, kafka: Any, topic: str
) -> None:
    consumer = make_consumer({"auto.offset.reset": "error"})
    consumer.assign([kafka.TopicPartition(topic, 1, kafka.OFFSET_STORED)])

    message = consumer.poll(WAIT_S)

    assert message.error() == kafka.KafkaError._AUTO_OFFSET_RESET
    assert (message.topic(), message.partition()) == (topic, 1)


@pytest.mark.ours
def test_seek_in_a_partition_that_has_ended_with_an_error_says_what_to_do(
    make_consumer: MakeConsumer, kafka: Any, topic: str
) -> None:
    consumer = make_consumer({"auto.offset.reset": "error"})
    consumer.assign([kafka.TopicPartition(topic, 1)])
    assert consumer.poll(WAIT_S).error() == kafka.KafkaError._AUTO_OFFSET_RESET

    with pytest.raises(kafka.KafkaException, match=r"give the offset to assign\(\)"):
        consumer.seek(kafka.TopicPartition(topic, 1, kafka.OFFSET_BEGINNING))


def test_topic_config_given_as_default_applies_to_consumers(
    make_consumer: MakeConsumer, kafka: Any, topic: str, fill: Fill
) -> None:
    fill(topic, 1)
    consumer = make_consumer(
        {"auto.offset.reset": None, "default.topic.config": {"auto.offset.reset": "smallest"}}
    )
    consumer.assign([kafka.TopicPartition(topic, 0, kafka.OFFSET_STORED)])

    assert consumer.poll(WAIT_S).value() == b"0"


def test_consumer_describes_the_cluster(consumer: Any, topic: str) -> None:
    metadata = consumer.list_topics(topic, timeout=WAIT_S)

    assert list(metadata.topics) == [topic]
    assert consumer.cluster_id(timeout=WAIT_S) == metadata.cluster_id


def test_messages_outlive_their_consumer(assigned: Any, topic: str, read: Read) -> None:
    messages = read(assigned, 10)

    assigned.close()

    assert [m.value() for m in messages] == [str(n).encode() for n in range(10)]
    assert {m.topic() for m in messages} == {topic}


def test_with_statement_closes_the_consumer(make_consumer: MakeConsumer) -> None:
    with make_consumer() as consumer:
        assert consumer.assignment() == []

    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_close_can_be_repeated(consumer: Any) -> None:
    assert consumer.close() is None
    assert consumer.close() is None


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("subscribe", (["any"],)),
        ("unsubscribe", ()),
        ("poll", (0,)),
        ("consume", (1, 0)),
        ("assign", ([],)),
        ("unassign", ()),
        ("assignment", ()),
        ("incremental_assign", ([],)),
        ("incremental_unassign", ([],)),
        ("commit", ()),
        ("store_offsets", (None, [])),
        ("committed", ([],)),
        ("position", ([],)),
        ("pause", ([],)),
        ("resume", ([],)),
        ("offsets_for_times", ([],)),
        ("list_topics", ()),
        ("cluster_id", ()),
        ("consumer_group_metadata", ()),
        ("memberid", ()),
        ("set_sasl_credentials", ("user", "secret")),
    ],
)
def test_closed_consumer_raises(consumer: Any, method: str, arguments: tuple[Any, ...]) -> None:
    consumer.close()

    with pytest.raises(RuntimeError, match="closed"):
        getattr(consumer, method)(*arguments)


@pytest.mark.parametrize("method", ["seek", "get_watermark_offsets"])
def test_closed_consumer_raises_in_partition_calls(consumer: Any, kafka: Any, method: str) -> None:
    consumer.close()

    with pytest.raises(RuntimeError, match="closed"):
        getattr(consumer, method)(kafka.TopicPartition("any", 0, 0))
