"""Requests with wrong names and numbers: the errors of kafka-python 0.9.5, or of its brokers."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from cykafka.compat.kafka_python import (
    KafkaClient,
    KeyedProducer,
    SimpleConsumer,
    SimpleProducer,
    create_message,
)
from cykafka.compat.kafka_python.common import (
    FailedPayloadsError,
    FetchRequest,
    KafkaUnavailableError,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    OffsetRequest,
    ProduceRequest,
    UnknownError,
    UnknownTopicOrPartitionError,
)

INVALID_TOPIC = 17
INVALID_GROUP = 24
CLIENT_TIMEOUT_S = 2.0

Name = str | bytes
# What takes a topic: the client, and the topic's name.
CALLS: dict[str, Callable[[KafkaClient, Any], Any]] = {
    "load_metadata_for_topics": lambda client, topic: client.load_metadata_for_topics(topic),
    "ensure_topic_exists": lambda client, topic: client.ensure_topic_exists(topic, timeout=1),
    "produce": lambda client, topic: client.send_produce_request(
        [ProduceRequest(topic, 0, [create_message(b"x")])]
    ),
    "fetch": lambda client, topic: client.send_fetch_request([FetchRequest(topic, 0, 0, 1000)]),
    "offset": lambda client, topic: client.send_offset_request([OffsetRequest(topic, 0, -1, 1)]),
    "commit": lambda client, topic: client.send_offset_commit_request(
        b"group", [OffsetCommitRequest(topic, 0, 0, None)]
    ),
    "offset_fetch": lambda client, topic: client.send_offset_fetch_request(
        b"group", [OffsetFetchRequest(topic, 0)]
    ),
    "SimpleConsumer": lambda client, topic: SimpleConsumer(client, b"group", topic),
    "SimpleProducer": lambda client, topic: SimpleProducer(client).send_messages(topic, b"x"),
    "KeyedProducer": lambda client, topic: KeyedProducer(client).send_messages(topic, b"k", b"x"),
}

# What takes a group: the client, the group's name, and a topic.
GROUP_CALLS: dict[str, Callable[[KafkaClient, Any, str], Any]] = {
    "commit": lambda client, group, topic: client.send_offset_commit_request(
        group, [OffsetCommitRequest(topic, 0, 0, None)]
    ),
    "offset_fetch": lambda client, group, topic: client.send_offset_fetch_request(
        group, [OffsetFetchRequest(topic, 0)]
    ),
    "SimpleConsumer": lambda client, group, topic: SimpleConsumer(client, group, topic),
}

# A request with one number that the test chooses: the client, a topic, and the number.
NUMBERS: dict[str, Callable[[KafkaClient, str, Any], Any]] = {
    "produce partition": lambda client, topic, number: client.send_produce_request(
        [ProduceRequest(topic, number, [create_message(b"x")])]
    ),
    "produce acks": lambda client, topic, number: client.send_produce_request(
        [ProduceRequest(topic, 0, [create_message(b"x")])], acks=number
    ),
    "produce timeout": lambda client, topic, number: client.send_produce_request(
        [ProduceRequest(topic, 0, [create_message(b"x")])], timeout=number
    ),
    "produce magic": lambda client, topic, number: client.send_produce_request(
        [ProduceRequest(topic, 0, [create_message(b"x")._replace(magic=number)])]
    ),
    "produce attributes": lambda client, topic, number: client.send_produce_request(
        [ProduceRequest(topic, 0, [create_message(b"x")._replace(attributes=number)])]
    ),
    "fetch partition": lambda client, topic, number: client.send_fetch_request(
        [FetchRequest(topic, number, 0, 1000)]
    ),
    "fetch offset": lambda client, topic, number: client.send_fetch_request(
        [FetchRequest(topic, 0, number, 1000)]
    ),
    "fetch max_bytes": lambda client, topic, number: client.send_fetch_request(
        [FetchRequest(topic, 0, 0, number)]
    ),
    "fetch max_wait_time": lambda client, topic, number: client.send_fetch_request(
        [FetchRequest(topic, 0, 0, 1000)], max_wait_time=number
    ),
    "fetch min_bytes": lambda client, topic, number: client.send_fetch_request(
        [FetchRequest(topic, 0, 0, 1000)], min_bytes=number
    ),
    "offset partition": lambda client, topic, number: client.send_offset_request(
        [OffsetRequest(topic, number, -1, 1)]
    ),
    "offset time": lambda client, topic, number: client.send_offset_request(
        [OffsetRequest(topic, 0, number, 1)]
    ),
    "offset max_offsets": lambda client, topic, number: client.send_offset_request(
        [OffsetRequest(topic, 0, -1, number)]
    ),
    "commit partition": lambda client, topic, number: client.send_offset_commit_request(
        b"group", [OffsetCommitRequest(topic, number, 0, None)]
    ),
    "commit offset": lambda client, topic, number: client.send_offset_commit_request(
        b"group", [OffsetCommitRequest(topic, 0, number, None)]
    ),
    "offset_fetch partition": lambda client, topic, number: client.send_offset_fetch_request(
        b"group", [OffsetFetchRequest(topic, number)]
    ),
}


def number_of(error: pytest.ExceptionInfo[UnknownError]) -> int:
    """The brokers' error number of an exception."""
    number: int = error.value.args[0].error
    return number


