"""Delivery: the outcomes of a batch of records.

Delivery reports write the outcomes into a ck_delivery_t (csrc/ck_delivery), without the GIL. A
Ledger is the Python side of a ck_delivery_t, which may hold the Ledger while records are in
flight. The Ledger does not refer to the producer, so Python can free the producer. A Delivery is
the user's object and refers to the producer.
"""
import weakref

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF
cimport cython
from libc.stdlib cimport free, malloc

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.event_loop cimport watch_of
from cykafka._core.client.handle cimport Handle, exiting
from cykafka._core.common.arguments cimport NOW, deadline_after, slice_left, timeout_ms, utf8
from cykafka._core.common.errors cimport error_from

from cykafka._core.common.errors import KafkaException
from cykafka._core.common.naming import public


@public("cykafka")
class DeliveryError(KafkaException):
    """Records of a batch failed.

    ``args[0]`` is the KafkaError of the first failed record.

    Attributes
    ----------
    failures : dict of int to KafkaError
        The errors by the record's index in the batch; all other records are delivered. librdkafka
        has already retried where retries help. A record that failed with ``_MSG_TIMED_OUT`` may
        be in the topic anyway, so publishing it again may duplicate it.
    delivery : Delivery or None
    """

    def __init__(self, error, failures=None, delivery=None):
        super().__init__(error)
        self.failures = {} if failures is None else failures
        self.delivery = delivery

    def __str__(self):
        if not self.failures:
            return str(self.args[0])
        of = "" if self.delivery is None else f" of {len(self.delivery)}"
        return (f"{len(self.failures)}{of} record(s) failed, the first at index "
                f"{min(self.failures)}: {self.args[0]}")

    def __reduce__(self):
        return (type(self), (self.args[0], self.failures))  # a Delivery cannot be pickled


cdef class Ledger:
    """The Python side of a ck_delivery_t."""

    def __dealloc__(self):
        ck_delivery_release(self._ptr)

    cdef int add_reference(self, int which) except -1:
        """Take a reference, and request an event that returns it when the delivery is done.
        Returns 0 without an event if the delivery is already done."""
        cdef int before = ck_delivery_want(self._ptr, which, <void *>self)
        if before == CK_DELIVERY_DONE:
            return 0
        if not self._referenced:
            self._referenced = True
            Py_INCREF(self)
        return 1


cdef class Numbers:
    """A column of outcomes as a buffer: a view, or a copy of the outcomes so far."""

    cdef ck_delivery_t *_of
    cdef void *_copy
    cdef const char *_base
    cdef Py_ssize_t _shape
    cdef Py_ssize_t _stride
    cdef Py_ssize_t _width

    def __dealloc__(self):
        free(self._copy)
        ck_delivery_release(self._of)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("the outcomes of a delivery are read-only")
        if (flags & PyBUF_STRIDES != PyBUF_STRIDES and self._stride != self._width
                and self._shape > 1):
            raise BufferError("the outcomes of a delivery are strided")
        buffer.buf = <void *>self._base
        buffer.obj = self
        buffer.len = self._shape * self._width
        buffer.itemsize = self._width
        buffer.readonly = True
        buffer.ndim = 1
        buffer.format = NULL
        if flags & PyBUF_FORMAT:
            buffer.format = b"q" if self._width == 8 else b"i"
        buffer.shape = &self._shape if flags & PyBUF_ND else NULL
        buffer.strides = &self._stride if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        buffer.suboffsets = NULL
        buffer.internal = NULL


