"""Producer: the forms of produce(), the queue, and the life of a producer."""

from __future__ import annotations

from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Read, Unique, WaitUntil
from machine import WAIT_S

NO_BROKER = "127.0.0.1:1"


def test_produce_takes_its_arguments_by_position(
    producer: Any, consumer: Any, kafka: Any, topic: str, read: Read
) -> None:
    seen = []
    producer.produce(
        topic, b"value", b"key", 2, lambda *report: seen.append(report), None, 1234, [("h", b"x")]
    )
    assert producer.flush(WAIT_S) == 0
    consumer.assign([kafka.TopicPartition(topic, 2)])

    (message,) = read(consumer, 1)

    assert len(seen) == 1
    assert (message.topic(), message.partition(), message.offset()) == (topic, 2, 0)
    assert (message.value(), message.key(), message.headers()) == (b"value", b"key", [("h", b"x")])
    assert message.timestamp() == (kafka.TIMESTAMP_CREATE_TIME, 1234)
    assert len(message) == 5


def test_produce_takes_its_arguments_by_keyword(
    producer: Any, consumer: Any, kafka: Any, topic: str, read: Read
) -> None:
    seen = []
    producer.produce(
        topic=topic,
        value="value",
        key="key",
        partition=1,
        on_delivery=lambda *report: seen.append(report),
        timestamp=1234,
        headers={"h": "x"},
    )
    assert producer.flush(timeout=WAIT_S) == 0
    consumer.assign([kafka.TopicPartition(topic, 1)])

    (message,) = read(consumer, 1)

    assert len(seen) == 1
    assert (message.value(), message.key(), message.headers()) == (b"value", b"key", [("h", b"x")])


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, None),
        ("", b""),
        (b"", b""),
        ("grüße", "grüße".encode()),
        (b"\x00\xff", b"\x00\xff"),
    ],
    ids=["none", "empty text", "empty bytes", "text", "bytes"],
)
def test_produce_stores_value_and_key_as_bytes(
    producer: Any,
    consumer: Any,
    kafka: Any,
    topic: str,
    read: Read,
    given: str | bytes | None,
    stored: bytes | None,
) -> None:
    producer.produce(topic, value=given, key=given, partition=0)
    producer.flush(WAIT_S)
    consumer.assign([kafka.TopicPartition(topic, 0)])

    (message,) = read(consumer, 1)

    assert (message.value(), message.key()) == (stored, stored)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (
            [("a", "1"), ("a", b"2"), ("n", None), ("e", b"")],
            [("a", b"1"), ("a", b"2"), ("n", None), ("e", b"")],
        ),
        ({"a": b"1", "n": None, "u": "ü"}, [("a", b"1"), ("n", None), ("u", "ü".encode())]),
    ],
    ids=["list", "dict"],
)
def test_produce_headers_keep_order_repetition_and_none(
    producer: Any, consumer: Any, kafka: Any, topic: str, read: Read, given: Any, stored: Any
) -> None:
    producer.produce(topic, b"x", partition=0, headers=given)
    producer.flush(WAIT_S)
    consumer.assign([kafka.TopicPartition(topic, 0)])

    (message,) = read(consumer, 1)

    assert message.headers() == stored


@pytest.mark.parametrize("none", [None, [], {}], ids=repr)
def test_produce_without_headers_stores_none(
    producer: Any, consumer: Any, kafka: Any, topic: str, read: Read, none: Any
) -> None:
    producer.produce(topic, b"x", partition=0, headers=none)
    producer.flush(WAIT_S)
    consumer.assign([kafka.TopicPartition(topic, 0)])

    assert not read(consumer, 1)[0].headers()


def test_produce_without_partition_sends_a_key_to_one_partition(
    make_producer: MakeProducer, kafka: Any, topic: str
) -> None:
    producer = make_producer({"partitioner": "murmur2"})
    keys = [f"key-{number}" for number in range(20)]
    partitions: dict[bytes, set[int]] = {}

    for key in keys * 2:
        producer.produce(
            topic,
            key=key,
            on_delivery=lambda _, m: partitions.setdefault(m.key(), set()).add(m.partition()),
        )
    producer.flush(WAIT_S)

    assert partitions == {key.encode(): {kafka.murmur2(key.encode(), 4)} for key in keys}


