"""Message and Messages, created directly like in the tests of applications."""

from __future__ import annotations

import pickle
from types import ModuleType
from typing import Any

import pytest

FIELDS: dict[str, Any] = {
    "topic": "orders",
    "partition": 1,
    "offset": 2,
    "key": b"k",
    "value": b"value",
    "headers": [("h", b"1"), ("h", None)],
    "timestamp": (1, 1_700_000_000_000),
    "latency": 0.5,
    "leader_epoch": 3,
    "delivery_count": 4,
}


def test_message_from_keywords_returns_each_field(kafka: ModuleType) -> None:
    message = kafka.Message(**FIELDS)

    assert {name: getattr(message, name)() for name in FIELDS} == FIELDS
    assert message.error() is None
    assert message.deserialized_key() == b"k"
    assert message.deserialized_value() == b"value"


@pytest.mark.parametrize("name", ["partition", "offset", "leader_epoch", "timestamp"])
def test_message_numbers_are_integers(kafka: ModuleType, name: str) -> None:
    wrong = (1, 1.5) if name == "timestamp" else 1.5
    with pytest.raises(TypeError):
        kafka.Message(**{**FIELDS, name: wrong})


def test_message_from_positions_takes_them_in_the_documented_order(kafka: ModuleType) -> None:
    message = kafka.Message("orders", 1, 2, b"k", b"v")

    assert (message.topic(), message.partition(), message.offset()) == ("orders", 1, 2)
    assert (message.key(), message.value()) == (b"k", b"v")


def test_message_without_arguments_has_no_values(kafka: ModuleType) -> None:
    message = kafka.Message()

    absent = FIELDS.keys() - {"timestamp"}
    assert {getattr(message, name)() for name in absent} == {None}
    assert message.timestamp() == (kafka.TIMESTAMP_NOT_AVAILABLE, 0)
    assert message.error() is None


@pytest.mark.parametrize(
    ("value", "length"), [(None, 0), (b"", 0), (b"12345", 5)], ids=["none", "empty", "bytes"]
)
def test_message_length_is_the_size_of_the_value(
    kafka: ModuleType, value: bytes | None, length: int
) -> None:
    assert len(kafka.Message(value=value)) == length


def test_message_setters_replace_the_fields(kafka: ModuleType) -> None:
    message = kafka.Message(**FIELDS)
    error = kafka.KafkaError(kafka.KafkaError._PARTITION_EOF)

    message.set_topic("other")
    message.set_key("text key")
    message.set_value({"any": "object"})
    message.set_headers([("x", b"y")])
    message.set_error(error)

    assert message.topic() == "other"
    assert message.key() == "text key"
    assert message.value() == {"any": "object"}
    assert message.headers() == [("x", b"y")]
    assert message.error() == kafka.KafkaError._PARTITION_EOF


def test_message_equality_compares_all_fields(kafka: ModuleType) -> None:
    assert kafka.Message(**FIELDS) == kafka.Message(**FIELDS)
    for name in ("topic", "key", "value", "headers"):
        assert kafka.Message(**FIELDS) != kafka.Message(**{**FIELDS, name: None}), name
    for name in ("partition", "offset", "leader_epoch"):
        assert kafka.Message(**FIELDS) != kafka.Message(**{**FIELDS, name: 9}), name
    assert kafka.Message(**FIELDS) != "a message"


def test_message_equality_distinguishes_an_empty_value_from_none(kafka: ModuleType) -> None:
    assert kafka.Message(value=b"") != kafka.Message(value=None)


def test_message_is_not_hashable_because_it_can_change(kafka: ModuleType) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(kafka.Message())


def test_message_survives_pickling(kafka: ModuleType) -> None:
    error = kafka.KafkaError(kafka.KafkaError._FATAL, "why", fatal=True)
    message = kafka.Message(**FIELDS, error=error)

    again = pickle.loads(pickle.dumps(message))

    assert again == message
    assert {name: getattr(again, name)() for name in FIELDS} == FIELDS
    assert again.error().str() == "why"
    assert again.error().fatal()


def test_message_rejects_an_unknown_keyword(kafka: ModuleType) -> None:
    with pytest.raises(TypeError, match="payload"):
        kafka.Message(payload=b"")