# -- topics


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", [b"\xff", b"a b", b"", b"a\0b", b"x" * 300], ids=repr)
def test_topic_with_an_impossible_name_gets_the_brokers_error(
    client: KafkaClient, call: str, name: bytes
) -> None:
    with pytest.raises(UnknownError) as error:
        CALLS[call](client, name)
    assert number_of(error) == INVALID_TOPIC


@pytest.mark.parametrize("call", CALLS)
def test_topic_that_no_request_has_room_for(client: KafkaClient, call: str) -> None:
    # 0.9.5 fails to encode the request for its metadata.
    has_payloads = call in ("produce", "fetch", "offset", "commit", "offset_fetch")
    error = FailedPayloadsError if has_payloads else KafkaUnavailableError
    with pytest.raises(error, match=r"has 32768 bytes, the limit is 32767"):
        CALLS[call](client, b"x" * 32_768)


# 0.9.5 counts any failure of these requests as one of the server, and tries the next.
@pytest.mark.parametrize(
    ("name", "cause"),
    [
        (b"x" * 32_768, "has 32768 bytes, the limit is 32767"),
        (None, "expected bytes or str"),
        (7, "expected bytes or str"),
        ([], "expected bytes or str"),
    ],
    ids=["too long", "None", "int", "list"],
)
def test_request_to_any_broker_that_cannot_be_encoded(
    client: KafkaClient, name: Any, cause: str
) -> None:
    with pytest.raises(KafkaUnavailableError, match=cause):
        client.send_metadata_request([name])
    with pytest.raises(KafkaUnavailableError, match=cause):
        client.send_consumer_metadata_request(name)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", [None, 7], ids=repr)
def test_topic_that_is_no_string_is_a_type_error(
    client: KafkaClient, call: str, name: Any
) -> None:
    with pytest.raises(TypeError, match="expected bytes or str"):
        CALLS[call](client, name)


@pytest.mark.parametrize("call", ["commit", "offset_fetch"])
def test_offsets_of_an_unknown_topic_are_an_error(
    client: KafkaClient, topic: str, call: str
) -> None:
    request = {"commit": OffsetCommitRequest(topic, 99, 0, None)}.get(call)
    send = {
        "commit": client.send_offset_commit_request,
        "offset_fetch": client.send_offset_fetch_request,
    }[call]
    with pytest.raises(UnknownTopicOrPartitionError):
        send(b"group", [request or OffsetFetchRequest(topic, 99)])


# -- groups


@pytest.mark.parametrize("call", GROUP_CALLS)
@pytest.mark.parametrize("name", [b"", "", b"a\0b"], ids=repr)
def test_group_with_an_impossible_name_gets_the_brokers_error(
    client: KafkaClient, topic: str, call: str, name: Name
) -> None:
    with pytest.raises(UnknownError) as error:
        GROUP_CALLS[call](client, name, topic)
    assert number_of(error) == INVALID_GROUP


@pytest.mark.parametrize("name", [b"", b"a\0b"], ids=repr)
def test_coordinator_of_an_impossible_group_has_the_error_number(
    client: KafkaClient, name: bytes
) -> None:
    assert client.send_consumer_metadata_request(name).error == INVALID_GROUP


@pytest.mark.parametrize("call", GROUP_CALLS)
def test_group_that_no_request_has_room_for_is_a_struct_error(
    client: KafkaClient, topic: str, call: str
) -> None:
    with pytest.raises(struct.error, match=r"has 32768 bytes, the limit is 32767"):
        GROUP_CALLS[call](client, b"x" * 32_768, topic)


@pytest.mark.parametrize("call", ["commit", "offset_fetch"])
def test_group_that_is_none_is_not_answered(client: KafkaClient, topic: str, call: str) -> None:
    with pytest.raises(FailedPayloadsError, match="the group is None"):
        GROUP_CALLS[call](client, None, topic)


def test_group_that_is_not_utf8_has_the_name_that_brokers_read(
    client: KafkaClient, topic: str, group: str
) -> None:
    client.send_offset_commit_request(
        group.encode() + b"\xff", [OffsetCommitRequest(topic, 0, 7, None)]
    )

    (found,) = client.send_offset_fetch_request(group + "\ufffd", [OffsetFetchRequest(topic, 0)])

    assert found.offset == 7


