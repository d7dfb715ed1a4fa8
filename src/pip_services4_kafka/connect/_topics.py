"""Topics by an admin client. Times are in s; errors are typed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from pip_services4_commons.errors import ApplicationException, ConflictException

from cykafka import KafkaError, KafkaException, TopicPartition
from cykafka.admin import AdminClient, NewTopic, OffsetSpec

from .._errors import codes, kafka_error, typed

# How long to retry until every broker knows a new topic or a new leader, s.
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
        raise typed(error, doing, topic=topic) from error


def topic_names(admin: AdminClient, timeout: float) -> list[str]:
    """The names of all topics."""
    with _typed_errors("cannot list the topics"):
        return list(admin.list_topics(timeout=timeout).topics)


def create_topic(
    admin: AdminClient, name: str, partitions: int, replicas: int, timeout: float
) -> None:
    """Create a topic, and wait until the cluster has it."""
    with _typed_errors(f"topic {name}: cannot create it", name):
        topic = NewTopic(name, partitions, replicas)
        futures = admin.create_topics([topic], operation_timeout=timeout, request_timeout=timeout)
        futures[name].result()


def delete_topic(admin: AdminClient, name: str, timeout: float) -> None:
    """Delete a topic, and wait until the cluster has done so."""
    with _typed_errors(f"topic {name}: cannot delete it", name):
        futures = admin.delete_topics([name], operation_timeout=timeout, request_timeout=timeout)
        futures[name].result()


def has_topic(admin: AdminClient, name: str, timeout: float) -> bool:
    """Whether a topic exists. The broker that answers may not know a new one yet."""
    with _typed_errors(f"topic {name}: cannot describe it", name):
        error = admin.list_topics(name, timeout=timeout).topics[name].error
        if error is not None and error.code() not in _PASSING:
            raise KafkaException(error)
    return error is None or error.code() not in _MISSING


def ensure_topic(
    admin: AdminClient, name: str, partitions: int, replicas: int, timeout: float
) -> None:
    """Create a topic if it is missing. Another client may create it at the same time."""
    if has_topic(admin, name, timeout):
        return
    try:
        create_topic(admin, name, partitions, replicas, timeout)
    except ConflictException:  # it exists
        return
    except ApplicationException:
        if not has_topic(admin, name, timeout):
            raise


def topic_ends(admin: AdminClient, name: str, timeout: float) -> dict[int, int]:
    """The end of each partition of a topic: the offset of its next message."""
    deadline = time.monotonic() + min(timeout, _KNOWN_S)
    while True:
        try:
            return _ends(admin, name, timeout)
        except (KafkaException, RuntimeError) as error:
            known = kafka_error(error)
            if known is None or known.code() not in _PASSING or time.monotonic() >= deadline:
                raise typed(error, f"topic {name}: cannot read its ends", topic=name) from error
        time.sleep(_PAUSE_S)


def _ends(admin: AdminClient, name: str, timeout: float) -> dict[int, int]:
    known = admin.list_topics(name, timeout=timeout).topics[name]
    if known.error is not None:
        raise KafkaException(known.error)
    if not known.partitions or any(p.leader < 0 for p in known.partitions.values()):
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    places = [TopicPartition(name, number) for number in known.partitions]
    asked = dict.fromkeys(places, OffsetSpec.latest())
    found = admin.list_offsets(asked, request_timeout=timeout)
    return {place.partition: future.result().offset for place, future in found.items()}