cdef object _numbers(ck_delivery_t *delivery, Py_ssize_t width):
    """Return the offsets (width 8) or the partitions (width 4)."""
    cdef Numbers numbers = Numbers.__new__(Numbers)
    cdef ck_outcome_t *slots = ck_delivery_slots(delivery)
    cdef size_t cnt = ck_delivery_cnt(delivery)
    cdef size_t taken, i
    cdef int64_t offset
    cdef int64_t *offsets
    cdef int32_t *partitions
    numbers._shape = cnt
    numbers._width = width
    if ck_delivery_is_done(delivery):
        ck_delivery_keep(delivery)
        numbers._of = delivery
        numbers._stride = sizeof(ck_outcome_t)
        numbers._base = (<char *>&slots[0].offset if width == 8
                         else <char *>&slots[0].u.outcome.partition)
        return memoryview(numbers)
    numbers._copy = malloc(max(cnt * width, 1))
    if numbers._copy is NULL:
        raise MemoryError
    numbers._stride = width
    numbers._base = <char *>numbers._copy
    offsets = <int64_t *>numbers._copy
    partitions = <int32_t *>numbers._copy
    taken = ck_delivery_taken(delivery)
    for i in range(cnt):
        offset = slots[i].offset if i < taken else CK_OUTCOME_IN_FLIGHT
        if width == 8:
            offsets[i] = RD_KAFKA_OFFSET_INVALID if offset == CK_OUTCOME_IN_FLIGHT else offset
        elif offset == CK_OUTCOME_IN_FLIGHT:
            partitions[i] = RD_KAFKA_PARTITION_UA
        else:
            partitions[i] = slots[i].u.outcome.partition
    return memoryview(numbers)


cdef int64_t _first_failed(ck_delivery_t *delivery, size_t start) noexcept nogil:
    """Return the index of the first failed record from start on, or -1."""
    cdef ck_outcome_t *slots = ck_delivery_slots(delivery)
    cdef size_t taken = ck_delivery_taken(delivery)
    cdef size_t i
    for i in range(start, taken):
        if slots[i].offset != CK_OUTCOME_IN_FLIGHT and slots[i].u.outcome.err:
            return <int64_t>i
    return -1