@pytest.mark.parametrize(
    ("given", "found"),
    [(b"\xff", "\ufffd".encode()), ("\xfc", b"\xc3\xbc"), (b"a\0b", b"a\0b"), (b"", b"")],
    ids=repr,
)
def test_metadata_of_an_offset_is_what_brokers_read(
    client: KafkaClient, topic: str, group: str, given: Name, found: bytes
) -> None:
    client.send_offset_commit_request(group, [OffsetCommitRequest(topic, 0, 7, given)])

    (response,) = client.send_offset_fetch_request(group, [OffsetFetchRequest(topic, 0)])

    assert response.metadata == found


@pytest.mark.parametrize(
    ("metadata", "error"),
    [(b"x" * 5000, OffsetMetadataTooLargeError), (b"x" * 32_768, struct.error), (7, TypeError)],
    ids=["5000", "32768", "int"],
)
def test_metadata_of_an_offset_that_is_too_long(
    client: KafkaClient, topic: str, group: str, metadata: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.send_offset_commit_request(group, [OffsetCommitRequest(topic, 0, 7, metadata)])


# -- numbers


@pytest.mark.parametrize("call", [call for call in NUMBERS if not call.endswith("partition")])
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 1.5, float("nan"), "1", None], ids=repr)
def test_number_that_does_not_fit_is_a_struct_error(
    client: KafkaClient, topic: str, call: str, number: Any
) -> None:
    name = call.split()[1]
    with pytest.raises(struct.error, match=rf"'{name}': "):
        NUMBERS[call](client, topic, number)


@pytest.mark.parametrize("call", [call for call in NUMBERS if call.endswith("partition")])
@pytest.mark.parametrize("number", [-1, 2**31 - 1, 2**63, 1.5, "1", None], ids=repr)
def test_partition_that_does_not_exist(
    client: KafkaClient, topic: str, call: str, number: Any
) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        NUMBERS[call](client, topic, number)


@pytest.mark.parametrize(
    "send",
    [
        lambda client, topic: client.send_produce_request(
            [ProduceRequest(topic, 99, [])], acks=1.5
        ),
        lambda client, topic: client.send_fetch_request(
            [FetchRequest(topic, 99, 0, 1000)], min_bytes=1.5
        ),
    ],
    ids=["produce", "fetch"],
)
def test_partition_is_looked_up_before_the_request_is_encoded(
    client: KafkaClient, topic: str, send: Callable[..., Any]
) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        send(client, topic)


@pytest.mark.parametrize("call", ["fetch offset", "commit offset"])
def test_offset_below_the_beginning(client: KafkaClient, topic: str, call: str) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        NUMBERS[call](client, topic, -1)


@pytest.mark.parametrize("time_ms", [-3, -(2**63)])
def test_negative_time_has_no_offset(client: KafkaClient, topic: str, time_ms: int) -> None:
    (response,) = client.send_offset_request([OffsetRequest(topic, 0, time_ms, 1)])
    assert (response.error, response.offsets) == (0, ())


@pytest.mark.parametrize("max_offsets", [0, -1])
def test_no_offsets_are_returned_if_none_are_asked_for(
    client: KafkaClient, topic: str, max_offsets: int
) -> None:
    (response,) = client.send_offset_request([OffsetRequest(topic, 0, -1, max_offsets)])
    assert (response.error, response.offsets) == (0, ())


def test_longest_wait_is_the_timeout_of_the_client(cluster: Any, topic: str) -> None:
    client = KafkaClient(cluster.bootstrap_servers, timeout=CLIENT_TIMEOUT_S)
    begun = time.monotonic()
    NUMBERS["fetch max_wait_time"](client, topic, 2**31 - 1)
    assert time.monotonic() - begun < 10 * CLIENT_TIMEOUT_S
    client.close()


@pytest.mark.parametrize(
    "send",
    [
        lambda client, topic: client.send_offset_request([OffsetRequest(topic, 0, -1, 1)] * 2),
        lambda client, topic: client.send_offset_fetch_request(
            b"group", [OffsetFetchRequest(topic, 0)] * 2
        ),
        lambda client, topic: client.send_offset_commit_request(
            b"group", [OffsetCommitRequest(topic, 0, 0, None)] * 2
        ),
    ],
    ids=["offset", "offset_fetch", "commit"],
)
def test_two_payloads_for_one_partition_are_refused(
    client: KafkaClient, topic: str, send: Callable[..., Any]
) -> None:
    with pytest.raises(AssertionError, match="twice"):
        send(client, topic)
