"""Consumers of the source: questions to brokers, and handles that stay open from task to task.

They never join a group. Spark keeps its Python workers, and their modules, for the tasks to come:
a consumer that is given back in order is used again, one that saw an error is closed.
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
# How long the first slice of a wait for brokers is, s; the next ones are twice as long each.
FIRST_S = 1.5
# Partitions whose ends are asked for at once: what librdkafka needs grows with their square.
AT_ONCE = 500
# Of so many topics each is asked for by itself; of more all that the brokers have.
FEW = 8

# What waiting does not heal, and what a wait in vain is called.
HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_NO_ANSWER = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)


def consumer_config(kafka: ClientConfig, group_id: str) -> ClientConfig:
    """Properties of a consumer that reads ranges; what a user says of ``kafka.*`` wins."""
    config = ClientConfig(kafka)
    config.setdefault("group.id", group_id)
    # An idle request holds up what comes next on its connection, such as the next task's.
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
    """Nobody answered in all the time there was, or nobody ever will."""


class OpenConsumer:
    """A consumer, and what its connections complained of last.

    Attributes
    ----------
    consumer : Consumer
    complaint : KafkaError or None
        Of the connections, since brokers answered last.
    known : dict of str to int
        How many partitions the topics have that its metadata knows.
    reading : bool
        Partitions are assigned: only who reads them may serve it.
    """

    def __init__(
        self, config: Mapping[str, str], make: Callable[[dict[str, Any]], Consumer] = Consumer
    ) -> None:
        self.complaint: KafkaError | None = None
        self.known: dict[str, int] = {}
        self.reading = False
        self.consumer = make({**config, "error_cb": self._complain})

    def _complain(self, error: KafkaError) -> None:
        # That all brokers are down says less than why.
        if self.complaint is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.complaint = error

    def forget(self) -> None:
        """Have it said and done with what was complained of so far; not while it reads."""
        self.consumer.poll(0)
        self.complaint = None

    def hopeless(self) -> KafkaError | None:
        """The complaint, if waiting does not heal it."""
        return self.complaint if self.complaint and self.complaint.code() in HOPELESS else None

    def ask(self, question: Callable[[float], T], timeout_s: float) -> T:
        """What brokers answer, asked in slices of time, between which complaints are heard.

        Parameters
        ----------
        question : callable
            Is given the time there is, s.
        timeout_s : float
            How long to wait for brokers altogether, s.

        Raises
        ------
        NoAnswerError
            The time is over, or a login failed. It has what the connections complained of.
        KafkaException
            Whatever else `question` raised.
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
                # Once may be a broker that is just going; it is asked a second time.
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
        """The metadata of all topics that the brokers show."""
        topics: dict[str, Any] = self.ask(
            lambda wait: self.consumer.list_topics(timeout=wait), timeout_s
        ).topics
        return topics

    def topics(self, names: Sequence[str], timeout_s: float) -> dict[str, Any]:
        """The metadata of topics, those that brokers tell anything of."""
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
        """Where partitions begin and end; those that nobody tells have an error."""
        for first in range(0, len(asked), AT_ONCE):
            part = list(asked[first : first + AT_ONCE])
            yield from self.ask(partial(self.consumer.watermarks, part), timeout_s).items()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these, and no others."""
        self.unassign()
        self.reading = True
        self.consumer.assign(partitions)

    def unassign(self) -> None:
        """Give up what is assigned; librdkafka would keep what is paused so for the next task."""
        if self.reading:
            self.consumer.resume(self.consumer.assignment())
            self.consumer.unassign()
            self.reading = False

    def close(self) -> None:
        self.consumer.close()


# -- those that stay open

_kept: OrderedDict[tuple[int, frozenset[tuple[str, str]]], OpenConsumer] = OrderedDict()


@contextmanager
def borrowed(config: ClientConfig) -> Iterator[OpenConsumer]:
    """A consumer of this configuration, which nobody else has meanwhile."""
    # A forked child cannot use the handles it inherits, nor close them.
    key = (os.getpid(), frozenset(config.items()))
    mine = _kept.pop(key, None) or OpenConsumer(config)
    in_order = False
    try:
        mine.forget()
        with suppress(GeneratorExit):  # nobody wants the rest
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
    """Close what this process keeps open."""
    while _kept:
        (pid, _), old = _kept.popitem()
        if pid == os.getpid():
            old.close()
