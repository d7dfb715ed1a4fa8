"""librdkafka's errors as kafka-python's error numbers and exceptions."""

from __future__ import annotations

from typing import Any

from cykafka import KafkaError, KafkaException
from cykafka.compat.kafka_python._limits import topic_name
from cykafka.compat.kafka_python.common import FailedPayloadsError

# Codes of librdkafka (below -1) and of newer brokers, as the numbers that programs know.
_ERRNO = {
    KafkaError._AUTO_OFFSET_RESET: KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._BAD_MSG: KafkaError.INVALID_MSG,
    KafkaError._NO_OFFSET: KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._UNKNOWN_PARTITION: KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC: KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH: KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH: KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._WAIT_COORD: KafkaError.COORDINATOR_NOT_AVAILABLE,
}
# The broker did not answer. Whether it has done what was asked is unknown.
_UNANSWERED = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._DESTROY,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._PURGE_INFLIGHT,
    KafkaError._PURGE_QUEUE,
    KafkaError._QUEUE_FULL,
    KafkaError._RESOLVE,
    KafkaError._SSL,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
}
UNKNOWN = -1


def kafka_error(error: BaseException) -> KafkaError | None:
    """The KafkaError of an exception of cykafka, or None."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return error.args[0]
    return None


def is_unanswered(error: KafkaError) -> bool:
    """Whether the brokers did not answer, so that kafka-python raised FailedPayloadsError."""
    return error.code() in _UNANSWERED


def errno(error: KafkaError | None) -> int:
    """The broker's error number: 0 is success, -1 an error without a number."""
    if error is None:
        return 0
    code = error.code()
    return _ERRNO.get(code, code if code >= 0 else UNKNOWN)


def failed_payload(payload: Any, error: BaseException) -> FailedPayloadsError:
    """The error of a request that the brokers did not answer."""
    cause = kafka_error(error)
    topic = topic_name(payload.topic)
    text = error if cause is None else cause.str()
    failed = FailedPayloadsError(
        payload, f"the brokers did not answer for {topic}[{payload.partition}]: {text}"
    )
    failed.__cause__ = error
    return failed
