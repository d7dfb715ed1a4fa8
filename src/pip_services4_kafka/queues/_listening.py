"""One call of listen() or begin_listen(): messages to a receiver, in one or more threads.

A worker leases a slice of one partition's messages, which keeps their order, and hands them over
in a tight loop. The duration of the last slices sets the size of the next one, because a
partition's other messages wait for the slice. Other threads can see the worker's progress at any
time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ._buffer import Buffer
from ._partition import Lease

# The intended duration of a slice, s, and its largest size.
_SLICE_S = 0.05
_SLICE_MAX = 10_000

# The arguments of the failure callback: lease, index in the lease, envelope, exception.
Failure = Callable[[Lease, int, Any, Exception], None]


class Listening:
    """Hands messages of a buffer to a receiver, until stop() or until the buffer closes.

    Parameters
    ----------
    buffer : Buffer
    queue : IMessageQueue
        The receiver's second argument.
    receiver : IMessageReceiver
    workers : int
        The number of partitions handled at a time.
    failure : callable
        Called with each exception of the receiver. The message is then neither finished nor
        returned to the buffer.
    ended : callable
        Called with this object when no receiver runs any more.
    """

    def __init__(
        self,
        buffer: Buffer,
        queue: Any,
        receiver: Any,
        workers: int,
        failure: Failure,
        ended: Callable[[Listening], object],
    ) -> None:
        self._buffer = buffer
        self._queue = queue
        self._receiver = receiver
        self._workers = max(1, workers)
        self._failure = failure
        self._ended = ended
        self._process = os.getpid()
        self._stop = threading.Event()
        self._done = threading.Event()
        self._threads: set[threading.Thread] = set()
        self._raised: BaseException | None = None

    def run(self) -> None:
        """Hand over messages in this thread, and in others if there are several workers."""
        helpers = [
            threading.Thread(target=self._help, name=f"kafka-listener-{number}", daemon=True)
            for number in range(1, self._workers)
        ]
        self._threads = {threading.current_thread(), *helpers}
        try:
            try:
                for helper in helpers:
                    helper.start()
                self._work()
            finally:
                self.stop()
                for helper in helpers:
                    if helper.ident is not None:
                        helper.join()
        finally:
            self.end()
        if self._raised is not None:
            raise self._raised

    def stop(self) -> None:
        """End after the current messages. The others stay in the buffer."""
        self._buffer.stop_leases(self._stop)

    def is_mine(self) -> bool:
        """Whether the calling thread runs the receiver."""
        return threading.current_thread() in self._threads

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no receiver runs. Returns at once in a thread that runs the receiver."""
        if self._process != os.getpid():  # a forked child has no other threads
            return True
        return self.is_mine() or self._done.wait(timeout)

    def end(self) -> None:
        """Mark this as ended, after `run` or without it."""
        self._ended(self)
        self._done.set()

    def _help(self) -> None:
        try:
            self._work()
        except BaseException as error:  # such as a receiver's SystemExit: ends all workers
            self._raised = error
            self.stop()

    def _work(self) -> None:
        limit = 1
        while (lease := self._buffer.lease(limit, self._stop)) is not None:
            begun = time.monotonic()
            done = 0
            try:
                done = self._deliver(lease)
            except BaseException:
                done = max(0, lease.begun() - 1)  # without the current message
                raise
            finally:
                self._buffer.release(lease, done)
            elapsed = time.monotonic() - begun
            if elapsed > 2 * _SLICE_S:
                limit = max(1, int(done * _SLICE_S / elapsed))
            elif elapsed < _SLICE_S / 4 and done == limit:
                limit = min(4 * limit, _SLICE_MAX)

    def _deliver(self, lease: Lease) -> int:
        """Hand over a lease. Returns the number of handled messages."""
        queue, envelopes = self._queue, lease.iterator
        receive = self._receiver.receive_message
        while True:
            try:
                for envelope in envelopes:
                    receive(envelope, queue)
                    if lease.stopped:
                        break
                return lease.begun()
            except Exception as error:  # raised by the receiver: this message failed
                index = lease.begun() - 1
                self._failure(lease, index, lease.envelopes[index], error)
                if lease.stopped:
                    return index + 1
