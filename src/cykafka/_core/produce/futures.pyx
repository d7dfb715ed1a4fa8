"""Futures: the records of an event loop's producer, each with an asyncio Future.

It is in Cython because it runs for each record.
"""
import functools
import logging
import threading
import weakref
from asyncio import BaseEventLoop, Future, InvalidStateError, get_running_loop
from collections import deque

from cpython.object cimport PyObject_Call
cimport cython
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport (
    PyObject_GC_IsTracked,
    PyObject_GC_Track,
    PyObject_GC_UnTrack,
    PyThread_get_thread_ident,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,
    RD_KAFKA_RESP_ERR__PURGE_QUEUE,
    RD_KAFKA_RESP_ERR__QUEUE_FULL,
)
from cykafka._core.client.event_loop cimport Watch, watch_of
from cykafka._core.common.message cimport Message
from cykafka._core.produce.producer cimport Producer
from cykafka._core.produce.publisher cimport Receiver

from cykafka._core.common.errors import KafkaError, KafkaException

_log = logging.getLogger("cykafka")
_PLAIN = BaseEventLoop.create_future
_PURGED = (<int>RD_KAFKA_RESP_ERR__PURGE_QUEUE, <int>RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)


# No cycle goes through a report: librdkafka holds it, or `waiting`.
@cython.final
@cython.no_gc
cdef class Report(Receiver):
    """The delivery callback of a record, which sets the outcome of its future."""

    cdef Awaits _awaits
    cdef object _loop
    cdef unsigned long _thread
    cdef object _future

    def __dealloc__(self):
        self._track()  # librdkafka may drop a report

    def __call__(self, error, message):
        self.receive(error, message)

    cdef int receive(self, object error, Message message) except -1:
        self._track()
        try:
            if PyThread_get_thread_ident() == self._thread:
                self.settle(error, message)
            else:
                self._loop.call_soon_threadsafe(self.settle, error, message)
        except RuntimeError:  # the loop is closed: no coroutine awaits the future
            if not self._loop.is_closed():
                raise
            self._log(error, message)
        return 0

    cdef void _track(self) noexcept:
        """Let the garbage collector visit the future."""
        if type(self._future) is Future and not PyObject_GC_IsTracked(self._future):
            PyObject_GC_Track(self._future)

    cpdef settle(self, error, message):
        self._awaits.end(self._loop)
        try:
            if error is None:
                self._future.set_result(message)
            else:
                self._fail(KafkaException(error))
        except InvalidStateError:  # it was cancelled
            self._log(error, message)

    cpdef fail(self, error):
        self._awaits.end(self._loop)
        if not self._future.done():
            self._fail(error)

    cdef int _fail(self, exception) except -1:
        self._future.set_exception(exception)
        if isinstance(exception, KafkaException) and self._is_aborted(exception.args[0]):
            self._future.exception()  # it was expected: the loop does not log it
        return 0

    cdef bint _is_aborted(self, error) except -1:
        return self._awaits._aborts and error in _PURGED

    cdef int _log(self, error, message) except -1:
        if error is not None and not self._is_aborted(error):
            _log.warning("a record to %s failed: %s", message.topic(), error.str())
        return 0

    cdef int refuse(self, error) except -1:
        """Fail the record, which could not be queued."""
        self._track()
        try:
            if PyThread_get_thread_ident() == self._thread:
                self.fail(error)
            else:
                self._loop.call_soon_threadsafe(self.fail, error)
        except RuntimeError:  # the loop is closed
            if not self._loop.is_closed():
                raise
        return 0


# A report must not refer to the producer: librdkafka holds the report, so a producer that was
# dropped with records in flight would never be freed.
@cython.final
@cython.no_gc_clear
cdef class Awaits:
    """The number of records without an outcome, of one loop and of each other one. While there are
    any, the watch has the loop."""

    cdef Watch _watch
    cdef object _loop
    cdef unsigned long _thread
    # The arguments for asyncio's Future, which is quicker than create_future(); None: the loop has
    # futures of its own.
    cdef dict _future_arguments
    cdef int64_t _cnt
    cdef dict _others
    # Whether the program ends a transaction, which may abort its records.
    cdef bint _aborts

    cdef object new_future(self, loop):
        if loop is self._loop and self._future_arguments is not None:
            future = PyObject_Call(Future, (), self._future_arguments)
        else:
            future = loop.create_future()
        # Until librdkafka returns its report, the garbage collector cannot free the future, and
        # would visit thousands of them for nothing.
        if type(future) is Future:
            PyObject_GC_UnTrack(<void *>future)
        return future

    cdef int begin(self, loop, unsigned long thread) except -1:
        # Made first: the allocation may run the garbage collector, and so another thread.
        cdef dict arguments = {"loop": loop} if type(loop).create_future is _PLAIN else None
        if self._cnt == 0:
            self._loop = loop
            self._thread = thread
            self._future_arguments = arguments
        if loop is self._loop:
            self._cnt += 1
            if self._cnt > 1:
                return 0
        else:
            self._others[loop] = self._others.get(loop, 0) + 1
            if self._others[loop] > 1:
                return 0
        try:
            self._watch.add(loop)
        except:
            if loop is self._loop:
                self._cnt = 0
            else:
                del self._others[loop]
            raise
        return 0

    cdef int end(self, loop) except -1:
        if loop is self._loop:
            self._cnt -= 1
            if self._cnt:
                return 0
            self._loop = self._future_arguments = None
            self._thread = 0
        else:
            self._others[loop] -= 1
            if self._others[loop]:
                return 0
            del self._others[loop]
        self._watch.remove(loop)
        return 0


