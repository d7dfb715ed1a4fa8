"""MultiProcessConsumer: reads one topic with several processes."""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any, NamedTuple

from cykafka.compat.kafka_python.common import KafkaError, OffsetAndMessage
from cykafka.compat.kafka_python.consumer._worker import Worker
from cykafka.compat.kafka_python.consumer.base import (
    AUTO_COMMIT_INTERVAL,
    AUTO_COMMIT_MSG_COUNT,
    FULL_QUEUE_WAIT_TIME_SECONDS,
    MAX_BACKOFF_SECONDS,
    NO_MESSAGES_WAIT_TIME_SECONDS,
    Consumer,
    deadline_after,
)
from cykafka.compat.kafka_python.consumer.simple import SimpleConsumer

__all__ = [
    "AUTO_COMMIT_INTERVAL",
    "AUTO_COMMIT_MSG_COUNT",
    "FULL_QUEUE_WAIT_TIME_SECONDS",
    "MAX_BACKOFF_SECONDS",
    "NO_MESSAGES_WAIT_TIME_SECONDS",
    "Events",
    "MultiProcessConsumer",
]

log = logging.getLogger("kafka.consumer.multiprocess")

# An iteration ends if there is no message for this time, s.
_IDLE_S = 1.0
# How often a wait looks for processes that are to be started again, s.
_LOOK_S = 0.1


class Events(NamedTuple):
    """The events that kafka-python's processes wait for; ours need none."""

    start: Any
    pause: Any
    exit: Any


class MultiProcessConsumer(Consumer):
    """Reads the messages of a topic with several processes. Not thread-safe.

    Each process reads its share of the partitions ahead. If one dies, another one goes on with the
    next message. POSIX only.

    Parameters
    ----------
    client, group, topic, partitions, auto_commit, auto_commit_every_n, auto_commit_every_t
        See :class:`Consumer`.
    num_procs : int
        The number of processes. 0: read in this process, which is faster, because librdkafka reads
        ahead in threads of its own.
    partitions_per_proc : int
        The most partitions of a process; overrides `num_procs`.
    **simple_consumer_options
        See :class:`SimpleConsumer`.
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
        num_procs: int = 1,
        partitions_per_proc: int = 0,
        **simple_consumer_options: Any,
    ) -> None:
        if num_procs < 0 or partitions_per_proc < 0:
            raise ValueError("num_procs and partitions_per_proc must be 0 or more")
        self._workers: list[Worker] = []
        self._errors: deque[Exception] = deque()
        super().__init__(
            client,
            group,
            topic,
            partitions=partitions,
            auto_commit=auto_commit,
            auto_commit_every_n=auto_commit_every_n,
            auto_commit_every_t=auto_commit_every_t,
        )
        self.queue: deque[tuple[int, OffsetAndMessage]] = deque()
        numbers = list(self.offsets)
        if partitions_per_proc:
            num_procs = -(-len(numbers) // partitions_per_proc)
        self._reader: SimpleConsumer | None = None
        if not num_procs:
            self._reader = SimpleConsumer(
                client, None, topic, False, numbers, **simple_consumer_options
            )
            self._reader.provide_partition_info()
            self._reader.offsets.update(self.offsets)
            self._reader.fetch_offsets.update(self.offsets)
        try:
            for share in [numbers[first::num_procs] for first in range(num_procs)]:
                if share:
                    offsets = {each: self.offsets[each] for each in share}
                    self._workers.append(
                        Worker(client, self.topic, offsets, simple_consumer_options)
                    )
        except BaseException:
            self.stop()
            raise
        weakref.finalize(self, _stop, self._workers)

    def __repr__(self) -> str:
        return (
            f"<MultiProcessConsumer group={self.group!r}, topic={self.topic!r}, "
            f"consumers={len(self._workers)}>"
        )

    @property
    def procs(self) -> list[Any]:
        """The running processes, list of subprocess.Popen."""
        return [worker.process for worker in self._workers]

    def stop(self) -> None:
        """End the processes, and commit if the consumer commits by itself."""
        _stop(self._workers)
        super().stop()

    def __iter__(self) -> Iterator[OffsetAndMessage]:
        """Iterate over the messages, until there is none for 1 s."""
        while True:
            while not self.queue:
                if self._errors:
                    raise self._errors.popleft()
                if not self._receive(_IDLE_S) and not any(
                    worker.is_starting() for worker in self._workers
                ):
                    return
            partition, message = self.queue.popleft()
            self.offsets[partition] = message.offset + 1
            self.count_since_commit += 1
            self._auto_commit()
            yield message

    def get_messages(
        self, count: int = 1, block: bool | int = True, timeout: float | None = 10
    ) -> list[Any]:
        """Read up to `count` messages.

        Parameters
        ----------
        count : int
        block : bool or int
            Wait for all messages (True), for so many (int) or for none (False).
        timeout : float or None
            The longest wait, s; None: forever.

        Returns
        -------
        list of OffsetAndMessage
            Or of (partition, OffsetAndMessage); see :meth:`provide_partition_info`.

        Raises
        ------
        KafkaError
            A process cannot read its partitions; it tries again.
        """
        deadline = deadline_after(timeout)
        messages: list[Any] = []
        new_offsets = {}
        while len(messages) < count:
            if not self.queue:
                blocking = block is True or block > len(messages)
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not self._receive(left if blocking else 0):
                    break
            if not self.queue:
                if messages:
                    break  # the next call raises the error
                raise self._errors.popleft()
            partition, message = self.queue.popleft()
            messages.append((partition, message) if self.partition_info else message)
            new_offsets[partition] = message.offset + 1
        self.offsets.update(new_offsets)
        self.count_since_commit += len(messages)
        self._auto_commit()
        return messages

    def _receive(self, timeout: float | None) -> bool:
        """Wait until the queue has messages, or there is an error. False if time is up."""
        deadline = deadline_after(timeout)
        while not self.queue and not self._errors:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if self._reader is not None:
                patience = _IDLE_S if left is None else min(left, _IDLE_S)
                self._read(self._reader, patience)
            elif not self._workers:
                return False  # stopped
            else:
                self._receive_from(self._workers, left)
            if deadline is not None and time.monotonic() >= deadline:
                break
        return bool(self.queue or self._errors)

    def _read(self, reader: SimpleConsumer, patience: float) -> None:
        try:
            self.queue.extend(reader.get_messages(1000, block=1, timeout=max(0.001, patience)))
        except KafkaError as error:
            self._errors.append(error)

    def _receive_from(self, workers: list[Worker], left: float | None) -> None:
        for worker in workers:
            worker.start_if_due()
        running = {worker.connection: worker for worker in workers if worker.is_running()}
        if len(running) < len(workers):
            left = _LOOK_S if left is None else min(left, _LOOK_S)
        readable = wait(list(running), left)
        for connection, worker in running.items():
            if connection not in readable:
                continue
            try:
                self.queue.extend(worker.receive())
            except Exception as error:
                self._errors.append(error)


def _stop(workers: list[Worker]) -> None:
    for worker in workers:
        worker.stop()
    workers.clear()