# The garbage collector does not clear a Delivery, so __dealloc__ can use the attributes. To break
# a cycle through callbacks, the collector clears their list.
@cython.no_gc_clear
cdef class Delivery:
    """The outcomes of a batch of records; :meth:`Producer.publish` returns it.

    Every record has exactly one outcome: its partition and offset, or an error. You may drop a
    Delivery without reading it; the producer then counts its failures, and ``close()`` logs them.
    ``len()`` is the number of records. ``await delivery`` is :meth:`wait` for asyncio: the event
    loop serves the producer during the wait, without a thread.
    """

    def __init__(self):
        raise TypeError("a Delivery comes from Producer.publish()")

    def __dealloc__(self):
        cdef int64_t failed, first
        if self._ledger is None or self._handle is None:
            return
        if self._ledger._callbacks and not self._ledger._reported:
            self._ledger._asked = self._asked
            return  # the callbacks will run
        failed = ck_delivery_drop(self._ledger._ptr)
        # A closed producer has already logged its failures.
        if (failed and not self._asked and self._handle._ptr is not NULL
                and self._handle._generation == ck_runtime_generation):
            first = _first_failed(self._ledger._ptr, 0)
            _add_unreported(self, first, failed)

    cdef ck_delivery_t *ptr(self) except NULL:
        if self._ledger is None or self._ledger._ptr is NULL:
            raise RuntimeError("this Delivery does not come from Producer.publish()")
        return self._ledger._ptr

    @property
    def done(self):
        """Whether every record has its outcome, a bool. Reading it does not run callbacks."""
        return ck_delivery_is_done(self.ptr())

    @property
    def count(self):
        """The number of records, int."""
        return ck_delivery_cnt(self.ptr())

    @property
    def failed(self):
        """The number of records that have failed so far, int."""
        self._asked = True
        return ck_delivery_failed(self.ptr())

    @property
    def errors(self):
        """The records that have failed so far: a dict of index in the batch to KafkaError."""
        cdef ck_delivery_t *delivery = self.ptr()
        cdef ck_outcome_t *slots = ck_delivery_slots(delivery)
        cdef int64_t i = 0
        cdef int err
        cdef dict known = {}
        cdef dict errors = {}
        self._asked = True
        if ck_delivery_failed(delivery) == 0:
            return errors
        while True:
            with nogil:
                i = _first_failed(delivery, i)
            if i < 0:
                return errors
            err = slots[i].u.outcome.err
            error = known.get(err)
            if error is None:
                error = known[err] = error_from(<rd_kafka_resp_err_t>err, NULL)
            errors[i] = error
            i += 1

    @property
    def offsets(self):
        """The offset of each record: a read-only memoryview of int64, -1001 without an offset.

        A view of the outcomes once :attr:`done`; until then a copy of the outcomes so far.
        """
        return _numbers(self.ptr(), 8)

    @property
    def partitions(self):
        """The partition of each record: a read-only memoryview of int32, -1 if unknown.

        A view of the outcomes once :attr:`done`; until then a copy of the outcomes so far.
        """
        return _numbers(self.ptr(), 4)

    def wait(self, timeout=None):
        """Wait until every record has its outcome. The producer's callbacks run in this call.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None or a negative value waits for all outcomes, which takes at most
            ``delivery.timeout.ms``. Ctrl-C interrupts the wait within 0.1 s; you can then wait
            again.

        Raises
        ------
        DeliveryError
            Records failed.
        TimeoutError
            Records are still in flight.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if not ck_delivery_is_done(self.ptr()):
            self.await_end(deadline)
        self.check()

    cdef int await_end(self, int64_t deadline) except -1:
        cdef ck_delivery_t *delivery = self.ptr()
        cdef Handle handle = self._handle
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef rd_kafka_t *rk
        cdef int ms
        while True:
            ms = slice_left(deadline)
            if (handle._generation == ck_runtime_generation != handle._open_in
                    and (handle._closer != me or handle._closed.is_set())
                    and handle._events is not NULL and not exiting()):
                # Another thread closes or destroys the producer. It gives every record in
                # flight an outcome, so only wait.
                with nogil:
                    ck_delivery_sleep(handle._events, delivery, ms)
            else:
                rk = handle.enter()
                with nogil:
                    ck_callback_serve(rk, handle._events, delivery, ms, NULL)
                handle.leave()
                handle.dispatch(NOW)
            if ck_delivery_is_done(delivery):
                return 0
            if ms == 0:
                raise TimeoutError(f"{self!r}: timed out before all records had an outcome")
            PyErr_CheckSignals()

    cdef int check(self) except -1:
        self._asked = True
        if ck_delivery_failed(self._ledger._ptr):
            failures = self.errors
            raise DeliveryError(next(iter(failures.values())), failures, self)
        return 0

    def add_done_callback(self, fn):
        """Call ``fn(delivery)`` once every record has its outcome.

        If the delivery is done, this method calls fn at once. Otherwise the thread that serves the
        producer (``poll``, ``flush``, ``wait``, ...) calls fn, and raises fn's exceptions.

        Parameters
        ----------
        fn : callable
        """
        cdef Ledger ledger
        if not callable(fn):
            raise TypeError(f"fn: expected a callable, got {type(fn).__name__}")
        self.ptr()
        self._asked = True
        ledger = self._ledger
        # Allocate before the check: the garbage collector, and so another thread, may run.
        callbacks = [fn]
        front = weakref.ref(self)
        # If the delivery is done and the producer closed, no thread would pop the event.
        if not ledger._reported and not ck_delivery_is_done(ledger._ptr):
            if ledger._callbacks is None:
                ledger._callbacks = callbacks
                ledger._front = front
            else:
                ledger._callbacks.append(fn)
            if ledger.add_reference(CK_DELIVERY_NOTIFY):
                return
            ledger._callbacks.pop()
            ledger._reported = True
        fn(self)

    def _remove_done_callback(self, fn):
        cdef list callbacks = None if self._ledger is None else self._ledger._callbacks
        cdef Py_ssize_t i
        if callbacks is None:
            return
        # By identity: a callback may override equality.
        for i in range(len(callbacks)):
            if callbacks[i] is fn:
                del callbacks[i]
                return

    def __await__(self):
        self.ptr()
        return _awaited(self).__await__()

    def __len__(self):
        return ck_delivery_cnt(self.ptr())

    def __bool__(self):
        return True

    def __repr__(self):
        cdef ck_delivery_t *delivery
        if self._ledger is None or self._ledger._ptr is NULL:
            return "<Delivery>"
        delivery = self._ledger._ptr
        topic = self._topic if isinstance(self._topic, str) else "several topics"
        state = "done" if ck_delivery_is_done(delivery) else "in flight"
        return (f"<Delivery of {ck_delivery_cnt(delivery)} record(s) to {topic}, {state}, "
                f"{ck_delivery_failed(delivery)} failed>")


class _Waker:
    """Ends an await, from any thread. A closure would form a cycle with the coroutine."""

    def __init__(self, loop):
        self._loop = loop
        self.future = loop.create_future()

    def __call__(self, _):
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop is closed, and with it the await has ended
            pass

    def _end(self):
        if not self.future.done():
            self.future.set_result(None)


async def _awaited(Delivery delivery not None):
    from asyncio import get_running_loop  # not at the top: only awaits need it

    if not ck_delivery_is_done(delivery.ptr()):
        if delivery._handle._generation != ck_runtime_generation:
            delivery._handle.refuse()  # the outcomes belong to the parent
        loop = get_running_loop()
        waker = _Waker(loop)
        watch = watch_of(delivery._handle)
        delivery.add_done_callback(waker)
        try:
            try:
                watch.add(loop)
            except RuntimeError as error:
                error.add_note("The Delivery's records were sent: wait() returns their outcomes")
                raise
            await waker.future
        finally:
            watch.remove(loop)
            delivery._remove_done_callback(waker)
    delivery.check()


cdef void _add_unreported(Delivery delivery, int64_t first, int64_t failed) noexcept:
    cdef Py_ssize_t size
    cdef const char *topic
    if first < 0:
        return
    name = delivery._topic
    if not isinstance(name, str):
        name = delivery._topic[first]
    topic = utf8(name, &size, "topic")
    err = ck_delivery_slots(delivery._ledger._ptr)[first].u.outcome.err
    ck_queue_add_unreported(delivery._handle._events, topic, <rd_kafka_resp_err_t>err, failed)


cdef Delivery delivery_of(Handle handle, Ledger ledger):
    cdef Delivery delivery = Delivery.__new__(Delivery)
    delivery._handle = handle
    delivery._ledger = ledger
    delivery._topic = ledger._topic
    return delivery


cdef Delivery delivery_new(Handle handle, size_t cnt, object topic):
    """Return a Delivery of cnt records, which the caller publishes."""
    cdef Ledger ledger = Ledger.__new__(Ledger)
    ledger._ptr = ck_delivery_new(handle._events, cnt)
    if ledger._ptr is NULL:
        raise MemoryError
    ledger._topic = topic
    return delivery_of(handle, ledger)


cdef int delivery_notify(Handle handle, ck_event_t *event) except -1:
    """Handle a finished delivery's event: release borrowed values, run the callbacks."""
    cdef Ledger ledger = <Ledger>ck_delivery_of_event(event, False)
    cdef Delivery delivery
    ledger._kept = None
    if ledger._callbacks:
        delivery = ledger._front()
        if delivery is None:
            delivery = delivery_of(handle, ledger)
            delivery._asked = ledger._asked
        # If a callback forks, the other callbacks belong to the parent.
        while ledger._callbacks and handle._generation == ck_runtime_generation:
            fn = ledger._callbacks.pop(0)
            try:
                fn(delivery)
            except:
                if ledger._callbacks:
                    ck_delivery_push_again(event)  # the next call runs the other callbacks
                else:
                    _take_back(ledger, event)
                raise
    _take_back(ledger, event)
    return 0


cdef void _take_back(Ledger ledger, ck_event_t *event) noexcept:
    ledger._reported = True
    ledger._callbacks = None
    ledger._front = None
    ck_delivery_of_event(event, True)
    Py_DECREF(ledger)


def observe(Delivery delivery not None, fn):
    """Call ``fn(delivery)`` like ``add_done_callback()``, but do not mark the outcomes as read.

    So ``commit_transaction()`` still raises for records that could not be queued, and the producer
    still logs other failures.
    """
    def observer(Delivery done):
        cdef bint asked = done._asked
        try:
            fn(done)
        finally:
            done._asked = asked

    cdef bint asked = delivery._asked
    try:
        delivery.add_done_callback(observer)
    finally:
        delivery._asked = asked


public("cykafka")(Delivery)
