"""Futures: the records of an event loop's producer, each with a future.

It is in Cython because it runs for each record.
"""
import functools
import logging
import threading
import weakref
from asyncio import (
    BaseEventLoop,
    Future,
    InvalidStateError,
    _get_running_loop,
    get_running_loop,
)
from collections import deque
from contextvars import copy_context

from cpython.exc cimport PyErr_SetString
from cpython.ref cimport Py_INCREF, PyObject
cimport cython
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport (
    PYGEN_ERROR,
    PYGEN_RETURN,
    PyObject_GC_IsTracked,
    PyObject_GC_Track,
    PyObject_GC_UnTrack,
    PySendResult,
    PyThread_get_thread_ident,
    PyTypeObject,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,
    RD_KAFKA_RESP_ERR__PURGE_QUEUE,
    RD_KAFKA_RESP_ERR__QUEUE_FULL,
)
from cykafka._core.client.event_loop cimport Watch, drop_closed, watch_of
from cykafka._core.common.message cimport Message
from cykafka._core.produce.producer cimport Producer
from cykafka._core.produce.publisher cimport Receiver

from cykafka._core.common.errors import ClosedError, KafkaError, KafkaException

_log = logging.getLogger("cykafka")
# asyncio's own is_running(), if it looks at this attribute. A call would cost each record more.
_PLAIN = (BaseEventLoop.is_running
          if BaseEventLoop.is_running.__code__.co_names == ("_thread_id",) else None)
_PURGED = (<int>RD_KAFKA_RESP_ERR__PURGE_QUEUE, <int>RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)


@cython.final
@cython.nonecheck(True)  # Python can make one without produce()
cdef class RecordFuture(Receiver):
    """The future of a record, and its delivery callback.

    It behaves as asyncio's Future, and makes one only for what it cannot do itself: to wait, to
    fail, and to be cancelled. For each record that would cost as much as half of the rest.
    """

    cdef Awaits _awaits
    # asyncio's, once it is made.
    cdef object _future
    # Of the delivered record, if the future was not made before.
    cdef Message _message
    cdef bint _is_settled
    # The functions to call at the end, and their contexts, while no future is made: the first,
    # which is the only one of most, and the others.
    cdef object _callback, _context
    cdef list _callbacks
    cdef object __weakref__

    # -- the delivery callback

    cdef int receive(self, object error, Message message) except -1:
        loop = self._awaits.loop
        try:
            if self._awaits.is_served() or self._awaits.may_settle():
                self.settle(error, message)
            else:
                self._awaits.leave(self, error, message)
        except RuntimeError:  # the loop is closed: no coroutine awaits the future
            if not loop.is_closed():
                raise
            self._log(error, message)
        return 0

    cdef int settle(self, error, message) except -1:
        if self._is_settled:
            return 0
        self._is_settled = True
        if error is None and self._future is None:
            self._message = message
            if self._callback is None:
                self._awaits.end()
                return 0
        try:
            if error is not None:
                self._fail(KafkaException(error))
            elif self._future is not None:
                self._future.set_result(message)
            else:
                for fn, context in self._take_callbacks():
                    self._awaits.loop.call_soon(fn, self, context=context)
        except InvalidStateError:  # it was cancelled
            self._log(error, message)
        finally:
            self._awaits.end()
        return 0

    cdef int fail(self, error) except -1:
        if self._is_settled:
            return 0
        self._is_settled = True
        try:
            if not self.done():
                self._fail(error)
        finally:
            self._awaits.end()
        return 0

    cdef int _fail(self, exception) except -1:
        future = self._made()
        future.set_exception(exception)
        if isinstance(exception, KafkaException) and self._is_aborted(exception.args[0]):
            future.exception()  # it was expected: the loop does not log it
        return 0

    cdef bint _is_aborted(self, error) except -1:
        loops = self._awaits.loops
        return loops is not None and loops.aborts and error in _PURGED

    cdef int _log(self, error, message) except -1:
        if error is not None and not self._is_aborted(error):
            _log.warning("a record to %s failed: %s", message.topic(), error.str())
        return 0

    cdef int refuse(self, error) except -1:
        """Fail the record, which could not be queued."""
        loop = self._awaits.loop
        try:
            if self._awaits.may_settle():
                self.fail(error)
            else:
                self._awaits.leave(self, error, None)
        except RuntimeError:  # the loop is closed
            if not loop.is_closed():
                raise
        return 0

    # -- asyncio's Future

    cdef object _made(self):
        if self._future is None:
            future = self._awaits.get_loop().create_future()
            if self._future is None:  # or else a finalizer has asked for it meanwhile
                self._future = future
                if self._message is not None:
                    future.set_result(self._message)
                for fn, context in self._take_callbacks():
                    future.add_done_callback(Callback(fn, self), context=context)
            self._track()
        return self._future

    cdef object _take_callbacks(self):
        if self._callback is None:
            return ()
        taken = [(self._callback, self._context)]
        if self._callbacks is not None:
            taken += self._callbacks
        self._callback = self._context = self._callbacks = None
        return taken

    cdef int _track(self) except -1:
        """Let the garbage collector visit this: a program may now make cycles with it."""
        if not PyObject_GC_IsTracked(self):
            PyObject_GC_Track(self)
        return 0

    @property
    def __class__(self):
        return Future

    def __await__(self):
        if self._message is None:
            return self._made().__await__()
        self._track()
        return self

    def __iter__(self):
        return self.__await__()

    def __next__(self):
        """For `await`, as the iterator of a delivered record."""
        if self._message is None:
            raise TypeError("await the future")
        raise StopIteration(self._message)

    def send(self, _):
        return self.__next__()

    def throw(self, kind, value=None, traceback=None):
        raise kind if value is None else value

    def done(self):
        return self._message is not None or self._future is not None and self._future.done()

    def cancelled(self):
        return self._future is not None and self._future.cancelled()

    def result(self):
        if self._message is None:
            return self._made().result()
        self._track()
        return self._message

    def exception(self):
        return self._made().exception() if self._message is None else None

    def add_done_callback(self, fn, /, *, context=None):
        if self._future is not None:
            self._future.add_done_callback(Callback(fn, self), context=context)
            return
        if context is None:
            context = copy_context()
        if self._message is not None:
            self._awaits.get_loop().call_soon(fn, self, context=context)
        elif self._callback is None:
            self._callback, self._context = fn, context
        else:
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append((fn, context))
        self._track()

    def remove_done_callback(self, fn, /):
        if self._callback is None and self._future is None:
            return 0
        return self._made().remove_done_callback(Callback(fn, self))

    def get_loop(self):
        return self._awaits.get_loop()

    @property
    def _asyncio_future_blocking(self):
        return self._future is not None and self._future._asyncio_future_blocking

    def __getattr__(self, name):
        return getattr(self._made(), name)

    def __setattr__(self, name, value):
        setattr(self._made(), name, value)

    def __delattr__(self, name):
        delattr(self._made(), name)

    def __repr__(self):
        if self._message is None:
            return repr(self._made())
        return f"<Future finished result={self._message!r}>"


