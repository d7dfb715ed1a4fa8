"""The outcomes of records, and the descriptors that a test leaves open."""

from __future__ import annotations

import os

from cykafka import KafkaError, KafkaException

# librdkafka may already have made a batch of a record that lingers.
PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


def open_files() -> int:
    """The number of this process's descriptors."""
    return len(os.listdir("/proc/self/fd"))


def code_of(error: BaseException) -> int:
    """The code of the KafkaError in an exception."""
    assert isinstance(error, KafkaException), error
    return int(error.args[0].code())