def test_produce_batch_returns_the_number_of_queued_messages(
    producer: Any, consumer: Any, kafka: Any, topic: str, read: Read
) -> None:
    seen = []
    messages: list[dict[str, Any]] = [
        {"value": "a", "key": b"k"},
        {"value": b"b", "callback": lambda error, message: seen.append(message.value())},
        {},
    ]

    assert producer.produce_batch(topic, messages, partition=0) == 3
    assert producer.flush(WAIT_S) == 0
    consumer.assign([kafka.TopicPartition(topic, 0)])

    assert [(m.value(), m.key()) for m in read(consumer, 3)] == [
        (b"a", b"k"),
        (b"b", None),
        (None, None),
    ]
    assert seen == [b"b"]


def test_produce_batch_reports_all_to_the_batchs_callback(producer: Any, topic: str) -> None:
    seen = []

    producer.produce_batch(
        topic,
        [{"value": "a"}, {"value": "b"}],
        on_delivery=lambda e, m: seen.append((e, m.value())),
    )
    producer.flush(WAIT_S)

    assert sorted(seen) == [(None, b"a"), (None, b"b")]


def test_produce_batch_calls_a_callback_that_is_false(producer: Any, topic: str) -> None:
    class Reports(list[Any]):
        def __call__(self, error: Any, message: Any) -> None:
            self.append(message.value())

    own, others = Reports(), Reports()
    messages = [{"value": b"a", "callback": own}, {"value": b"b"}]
    assert producer.produce_batch(topic, messages, on_delivery=others) == 2
    assert producer.flush(WAIT_S) == 0
    assert (own, others) == ([b"a"], [b"b"])


def test_produce_batch_marks_the_failed_messages(producer: Any, kafka: Any, topic: str) -> None:
    messages: list[dict[str, Any]] = [{"value": b"x" * 2_000_000}, {"value": b"fits"}]

    assert producer.produce_batch(topic, messages) == 1

    assert messages[0]["_error"] == kafka.KafkaError.MSG_SIZE_TOO_LARGE
    assert "_error" not in messages[1]
    assert producer.flush(WAIT_S) == 0


def test_produce_batch_refuses_what_concerns_all_messages(
    producer: Any, kafka: Any, topic: str
) -> None:
    messages = [{"value": b"x"}]
    with pytest.raises(TypeError):
        producer.produce_batch(topic, messages, partition="0")
    with pytest.raises((ValueError, kafka.KafkaException)):
        producer.produce_batch("x" * 600, messages)
    assert producer.flush(WAIT_S) == 0
    assert messages == [{"value": b"x"}]


@pytest.mark.ours
def test_produce_batch_refuses_callbacks_that_cannot_be_called(producer: Any, topic: str) -> None:
    with pytest.raises(TypeError, match="callable"):
        producer.produce_batch(topic, [{"value": b"x"}], callback="x")
    with pytest.raises(TypeError, match="Message callback at index 1 must be callable"):
        producer.produce_batch(topic, [{"value": b"x"}, {"value": b"x", "on_delivery": 5}])
    assert producer.flush(WAIT_S) == 0


def test_produce_takes_the_time_of_a_message_without_one(
    producer: Any, kafka: Any, topic: str, read: Read,
    make_consumer: MakeConsumer,
) -> None:  # fmt: skip
    producer.produce(topic, b"x", timestamp=-1)
    producer.flush(WAIT_S)
    consumer = make_consumer()
    consumer.subscribe([topic])

    (message,) = read(consumer, 1)

    assert message.timestamp()[1] == -1


def test_produce_batch_of_an_empty_list_returns_zero(producer: Any, topic: str) -> None:
    assert producer.produce_batch(topic, []) == 0


