"""A process that reads partitions for a MultiProcessConsumer.

It is started anew (not forked), because a librdkafka handle does not survive a fork. Python's
multiprocessing would import the main script again; this process does not, so that scripts need no
``if __name__ == "__main__":``.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from multiprocessing.connection import Connection, Pipe
from typing import Any

from cykafka.compat.kafka_python._handles import addresses, properties
from cykafka.compat.kafka_python.client import KafkaClient
from cykafka.compat.kafka_python.common import OffsetAndMessage
from cykafka.compat.kafka_python.consumer.base import MAX_BACKOFF_SECONDS
from cykafka.compat.kafka_python.consumer.simple import SimpleConsumer

log = logging.getLogger("kafka.consumer.multiprocess")

# The most messages that a process sends at once.
_BATCH = 1000
# How long a process may take to start, s.
_START_S = 30.0
# How long a process may take to end, s.
_TERMINATE_S = 5.0
# How long an idle process waits until it looks whether its consumer is still there, s.
_IDLE_S = 0.5
_PROGRAM = f"import sys; from {__name__} import main; main(int(sys.argv[1]))"

Messages = list[tuple[int, OffsetAndMessage]]


class Worker:
    """The consumer's side: starts the process, and again if it dies.

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
        self.offsets = dict(offsets)  # of the next message that the process sends
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
            pass  # it has died already; receive() notices
        except Exception:  # an option cannot be pickled
            self.stop()
            raise

    def is_running(self) -> bool:
        """Whether the process runs, as far as is known."""
        return self._start_at is None

    def is_starting(self) -> bool:
        """Whether the process may not have looked for messages yet."""
        return not self._ready and time.monotonic() < self._ready_by

    def start_if_due(self) -> None:
        """Start a process that has died, once its pause is over."""
        if self._is_stopped or self._start_at is None:
            return
        if time.monotonic() >= self._start_at:
            self.start()

    def receive(self) -> Messages:
        """The next messages; empty if the process has none, or has died and will be started again.

        Raises
        ------
        Exception
            What the process met. It tries again.
        """
        try:
            messages: Messages | Exception = self.connection.recv()
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
        except subprocess.TimeoutExpired:  # it was stopped by a signal, for example
            self.process.kill()
            self.process.wait()


def main(descriptor: int) -> None:
    """Read and send, until the consumer closes the connection."""
    connection = Connection(descriptor)
    try:
        (hosts, client_id), timeout, topic, offsets, options, given = connection.recv()
        properties.update(given)
        pause = 1
        while not connection.poll():
            try:
                client = KafkaClient(hosts, client_id, timeout)
                consumer = SimpleConsumer(
                    client, None, topic, auto_commit=False, partitions=list(offsets), **options
                )
                consumer.provide_partition_info()
                consumer.offsets.update(offsets)
                consumer.fetch_offsets.update(offsets)
                while not connection.poll():
                    messages = consumer.get_messages(_BATCH, block=1, timeout=_IDLE_S)
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
