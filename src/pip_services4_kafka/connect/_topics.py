"""Manages topics with an admin client. Times are in seconds; errors are typed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from pip_services4_commons.errors import ApplicationException, ConflictException

from cykafka import KafkaError, KafkaException, TopicPartition
from cykafka.admin import AdminClient, NewTopic, OffsetSpec
from cykafka.internal import kafka_error

from .._errors import codes, convert

# How long to retry until every broker knows a new topic or leader, in seconds.
_KNOWN_S = 5.0
_PAUSE_S = 0.05
_MISSING = codes("UNKNOWN_TOPIC_OR_PART _UNKNOWN_TOPIC")
_PASSING = _MISSING | codes(
    "LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REPLICA_NOT_AVAILABLE FENCED_LEADER_EPOCH "
    "UNKNOWN_LEADER_EPOCH OFFSET_NOT_AVAILABLE _UNKNOWN_PARTITION _TRANSPORT"
)


@contextlib.contextmanager
def _typed_errors(doing: str, topic: str | None = None) -> Iterator[None]:
    try:
        yield
    except (KafkaException, RuntimeError, TypeError, ValueError) as error:
        raise convert(error, doing, topic=topic) from error


def topic_names(admin: AdminClient, timeout: float) -> list[str]:
    """The names of all topics."""
    with _typed_errors("cannot list the topics"):
        return list(admin.list_topics(timeout=timeout).topics)


def create_topic(
    admin: AdminClient, name: str, partitions: int, replicas: int, timeout: float
) -> None:
    """Create a topic and wait until the brokers know it: consumers log errors before."""
    with _typed_errors(f"topic {name}: cannot create the topic", name):
        topic = NewTopic(name, partitions, replicas)
        futures = admin.create_topics([topic], operation_timeout=timeout, request_timeout=timeout)
        futures[name].result()
    _wait_for(admin, name, timeout)


def _wait_for(admin: AdminClient, name: str, timeout: float) -> None:
    """Wait at most `_KNOWN_S` for a new topic."""
    deadline = time.monotonic() + min(timeout, _KNOWN_S)
    while not has_topic(admin, name, timeout) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)


def delete_topic(admin: AdminClient, name: str, timeout: float) -> None:
    """Delete a topic and wait until the cluster has deleted it."""
    with _typed_errors(f"topic {name}: cannot delete the topic", name):
        futures = admin.delete_topics([name], operation_timeout=timeout, request_timeout=timeout)
        futures[name].result()


def has_topic(admin: AdminClient, name: str, timeout: float) -> bool:
    """Whether a topic exists. The broker that responds may not know a new topic yet."""
    with _typed_errors(f"topic {name}: cannot describe the topic", name):
        error = admin.list_topics(name, timeout=timeout).topics[name].error
        if error is not None and error.code() not in _PASSING:
            raise KafkaException(error)
    return error is None or error.code() not in _MISSING


def ensure_topic(
    admin: AdminClient, name: str, partitions: int, replicas: int, timeout: float
) -> None:
    """Create a topic if it is missing. Another client may create the topic at the same time."""
    if has_topic(admin, name, timeout):
        return
    try:
        create_topic(admin, name, partitions, replicas, timeout)
    except ConflictException:  # it exists
        _wait_for(admin, name, timeout)
    except ApplicationException:
        if not has_topic(admin, name, timeout):
            raise


def topic_ends(admin: AdminClient, name: str, timeout: float) -> dict[int, int]:
    """Read a topic's end offsets: per partition, the offset of the next message."""
    deadline = time.monotonic() + min(timeout, _KNOWN_S)
    with _typed_errors(f"topic {name}: cannot read end offsets", name):
        while True:
            try:
                return _ends(admin, name, timeout)
            except KafkaException as error:
                known = kafka_error(error)
                if known is None or known.code() not in _PASSING or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_S)


def _ends(admin: AdminClient, name: str, timeout: float) -> dict[int, int]:
    known = admin.list_topics(name, timeout=timeout).topics[name]
    if known.error is not None:
        raise KafkaException(known.error)
    if not known.partitions or any(p.leader < 0 for p in known.partitions.values()):
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    places = [TopicPartition(name, number) for number in known.partitions]
    wanted = dict.fromkeys(places, OffsetSpec.latest())
    found = admin.list_offsets(wanted, request_timeout=timeout)
    return {place.partition: future.result().offset for place, future in found.items()}