cdef PySendResult _send(PyObject *future, PyObject *_, PyObject **result) noexcept:
    """RecordFuture.__next__(), without an exception for the result."""
    message = (<RecordFuture>future)._message
    if message is None:
        PyErr_SetString(TypeError, "await the future")
        return PYGEN_ERROR
    Py_INCREF(message)
    result[0] = <PyObject *>message
    return PYGEN_RETURN


# Cython has no name for this slot. `await` looks for it first.
(<PyTypeObject *>RecordFuture).tp_as_async.am_send = _send


# A callback of a RecordFuture, called with it instead of asyncio's Future.
@cython.final
cdef class Callback:

    cdef object _fn
    cdef object _future

    def __init__(self, fn, future):
        self._fn = fn
        self._future = future

    def __call__(self, _):
        self._fn(self._future)

    def __eq__(self, other):
        return isinstance(other, Callback) and self._fn == (<Callback>other)._fn

    __hash__ = None


# The records of one producer in event loops.
@cython.final
@cython.no_gc_clear
cdef class Loops:

    cdef Watch watch
    # The Awaits of each loop that has records without an outcome.
    cdef dict all
    # The one of the last record, if it is still there.
    cdef Awaits last
    # Whether the program ends a transaction, which may abort its records.
    cdef bint aborts

    cdef Awaits of_this_thread(self):
        cdef Awaits awaits = self.last
        cdef Awaits made
        cdef unsigned long me = PyThread_get_thread_ident()
        # Python 3.11's get_running_loop() makes a system call.
        if awaits is not None and awaits.runs_in() == me:
            return awaits
        loop = get_running_loop()
        made = Awaits.__new__(Awaits)  # may run the garbage collector, and so this function
        awaits = self.all.get(loop)
        if awaits is None:
            awaits = made
            awaits.loops = self
            awaits.loop = loop
            awaits.is_plain = type(loop).is_running is _PLAIN
        awaits.thread = me
        return awaits


