"""Topics: temporary errors are retried, and a topic that appears meanwhile is accepted."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from pip_services4_commons.errors import (
    ApplicationException,
    BadRequestException,
    UnauthorizedException,
)

from cykafka import KafkaError, KafkaException
from pip_services4_kafka.connect._topics import ensure_topic, topic_ends


def future(result: Any = None, error: int | None = None) -> Future[Any]:
    made: Future[Any] = Future()
    if error is None:
        made.set_result(result)
    else:
        made.set_exception(KafkaException(KafkaError(error)))
    return made


class Admin:
    """An admin client of a topic with the ends 5 and 7. Calls first meet their `errors`."""

    def __init__(self, missing: bool = False, **errors: list[int]) -> None:
        self.missing = missing  # until it is created
        self._errors = errors
        self.created: list[str] = []

    def _next(self, call: str) -> int | None:
        errors = self._errors.get(call)
        return errors.pop(0) if errors else None

    def list_topics(self, topic: str, timeout: float) -> Any:
        code = self._next("topics")
        if code is None and self.missing and topic not in self.created:
            code = KafkaError.UNKNOWN_TOPIC_OR_PART
        partitions = {number: SimpleNamespace(leader=1) for number in range(2)}
        error = None if code is None else KafkaError(code)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=partitions)})

    def list_offsets(self, wanted: Any, request_timeout: float) -> Any:
        error = self._next("ends")
        return {
            place: future(SimpleNamespace(offset=5 + 2 * place.partition), error)
            for place in wanted
        }

    def create_topics(self, topics: Any, **_: Any) -> Any:
        self.created += [topic.topic for topic in topics]
        return {topic.topic: future(None, self._next("create")) for topic in topics}


def ends(**errors: list[int]) -> dict[int, int]:
    admin: Any = Admin(**errors)
    return topic_ends(admin, "topic", 30)


def test_ends_are_the_offsets_of_the_next_messages() -> None:
    assert ends() == {0: 5, 1: 7}


def test_temporary_errors_are_retried() -> None:
    passing = [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
    assert ends(topics=[KafkaError.UNKNOWN_TOPIC_OR_PART], ends=passing) == {0: 5, 1: 7}


def test_other_errors_are_raised() -> None:
    with pytest.raises(UnauthorizedException):
        ends(ends=[KafkaError.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(ApplicationException):
        ends(topics=[KafkaError._ALL_BROKERS_DOWN])


def test_topic_created_concurrently_is_accepted() -> None:
    # The broker that describes the topic does not know of it yet.
    admin: Any = Admin(True, create=[KafkaError.TOPIC_ALREADY_EXISTS])
    ensure_topic(admin, "topic", 1, 1, 30)
    assert admin.created == ["topic"]


def test_topic_that_cannot_be_created() -> None:
    missing = [KafkaError.UNKNOWN_TOPIC_OR_PART] * 2
    admin: Any = Admin(topics=missing, create=[KafkaError.INVALID_PARTITIONS])
    with pytest.raises(BadRequestException):
        ensure_topic(admin, "refused", 1, 1, 30)


@pytest.mark.parametrize("errors", [[], [KafkaError.LEADER_NOT_AVAILABLE]])
def test_topic_that_exists_is_not_created(errors: list[int]) -> None:
    admin: Any = Admin(topics=errors)
    ensure_topic(admin, "topic", 1, 1, 30)
    assert admin.created == []
