"""Listing, creating and deleting topics. Times are in s; errors are typed."""

from __future__ import annotations

from cykafka import KafkaException
from cykafka.admin import AdminClient, NewTopic
from pip_services4_kafka._errors import typed

_REFUSED = (KafkaException, RuntimeError, TypeError, ValueError)


def topic_names(admin: AdminClient, timeout: float) -> list[str]:
    """The names of all topics."""
    try:
        return list(admin.list_topics(timeout=timeout).topics)
    except _REFUSED as error:
        raise typed(error, "cannot list the topics") from error


def create_topic(
    admin: AdminClient, name: str, partitions: int, replicas: int, timeout: float
) -> None:
    """Create a topic, and wait until the cluster has it."""
    try:
        topic = NewTopic(name, partitions, replicas)
        futures = admin.create_topics([topic], operation_timeout=timeout, request_timeout=timeout)
        futures[name].result()
    except _REFUSED as error:
        raise typed(error, f"topic {name}: cannot create it", topic=name) from error


def delete_topic(admin: AdminClient, name: str, timeout: float) -> None:
    """Delete a topic, and wait until the cluster has done so."""
    try:
        futures = admin.delete_topics([name], operation_timeout=timeout, request_timeout=timeout)
        futures[name].result()
    except _REFUSED as error:
        raise typed(error, f"topic {name}: cannot delete it", topic=name) from error