@pytest.mark.parametrize("messages", ["text", [1], [{"value": 3}], [{"key": 3}]], ids=repr)
def test_produce_batch_rejects_wrong_types(producer: Any, topic: str, messages: Any) -> None:
    with pytest.raises(TypeError):
        producer.produce_batch(topic, messages)


@pytest.mark.ours
def test_produce_batch_honours_each_messages_fields(
    producer: Any, consumer: Any, kafka: Any, topic: str, read: Read
) -> None:
    message = {"value": "a", "partition": 3, "headers": {"h": b"x"}}

    assert producer.produce_batch(topic, [message], partition=0) == 1
    producer.flush(WAIT_S)
    consumer.assign([kafka.TopicPartition(topic, 3)])

    (stored,) = read(consumer, 1)
    assert stored.headers() == [("h", b"x")]


def test_len_counts_undelivered_messages(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"linger.ms": 60_000})
    assert len(producer) == 0
    # An empty producer is truthy, so that `producer or default` is the producer.
    assert bool(producer)

    producer.produce(topic, b"1")
    producer.produce(topic, b"2")
    assert len(producer) == 2

    assert producer.flush(WAIT_S) == 0
    assert len(producer) == 0


def test_flush_that_times_out_returns_the_remaining_count(make_producer: MakeProducer) -> None:
    producer = make_producer({"bootstrap.servers": NO_BROKER})
    producer.produce("any", b"1")

    assert producer.flush(0.01) == 1


def test_poll_returns_the_number_of_callbacks_served(
    producer: Any, topic: str, wait_until: WaitUntil
) -> None:
    seen: list[Any] = []
    for _ in range(3):
        producer.produce(topic, b"x", on_delivery=lambda *report: seen.append(report))

    counts: list[int] = []
    wait_until(lambda: len(seen) == 3, lambda: counts.append(producer.poll(0.5)))

    # librdkafka counts the events it served, and one may report several messages.
    assert 1 <= sum(counts) <= 3
    assert producer.poll(0) == 0
    assert producer.poll(timeout=0.0) == 0


def test_purge_fails_queued_messages(make_producer: MakeProducer, kafka: Any) -> None:
    seen: list[Any] = []
    producer = make_producer({"bootstrap.servers": NO_BROKER})
    for value in (b"1", b"2"):
        producer.produce("any", value, on_delivery=lambda e, m: seen.append((m.value(), e)))

    assert producer.purge() is None
    assert producer.flush(WAIT_S) == 0

    assert [value for value, _ in seen] == [b"1", b"2"]
    assert {error.code() for _, error in seen} == {kafka.KafkaError._PURGE_QUEUE}


def test_purge_of_neither_queue_keeps_the_messages(make_producer: MakeProducer) -> None:
    producer = make_producer({"bootstrap.servers": NO_BROKER})
    producer.produce("any", b"1")

    producer.purge(in_queue=False, in_flight=False, blocking=False)

    assert producer.flush(0.01) == 1
    producer.purge(True, True, True)
    assert producer.flush(WAIT_S) == 0


def test_list_topics_describes_the_cluster(producer: Any, cluster: Any, topic: str) -> None:
    metadata = producer.list_topics(timeout=WAIT_S)

    (broker,) = metadata.brokers.values()
    assert metadata.brokers == {broker.id: broker}
    assert f"{broker.host}:{broker.port}" == cluster.bootstrap_servers
    assert str(broker) == f"{cluster.bootstrap_servers}/{broker.id}"
    assert metadata.cluster_id == producer.cluster_id(timeout=WAIT_S)
    assert isinstance(metadata.controller_id, int)
    assert metadata.orig_broker_name.startswith(cluster.bootstrap_servers)
    described = metadata.topics[topic]
    assert (described.topic, str(described), described.error) == (topic, topic, None)
    assert sorted(described.partitions) == [0, 1, 2, 3]
    partition = described.partitions[2]
    assert (partition.id, partition.leader, partition.error) == (2, broker.id, None)
    assert list(partition.replicas) == list(partition.isrs) == [broker.id]