# It must not refer to the producer: librdkafka holds the futures, so a producer that was dropped
# with records in flight would never be freed.
@cython.final
@cython.no_gc_clear
cdef class Awaits:
    """The number of records without an outcome, of one loop. While there are any, the watch has
    the loop."""

    # None once each record has its outcome: the garbage collector does not visit the futures, so
    # they must not keep alive what may refer to them.
    cdef Loops loops
    cdef object loop
    # A weak reference to it, then.
    cdef object left
    cdef unsigned long thread
    cdef bint is_plain
    cdef int64_t cnt
    # Of futures, set by the loop: (future, error, message) each. The message is None if the record
    # was not queued; the error is an exception then.
    cdef list outcomes
    # Whether the loop will call _set_left().
    cdef bint is_told

    def __cinit__(self):
        self.outcomes = []

    cdef unsigned long runs_in(self) except? 1:
        """The thread that runs the loop now; of loops that are not asyncio's own, 2 means another
        thread than this one. 0: none."""
        if self.is_plain:
            thread = self.loop._thread_id
            return 0 if thread is None else thread
        if _get_running_loop() is self.loop:
            return PyThread_get_thread_ident()
        return 2 if self.loop.is_running() else 0

    cdef bint is_served(self) noexcept:
        """Whether this runs in the loop's turn that serves the producer."""
        cdef Watch watch = self.loops.watch
        return watch.serving is self.loop and watch.serving_in == PyThread_get_thread_ident()

    cdef bint may_settle(self) except -1:
        """Whether this thread may set the outcomes of the loop's futures."""
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef unsigned long there = self.runs_in()
        return there == me or there == 0 and self.thread == me

    cdef int leave(self, RecordFuture future, error, message) except -1:
        """Leave an outcome to the loop, which another thread runs."""
        loop = self.loop
        future._track()
        self.outcomes.append((future, error, message))
        if self.is_told and not loop.is_closed():
            return 0
        # One call for all outcomes until the loop's turn: each is a system call, during which
        # other threads take the GIL.
        self.is_told = True
        try:
            loop.call_soon_threadsafe(self._set_left)
        except:
            self.is_told = False
            if loop.is_closed():
                self._log_left()
                return 0
            loop.call_soon_threadsafe(self._set_left)  # a signal handler has raised
            raise
        return 0

    cdef list _take_left(self):
        outcomes = self.outcomes
        self.outcomes = []
        self.is_told = False
        return outcomes

    def _set_left(self):
        cdef RecordFuture future
        cdef Watch watch
        loop = self.loop
        left = self._take_left()
        if not left:
            return  # it was called twice
        watch = self.loops.watch
        left.reverse()
        while left:
            future, error, message = left.pop()
            try:
                if message is None:
                    future.fail(error)
                else:
                    future.settle(error, message)
            except:
                if left:
                    left.reverse()
                    self.outcomes[:0] = left
                    self.is_told = True
                    loop.call_soon(self._set_left)
                raise
        watch.wake(loop)  # a flush() may wait for them

    cdef int _log_left(self) except -1:
        cdef RecordFuture future
        for future, error, message in self._take_left():
            if message is not None:
                future._log(error, message)
        return 0

    cdef int begin(self) except -1:
        self.cnt += 1
        if self.cnt > 1:
            return 0
        drop_closed(self.loops.all)
        self.loops.all[self.loop] = self.loops.last = self
        try:
            self.loops.watch.add(self.loop)
        except:
            self.cnt -= 1
            if self.cnt == 0:
                self.forget()
            raise
        return 0

    cdef int end(self) except -1:
        self.cnt -= 1
        if self.cnt == 0:
            self.forget()
            self.loops.watch.remove(self.loop)
            self.loops = None
            try:
                self.left = weakref.ref(self.loop)
                self.loop = None
            except TypeError:  # it has no weak references
                pass
        return 0

    cdef object get_loop(self):
        loop = self.loop
        if loop is None and self.left is not None:
            loop = self.left()
        if loop is None:
            raise RuntimeError("the event loop of the record does not exist any more")
        return loop

    cdef int forget(self) except -1:
        self.loops.all.pop(self.loop, None)
        if self.loops.last is self:
            self.loops.last = None
        return 0


