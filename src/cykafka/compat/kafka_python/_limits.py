"""What fits into a request: names as librdkafka takes them, numbers of the protocol's sizes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from cykafka.compat.kafka_python.common import FailedPayloadsError
from cykafka.compat.kafka_python.util import kafka_bytestring

__all__ = ["check_numbers", "check_payloads", "text", "topic_name"]

_LONGEST = 32767


def text(string: str | bytes) -> str:
    """A string of the protocol as str. What is not UTF-8 becomes U+FFFD, as in the brokers.

    Raises
    ------
    TypeError
        It is neither str nor bytes.
    struct.error
        It is longer than the 32767 bytes that a request has room for.
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
    """The text() of a topic. librdkafka cannot send NUL, so it becomes U+FFFD, too.

    Brokers refuse both: error 17, "Invalid topic".
    """
    return text(topic).replace("\0", "\ufffd")


def check_numbers(layout: str, **numbers: int) -> None:
    """Raise struct.error for numbers that do not fit, as kafka-python does while it encodes them.

    Parameters
    ----------
    layout : str
        A character of :mod:`struct` for each: ``h`` 16 bits, ``i`` 32 bits, ``q`` 64 bits.
    **numbers : int
        Their names are for the error.
    """
    try:
        struct.pack(">" + layout, *numbers.values())
    except struct.error as error:
        raise struct.error(f"{numbers}: {error}") from None


def check_payloads(payloads: Sequence[Any], layout: str, *fields: str) -> None:
    """Check the numbers in fields of each payload as check_numbers() does.

    Raises
    ------
    struct.error
    FailedPayloadsError
        A topic is longer than the 32767 bytes that a request has room for.
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
        raise AssertionError(f"a partition is in the payloads twice: {list(payloads)}")