def test_message_rejects_a_timestamp_that_is_not_a_pair(kafka: ModuleType) -> None:
    with pytest.raises(TypeError, match="timestamp"):
        kafka.Message(timestamp=12)


@pytest.fixture
def three(kafka: ModuleType) -> list[Any]:
    return [kafka.Message(value=value) for value in (b"a", b"b", b"c")]


def test_messages_is_a_sequence_of_its_records(kafka: ModuleType, three: list[Any]) -> None:
    messages = kafka.Messages(three)

    assert messages.records() == three
    assert list(messages) == three
    assert messages[0] is three[0]
    assert messages[-1] is three[-1]
    assert len(messages) == messages.count() == 3
    assert not messages.is_empty()
    with pytest.raises(IndexError):
        messages[3]


def test_messages_slice_is_messages_again(kafka: ModuleType, three: list[Any]) -> None:
    part = kafka.Messages(three)[1:]

    assert isinstance(part, kafka.Messages)
    assert part.records() == three[1:]


def test_messages_records_is_a_copy(kafka: ModuleType, three: list[Any]) -> None:
    messages = kafka.Messages(three)

    messages.records().clear()

    assert messages.count() == 3


def test_messages_without_records_is_empty(kafka: ModuleType) -> None:
    messages = kafka.Messages()

    assert messages.is_empty()
    assert not messages
    assert messages.records() == []


def test_message_without_arguments_pickles_librdkafkas_unknown_values(
    kafka: ModuleType,
) -> None:
    cls, arguments = kafka.Message().__reduce__()

    assert cls is kafka.Message
    assert arguments == (None, -1, -1001, None, None, None, None, (0, 0), -1.0, -1, -1)
    assert [type(argument) for argument in arguments[-3:]] == [float, int, int]


def test_message_takes_all_its_arguments_by_position(kafka: ModuleType) -> None:
    error = kafka.KafkaError(3)
    given = ("t", 1, 2, b"k", b"v", [("h", b"x")], error, (1, 123), 0.5, 7, 2)

    assert kafka.Message(*given).__reduce__()[1] == given
    with pytest.raises(TypeError):
        kafka.Message(*given, 3)


def test_message_keeps_falsy_arguments(kafka: ModuleType) -> None:
    message = kafka.Message("", 0, 0, 0, 0, [], None, (0, 0), 0.0, 0, 0)

    assert (message.topic(), message.partition(), message.offset()) == ("", 0, 0)
    assert (message.key(), message.value(), message.headers()) == (0, 0, [])
    assert (message.latency(), message.leader_epoch(), message.delivery_count()) == (0.0, 0, None)
    assert message.__reduce__()[1] == ("", 0, 0, 0, 0, [], None, (0, 0), 0.0, 0, -1)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("partition", 32), ("offset", 64), ("leader_epoch", 32), ("delivery_count", 16)],
)
def test_message_refuses_numbers_beyond_their_fields(
    kafka: ModuleType, name: str, bits: int
) -> None:
    largest = 2 ** (bits - 1) - 1

    assert getattr(kafka.Message(**{name: largest}), name)() == largest
    assert getattr(kafka.Message(**{name: -largest - 1}), name)() is None
    for number in (largest + 1, -largest - 2, 2**70, -(2**70)):
        with pytest.raises(OverflowError):
            kafka.Message(**{name: number})


@pytest.mark.parametrize("timestamp", [(), (1,), (1, 2, 3), [1, 2], "ab", 1])
def test_message_refuses_timestamps_that_are_not_pairs(kafka: ModuleType, timestamp: Any) -> None:
    with pytest.raises(TypeError, match=r"^timestamp must be a tuple of \(int, int\)"):
        kafka.Message(timestamp=timestamp)


def test_messages_of_a_list_share_it(kafka: ModuleType) -> None:
    records = [kafka.Message("a"), kafka.Message("b")]

    messages = kafka.Messages._from_list(records)

    assert type(messages) is kafka.Messages
    assert list(messages) == records
    records.append(kafka.Message("c"))
    assert (len(messages), messages.count()) == (3, 3)
    assert type(messages[1:]) is kafka.Messages
    assert kafka.Messages._from_list([]).is_empty()
