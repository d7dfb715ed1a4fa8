"""Translates between kafka-python and cykafka: names, numbers with protocol sizes, and errors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from cykafka import KafkaError
from cykafka.compat.kafka_python.common import FailedPayloadsError
from cykafka.compat.kafka_python.util import kafka_bytestring
from cykafka.internal import kafka_error

__all__ = [
    "check_numbers",
    "check_payloads",
    "errno",
    "failed_payload",
    "is_unanswered",
    "text",
    "topic_name",
]

_LONGEST = 32767
# Codes from librdkafka (below -1) and newer brokers, as the numbers that programs know.
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
# The broker did not respond. Whether it processed the request is unknown.
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
_UNKNOWN = -1


# -- requests


def text(string: str | bytes) -> str:
    """Return a protocol string as str. Invalid UTF-8 becomes U+FFFD, as in the brokers.

    Raises
    ------
    TypeError
        The string is neither str nor bytes.
    struct.error
        The string is longer than 32767 bytes, the limit in a request.
    """
    encoded = kafka_bytestring(string)
    if len(encoded) > _LONGEST:
        raise _too_long(encoded)
    return encoded.decode(errors="replace")


def _too_long(string: bytes) -> struct.error:
    return struct.error(
        f"{string[:40]!r}... has {len(string)} bytes, the limit is {_LONGEST} for a string in "
        "Kafka's protocol"
    )


def topic_name(topic: str | bytes) -> str:
    """Return a topic's text(). librdkafka cannot send NUL, so NUL also becomes U+FFFD.

    Brokers reject both: error 17, "Invalid topic".
    """
    return text(topic).replace("\0", "\ufffd")


def check_numbers(layout: str, **numbers: int) -> None:
    """Raise struct.error for numbers that do not fit, as kafka-python does while it encodes them.

    Parameters
    ----------
    layout : str
        One :mod:`struct` character per number: ``h`` 16 bits, ``i`` 32 bits, ``q`` 64 bits.
    **numbers : int
        The error message contains their names.
    """
    try:
        struct.pack(">" + layout, *numbers.values())
    except struct.error as error:
        raise struct.error(f"{numbers}: {error}") from None


def check_payloads(payloads: Sequence[Any], layout: str, *fields: str) -> None:
    """Check the numbers in each payload's fields like check_numbers().

    Raises
    ------
    struct.error
    FailedPayloadsError
        A topic is longer than 32767 bytes, the limit in a request.
    AssertionError
        Two payloads are for the same partition.
    """
    places = set()
    for payload in payloads:
        topic = kafka_bytestring(payload.topic)
        if len(topic) > _LONGEST:
            raise FailedPayloadsError(payload, str(_too_long(topic)))
        check_numbers(layout, **{field: getattr(payload, field) for field in fields})
        places.add((topic, payload.partition))
    if len(places) < len(payloads):
        raise AssertionError(f"a partition appears twice in the payloads: {list(payloads)}")


# -- errors


def is_unanswered(error: KafkaError) -> bool:
    """Whether the brokers did not respond, so that kafka-python raised FailedPayloadsError."""
    return error.code() in _UNANSWERED


def errno(error: KafkaError | None) -> int:
    """Return the broker's error number: 0 for success, -1 for an error without a number."""
    if error is None:
        return 0
    code = error.code()
    return _ERRNO.get(code, code if code >= 0 else _UNKNOWN)


def failed_payload(payload: Any, error: BaseException) -> FailedPayloadsError:
    """Return the error for a request to which the brokers did not respond."""
    cause = kafka_error(error)
    topic = topic_name(payload.topic)
    text = error if cause is None else cause.str()
    failed = FailedPayloadsError(
        payload, f"the brokers did not respond for {topic}[{payload.partition}]: {text}"
    )
    failed.__cause__ = error
    return failed
