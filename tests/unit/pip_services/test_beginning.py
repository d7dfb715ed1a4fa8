"""The initial offsets of a group: retried, accepted and fatal errors."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from cykafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from pip_services4_kafka.queues._beginning import begin_at_the_end, ensure_topic


def future(result: Any = None, error: int | None = None) -> Future[Any]:
    made: Future[Any] = Future()
    if error is None:
        made.set_result(result)
    else:
        made.set_exception(KafkaException(KafkaError(error)))
    return made


class Admin:
    """An admin client of a topic with the ends 5 and 7. Calls first raise their `errors`."""

    def __init__(self, committed: int = -1001, **errors: list[int]) -> None:
        self._errors = errors
        self._committed = committed
        self.altered: dict[int, int] = {}

    def _next(self, call: str) -> int | None:
        errors = self._errors.get(call)
        return errors.pop(0) if errors else None

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = {number: SimpleNamespace(leader=1) for number in range(2)}
        found = SimpleNamespace(error=None, partitions=partitions)
        return SimpleNamespace(topics={} if self._next("topics") else {topic: found})

    def list_offsets(self, wanted: Any, request_timeout: float) -> Any:
        error = self._next("ends")
        return {
            place: future(SimpleNamespace(offset=5 + 2 * place.partition), error)
            for place in wanted
        }

    def list_consumer_group_offsets(self, asked: Any, request_timeout: float) -> Any:
        (group,) = asked
        places = [
            TopicPartition(
                place.topic, place.partition, self._committed if place.partition else -1001
            )
            for place in group.topic_partitions
        ]
        found = ConsumerGroupTopicPartitions(group.group_id, places)
        return {group.group_id: future(found, self._next("committed"))}

    def alter_consumer_group_offsets(self, wanted: Any, request_timeout: float) -> Any:
        (group,) = wanted
        error = self._next("alter")
        if error is None:
            self.altered = {place.partition: place.offset for place in group.topic_partitions}
        return {group.group_id: future(group, error)}


def begin(admin: Admin) -> KafkaError | None:
    connection = SimpleNamespace(
        _connect_to_admin=lambda: None, _admin_client=admin, _request_timeout=30_000
    )
    return begin_at_the_end(connection, "topic", "group")


def test_a_group_without_offsets_gets_the_ends() -> None:
    admin = Admin()
    assert begin(admin) is None
    assert admin.altered == {0: 5, 1: 7}


def test_group_with_an_offset_keeps_it() -> None:
    admin = Admin(committed=0)
    assert begin(admin) is None
    assert admin.altered == {}


def test_temporary_errors_are_retried() -> None:
    admin = Admin(
        topics=[1],
        ends=[KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE],
        alter=[KafkaError.COORDINATOR_LOAD_IN_PROGRESS],
    )
    assert begin(admin) is None
    assert admin.altered == {0: 5, 1: 7}


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP])
def test_group_with_members_is_left_unchanged(code: int) -> None:
    assert begin(Admin(alter=[code])) is None


def test_missing_permission_is_reported() -> None:
    refused = begin(Admin(alter=[KafkaError.GROUP_AUTHORIZATION_FAILED]))
    assert refused is not None
    assert refused.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_other_failures_raise() -> None:
    with pytest.raises(KafkaException):
        begin(Admin(alter=[KafkaError.INVALID_GROUP_ID]))


def test_topic_created_concurrently_is_accepted() -> None:
    from pip_services4_commons.errors import BadRequestException, ConflictException

    asked: list[str] = []

    def create(error: type[Exception]) -> Any:
        def create_queue(name: str) -> None:
            asked.append(name)
            raise error(None, "CODE", name)

        # The broker that lists the names does not know of the topic yet.
        return SimpleNamespace(read_queue_names=lambda: [], create_queue=create_queue)

    ensure_topic(create(ConflictException), "topic")
    assert asked == ["topic"]
    with pytest.raises(BadRequestException):
        ensure_topic(create(BadRequestException), "refused")
