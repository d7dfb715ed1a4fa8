"""The structs and errors of kafka-python 0.9.5."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from cykafka.compat.kafka_python import common

pytestmark = pytest.mark.ours

STRUCTS = {
    "MetadataRequest": "topics",
    "MetadataResponse": "brokers topics",
    "ConsumerMetadataRequest": "groups",
    "ConsumerMetadataResponse": "error nodeId host port",
    "ProduceRequest": "topic partition messages",
    "ProduceResponse": "topic partition error offset",
    "FetchRequest": "topic partition offset max_bytes",
    "FetchResponse": "topic partition error highwaterMark messages",
    "OffsetRequest": "topic partition time max_offsets",
    "OffsetResponse": "topic partition error offsets",
    "OffsetCommitRequest": "topic partition offset metadata",
    "OffsetCommitResponse": "topic partition error",
    "OffsetFetchRequest": "topic partition",
    "OffsetFetchResponse": "topic partition offset metadata error",
    "BrokerMetadata": "nodeId host port",
    "TopicMetadata": "topic error partitions",
    "PartitionMetadata": "topic partition leader replicas isr error",
    "OffsetAndMessage": "offset message",
    "Message": "magic attributes key value",
    "TopicAndPartition": "topic partition",
    "KafkaMessage": "topic partition offset key value",
    "RetryOptions": "limit backoff_ms retry_on_timeouts",
}

BROKER_ERRORS = {
    -1: ("UnknownError", "UNKNOWN"),
    1: ("OffsetOutOfRangeError", "OFFSET_OUT_OF_RANGE"),
    2: ("InvalidMessageError", "INVALID_MESSAGE"),
    3: ("UnknownTopicOrPartitionError", "UNKNOWN_TOPIC_OR_PARTITION"),
    4: ("InvalidFetchRequestError", "INVALID_FETCH_SIZE"),
    5: ("LeaderNotAvailableError", "LEADER_NOT_AVAILABLE"),
    6: ("NotLeaderForPartitionError", "NOT_LEADER_FOR_PARTITION"),
    7: ("RequestTimedOutError", "REQUEST_TIMED_OUT"),
    8: ("BrokerNotAvailableError", "BROKER_NOT_AVAILABLE"),
    9: ("ReplicaNotAvailableError", "REPLICA_NOT_AVAILABLE"),
    10: ("MessageSizeTooLargeError", "MESSAGE_SIZE_TOO_LARGE"),
    11: ("StaleControllerEpochError", "STALE_CONTROLLER_EPOCH"),
    12: ("OffsetMetadataTooLargeError", "OFFSET_METADATA_TOO_LARGE"),
    13: ("StaleLeaderEpochCodeError", "STALE_LEADER_EPOCH_CODE"),
    14: ("OffsetsLoadInProgressCode", "OFFSETS_LOAD_IN_PROGRESS_CODE"),
    15: ("ConsumerCoordinatorNotAvailableCode", "CONSUMER_COORDINATOR_NOT_AVAILABLE_CODE"),
    16: ("NotCoordinatorForConsumerCode", "NOT_COORDINATOR_FOR_CONSUMER_CODE"),
}

OTHER_ERRORS = [
    "BrokerResponseError",
    "KafkaUnavailableError",
    "KafkaTimeoutError",
    "FailedPayloadsError",
    "ConnectionError",
    "BufferUnderflowError",
    "ChecksumError",
    "ConsumerFetchSizeTooSmall",
    "ConsumerNoMoreData",
    "ConsumerTimeout",
    "ProtocolError",
    "UnsupportedCodecError",
    "KafkaConfigurationError",
    "AsyncProducerQueueFull",
]


def via_pickle(error: Exception) -> Any:
    return pickle.loads(pickle.dumps(error))


@pytest.mark.parametrize(("name", "fields"), STRUCTS.items())
def test_structs_have_the_fields_of_the_original_and_no_defaults(name: str, fields: str) -> None:
    struct = getattr(common, name)

    assert struct._fields == tuple(fields.split())
    assert struct._field_defaults == {}
    made = struct(*range(len(struct._fields)))
    assert made == tuple(range(len(struct._fields)))
    assert via_pickle(made) == made


@pytest.mark.parametrize("number", BROKER_ERRORS)
def test_broker_errors_have_number_and_message(number: int) -> None:
    name, message = BROKER_ERRORS[number]
    error = getattr(common, name)

    assert (error.errno, error.message) == (number, message)
    assert error.__bases__ == (common.BrokerResponseError,)
    assert common.kafka_errors[number] is error


def test_kafka_errors_has_no_other_errors() -> None:
    assert set(common.kafka_errors) == set(BROKER_ERRORS)


@pytest.mark.parametrize("name", OTHER_ERRORS)
def test_other_errors_are_kafka_errors_without_number(name: str) -> None:
    error = getattr(common, name)

    assert error.__bases__ == (common.KafkaError,)
    assert not hasattr(error, "errno")
    assert issubclass(error, RuntimeError)


def test_names_of_the_documentation_are_aliases() -> None:
    assert common.BrokerNotFoundError is common.BrokerNotAvailableError
    assert common.LeaderNotFoundError is common.LeaderNotAvailableError
    assert common.InvalidFetchRequest is common.InvalidFetchRequestError
    assert common.OffsetOutOfRangeException is common.OffsetOutOfRangeError
    assert common.x is common.UnknownTopicOrPartitionError


def test_check_error_accepts_a_response_without_error() -> None:
    assert common.check_error(common.ProduceResponse(b"t", 0, 0, 7)) is None


@pytest.mark.parametrize("number", BROKER_ERRORS)
def test_check_error_raises_the_class_of_the_number(number: int) -> None:
    response = common.ProduceResponse(b"t", 0, number, 7)

    with pytest.raises(common.BrokerResponseError) as caught:
        common.check_error(response)

    assert type(caught.value).__name__ == BROKER_ERRORS[number][0]
    assert caught.value.args == (response,)


def test_check_error_raises_unknown_error_for_other_numbers() -> None:
    response = common.ProduceResponse(b"orders", 3, 87, -1)

    with pytest.raises(common.UnknownError) as caught:
        common.check_error(response)

    assert "b'orders'" in str(caught.value)
    assert "87" in str(caught.value)


def test_check_error_raises_an_exception_in_place_of_a_response() -> None:
    failed = common.FailedPayloadsError("request")

    with pytest.raises(common.FailedPayloadsError) as caught:
        common.check_error(failed)

    assert caught.value is failed


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, via_pickle])
@pytest.mark.parametrize(
    ("error", "attribute"),
    [
        (common.FailedPayloadsError({"topic": b"t"}, "went", "away"), "payload"),
        (common.AsyncProducerQueueFull([b"1", b"2"], "queue is full"), "failed_msgs"),
        (common.FailedPayloadsError(None), "payload"),
    ],
)
def test_errors_with_payload_survive_copy_and_pickle(
    duplicate: Callable[[Exception], Any], error: Exception, attribute: str
) -> None:
    error.add_note("note")
    copied = duplicate(error)

    assert type(copied) is type(error)
    assert copied is not error
    assert copied.args == error.args
    assert getattr(copied, attribute) == getattr(error, attribute)
    assert copied.__notes__ == error.__notes__


def test_payload_is_not_among_the_arguments_of_the_exception() -> None:
    assert common.FailedPayloadsError("payload", "text").args == ("text",)
    assert str(common.AsyncProducerQueueFull(["message"], "text")) == "text"


def test_retry_tuples_have_the_errors_of_the_original() -> None:
    backoff = "KafkaUnavailableError LeaderNotAvailableError ConnectionError FailedPayloadsError"
    refresh = (
        "NotLeaderForPartitionError UnknownTopicOrPartitionError LeaderNotAvailableError "
        "ConnectionError"
    )

    def named(names: str) -> tuple[Any, ...]:
        return tuple(getattr(common, name) for name in names.split())

    assert named(backoff) == common.RETRY_BACKOFF_ERROR_TYPES
    assert named(refresh) == common.RETRY_REFRESH_ERROR_TYPES
    assert named(f"{backoff} {refresh}") == common.RETRY_ERROR_TYPES
