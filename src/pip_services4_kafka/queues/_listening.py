"""One call of listen() or begin_listen(): messages to a receiver, in one thread or several.

A worker leases a slice of one partition's messages, so their order is kept, and hands them over in
the tightest loop there is. How large a slice may be follows from how long the last ones took: what
a receiver has returned from is known to others at any time, but a partition's other messages wait
for the slice.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ._buffer import Buffer
from ._partition import Lease

# A slice takes about this long, s; and its largest size.
_SLICE_S = 0.05
_SLICE_MAX = 10_000

# What is done about an exception: the lease, the place in it, the envelope, the exception.
Failure = Callable[[Lease, int, Any, Exception], None]


class Listening:
    """Hands messages of a buffer to a receiver until it is stopped or the buffer is closed.

    Parameters
    ----------
    buffer : Buffer
    queue : IMessageQueue
        The second argument of the receiver.
    receiver : IMessageReceiver
    workers : int
        How many partitions at a time.
    failure : callable
        What to do about an exception of the receiver; a message is neither finished nor given back
        then.
    ended : callable
        Called with this, when no receiver is at work any more.
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
        """Hand over messages in this thread (and others, for several partitions at a time)."""
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
        """End after the messages at work; what was not handed over stays in the buffer."""
        self._buffer.stop_leases(self._stop)

    def is_mine(self) -> bool:
        """Whether this is a receiver's own thread."""
        return threading.current_thread() in self._threads

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no receiver is at work; at once if this is a receiver's own thread."""
        if self._process != os.getpid():  # a fork has no other threads
            return True
        return self.is_mine() or self._done.wait(timeout)

    def end(self) -> None:
        """It has run, or never will."""
        self._ended(self)
        self._done.set()

    def _help(self) -> None:
        try:
            self._work()
        except BaseException as error:  # SystemExit of a receiver, say: it ends all of listen()
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
                done = max(0, lease.begun() - 1)  # the one at work is not done
                raise
            finally:
                self._buffer.release(lease, done)
            elapsed = time.monotonic() - begun
            if elapsed > 2 * _SLICE_S:
                limit = max(1, int(done * _SLICE_S / elapsed))
            elif elapsed < _SLICE_S / 4 and done == limit:
                limit = min(4 * limit, _SLICE_MAX)

    def _deliver(self, lease: Lease) -> int:
        """Hand over a lease; how many messages of it are dealt with."""
        queue, envelopes = self._queue, lease.iterator
        receive = self._receiver.receive_message
        while True:
            try:
                for envelope in envelopes:
                    receive(envelope, queue)
                    if lease.stopped:
                        break
                return lease.begun()
            except Exception as error:  # the receiver's: the message failed, others go on
                index = lease.begun() - 1
                self._failure(lease, index, lease.envelopes[index], error)
                if lease.stopped:
                    return index + 1
