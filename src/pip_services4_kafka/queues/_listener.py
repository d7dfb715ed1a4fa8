"""One call of listen() or begin_listen(): passes messages to an application's receiver.

A worker leases a slice of one partition's messages, which keeps their order, and passes them to
the receiver in a tight loop. Because the partition's other messages wait for the slice, the last
durations set the size of the next slice. Other threads can see the worker's progress at any time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ._local_queue import LocalQueue
from ._partition import Lease

# The intended duration of a slice, in seconds, and its largest size.
_SLICE_S = 0.05
_SLICE_MAX = 10_000


class Listener:
    """Passes a local queue's messages to a receiver, until stop() or until the queue closes.

    Parameters
    ----------
    local : LocalQueue
    queue : IMessageQueue
        The receiver's second argument.
    receiver : IMessageReceiver
    failed : callable
        Called when the receiver raises, with the lease, the index in it and the exception.
    ended : callable
        Called with this object when the receiver no longer runs.
    """

    def __init__(
        self,
        local: LocalQueue,
        queue: Any,
        receiver: Any,
        failed: Callable[[Lease, int, Exception], object],
        ended: Callable[[Listener], object],
    ) -> None:
        self._local = local
        self._queue = queue
        self.receiver = receiver
        self._failed = failed
        self._ended = ended
        self._stop = threading.Event()
        self._done = threading.Event()
        self._lock = threading.RLock()  # reentrant for signal handlers
        self._threads: set[threading.Thread] = set()  # the workers
        self.raised: BaseException | None = None  # what ended all workers, such as SystemExit

    def run(self, workers: int) -> None:
        """Deliver messages in this thread, and in others if there are several workers."""
        self._threads.add(threading.current_thread())
        try:
            self.start(workers - 1)
        except BaseException:
            self._leave()
            raise
        self.work()
        self._done.wait()
        if self.raised is not None:
            raise self.raised

    def start(self, workers: int) -> None:
        """Deliver messages in new threads. A thread works on one partition at a time."""
        name = f"kafka-listener-{self._queue.get_name()}"
        new = [threading.Thread(target=self.work, name=name, daemon=True) for _ in range(workers)]
        self._threads.update(new)
        for index, thread in enumerate(new):
            try:
                thread.start()
            except BaseException:  # too many threads
                self.stop()
                for missing in new[index:]:
                    self._leave(missing)
                raise

    def work(self) -> None:
        """Deliver messages until the end. Every worker's thread runs this."""
        limit = 1
        try:
            while (lease := self._local.lease(limit, self._stop)) is not None:
                begun = time.monotonic()
                done = 0
                try:
                    done = self._deliver(lease)
                except BaseException:
                    done = max(0, lease.begun() - 1)  # without the current message
                    raise
                finally:
                    self._local.release(lease, done)
                elapsed = time.monotonic() - begun
                if elapsed > 2 * _SLICE_S:
                    limit = max(1, int(done * _SLICE_S / elapsed))
                elif elapsed < _SLICE_S / 4 and done == limit:
                    limit = min(4 * limit, _SLICE_MAX)
        except BaseException as error:  # ends all workers
            self.raised = self.raised or error
        finally:
            self.stop()
            self._leave()

    def _leave(self, thread: threading.Thread | None = None) -> None:
        with self._lock:
            self._threads.discard(thread or threading.current_thread())
            last = not self._threads and not self._done.is_set()
        if last:
            self._ended(self)
            self._done.set()

    def end(self) -> None:
        """End, even if `run` was interrupted before it began. Does nothing after the end."""
        self.stop()
        self._leave()

    def stop(self) -> None:
        """End after the current messages. Other messages stay in the local queue."""
        self._local.stop_leases(self._stop)

    def is_running(self) -> bool:
        """Whether workers run or are about to."""
        return bool(self._threads)

    def is_mine(self) -> bool:
        """Whether the calling thread runs the receiver."""
        return threading.current_thread() in self._threads

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no receiver runs. Returns at once in a thread that runs the receiver."""
        # Without workers, run() was interrupted before it began, or ends as soon as it begins.
        return self.is_mine() or not self.is_running() or self._done.wait(timeout)

    def _deliver(self, lease: Lease) -> int:
        """Deliver a lease. Returns the number of handled messages."""
        queue, envelopes = self._queue, lease.iterator
        receive = self.receiver.receive_message
        while True:
            try:
                for envelope in envelopes:
                    receive(envelope, queue)
                    if lease.stopped:
                        break
                return lease.begun()
            except Exception as error:  # raised by the receiver: this message failed
                self._failed(lease, lease.begun() - 1, error)
                if lease.stopped:
                    return lease.begun()
