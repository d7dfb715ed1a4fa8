"""MultiProcessConsumer: reads one topic with several processes."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple

from cykafka.compat.kafka_python._handles import addresses, properties
from cykafka.compat.kafka_python.client import KafkaClient
from cykafka.compat.kafka_python.common import KafkaError, OffsetAndMessage
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

# An iteration ends if no message arrives for this time, s.
_IDLE_S = 1.0
# How often a wait looks for processes to restart, s.
_LOOK_S = 0.1
# The most messages that a process sends at once.
_BATCH = 1000
# How long a process may take to start, s.
_START_S = 30.0
# How long a process may take to end, s.
_TERMINATE_S = 5.0
# How long an idle process waits before it checks whether its consumer still exists, s.
_WAIT_S = 0.5
_PROGRAM = f"import sys; from {__name__} import _read_and_send; _read_and_send(int(sys.argv[1]))"

_Messages = list[tuple[int, OffsetAndMessage]]


class Events(NamedTuple):
    """The events that kafka-python's processes wait for. cykafka's processes do not need them."""

    start: Any
    pause: Any
    exit: Any


class MultiProcessConsumer(Consumer):
    """Reads the messages of a topic with several processes. Not thread-safe.

    Each process prefetches its share of the partitions. If a process dies, a new process continues
    with the next message. POSIX only.

    Parameters
    ----------
    client, group, topic, partitions, auto_commit, auto_commit_every_n, auto_commit_every_t
        See :class:`Consumer`.
    num_procs : int
        The number of processes. 0: read in this process, which is faster, because librdkafka
        prefetches in its own threads.
    partitions_per_proc : int
        The most partitions per process; overrides `num_procs`.
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
        self._workers: list[_Worker] = []
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
            self._reader = _make_reader(client, topic, self.offsets, simple_consumer_options)
        try:
            for share in [numbers[first::num_procs] for first in range(num_procs)]:
                if share:
                    offsets = {partition: self.offsets[partition] for partition in share}
                    self._workers.append(
                        _Worker(client, self.topic, offsets, simple_consumer_options)
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
        """End the processes. If the commit timer runs, stop it and commit."""
        _stop(self._workers)
        super().stop()

    def __iter__(self) -> Iterator[OffsetAndMessage]:
        """Iterate over the messages, until none arrives for 1 s."""
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
            True: wait for `count` messages. An int: wait for this many. False: do not wait.
        timeout : float or None
            The longest wait, s; None waits forever.

        Returns
        -------
        list of OffsetAndMessage
            Or of (partition, OffsetAndMessage); see :meth:`provide_partition_info`.

        Raises
        ------
        KafkaError
            A process cannot read its partitions. The process retries.
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
        """Wait until the queue has messages or an error occurs. Returns False after `timeout`."""
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

    def _receive_from(self, workers: list[_Worker], left: float | None) -> None:
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


def _make_reader(
    client: Any, topic: str | bytes, offsets: dict[int, int], options: dict[str, Any]
) -> SimpleConsumer:
    reader = SimpleConsumer(client, None, topic, False, list(offsets), **options)
    reader.provide_partition_info()
    reader.offsets.update(offsets)
    reader.fetch_offsets.update(offsets)
    return reader


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.stop()
    workers.clear()


# -- the processes


class _Worker:
    """Starts a process that reads partitions, and restarts it if it dies.

    The process is a new program instead of a fork, because a librdkafka handle does not survive a
    fork. Unlike Python's multiprocessing it does not import the main script again, so scripts do
    not need ``if __name__ == "__main__":``.

    Parameters
    ----------
    client : KafkaClient
    topic : bytes
    offsets : dict of int to int
        The partitions, and where to begin.
    options : dict
        Further arguments of SimpleConsumer.
    """

    def __init__(
        self, client: Any, topic: bytes, offsets: dict[int, int], options: dict[str, Any]
    ) -> None:
        self.offsets = dict(offsets)  # the next message that the process sends
        self._client = client
        self._topic = topic
        self._options = options
        self._failures = 0
        self._start_at: float | None = None
        self._is_stopped = False
        self.start()

    def start(self) -> None:
        """Start the process."""
        self._start_at = None
        self._ready_by = time.monotonic() + _START_S
        self._ready = False
        self.connection, theirs = Pipe()
        with theirs:
            descriptor = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(descriptor)],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
            )
        client = self._client
        try:
            self.connection.send(
                (
                    (addresses(client.hosts), client.client_id),
                    client.timeout,
                    self._topic,
                    self.offsets,
                    self._options,
                    properties,
                )
            )
        except OSError:
            pass  # the process has already died; receive() notices
        except Exception:  # an option cannot be pickled
            self.stop()
            raise

    def is_running(self) -> bool:
        """Whether the process runs, as far as this object knows."""
        return self._start_at is None

    def is_starting(self) -> bool:
        """Whether the process may not have looked for messages yet."""
        return not self._ready and time.monotonic() < self._ready_by

    def start_if_due(self) -> None:
        """Restart a process that has died, after a pause."""
        if self._is_stopped or self._start_at is None:
            return
        if time.monotonic() >= self._start_at:
            self.start()

    def receive(self) -> _Messages:
        """Return the next messages. Empty if the process has none, or died and will restart.

        Raises
        ------
        Exception
            The error in the process, which retries.
        """
        try:
            messages: _Messages | Exception = self.connection.recv()
        except (EOFError, OSError):
            self._die()
            return []
        self._ready = True
        if isinstance(messages, Exception):
            raise messages
        self._failures = 0
        for partition, message in messages:
            self.offsets[partition] = message.offset + 1
        return messages

    def _die(self) -> None:
        if self._is_stopped:  # by a signal handler, in the middle of receive()
            return
        self._end()
        pause = min(2**self._failures, MAX_BACKOFF_SECONDS) - 1
        self._failures += 1
        self._start_at = time.monotonic() + pause
        self._ready_by = self._start_at + _START_S
        self._ready = False
        log.error(
            "Process %d ended (status %s), starting another one in %d s",
            self.process.pid,
            self.process.returncode,
            pause,
        )
        self.start_if_due()

    def stop(self) -> None:
        """End the process for good."""
        self._is_stopped = True
        self._end()

    def _end(self) -> None:
        self.connection.close()
        self.process.terminate()
        try:
            self.process.wait(_TERMINATE_S)
        except subprocess.TimeoutExpired:  # for example, a signal stopped the process
            self.process.kill()
            self.process.wait()


def _read_and_send(descriptor: int) -> None:
    """Read and send, until the consumer closes the connection."""
    connection = Connection(descriptor)
    try:
        (hosts, client_id), timeout, topic, offsets, options, given = connection.recv()
        properties.update(given)
        pause = 1
        while not connection.poll():
            try:
                client = KafkaClient(hosts, client_id, timeout)
                consumer = _make_reader(client, topic, offsets, options)
                while not connection.poll():
                    messages = consumer.get_messages(_BATCH, block=1, timeout=_WAIT_S)
                    connection.send(messages)
                    offsets.update(consumer.offsets)
                    pause = 1
            except ConnectionError:
                raise  # the consumer is gone
            except Exception as error:
                log.error("%s, retrying in %d seconds", error, pause)
                connection.send(error)
                connection.poll(pause)
                pause = min(pause * 2, MAX_BACKOFF_SECONDS)
    except (BrokenPipeError, ConnectionResetError, EOFError):
        pass  # the consumer is gone
