"""KafkaConsumer: where it begins, what it returns, what it commits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cykafka.compat.kafka_python import KafkaConsumer, create_message
from cykafka.compat.kafka_python.common import (
    ConsumerFetchSizeTooSmall,
    ConsumerTimeout,
    KafkaConfigurationError,
    KafkaMessage,
    OffsetOutOfRangeError,
    ProduceRequest,
    UnknownTopicOrPartitionError,
)

Send = Callable[..., list[bytes]]
Make = Callable[..., KafkaConsumer]


@pytest.fixture
def make(cluster: Any, topic: str) -> Iterator[Make]:
    """Make consumers of the topic that begin at its first message."""
    made = []

    def make(*topics: Any, **config: Any) -> KafkaConsumer:
        settings = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "auto_offset_reset": "smallest",
            "consumer_timeout_ms": 1000,
            **config,
        }
        consumer = KafkaConsumer(*topics or (topic,), **settings)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def all_of(consumer: KafkaConsumer) -> list[KafkaMessage]:
    """The messages until the timeout."""
    messages = []
    try:
        for message in consumer:
            messages.append(message)
    except ConsumerTimeout:
        return messages
    raise AssertionError("the iteration ended")


def test_messages_of_all_partitions(make: Make, send: Send, topic: str) -> None:
    sent = {number: send(number, range(number * 1000, number * 1000 + 50)) for number in (0, 1, 3)}
    messages = all_of(make())
    assert {type(message) for message in messages} == {KafkaMessage}
    assert {message.topic for message in messages} == {topic}
    for number, values in sent.items():
        found = [
            (message.offset, message.value) for message in messages if message.partition == number
        ]
        assert found == list(enumerate(values))
    assert len(messages) == 150


def test_keys_tombstones_and_the_deserializer(make: Make, client: Any, topic: str) -> None:
    sent = [create_message(b"1", b"k"), create_message(None, b"k"), create_message(b"2")]
    client.send_produce_request([ProduceRequest(topic, 0, sent)])
    consumer = make(deserializer_class=lambda value: None if value is None else int(value))
    assert [(item.key, item.value) for item in all_of(consumer)] == [
        (b"k", 1),
        (b"k", None),
        (None, 2),
    ]


def test_message_that_cannot_be_deserialized_comes_again(make: Make, send: Send) -> None:
    send(0, range(3))
    refused = [b"1", b"1"]

    def deserialize(value: bytes) -> bytes:
        if refused and value == refused[0]:
            refused.pop()
            raise ValueError(value)
        return value

    consumer = make(deserializer_class=deserialize)
    assert consumer.next().value == b"0"
    for _ in range(2):
        with pytest.raises(ValueError, match="1"):
            consumer.next()
    assert [item.value for item in all_of(consumer)] == [b"1", b"2"]


@pytest.mark.parametrize("policy", ["largest", "smallest"])
def test_begins_at_the_end_or_the_beginning(make: Make, send: Send, policy: str) -> None:
    before = send(0, range(3))
    consumer = make(auto_offset_reset=policy)
    after = send(0, range(3, 5))
    expected = after if policy == "largest" else before + after
    assert [item.value for item in all_of(consumer)] == expected


def test_topics_are_chosen_in_each_form(make: Make, send: Send, cluster: Any, topic: str) -> None:
    for number in range(4):
        send(number, range(number * 10, number * 10 + 3))
    other = f"{topic}-other"
    cluster.create_topic(other, 1)
    consumer = make()

    def found(*topics: Any) -> list[tuple[int, int]]:
        consumer.set_topic_partitions(*topics)
        return sorted((item.partition, item.offset) for item in all_of(consumer))

    assert found((topic, 1), {topic.encode(): 0}) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
    ]
    assert found((topic, 1, 2)) == [(1, 2)]
    assert found({topic: [2, 3]}, other) == [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]
    assert found({(topic, 2): 1, (topic, 3): 2}) == [(2, 1), (2, 2), (3, 2)]
    assert found({topic: (0,)})[0] == (0, 0)
    for wrong in (5, {topic: "x"}, (topic, "x")):
        with pytest.raises(KafkaConfigurationError):
            consumer.set_topic_partitions(wrong)
    for unknown in ((topic, 9), ("no-such-topic", 0)):
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.set_topic_partitions(unknown)
    consumer.set_topic_partitions("no-such-topic")
    with pytest.raises(KafkaConfigurationError, match="No topics"):
        consumer.next()


def test_offset_that_does_not_exist_is_reset(make: Make, send: Send, topic: str) -> None:
    sent = send(0, range(3))
    consumer = make((topic, 0, 1000))
    assert [item.value for item in all_of(consumer)] == sent
    with pytest.raises(OffsetOutOfRangeError):
        make((topic, 0, 1000), auto_offset_reset="neither").next()
    with pytest.raises(OffsetOutOfRangeError, match="auto_offset_reset"):
        make(topic, auto_offset_reset="neither")


def test_commits_what_is_done(make: Make, send: Send, topic: str, group: str) -> None:
    send(0, range(10))
    consumer = make((topic, 0), group_id=group)
    assert consumer.commit() is False
    for message in all_of(consumer)[:4]:
        assert consumer.task_done(message) is True
    key = (topic, 0)
    assert consumer.offsets("task_done") == {key: 3}
    assert consumer.commit() is True
    assert consumer.commit() is False
    assert consumer.offsets() == {
        "fetch": {key: 10},
        "highwater": {key: 10},
        "commit": {key: 4},
        "task_done": {key: 3},
    }
    again = make((topic, 0), group_id=group)
    assert again.offsets("commit") == {key: 4}
    assert [item.offset for item in all_of(again)] == list(range(4, 10))
    assert consumer.task_done(KafkaMessage("other", 0, 1, None, b"")) is False


@pytest.mark.parametrize(
    "setting",
    [{"auto_commit_interval_messages": 3}, {"auto_commit_interval_ms": 1}],
)
def test_task_done_commits_by_itself(
    make: Make, send: Send, topic: str, group: str, setting: dict[str, int]
) -> None:
    send(0, range(5))
    consumer = make((topic, 0), group_id=group, auto_commit_enable=True, **setting)
    for message in all_of(consumer)[:3]:
        time.sleep(0.005)
        consumer.task_done(message)
    assert consumer.offsets("commit") == {(topic, 0): 3}
    assert make((topic, 0), group_id=group).offsets("commit") == {(topic, 0): 3}


def test_offsets_of_a_partition(make: Make, send: Send, topic: str) -> None:
    send(1, range(5))
    consumer = make()
    assert consumer.get_partition_offsets(topic, 1, -1, 1) == (5,)
    assert consumer.get_partition_offsets(topic, 1, -2, 1) == (0,)
    assert consumer.get_partition_offsets(topic.encode(), 1, -1, 2) == (5, 0)


def test_timeout_is_raised_in_time_and_reading_goes_on(make: Make, send: Send) -> None:
    consumer = make(consumer_timeout_ms=500)
    begun = time.monotonic()
    with pytest.raises(ConsumerTimeout, match="500 ms"):
        next(consumer)
    assert 0.5 <= time.monotonic() - begun < 5
    sent = send(0, range(2))
    assert [item.value for item in all_of(consumer)] == sent


def test_batches(make: Make, send: Send) -> None:
    sent = send(0, range(100))
    consumer = make(fetch_message_max_bytes=300, fetch_wait_max_ms=500)
    batches: list[list[bytes]] = []
    while sum(map(len, batches)) < 100:
        batches.append([item.value for item in consumer.fetch_messages()])
    assert [value for batch in batches for value in batch] == sent
    assert max(map(len, batches)) <= 300 // 27


def test_too_large_message_is_an_error(make: Make, client: Any, topic: str) -> None:
    client.send_produce_request([ProduceRequest(topic, 0, [create_message(b"x" * 1000)])])
    consumer = make(fetch_message_max_bytes=500)
    with pytest.raises(ConsumerFetchSizeTooSmall):
        consumer.next()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "bootstrap_servers"),
        ({"bootstrap_servers": "x", "auto_comit_enable": True}, "auto_comit_enable"),
        ({"bootstrap_servers": "x", "auto_commit_enable": True}, "group_id"),
    ],
)
def test_wrong_configuration_is_refused(config: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=text):
        KafkaConsumer("topic", **config)


def test_deprecated_key_is_taken(cluster: Any, topic: str) -> None:
    consumer = KafkaConsumer(topic, metadata_broker_list=cluster.bootstrap_servers)
    assert topic in repr(consumer)
    with pytest.raises(KafkaConfigurationError, match="group_id"):
        consumer.commit()
    consumer.close()
