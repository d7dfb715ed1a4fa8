"""Call: a call to the brokers for which a thread waits, or an event loop.

Operations that consist of such calls are generators. They yield each call, and go on when it is
done: run() waits for it in this thread, cykafka.aio in an event loop. So an operation is written
once, for threads and for event loops.
"""
from cpython.exc cimport PyErr_CheckSignals
cimport cython
from posix.unistd cimport usleep

from cykafka._core.clib.csrc cimport (
    CK_CALL_FLUSH,
    CK_CALL_METADATA,
    CK_CALL_SEEK,
    ck_call_leave,
    ck_call_now,
    ck_call_wait,
    ck_callback_serve,
    ck_pipe_notify,
    ck_pipe_ref,
    ck_runtime_generation,
    ck_runtime_now_ms,
)
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
        """The Watch of the client that makes the call."""
        return watch_of(self._handle)

    @property
    def is_short(self):
        """Whether the call must not be left: it ends within a slice, and its result counts."""
        return self.c is not NULL and self.c.kind >= CK_CALL_FLUSH

    @property
    def pause_s(self):
        """The length of a pause, s; None for a call."""
        return self._ms / 1e3 if self.c is NULL else None

    @property
    def wait_s(self):
        """The longest wait for a call, s; None: no limit."""
        return None if self._deadline < 0 else max(0, self._deadline - ck_runtime_now_ms()) / 1e3

    def start(self):
        """Start it in a thread of C, which makes the watch's loop serve when it is done. Does
        nothing if it is started already."""
        if self._started:
            return
        self._handle.check_open()
        self.c.notify = ck_pipe_ref(watch_of(self._handle).pipe())
        self._handle.start_call(self.c, self._ms)
        self._started = True

    def is_done(self):
        """Whether the call has ended, and the loop has served the reports that came with a flush
        or with the end of a transaction. Raises if the handle is closed before the end."""
        cdef Handle handle = self._handle
        cdef Watch watch
        if not ck_call_wait(self.c, 0):
            handle.check_open()
            return False
        if self.c.kind < CK_CALL_FLUSH or handle._open_in != ck_runtime_generation:
            return True
        watch = watch_of(handle)
        if self.c.kind == CK_CALL_FLUSH:
            # The loop's next round serves what the flush has left. The queue need not become
            # empty: others may send records.
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
        """Make the call, and wait in this thread."""
        cdef Handle handle = self._handle
        cdef bint closing = handle._role.closes_later
        cdef bint done
        cdef int ms
        if self.c is NULL and self._is_idle:
            ms = <int>self._ms
            with nogil:
                usleep(ms * 1000)
            handle.give_way(closing)
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
                handle.give_way(closing)
        elif self.c.kind >= CK_CALL_FLUSH:
            # They last a slice, and serve the handle.
            rk = handle.enter()
            ms = <int>self._ms
            with nogil:
                ck_call_now(self.c, rk, ms)
            handle.leave()
        elif self.c.kind < CK_CALL_SEEK:
            # It first looks for a broker, so that Ctrl-C leaves no call behind.
            self._started = True
            handle.ask(self.c, self._ms)
        else:
            handle.start_call(self.c, self._ms)
            self._started = True
            handle.await_call(self.c)
        return 0


cdef Call new_step(Handle handle, ck_call_kind_t kind, int64_t ms):
    """A call with librdkafka's timeout in ms (-1: forever), which is not started yet."""
    cdef Call step = Call.__new__(Call)
    step._handle = handle
    step._ms = ms
    step._deadline = -1
    step.c = new_call(kind)
    return step


cdef Call idle(Handle handle, int64_t ms):
    """A pause without serving: rd_kafka_poll() must not take a consumer's messages."""
    cdef Call step = pause(handle, ms)
    step._is_idle = True
    return step


cdef Call pause(Handle handle, int64_t ms):
    """A pause, during which a thread serves the handle."""
    cdef Call step = Call.__new__(Call)
    step._handle = handle
    step._ms = ms
    return step


def list_topics(Handle handle not None, topic, timeout):
    """An operation: Handle.list_topics()."""
    handle.check_handle()
    cdef Call call = new_step(handle, CK_CALL_METADATA, timeout_ms(timeout, "timeout"))
    name_topic(call.c, topic)
    yield call
    return cluster_of(call.c)


cdef object run(object steps):
    """Run an operation in this thread. Returns its result."""
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