def test_list_topics_of_one_topic_lists_only_that(
    producer: Any, topic: str, unique: Unique, cluster: Any
) -> None:
    cluster.create_topic(unique("other"), 4)

    assert list(producer.list_topics(topic, WAIT_S).topics) == [topic]
    assert list(producer.list_topics(topic=topic, timeout=WAIT_S).topics) == [topic]


def test_with_statement_flushes_and_closes(make_producer: MakeProducer, topic: str) -> None:
    seen = []

    with make_producer() as producer:
        producer.produce(topic, b"x", on_delivery=lambda *report: seen.append(report))

    assert len(seen) == 1
    with pytest.raises(RuntimeError, match="closed"):
        producer.produce(topic, b"x")


def test_with_statement_lets_the_exception_through(make_producer: MakeProducer) -> None:
    with pytest.raises(LookupError), make_producer():
        raise LookupError


def test_close_flushes_and_can_be_repeated(make_producer: MakeProducer, topic: str) -> None:
    seen = []
    producer = make_producer()
    producer.produce(topic, b"x", on_delivery=lambda *report: seen.append(report))

    assert producer.close() is True
    assert len(seen) == 1
    assert producer.close() is True
    assert len(producer) == 0


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("produce", ("any",)),
        ("produce_batch", ("any", [{}])),
        ("poll", (0,)),
        ("flush", (0,)),
        ("purge", ()),
        ("list_topics", ()),
        ("cluster_id", ()),
        ("init_transactions", ()),
        ("begin_transaction", ()),
        ("commit_transaction", ()),
        ("abort_transaction", ()),
        ("send_offsets_to_transaction", ([], b"")),
        ("set_sasl_credentials", ("user", "secret")),
    ],
)
def test_closed_producer_raises(producer: Any, method: str, arguments: tuple[Any, ...]) -> None:
    producer.close()

    with pytest.raises(RuntimeError, match="closed"):
        getattr(producer, method)(*arguments)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (None, "messages must be a list"),
        (({"value": b"x"},), "messages must be a list"),
        ([{"value": b"x"}, "x"], "Message at index 1 must be a dict"),
        ([{"value": 1}], "Message value at index 0 must be bytes or str"),
        ([{}, {"key": 1}], "Message key at index 1 must be bytes or str"),
        ([{"value": 1, "key": 1}], "Message value at index 0 must be bytes or str"),
        ([{"partition": "0"}], "Message partition at index 0 must be int"),
        ([{}, {"partition": 0.5}], "Message partition at index 1 must be int"),
    ],
    ids=repr,
)
def test_produce_batch_errors_match_confluent_kafka(
    producer: Any, topic: str, messages: Any, words: str
) -> None:
    with pytest.raises(TypeError, match=f"^{words}"):
        producer.produce_batch(topic, messages)

    assert len(producer) == 0, "a refused batch queues no message"


def test_produce_batch_refuses_timestamps(producer: Any, topic: str) -> None:
    for timestamp in (0, 1234):
        messages = [{"value": b"a"}, {"value": b"b", "timestamp": timestamp}]
        with pytest.raises(NotImplementedError, match=r"^Message timestamps are not currently "):
            producer.produce_batch(topic, messages)


def test_produce_batch_takes_none_for_a_partition_or_timestamp(producer: Any, topic: str) -> None:
    messages = [{"value": b"x", "partition": None, "timestamp": None}]

    assert producer.produce_batch(topic, messages) == 1
    assert "_error" not in messages[0]


def test_produce_batch_refuses_other_keywords(producer: Any, topic: str) -> None:
    for name in ("timestamp", "headers", "messages_"):
        with pytest.raises(TypeError):
            producer.produce_batch(topic, [{"value": b"x"}], **{name: None})
    with pytest.raises(TypeError):
        producer.produce_batch(1, [{"value": b"x"}])
