"""The source's consumers: their broker requests, and handles that stay open between tasks.

The consumers never join a group. Spark reuses its Python workers and their modules for later
tasks. So a consumer stays open after a successful task; a failed task closes it.
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
from cykafka.spark.clients.properties import ClientConfig, fit_to_memory

__all__ = ["GONE", "NoAnswerError", "OpenConsumer", "borrow_consumer", "consumer_config"]

T = TypeVar("T")

# Consumers that stay open in one worker. A query needs one.
MAX_OPEN = 2
# The length of the first slice of a wait for brokers, s. Each later slice is twice as long.
FIRST_S = 1.5
# Partitions per watermark request: librdkafka's cost grows with the square of the number.
AT_ONCE = 500
# Up to this many topics get a metadata request each. For more topics, one request gets all topics.
FEW = 8

# Errors that persist, so that waiting does not help; and the codes for a missing response.
HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_NO_ANSWER = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
# The errors of topics and partitions that brokers or librdkafka do not know.
GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


def consumer_config(kafka: ClientConfig, group_id: str) -> ClientConfig:
    """Return the properties for a consumer that reads ranges, from the user's ``kafka.*`` options.

    The user's ``group.id`` and ``fetch.wait.max.ms`` take precedence over the defaults here.
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
    """No broker responded within the timeout, or a login failed."""


class OpenConsumer:
    """A consumer and the last error of its connections.

    Attributes
    ----------
    consumer : Consumer
    complaint : KafkaError or None
        The connections' last error since a broker last responded.
    known : dict of str to int
        The partition count per topic in the consumer's metadata.
    reading : bool
        Whether partitions are assigned. Then only the task that reads them may poll the consumer.
    """

    def __init__(
        self, config: Mapping[str, str], make: Callable[[dict[str, Any]], Consumer] = Consumer
    ) -> None:
        self.complaint: KafkaError | None = None
        self.known: dict[str, int] = {}
        self.reading = False
        config = fit_to_memory(config, "queued.max.messages.kbytes", "fetch.max.bytes")
        self.consumer = make({**config, "error_cb": self._keep_error})

    def _keep_error(self, error: KafkaError) -> None:
        # "All brokers are down" must not replace the error that states the reason.
        if self.complaint is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.complaint = error

    def forget_errors(self) -> None:
        """Drop the connection errors so far. This polls, so do not call it while partitions are
        assigned."""
        self.consumer.poll(0)
        self.complaint = None

    def persistent_error(self) -> KafkaError | None:
        """Return the complaint if it persists, so that waiting does not help."""
        return self.complaint if self.complaint and self.complaint.code() in HOPELESS else None

    def request(self, send: Callable[[float], T], timeout_s: float) -> T:
        """Send a request, retry it until the timeout, and return the brokers' response.

        Between two attempts this polls the consumer for connection errors.

        Parameters
        ----------
        send : callable
            Sends the request. Its argument is the attempt's timeout, s.
        timeout_s : float
            How long to wait for brokers in total, s.

        Raises
        ------
        NoAnswerError
            The timeout expired, or a login failed. Contains the connections' last error.
        KafkaException
            Any other error that `send` raised.
        """
        if self.reading:
            return send(timeout_s)
        deadline = time.monotonic() + timeout_s
        wait = FIRST_S
        while True:
            until = min(time.monotonic() + wait, deadline)
            try:
                answer = send(max(until - time.monotonic(), 0.001))
            except KafkaException as exception:
                self.consumer.poll(0)
                error = exception.args[0]
                if error.code() not in _NO_ANSWER or time.monotonic() < until - 0.05:
                    raise
                # A broker that is just shutting down may cause one such error: try a second time.
                persistent = self.persistent_error() if wait > FIRST_S else None
                if persistent is not None or until >= deadline:
                    raise NoAnswerError(self._explained(persistent or error)) from None
            else:
                self.forget_errors()
                return answer
            wait *= 2

    def _explained(self, error: KafkaError) -> KafkaError:
        if self.complaint is None or self.complaint is error:
            return error
        return KafkaError(
            error.code(), f"{error.str()}; the connections' last error was: {self.complaint.str()}"
        )

    def all_topics(self, timeout_s: float) -> dict[str, Any]:
        """Return the metadata of all topics that the user may see."""
        topics: dict[str, Any] = self.request(
            lambda wait: self.consumer.list_topics(timeout=wait), timeout_s
        ).topics
        return topics

    def topics(self, names: Sequence[str], timeout_s: float) -> dict[str, Any]:
        """Return topic metadata by name. The result omits topics without metadata."""
        found: dict[str, Any] = {}
        if len(names) > FEW:
            found = self.all_topics(timeout_s)
        asked = {}
        for name in names:
            topic = found.get(name)
            if topic is None:
                one = self.request(partial(self.consumer.list_topics, name), timeout_s)
                topic = one.topics.get(name)
            if topic is not None:
                asked[name] = topic
        return asked

    def watermarks(
        self, asked: Sequence[TopicPartition], timeout_s: float
    ) -> Iterator[tuple[TopicPartition, Watermarks]]:
        """Return where partitions begin and end, or an error per partition without a response."""
        for first in range(0, len(asked), AT_ONCE):
            part = list(asked[first : first + AT_ONCE])
            yield from self.request(partial(self.consumer.watermarks, part), timeout_s).items()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign these partitions instead of the current ones."""
        self.unassign()
        self.reading = True
        self.consumer.assign(partitions)

    def unassign(self) -> None:
        """End the assignment.

        Resumes the partitions first: otherwise librdkafka keeps them paused for the next task.
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
def borrow_consumer(config: ClientConfig) -> Iterator[OpenConsumer]:
    """Lend a consumer with this configuration to one task at a time."""
    # A forked child can neither use nor close the handles it inherits.
    key = (os.getpid(), frozenset(config.items()))
    mine = _kept.pop(key, None) or OpenConsumer(config)
    in_order = False
    try:
        mine.forget_errors()
        with suppress(GeneratorExit):  # Spark needs no more rows
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
    while len(_kept) > MAX_OPEN:
        (pid, _), old = _kept.popitem(last=False)
        if pid == os.getpid():
            old.close()