@cython.final
@cython.no_gc_clear
cdef class Futures:
    """The records of one producer whose outcomes event loops await."""

    cdef Producer _producer
    cdef Loops _loops
    # Records that had no room in librdkafka's queue, in their order: each a RecordFuture, and what
    # Producer.record_copy() has returned.
    cdef readonly object waiting
    # Held while waiting records are queued or refused: loops of several threads may do so; and the
    # thread that does.
    cdef object _working
    cdef unsigned long _worker
    # Queues the waiting records. It does not keep this alive, which keeps the watch alive.
    cdef object _on_served
    cdef object __weakref__

    def __cinit__(self, Producer producer not None):
        producer.check_open()
        self._producer = producer
        self._loops = Loops.__new__(Loops)
        self._loops.watch = watch_of(producer)
        self._loops.all = {}
        self.waiting = deque()
        self._working = threading.Lock()
        self._on_served = functools.partial(_queue_waiting, weakref.ref(self))

    cdef RecordFuture produce(self, topic, value, key, partition, timestamp, headers):
        cdef RecordFuture future = RecordFuture.__new__(RecordFuture)
        # Until its result is handed out, no cycle goes through it: the garbage collector would
        # visit thousands of them for nothing.
        PyObject_GC_UnTrack(<void *>future)
        future._awaits = self._loops.of_this_thread()
        future._awaits.begin()
        try:
            if len(self.waiting) == 0:
                self._producer.queue(topic, value, key, partition, future, timestamp, headers, 0)
                return future
        except BufferError:
            pass
        except:
            future._awaits.end()
            raise
        self._add_waiting(future, topic, value, key, partition, timestamp, headers)
        return future

    cdef int _add_waiting(self, RecordFuture future, topic, value, key, partition, timestamp,
                          headers) except -1:
        try:
            record = self._producer.record_copy(topic, value, key, partition, timestamp, headers)
        except:
            future._awaits.end()
            raise
        self.waiting.append((future, record))
        self.queue_waiting()  # another thread may have made room meanwhile
        return 0

    def expect_abort(self, bint expected):
        """From now on, do (or do not) report purged records that no coroutine awaits. The program
        has aborted them itself."""
        self._loops.aborts = expected

    def unsettled(self):
        """The number of records of the running loop that have no outcome yet."""
        cdef Awaits awaits = self._loops.all.get(get_running_loop())
        return 0 if awaits is None else awaits.cnt

    def queue_waiting(self):
        """Queue the records that had no room. The watch calls it when there may be room."""
        self._work_off(None)

    def refuse_waiting(self, code):
        """Fail the records that have no room, with this code."""
        self._work_off(code)

    cdef int _work_off(self, code) except -1:
        cdef unsigned long me = PyThread_get_thread_ident()
        # A finalizer that the garbage collector runs in one of these calls may send a record,
        # which the call then finds.
        if self._worker == me:
            return 0
        with self._working:
            self._worker = me
            try:
                if code is None:
                    self._queue_all()
                else:
                    self._refuse_all(code)
            finally:
                self._worker = 0
        return 0

    cdef int _queue_all(self) except -1:
        cdef RecordFuture future
        if len(self.waiting) == 0:
            return 0
        self._loops.watch.on_served = self._on_served
        while self.waiting:
            future, record = self.waiting[0]
            try:
                if not self._queue(future, record):
                    return 0
            except Exception as error:  # the record is refused
                self._producer._transactions.note_refused()
                future.refuse(error)
            self.waiting.popleft()
        self._loops.watch.on_served = None
        return 0

    cdef int _refuse_all(self, code) except -1:
        cdef RecordFuture future
        while self.waiting:
            future, _ = self.waiting.popleft()
            future.refuse(KafkaException(KafkaError(code)))
        self._loops.watch.on_served = None
        return 0

    cdef bint _queue(self, RecordFuture future, tuple record) except -1:
        """Queue a record; False if there is no room."""
        topic, value, key, partition, timestamp, headers = record
        for _ in range(2):  # a thread may have made room after the first attempt
            try:
                self._producer.queue(topic, value, key, partition, future, timestamp, headers, 0)
                return True
            except BufferError:
                if len(self._producer):
                    return False
        raise KafkaException(KafkaError(
            <int>RD_KAFKA_RESP_ERR__QUEUE_FULL,
            f"the record to {topic} is larger than the queue: raise "
            "queue.buffering.max.kbytes"))


@cython.no_gc_clear
cdef class RecordSender:
    """The part of AsyncProducer that runs for each record."""

    cdef public Futures _futures
    cdef public bint _is_closing

    def produce(self, topic, value=None, key=None, partition=-1, timestamp=0, headers=None):
        """Send a record; await the result for the delivered message.

        The record is in librdkafka's queue when the call returns, so records keep the order of the
        calls, and ``asyncio.gather()`` needs no task for each. While the queue is full, records
        wait for room, in their order. Await the results to bound them.

        Parameters
        ----------
        topic, value, key, partition, timestamp, headers
            As for :meth:`cykafka.Producer.produce`.

        Returns
        -------
        Future of Message
            Raises KafkaException if the record has finally failed. Canceling it does not take
            the record back; a failure is then logged.

        Raises
        ------
        KafkaException
            The record cannot be queued: too large, no such partition, no open transaction, ...
        """
        if self._is_closing or self._futures is None:
            raise ClosedError("the producer is closed")
        return self._futures.produce(topic, value, key, partition, timestamp, headers)


def _queue_waiting(futures):
    waiting = futures()
    if waiting is not None:
        waiting.queue_waiting()
