"""Consumers of the source: their requests to brokers, and handles that stay open between tasks.

They never join a group. Spark reuses its Python workers and their modules for later tasks. So a
consumer stays open after a task that succeeded, and is closed after a task that failed.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from cykafka import Consumer, KafkaError, KafkaException, TopicPartition, Watermarks
from cykafka.spark.client import ClientConfig

__all__ = ["NoAnswerError", "OpenConsumer", "borrowed", "close_consumers", "consumer_config"]

T = TypeVar("T")

# Consumers kept open in one worker; a query has one.
KEPT = 2
# How long the first slice of a wait for brokers is, s; each later slice is twice as long.
FIRST_S = 1.5
# Partitions in one request for watermarks: librdkafka's cost grows with the square of the number.
AT_ONCE = 500
# Up to so many topics get a metadata request each; for more topics, one request gets all topics.
FEW = 8

# Errors that waiting does not cure, and the codes of a request without an answer.
HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_NO_ANSWER = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


def consumer_config(kafka: ClientConfig, group_id: str) -> ClientConfig:
    """Properties of a consumer that reads ranges, from the user's ``kafka.*`` options.

    The user's ``group.id`` and ``fetch.wait.max.ms`` win over the defaults set here.
    """
    config = ClientConfig(kafka)
    config.setdefault("group.id", group_id)
    # An idle fetch request delays later requests on its connection, such as the next task's.
    config.setdefault("fetch.wait.max.ms", "10")
    config.update(
        {
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
        }
    )
    return config


class NoAnswerError(KafkaException):
    """No broker answered within the timeout, or a login failed."""


class OpenConsumer:
    """A consumer and the last error of its connections.

    Attributes
    ----------
    consumer : Consumer
    complaint : KafkaError or None
        The connections' last error since a broker last answered.
    known : dict of str to int
        The number of partitions of each topic in the consumer's metadata.
    reading : bool
        Partitions are assigned. Then only the task that reads them may poll the consumer.
    """

    def __init__(
        self, config: Mapping[str, str], make: Callable[[dict[str, Any]], Consumer] = Consumer
    ) -> None:
        self.complaint: KafkaError | None = None
        self.known: dict[str, int] = {}
        self.reading = False
        self.consumer = make({**config, "error_cb": self._complain})

    def _complain(self, error: KafkaError) -> None:
        # "All brokers are down" must not replace the error that says why.
        if self.complaint is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.complaint = error

    def forget(self) -> None:
        """Drop the connection errors so far. Not while partitions are assigned: it polls."""
        self.consumer.poll(0)
        self.complaint = None

    def hopeless(self) -> KafkaError | None:
        """The complaint, if waiting does not cure it."""
        return self.complaint if self.complaint and self.complaint.code() in HOPELESS else None

    def ask(self, question: Callable[[float], T], timeout_s: float) -> T:
        """Return the brokers' answer to a request that is repeated until its timeout.

        Between two attempts it polls the consumer for connection errors.

        Parameters
        ----------
        question : callable
            Makes the request. Its argument is the timeout of the attempt, s.
        timeout_s : float
            How long to wait for brokers in total, s.

        Raises
        ------
        NoAnswerError
            The timeout is over, or a login failed. It has the connections' last error.
        KafkaException
            Any other error that `question` raised.
        """
        if self.reading:
            return question(timeout_s)
        deadline = time.monotonic() + timeout_s
        wait = FIRST_S
        while True:
            until = min(time.monotonic() + wait, deadline)
            try:
                answer = question(max(until - time.monotonic(), 0.001))
            except KafkaException as exception:
                self.consumer.poll(0)
                error = exception.args[0]
                if error.code() not in _NO_ANSWER or time.monotonic() < until - 0.05:
                    raise
                # A broker that is just shutting down may cause one such error: try a second time.
                hopeless = self.hopeless() if wait > FIRST_S else None
                if hopeless is not None or until >= deadline:
                    raise NoAnswerError(self._explained(hopeless or error)) from None
            else:
                self.forget()
                return answer
            wait *= 2

    def _explained(self, error: KafkaError) -> KafkaError:
        if self.complaint is None or self.complaint is error:
            return error
        return KafkaError(
            error.code(), f"{error.str()}; the connections' last error was: {self.complaint.str()}"
        )

    def all_topics(self, timeout_s: float) -> dict[str, Any]:
        """The metadata of all topics that the user may see."""
        topics: dict[str, Any] = self.ask(
            lambda wait: self.consumer.list_topics(timeout=wait), timeout_s
        ).topics
        return topics

    def topics(self, names: Sequence[str], timeout_s: float) -> dict[str, Any]:
        """The metadata of topics by name; topics without any metadata are left out."""
        found: dict[str, Any] = {}
        if len(names) > FEW:
            found = self.all_topics(timeout_s)
        asked = {}
        for name in names:
            topic = found.get(name)
            if topic is None:
                one = self.ask(partial(self.consumer.list_topics, name), timeout_s)
                topic = one.topics.get(name)
            if topic is not None:
                asked[name] = topic
        return asked

    def watermarks(
        self, asked: Sequence[TopicPartition], timeout_s: float
    ) -> Iterator[tuple[TopicPartition, Watermarks]]:
        """Where partitions begin and end. A partition without an answer has an error."""
        for first in range(0, len(asked), AT_ONCE):
            part = list(asked[first : first + AT_ONCE])
            yield from self.ask(partial(self.consumer.watermarks, part), timeout_s).items()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions instead of the assigned ones."""
        self.unassign()
        self.reading = True
        self.consumer.assign(partitions)

    def unassign(self) -> None:
        """End the assignment.

        Resume the partitions first: librdkafka would keep them paused for the next task.
        """
        if self.reading:
            self.consumer.resume(self.consumer.assignment())
            self.consumer.unassign()
            self.reading = False

    def close(self) -> None:
        self.consumer.close()


# -- open consumers

_kept: OrderedDict[tuple[int, frozenset[tuple[str, str]]], OpenConsumer] = OrderedDict()


@contextmanager
def borrowed(config: ClientConfig) -> Iterator[OpenConsumer]:
    """Lend a consumer of this configuration to one task at a time."""
    # A forked child can neither use nor close the handles it inherits.
    key = (os.getpid(), frozenset(config.items()))
    mine = _kept.pop(key, None) or OpenConsumer(config)
    in_order = False
    try:
        mine.forget()
        with suppress(GeneratorExit):  # Spark wants no more rows
            yield mine
        mine.unassign()
        in_order = True
    finally:
        if not in_order:
            mine.close()
    other = _kept.pop(key, None)
    if other is not None:
        other.close()
    _kept[key] = mine
    while len(_kept) > KEPT:
        (pid, _), old = _kept.popitem(last=False)
        if pid == os.getpid():
            old.close()


def close_consumers() -> None:
    """Close the consumers that this process keeps open."""
    while _kept:
        (pid, _), old = _kept.popitem()
        if pid == os.getpid():
            old.close()
