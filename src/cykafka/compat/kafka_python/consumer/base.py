"""Consumer: the offsets of SimpleConsumer and MultiProcessConsumer, and their commits."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import numbers
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from cykafka.compat.kafka_python.common import (
    KafkaError,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetOutOfRangeError,
    OffsetRequest,
    UnknownTopicOrPartitionError,
    check_error,
)
from cykafka.compat.kafka_python.util import ReentrantTimer, kafka_bytestring

log = logging.getLogger("kafka.consumer")

AUTO_COMMIT_MSG_COUNT = 100
AUTO_COMMIT_INTERVAL = 5000

FETCH_DEFAULT_BLOCK_TIMEOUT = 1
FETCH_MAX_WAIT_TIME = 100
FETCH_MIN_BYTES = 4096
FETCH_BUFFER_SIZE_BYTES = 4096
MAX_FETCH_BUFFER_SIZE_BYTES = FETCH_BUFFER_SIZE_BYTES * 8

ITER_TIMEOUT_SECONDS = 60
NO_MESSAGES_WAIT_TIME_SECONDS = 0.1
FULL_QUEUE_WAIT_TIME_SECONDS = 0.1

MAX_BACKOFF_SECONDS = 60


# Consumers whose timer runs. They commit at exit. A forked child does not commit, because its old
# offsets would move the group back.
_timed: set[Consumer] = set()


def _forget() -> None:
    for consumer in _timed:
        consumer.commit_lock = threading.RLock()  # the timer's thread may have held it
    _timed.clear()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def _stop_all() -> None:
    for consumer in list(_timed):
        try:
            consumer.stop()
        except BaseException:  # even Ctrl-C: the other consumers still have to commit
            log.exception("%r did not stop", consumer)


def deadline_after(timeout: float | None) -> float | None:
    """Return the time.monotonic() after this many seconds; None means never."""
    if timeout is None:
        return None
    if math.isnan(timeout):
        raise ValueError("timeout: expected a number of seconds, got NaN")
    return time.monotonic() + timeout


def reset_time(setting: Any) -> int:
    """Return the time in an OffsetRequest for a value of `auto_offset_reset`.

    Raises
    ------
    OffsetOutOfRangeError
        The value has no time. In an ``except`` block, that block's exception is raised instead.
    """
    time_ms = {"largest": -1, "smallest": -2}.get(setting)
    if time_ms is None:
        reason = sys.exc_info()[1]
        raise reason or OffsetOutOfRangeError(
            "Cannot reset partition offsets without a valid auto_offset_reset setting "
            "(largest|smallest)"
        )
    return time_ms


class Consumer:
    """A base class that keeps and commits the offsets of a topic's partitions.

    Parameters
    ----------
    client : KafkaClient
        Or any object with its methods.
    group : str or bytes or None
        The group to commit offsets for. None: begin at offset 0 and never commit.
    topic : str or bytes
    partitions : list of int, optional
        Default: all.
    auto_commit : bool
        Whether to commit automatically.
    auto_commit_every_n : int or None
        With `auto_commit`: commit after this many messages.
    auto_commit_every_t : int or None
        With `auto_commit`: commit every this many ms.

    Raises
    ------
    UnknownTopicOrPartitionError, LeaderNotAvailableError, KafkaUnavailableError

    Attributes
    ----------
    offsets : dict of int to int
        By partition: the offset of the next message.
    """

    def __init__(
        self,
        client: Any,
        group: str | bytes | None,
        topic: str | bytes,
        partitions: Sequence[int] | None = None,
        auto_commit: bool = True,
        auto_commit_every_n: int | None = AUTO_COMMIT_MSG_COUNT,
        auto_commit_every_t: int | None = AUTO_COMMIT_INTERVAL,
    ) -> None:
        self.client = client
        self.topic = kafka_bytestring(topic)
        self.group = None if group is None else kafka_bytestring(group)
        self.client.load_metadata_for_topics(topic)
        self.offsets: dict[int, int] = {}
        if partitions is None:
            partitions = self.client.get_partition_ids_for_topic(self.topic)
        elif not all(isinstance(partition, numbers.Integral) for partition in partitions):
            raise AssertionError(f"partitions: expected a list of int, got {partitions!r}")
        self.commit_lock = threading.RLock()  # a signal handler may stop the consumer
        self.count_since_commit = 0
        self.auto_commit = auto_commit
        self.auto_commit_every_n = auto_commit_every_n
        self.auto_commit_every_t = auto_commit_every_t
        self.partition_info = False
        if self.group is not None:
            self.fetch_last_known_offsets(partitions)
        else:
            self.offsets.update(dict.fromkeys(partitions, 0))
        self.commit_timer: ReentrantTimer | None = None
        if auto_commit is True and auto_commit_every_t is not None:
            self.commit_timer = ReentrantTimer(auto_commit_every_t, self.commit)
            self.commit_timer.start()
            _timed.add(self)

    def provide_partition_info(self) -> None:
        """Return messages with their partitions: (partition, message)."""
        self.partition_info = True

    def fetch_last_known_offsets(self, partitions: Iterable[int] | None = None) -> None:
        """Begin at the group's committed offsets, and at 0 where it has none.

        Parameters
        ----------
        partitions : iterable of int, optional
            Default: all.

        Raises
        ------
        ValueError
            The consumer has no group.
        """
        if self.group is None:
            raise ValueError("KafkaClient.group must not be None")
        if partitions is None:
            partitions = self.client.get_partition_ids_for_topic(self.topic)
        responses = self.client.send_offset_fetch_request(
            self.group,
            [OffsetFetchRequest(self.topic, partition) for partition in partitions],
            fail_on_error=False,
        )
        for response in responses:
            # 0.8.1 brokers report this error for a group without an offset.
            with contextlib.suppress(UnknownTopicOrPartitionError):
                check_error(response)
            self.offsets[response.partition] = max(0, response.offset)

    def commit(self, partitions: Iterable[int] | None = None) -> bool | None:
        """Commit the offsets.

        Parameters
        ----------
        partitions : iterable of int, optional
            Default: all.

        Returns
        -------
        bool or None
            None if no message was read since the last commit, or the consumer has no group. False
            if the commit failed; the consumer logs the error.
        """
        with self.commit_lock:
            read = self.count_since_commit
            if not read or self.group is None:
                return None
            chosen = list(self.offsets) if partitions is None else list(partitions)
            requests = [
                OffsetCommitRequest(self.topic, partition, self.offsets[partition], None)
                for partition in chosen
                if self.offsets[partition] >= 0  # a seek may have moved it before the beginning
            ]
            try:
                self.client.send_offset_commit_request(self.group, requests)
            except KafkaError as error:
                log.error("%s saving offsets: %s", type(error).__name__, error)
                return False
            self.count_since_commit = max(0, self.count_since_commit - read)
            return True

    def _auto_commit(self) -> None:
        if (
            self.auto_commit
            and self.auto_commit_every_n is not None
            and self.count_since_commit >= self.auto_commit_every_n
        ):
            self.commit()

    def stop(self) -> None:
        """If the commit timer runs, stop it and commit."""
        if self.commit_timer is not None:
            self.commit_timer.stop()
            self.commit()
        _timed.discard(self)

    def pending(self, partitions: Iterable[int] | None = None) -> int:
        """Return how many messages are left to read.

        Parameters
        ----------
        partitions : iterable of int, optional
            Default: all.
        """
        chosen = list(self.offsets) if partitions is None else list(partitions)
        responses = self.client.send_offset_request(
            [OffsetRequest(self.topic, partition, -1, 1) for partition in chosen]
        )
        return sum(
            int(response.offsets[0]) - self.offsets[response.partition] for response in responses
        )
