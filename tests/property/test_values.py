"""Laws that hold for every KafkaError, TopicPartition and Message."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from repeated import examples

from cykafka import KafkaError, Message, TopicPartition

int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
maybe_text = st.none() | st.text(max_size=20)
codes = st.integers(-200, 150)

errors = st.builds(
    KafkaError, codes, maybe_text, st.booleans(), st.booleans(), st.booleans()
)  # fmt: skip
partitions = st.builds(
    TopicPartition,
    st.sampled_from(["", "a", "b", "ü"]),
    st.integers(-1, 3),
    st.integers(-1001, 2**63 - 1),
    maybe_text,
    st.none() | int32,
)
messages = st.builds(
    Message,
    topic=maybe_text,
    partition=st.none() | int32,
    offset=st.none() | int64,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=20),
    headers=st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary())),
    error=st.none() | errors,
    timestamp=st.none() | st.tuples(st.integers(0, 2), int64),
    leader_epoch=st.none() | int32,
    delivery_count=st.none() | st.integers(1, 2**15 - 1),
)


def copies(value: Any) -> list[Any]:
    pickled = [
        pickle.loads(pickle.dumps(value, protocol))
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
    ]
    return [*pickled, copy.copy(value), copy.deepcopy(value)]


def error_state(error: KafkaError) -> tuple[Any, ...]:
    return (
        error.code(), error.name(), error.str(), error.fatal(), error.retriable(),
        error.txn_requires_abort(),
    )  # fmt: skip


def message_state(message: Message) -> tuple[Any, ...]:
    error = message.error()
    return (
        message.topic(), message.partition(), message.offset(), message.key(), message.value(),
        message.headers(), None if error is None else error_state(error), message.timestamp(),
        message.latency(), message.leader_epoch(), message.delivery_count(),
    )  # fmt: skip


@settings(max_examples=examples(50))
@given(errors)
def test_error_survives_pickle_and_copy(error: KafkaError) -> None:
    for other in copies(error):
        assert error_state(other) == error_state(error)
        assert other == error
        assert hash(other) == hash(error)
        assert repr(other) == repr(error)


@settings(max_examples=examples(50))
@given(errors, errors | codes)
def test_errors_compare_like_their_codes(error: KafkaError, other: KafkaError | int) -> None:
    code = other.code() if isinstance(other, KafkaError) else other
    assert (error == other) is (error.code() == code)
    assert (error != other) is (error.code() != code)
    assert (error < other) is (error.code() < code)
    assert (error <= other) is (error.code() <= code)
    assert (error > other) is (error.code() > code)
    assert (error >= other) is (error.code() >= code)
    if error == other:
        assert hash(error) == hash(other)


@settings(max_examples=examples(50))
@given(partitions)
def test_partition_survives_pickle_and_copy(partition: TopicPartition) -> None:
    for other in copies(partition):
        assert other == partition
        assert hash(other) == hash(partition)
        assert (other.offset, other.metadata, other.leader_epoch) == (
            partition.offset, partition.metadata, partition.leader_epoch,
        )  # fmt: skip
        assert repr(other) == repr(partition)


@settings(max_examples=examples(50))
@given(st.lists(partitions, max_size=8))
def test_partitions_sort_by_topic_and_number(found: list[TopicPartition]) -> None:
    def key(partition: TopicPartition) -> tuple[str, int]:
        return (partition.topic, partition.partition)

    assert [key(partition) for partition in sorted(found)] == sorted(map(key, found))
    for one, other in itertools.product(found, repeat=2):
        assert (one == other) is (key(one) == key(other))
        assert (one != other) is (key(one) != key(other))
        assert (one < other) is (key(one) < key(other))
        assert (one <= other) is (key(one) <= key(other))
        assert (one > other) is (other < one)
        assert (one >= other) is (other <= one)
        if one == other:
            assert hash(one) == hash(other)


@settings(max_examples=examples(50))
@given(messages)
def test_message_survives_pickle_and_copy(message: Message) -> None:
    for other in copies(message):
        assert message_state(other) == message_state(message)
        assert other == message
        assert repr(other) == repr(message)


@settings(max_examples=examples(50))
@given(messages, messages)
def test_messages_are_equal_if_all_their_fields_are(one: Message, other: Message) -> None:
    same = message_state(one) == message_state(other)
    # Errors compare by code only, but message_state() has more than the code.
    assert not same or one == other
    assert (one == other) is not (one != other)
