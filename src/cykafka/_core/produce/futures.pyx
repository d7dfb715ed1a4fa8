"""Futures: the records of an event loop's producer, each with an asyncio Future.

It is in Cython because it runs for each record.
"""
import logging
from asyncio import InvalidStateError, get_running_loop
from collections import deque

cimport cython
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport PyThread_get_thread_ident
from cykafka._core.client.event_loop cimport Watch, watch_of
from cykafka._core.produce.producer cimport Producer

from cykafka._core.common.errors import KafkaError, KafkaException

_log = logging.getLogger("cykafka")


# No cycle goes through a report: librdkafka holds it, or `waiting`.
@cython.final
@cython.no_gc
cdef class Report:
    """The delivery callback of a record, which sets the outcome of its future."""

    cdef Futures _owner
    cdef object _loop
    cdef unsigned long _thread
    cdef object _future

    def __call__(self, error, message):
        try:
            if PyThread_get_thread_ident() == self._thread:
                self.settle(error, message)
            else:
                self._loop.call_soon_threadsafe(self.settle, error, message)
        except RuntimeError:  # the loop is closed: no coroutine awaits the future
            if not self._loop.is_closed():
                raise
            _log_failure(error, message)

    cpdef settle(self, error, message):
        self._owner.end(self._loop)
        if self._owner.waiting:
            self._owner.queue_waiting()
        try:
            if error is None:
                self._future.set_result(message)
            else:
                self._future.set_exception(KafkaException(error))
        except InvalidStateError:  # it was cancelled
            _log_failure(error, message)

    cpdef fail(self, error):
        self._owner.end(self._loop)
        if not self._future.done():
            self._future.set_exception(error)

    cdef int refuse(self, error) except -1:
        """Fail the record, which could not be queued."""
        try:
            if PyThread_get_thread_ident() == self._thread:
                self.fail(error)
            else:
                self._loop.call_soon_threadsafe(self.fail, error)
        except RuntimeError:  # the loop is closed
            if not self._loop.is_closed():
                raise
        return 0


cdef _log_failure(error, message):
    if error is not None:
        _log.warning("a record to %s failed: %s", message.topic(), error.str())


@cython.final
@cython.no_gc_clear
cdef class Futures:
    """The records of one producer whose outcomes event loops await."""

    cdef Producer _producer
    cdef Watch _watch
    # Records that had no room in librdkafka's queue, in their order: each a Report, and the
    # arguments of Producer.produce().
    cdef readonly object waiting
    # The number of records without an outcome, of one loop and of each other one. While there are
    # any, the watch has the loop.
    cdef object _loop
    cdef unsigned long _thread
    cdef int64_t _cnt
    cdef dict _others

    def __cinit__(self, Producer producer not None):
        self._producer = producer
        self._watch = watch_of(producer)
        self.waiting = deque()
        self._others = {}

    def produce(self, topic, value, key, partition, timestamp, headers):
        """Send a record; see AsyncProducer.produce()."""
        cdef Report report = Report.__new__(Report)
        cdef unsigned long me = PyThread_get_thread_ident()
        # Python 3.11's get_running_loop() makes a system call.
        loop = self._loop if me == self._thread and self._loop.is_running() else get_running_loop()
        report._owner = self
        report._loop = loop
        report._thread = me
        report._future = future = loop.create_future()
        if self.waiting:
            self.put((report, (topic, value, key, partition, report, None, timestamp, headers)))
        else:
            try:
                self._producer.queue(topic, value, key, partition, report, timestamp, headers, 0)
            except BufferError:
                self.put((report,
                          (topic, value, key, partition, report, None, timestamp, headers)))
        if loop is self._loop and self._cnt:
            self._cnt += 1
        else:
            self.begin(loop, me)
        return future

    cdef int put(self, tuple waiting) except -1:
        self.waiting.append(waiting)
        self._watch.join(self)
        return 0

    def __call__(self, loop):
        """The watch calls it when there may be room."""
        self.queue_waiting()

    def queue_waiting(self):
        """Queue the records that had no room."""
        cdef Report report
        while self.waiting:
            report, record = self.waiting[0]
            try:
                self._producer.produce(*record)
            except BufferError:
                return
            except Exception as error:  # the record is refused
                report.refuse(error)
            self.waiting.popleft()
        self._watch.part(self)

    def refuse_waiting(self, code):
        """Fail the records that have no room, with this code."""
        cdef Report report
        while self.waiting:
            report, _ = self.waiting.popleft()
            report.refuse(KafkaException(KafkaError(code)))

    cdef int begin(self, loop, unsigned long thread) except -1:
        if self._cnt == 0:
            self._loop = loop
            self._thread = thread
        if loop is self._loop:
            self._cnt += 1
            if self._cnt > 1:
                return 0
        else:
            self._others[loop] = self._others.get(loop, 0) + 1
            if self._others[loop] > 1:
                return 0
        self._watch.add(loop)
        return 0

    cdef int end(self, loop) except -1:
        if loop is self._loop:
            self._cnt -= 1
            if self._cnt:
                return 0
            self._loop = None
            self._thread = 0
        else:
            self._others[loop] -= 1
            if self._others[loop]:
                return 0
            del self._others[loop]
        self._watch.remove(loop)
        return 0
