"""Call: a call to the brokers for which a thread or an event loop waits.

Operations that consist of such calls are generators. They yield each call, and continue when it is
done. run() waits in this thread, cykafka.aio in an event loop. So each operation has one
implementation, for threads and for event loops.
"""
from cpython.exc cimport PyErr_CheckSignals
cimport cython
from posix.unistd cimport usleep

from cykafka._core.clib.csrc cimport *
from cykafka._core.client.event_loop cimport Watch, watch_of
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.requests cimport cluster_of, name_topic, new_call
from cykafka._core.common.arguments cimport slice_left, timeout_ms


@cython.final
@cython.no_gc_clear
cdef class Call:
    """A call in C (csrc/ck_call), or a pause."""

    def __cinit__(self):
        self._served_at = -1

    def __dealloc__(self):
        ck_call_leave(self.c)

    cdef bint is_started(self) noexcept:
        return self._started

    @property
    def watch(self):
        """The Watch of the client that starts the call."""
        return watch_of(self._handle)

    @property
    def is_short(self):
        """Whether the waiter must wait to the end: the call is short, and its result matters."""
        return self.c is not NULL and self.c.kind >= CK_CALL_FLUSH

    @property
    def pause_s(self):
        """How long to pause, s; None for a call."""
        return self._ms / 1e3 if self.c is NULL else None

    @property
    def wait_s(self):
        """How long to wait for the call, s; None: no limit."""
        return None if self._deadline < 0 else max(0, self._deadline - ck_runtime_now_ms()) / 1e3

    def start(self):
        """Start the call in a C thread, unless it is already started. When the call is done, the
        thread makes the watch's loop serve the handle."""
        if self._started:
            return
        self._handle.check_open()
        self.c.notify = ck_pipe_ref(watch_of(self._handle).pipe())
        self._handle.start_call(self.c, self._ms)
        self._started = True

    def is_done(self):
        """Whether the call has ended and, after a flush or the end of a transaction, the loop has
        served its reports. Raises if the handle closes before the call ends."""
        cdef Handle handle = self._handle
        cdef Watch watch
        if not ck_call_wait(self.c, 0):
            handle.check_open()
            return False
        if self.c.kind < CK_CALL_FLUSH or handle._open_in != ck_runtime_generation:
            return True
        watch = watch_of(handle)
        if self.c.kind == CK_CALL_FLUSH:
            # The loop's next round serves the reports that the flush left. Do not wait for an
            # empty queue: others may send records.
            if len(handle) == 0:
                return True
            if self._served_at < 0:
                self._served_at = watch.rounds + 1
                ck_pipe_notify(self.c.notify)
            return watch.rounds >= self._served_at
        if self._served_at < 0:
            self._served_at = watch.emptied + 1
            ck_pipe_notify(self.c.notify)
        return watch.emptied >= self._served_at

    cdef int wait_here(self) except -1:
        """Run the call or pause in this thread."""
        cdef Handle handle = self._handle
        cdef bint closing = handle._role.closes_later
        cdef bint done
        cdef int ms
        if self.c is NULL and self._is_idle:
            ms = <int>self._ms
            with nogil:
                usleep(ms * 1000)
            handle.check_wait(closing)
        elif self.c is NULL:
            rk = handle.enter()
            ms = <int>self._ms
            with nogil:
                ck_callback_serve(rk, handle._events, NULL, ms, NULL)
            handle.leave()
            PyErr_CheckSignals()
        elif self._started:
            while True:
                ms = slice_left(self._deadline)
                with nogil:
                    done = ck_call_wait(self.c, ms)
                if done or ms == 0:
                    break
                handle.check_wait(closing)
        elif self.c.kind >= CK_CALL_FLUSH:
            # Such a call lasts at most a slice, and serves the handle.
            rk = handle.enter()
            ms = <int>self._ms
            with nogil:
                ck_call_now(self.c, rk, ms)
            handle.leave()
        elif self.c.kind < CK_CALL_SEEK:
            # run_call() first waits for a broker, so that Ctrl-C rarely abandons a call.
            self._started = True
            handle.run_call(self.c, self._ms)
        else:
            handle.start_call(self.c, self._ms)
            self._started = True
            handle.await_call(self.c)
        return 0


cdef Call new_step(Handle handle, ck_call_kind_t kind, int64_t ms):
    """Create a call with this librdkafka timeout, ms (-1: forever). Does not start it."""
    cdef Call step = Call.__new__(Call)
    step._handle = handle
    step._ms = ms
    step._deadline = -1
    step.c = new_call(kind)
    return step


cdef Call idle(Handle handle, int64_t ms):
    """A pause that does not serve: rd_kafka_poll() must not take a consumer's messages."""
    cdef Call step = pause(handle, ms)
    step._is_idle = True
    return step


cdef Call pause(Handle handle, int64_t ms):
    """A pause during which the waiting thread serves the handle."""
    cdef Call step = Call.__new__(Call)
    step._handle = handle
    step._ms = ms
    return step


def list_topics(Handle handle not None, topic, timeout):
    """Handle.list_topics() as an operation."""
    handle.check_handle()
    cdef Call call = new_step(handle, CK_CALL_METADATA, timeout_ms(timeout, "timeout"))
    name_topic(call.c, topic)
    yield call
    return cluster_of(call.c)


cdef object run(object steps):
    """Run an operation in this thread, and return its result."""
    cdef Call step
    try:
        step = next(steps)
        while True:
            try:
                step.wait_here()
            except BaseException as exception:
                step = steps.throw(exception)
            else:
                step = next(steps)
    except StopIteration as end:
        return end.value
