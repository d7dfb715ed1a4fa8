"""Wrong arguments and missing topics or partitions: a clear error, and no silent loss."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, Read
from machine import WAIT_S

from cykafka.testing import MockCluster

NO_BROKER = "127.0.0.1:1"


def reported(producer: Any, *args: Any, **kwargs: Any) -> Any:
    """Produce one message and return the error that its delivery report carries."""
    errors: list[Any] = []
    producer.produce(*args, **kwargs, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    (error,) = errors
    return error


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"topic": 3},
        {"topic": None},
        {"topic": b"bytes"},
        {"topic": "t", "value": 3},
        {"topic": "t", "value": ["x"]},
        {"topic": "t", "key": 3},
        {"topic": "t", "partition": "1"},
        {"topic": "t", "partition": 1.5},
        {"topic": "t", "timestamp": "now"},
        {"topic": "t", "headers": 3},
        {"topic": "t", "headers": [1]},
        {"topic": "t", "headers": [("name", 3)]},
        {"topic": "t", "headers": {"name": 3}},
        {"topic": "t", "payload": b"x"},
    ],
    ids=str,
)
def test_produce_rejects_wrong_types(producer: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        producer.produce(**arguments)

    assert len(producer) == 0


@pytest.mark.ours
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("topic", 3),
        ("value", 3),
        ("key", 3),
        ("partition", "1"),
        ("timestamp", "now"),
        ("headers", 3),
        ("headers", [("name", 3)]),
        ("headers", [(3, "value")]),
        ("on_delivery", 3),
        ("timeout", "long"),
    ],
)
def test_produce_names_the_argument_of_a_wrong_type(
    producer: Any, argument: str, value: object
) -> None:
    with pytest.raises(TypeError, match=argument.rstrip("s")):
        producer.produce(**{"topic": "t", argument: value})

    assert len(producer) == 0


@pytest.mark.ours
def test_produce_takes_any_buffer(
    producer: Any, consumer: Any, kafka: Any, topic: str, read: Read
) -> None:
    for value in (bytearray(b"array"), memoryview(b"a view")[2:]):
        producer.produce(topic, value, partition=0)
    producer.flush(WAIT_S)
    consumer.assign([kafka.TopicPartition(topic, 0)])

    assert [m.value() for m in read(consumer, 2)] == [b"array", b"view"]


@pytest.mark.parametrize("method", ["poll", "flush"])
def test_producer_timeout_must_be_a_number(producer: Any, method: str) -> None:
    with pytest.raises(TypeError):
        getattr(producer, method)("soon")


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("poll", ("soon",)),
        ("consume", ("many",)),
        ("consume", (1, "soon")),
        ("assign", (3,)),
        ("assign", ([3],)),
        ("incremental_assign", (3,)),
        ("incremental_unassign", ([3],)),
        ("commit", (3,)),
        ("commit", (None, 3)),
        ("commit", (None, [3])),
        ("store_offsets", (3,)),
        ("committed", (3,)),
        ("position", ([3],)),
        ("pause", (3,)),
        ("resume", ([3],)),
        ("seek", (3,)),
        ("get_watermark_offsets", ("t",)),
        ("offsets_for_times", (3,)),
        ("list_topics", (3,)),
    ],
)
def test_consumer_rejects_wrong_types(
    make_consumer: MakeConsumer, method: str, arguments: tuple[Any, ...]
) -> None:
    consumer = make_consumer({"enable.auto.offset.store": False})
    with pytest.raises(TypeError):
        getattr(consumer, method)(*arguments)


def test_unknown_partition_of_a_known_topic_is_refused(
    producer: Any, kafka: Any, topic: str
) -> None:
    assert reported(producer, topic, b"x", partition=0) is None

    with pytest.raises(kafka.KafkaException) as caught:
        producer.produce(topic, b"x", partition=99)
    assert caught.value.args[0] == kafka.KafkaError._UNKNOWN_PARTITION
    with pytest.raises((kafka.KafkaException, ValueError), match="partition"):
        producer.produce(topic, b"x", partition=-5)


def test_unknown_partition_of_an_unknown_topic_is_an_error(
    producer: Any, kafka: Any, topic: str
) -> None:
    # produce() raises if the topic's metadata has arrived by then, else the report has the error.
    try:
        error = reported(producer, topic, b"x", partition=99)
    except kafka.KafkaException as exception:
        error = exception.args[0]

    assert error == kafka.KafkaError._UNKNOWN_PARTITION


def test_message_too_large_is_refused_at_once(producer: Any, kafka: Any, topic: str) -> None:
    with pytest.raises(kafka.KafkaException, match="size too large") as caught:
        producer.produce(topic, b"x" * 2_000_000)

    assert caught.value.args[0] == kafka.KafkaError.MSG_SIZE_TOO_LARGE
    assert len(producer) == 0


def test_message_at_the_configured_limit_is_accepted(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer({"message.max.bytes": 3_000_000})

    assert reported(producer, topic, b"x" * 2_000_000, partition=0) is None


@pytest.mark.parametrize("name", ["INVALID_RECORD", "MSG_SIZE_TOO_LARGE"])
def test_error_of_the_broker_is_reported_with_its_message(
    mock_cluster: MockCluster, make_producer: MakeProducer, kafka: Any, name: str
) -> None:
    producer = make_producer({"bootstrap.servers": mock_cluster.bootstrap_servers})
    code = getattr(kafka.KafkaError, name)
    mock_cluster.create_topic("refused", 1)
    mock_cluster.push_request_errors("Produce", [code])

    error = reported(producer, "refused", b"x")

    assert error == code
    assert error.str() == kafka.KafkaError(code).str()
    assert reported(producer, "refused", b"x") is None


def test_topic_with_an_error_is_reported(
    mock_cluster: MockCluster, make_producer: MakeProducer, kafka: Any
) -> None:
    producer = make_producer({"bootstrap.servers": mock_cluster.bootstrap_servers})
    mock_cluster.create_topic("closed", 1)
    mock_cluster.set_topic_error("closed", kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)

    try:
        error = reported(producer, "closed", b"x")
    except kafka.KafkaException as refused:  # the metadata arrived before the record
        error = refused.args[0]
    assert error == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


def in_time(call: Callable[[], Any], seconds: float) -> None:
    start = time.monotonic()
    try:
        call()
    finally:
        assert time.monotonic() - start < seconds


@pytest.mark.parametrize(
    ("method", "with_partition"),
    [
        ("list_topics", False),
        ("cluster_id", False),
        ("committed", True),
        ("offsets_for_times", True),
        ("get_watermark_offsets", True),
    ],
)
def test_request_without_a_broker_times_out(
    make_consumer: MakeConsumer, kafka: Any, method: str, with_partition: bool
) -> None:
    consumer = make_consumer({"bootstrap.servers": NO_BROKER})
    partition = kafka.TopicPartition("any", 0, 3)
    arguments: list[Any] = []
    if with_partition:
        arguments = [partition if method == "get_watermark_offsets" else [partition]]

    with pytest.raises(kafka.KafkaException) as caught:
        in_time(lambda: getattr(consumer, method)(*arguments, timeout=0.2), 3)

    assert caught.value.args[0].code() in (
        kafka.KafkaError._TRANSPORT,
        kafka.KafkaError._TIMED_OUT,
        kafka.KafkaError._ALL_BROKERS_DOWN,
    )


@pytest.mark.ours
@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), 1e300, -1e300])
def test_extreme_timeout_does_no_harm(producer: Any, timeout: float) -> None:
    # No message is queued, so flush() returns at once with any timeout that it accepts.
    with contextlib.suppress(ValueError, OverflowError):
        in_time(lambda: producer.flush(timeout), 3)


@pytest.mark.ours
@pytest.mark.parametrize("partition", [2**31, -(2**31) - 1, 2**70])
def test_number_out_of_range_is_refused(producer: Any, partition: int) -> None:
    with pytest.raises((OverflowError, ValueError)):
        producer.produce("t", b"x", partition=partition)


@pytest.mark.ours
@pytest.mark.parametrize("topic", ["", "a/b", "with space", "x" * 250])
def test_impossible_topic_name_is_an_error_of_produce_or_of_its_report(
    make_producer: MakeProducer, kafka: Any, topic: str
) -> None:
    producer = make_producer({"message.timeout.ms": 500})
    calls: list[Any] = []
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _: calls.append(error))
        producer.flush(WAIT_S)
    except (kafka.KafkaException, ValueError) as exception:
        calls.append(exception)

    assert len(calls) == 1


def accepted(calls: dict[str, Callable[[], Any]]) -> list[str]:
    """The names of the calls that do not raise ValueError."""
    found = []
    for name, call in calls.items():
        with contextlib.suppress(ValueError):
            call()
            found.append(name)
    return found


@pytest.mark.ours
@pytest.mark.parametrize("text", ["nul\0inside", "\ud800"], ids=["nul", "surrogate"])
def test_text_with_a_null_character_is_refused(
    producer: Any, consumer: Any, kafka: Any, text: str
) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "topic": lambda: producer.produce(text, b"x"),
        "header": lambda: producer.produce("t", headers=[(text, b"x")]),
        "subscription": lambda: consumer.subscribe([text]),
        "configuration": lambda: kafka.Producer({"client.id": text}),
    }
    assert accepted(calls) == []


@pytest.mark.ours
def test_text_that_no_request_has_room_for_is_refused(
    producer: Any, consumer: Any, kafka: Any
) -> None:
    text = "x" * 32_768
    note = kafka.TopicPartition("t", 0, 1, text)
    calls: dict[str, Callable[[], Any]] = {
        "topic": lambda: producer.produce(text, b"x"),
        "topics": lambda: producer.publish([text], [b"x"]),
        "subscription": lambda: consumer.subscribe([text]),
        "pattern": lambda: consumer.subscribe(["^" + text]),
        "list_topics": lambda: consumer.list_topics(text, 1),
        "assign": lambda: consumer.assign([kafka.TopicPartition(text, 0)]),
        "metadata": lambda: consumer.commit(offsets=[note]),
    }
    assert accepted(calls) == []


@pytest.mark.ours
def test_list_that_librdkafka_cannot_count_is_refused(consumer: Any, kafka: Any) -> None:
    many = 10_000_001
    with pytest.raises(ValueError, match=f"^partitions: it has {many} items, the limit is"):
        consumer.assign([kafka.TopicPartition("t", 0)] * many)
    with pytest.raises(ValueError, match=f"^topics: it has {many} items, the limit is"):
        consumer.subscribe(["t"] * many)


def test_message_created_without_a_topic_cannot_be_committed(consumer: Any, kafka: Any) -> None:
    with pytest.raises((kafka.KafkaException, TypeError, ValueError)):
        consumer.commit(message=kafka.Message(value=b"x"), asynchronous=False)


@pytest.mark.ours
@pytest.mark.parametrize(
    ("topics", "words"),
    [
        ([], "at least one; call unsubscribe()"),
        (["t", ""], "topics[1]: expected a name"),
        (["t", "u", "t"], "topics[2]: 't' is a duplicate"),
        (["t", "^["], "got '^['"),
        (["^a", "^["], "one of them is not: '^a', '^['"),
    ],
    ids=str,
)
def test_invalid_subscription_names_the_reason(
    consumer: Any, kafka: Any, topics: list[str], words: str
) -> None:
    with pytest.raises(kafka.KafkaException) as caught:
        consumer.subscribe(topics)

    error = caught.value.args[0]
    assert error == kafka.KafkaError._INVALID_ARG
    assert error.str().startswith("Failed to set subscription: ")
    assert words in error.str()


@pytest.mark.ours
def test_error_names_the_index_of_the_wrong_list_item(
    producer: Any, consumer: Any, kafka: Any
) -> None:
    with pytest.raises(TypeError, match=r"^topics\[1\]: expected a str, got int$"):
        consumer.subscribe(["t", 1])
    with pytest.raises(TypeError, match=r"^partitions\[0\]: expected a TopicPartition, got int$"):
        consumer.assign([1])
    with pytest.raises(TypeError, match=r"^Message at index 1 must be a dict, got int$"):
        producer.produce_batch("t", [{}, 1])


@pytest.mark.ours
@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"topic": "\ud800"}, "topic"),
        ({"value": "\ud800"}, "value"),
        ({"key": "\ud800"}, "key"),
        ({"headers": {"\ud800": b""}}, "a header name"),
        ({"headers": {"name": "\ud800"}}, "a header value"),
    ],
    ids=str,
)
def test_error_of_a_surrogate_names_the_argument(
    producer: Any, arguments: dict[str, Any], where: str
) -> None:
    with pytest.raises(UnicodeEncodeError, match=f"surrogates not allowed in {where}$"):
        producer.produce(**{"topic": "t", **arguments})

    assert len(producer) == 0


@pytest.mark.ours
@pytest.mark.parametrize(
    "config",
    [
        {"sasl.password": "hunter2\udcff"},
        {"sasl.password": b"hunter2\xff"},
        {"ssl_key": "-----BEGIN hunter2\udcff"},
        {},
    ],
    ids=["str", "bytes", "key", "credentials"],
)
def test_secrets_that_are_not_utf_8_are_in_no_exception(
    kafka: ModuleType, config: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="index") as caught:  # noqa: SIM117
        with contextlib.closing(
            kafka.Producer({"bootstrap.servers": "127.0.0.1:1", **config})
        ) as p:
            p.set_sasl_credentials("user", "hunter2\udcff")

    assert "hunter2" not in repr(caught.value)
    assert caught.value.__context__ is None
