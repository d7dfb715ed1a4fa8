"""The start position of a group without committed offsets."""

from __future__ import annotations

import time
from typing import Any

from pip_services4_commons.errors import ApplicationException, ConflictException

from cykafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from cykafka.admin import OffsetSpec

# How long to retry until every broker knows a new topic or a new leader, s.
_KNOWN_S = 10.0
_PAUSE_S = 0.05


def _codes(*names: str) -> frozenset[int]:
    return frozenset(getattr(KafkaError, name) for name in names)


# The group has members.
_ALIVE = _codes(
    "UNKNOWN_MEMBER_ID", "NON_EMPTY_GROUP", "REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"
)
# Temporary errors.
_PASSING = _codes(
    "UNKNOWN_TOPIC_OR_PART",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "REPLICA_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
    "UNSTABLE_OFFSET_COMMIT",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "_TRANSPORT",
    "_WAIT_COORD",
)
# The client may not do it, or the brokers cannot. A queue that only sends needs no such rights.
_REFUSED = _codes(
    "GROUP_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "UNSUPPORTED_VERSION",
    "_UNSUPPORTED_FEATURE",
)


def ensure_topic(connection: Any, topic: str) -> None:
    """Create a topic if it is missing. Another client may create it at the same time.

    The broker that answers may not know a new topic yet.
    """
    if topic in connection.read_queue_names():
        return
    try:
        connection.create_queue(topic)
    except ConflictException:  # it exists
        return
    except ApplicationException:
        if topic not in connection.read_queue_names():
            raise


def begin_at_the_end(connection: Any, topic: str, group: str) -> KafkaError | None:
    """Commit the ends of a topic's partitions for a group without committed offsets.

    So the group reads every later message, even if its first reader dies before it commits. The
    ends are requested before the group's offsets: so this cannot skip messages that were sent
    after another member's commit. A group with members refuses the commit; it has already started.

    Returns
    -------
    KafkaError or None
        The error if the client lacks the rights for it or the brokers do not support it. The group
        then starts at the first message.

    Raises
    ------
    KafkaException
        Another error, or a temporary one that lasted too long.
    """
    connection._connect_to_admin()
    admin = connection._admin_client
    timeout = max(1.0, connection._request_timeout / 1000)
    deadline = time.monotonic() + min(timeout, _KNOWN_S)
    while True:
        try:
            _begin_at_the_end(admin, topic, group, timeout)
            return None
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() in _ALIVE:
                return None
            if error.code() in _REFUSED:
                return error
            if error.code() not in _PASSING or time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)


def _begin_at_the_end(admin: Any, topic: str, group: str, timeout: float) -> None:
    places = [TopicPartition(topic, number) for number in _partitions(admin, topic, timeout)]
    latest = OffsetSpec.latest()
    ends = admin.list_offsets(dict.fromkeys(places, latest), request_timeout=timeout)
    found = [
        TopicPartition(topic, place.partition, future.result().offset)
        for place, future in ends.items()
    ]
    asked = ConsumerGroupTopicPartitions(group, places)
    known = admin.list_consumer_group_offsets([asked], request_timeout=timeout)[group].result()
    _check(known.topic_partitions)
    if any(place.offset >= 0 for place in known.topic_partitions):
        return
    wanted = ConsumerGroupTopicPartitions(group, found)
    done = admin.alter_consumer_group_offsets([wanted], request_timeout=timeout)[group].result()
    _check(done.topic_partitions)


def _check(places: list[TopicPartition]) -> None:
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)


def _partitions(admin: Any, topic: str, timeout: float) -> list[int]:
    """The partitions of a topic. Raises unless all of them have leaders."""
    known = admin.list_topics(topic, timeout=timeout).topics.get(topic)
    if known is None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    if known.error is not None:
        raise KafkaException(known.error)
    if not known.partitions or any(p.leader < 0 for p in known.partitions.values()):
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    return sorted(known.partitions)