@cython.final
@cython.no_gc_clear
cdef class Futures:
    """The records of one producer whose outcomes event loops await."""

    cdef Producer _producer
    cdef Awaits _awaits
    # Records that had no room in librdkafka's queue, in their order: each a Report, and what
    # Producer.record_copy() has returned.
    cdef readonly object waiting
    # Held while waiting records are queued: loops of several threads may do so.
    cdef object _queueing
    # Queues the waiting records. It does not keep this alive, which keeps the watch alive.
    cdef object _on_served
    cdef object __weakref__

    def __cinit__(self, Producer producer not None):
        self._producer = producer
        self._awaits = Awaits.__new__(Awaits)
        self._awaits._watch = watch_of(producer)
        self._awaits._others = {}
        self.waiting = deque()
        self._queueing = threading.Lock()
        self._on_served = functools.partial(_queue_waiting, weakref.ref(self))

    def produce(self, topic, value, key, partition, timestamp, headers):
        """Send a record; see AsyncProducer.produce()."""
        cdef Report report = Report.__new__(Report)
        cdef Awaits awaits = self._awaits
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef bint is_queued = False
        cdef tuple record = None
        # Python 3.11's get_running_loop() makes a system call.
        loop = (awaits._loop if me == awaits._thread and awaits._loop.is_running()
                else get_running_loop())
        report._awaits = awaits
        report._loop = loop
        report._thread = me
        if loop is awaits._loop and awaits._cnt:
            awaits._cnt += 1
        else:
            awaits.begin(loop, me)
        try:
            report._future = future = awaits.new_future(loop)
            try:
                if not self.waiting:
                    self._producer.queue(topic, value, key, partition, report, timestamp, headers,
                                         0)
                    is_queued = True
            except BufferError:
                pass
            if not is_queued:
                record = self._producer.record_copy(topic, value, key, partition, timestamp,
                                                    headers)
        except:
            awaits.end(loop)
            raise
        if not is_queued:
            self.waiting.append((report, record))
            self.queue_waiting()  # another thread may have made room meanwhile
        return future

    def expect_abort(self, bint expected):
        """From now on, do (or do not) report purged records that no coroutine awaits. The program
        has aborted them itself."""
        self._awaits._aborts = expected

    def queue_waiting(self):
        """Queue the records that had no room. The watch calls it when there may be room."""
        cdef Report report
        with self._queueing:
            if not self.waiting:
                return
            self._awaits._watch.on_served = self._on_served
            while self.waiting:
                report, record = self.waiting[0]
                try:
                    if not self._queue(report, record):
                        return
                except Exception as error:  # the record is refused
                    self._producer._transactions.note_refused()
                    report.refuse(error)
                self.waiting.popleft()
            self._awaits._watch.on_served = None

    cdef bint _queue(self, Report report, tuple record) except -1:
        """Queue a record; False if there is no room."""
        topic, value, key, partition, timestamp, headers = record
        for _ in range(2):  # a thread may have made room after the first attempt
            try:
                self._producer.produce(topic, value, key, partition, report, None, timestamp,
                                       headers)
                return True
            except BufferError:
                if len(self._producer):
                    return False
        raise KafkaException(KafkaError(
            <int>RD_KAFKA_RESP_ERR__QUEUE_FULL,
            f"the record to {topic} is larger than the queue: raise "
            "queue.buffering.max.kbytes"))

    def refuse_waiting(self, code):
        """Fail the records that have no room, with this code."""
        cdef Report report
        with self._queueing:
            while self.waiting:
                report, _ = self.waiting.popleft()
                report.refuse(KafkaException(KafkaError(code)))
            self._awaits._watch.on_served = None


def _queue_waiting(futures):
    waiting = futures()
    if waiting is not None:
        waiting.queue_waiting()
