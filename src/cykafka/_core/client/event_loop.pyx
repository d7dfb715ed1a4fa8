"""Watch: lets an asyncio loop serve a handle without a thread while coroutines await its results.

When its queue becomes non-empty, librdkafka writes to a pipe (rd_kafka_queue_io_event_enable). The
loop that reads the pipe serves the queue. A queue has one such pipe, so a client belongs to one
loop at a time. When that loop is closed, another loop may use the client.
"""
import weakref

cimport cython

from cpython.exc cimport PyErr_SetFromErrno

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.role cimport AGAIN_LATER, AGAIN_SOON, NOT_AGAIN


cdef double LATER_S = 0.005


# The garbage collector clears neither a watch nor the handle that ends it.
@cython.no_gc_clear
cdef class Watch:
    """The loop in which coroutines await one handle's results.

    Call `claim`, `add` and `remove` only in the loop's thread, and the other methods in any
    thread.
    """

    def __cinit__(self):
        self._generation = ck_runtime_generation

    def __dealloc__(self):
        ck_pipe_unref(self._pipe)

    def add(self, loop):
        """Serve the handle in this loop while it awaits; see `claim`."""
        self.claim(loop)
        self._awaits += 1

    def remove(self, loop):
        """Undo one `add`, when the loop's await ends."""
        if self._loop is not loop or self._generation != ck_runtime_generation:
            return
        self._awaits -= 1
        if self._awaits == 0 and not self.stays:
            self._stop()

    cdef object running_loop(self):
        """Return the running loop, after letting it serve the handle."""
        # Python 3.11's get_running_loop() makes a system call: a tenth of the time per record.
        loop = self._loop
        if (loop is not None and self._claimed_by == PyThread_get_thread_ident()
                and loop.is_running()):
            return loop
        from asyncio import get_running_loop  # not at the top: only asyncio's clients need it

        loop = get_running_loop()
        self.claim(loop)
        return loop

    def claim(self, loop):
        """Let this loop serve the handle from now on.

        Raises
        ------
        RuntimeError
            Another loop uses the client and is not closed.
        """
        cdef Handle handle = self._handle()
        before = self._loop
        # A forked child shares the loop's epoll with its parent.
        if before is loop or self._generation != ck_runtime_generation:
            return
        if before is not None and not before.is_closed():
            raise RuntimeError(
                f"{handle!r} is used in another event loop, which is not closed: a client belongs "
                "to one loop at a time")
        if self._over or not has_queue(handle):
            return
        if self._loop is not before:  # another thread was faster
            self.claim(loop)
            return
        self._loop = loop
        self._claimed_by = PyThread_get_thread_ident()
        self._awaits = 0
        try:
            loop.add_reader(ck_pipe_reader(self.pipe()), self._readable, loop)
            # For entries already in the queue, librdkafka does not write to the pipe.
            loop.call_soon(self._readable, loop)
        except:
            self._loop = None
            raise
        if self._over:  # another thread has closed the handle
            loop.remove_reader(ck_pipe_reader(self._pipe))
            return
        rd_kafka_queue_io_event_enable(handle._wait_queue, ck_pipe_writer(self._pipe), b"1", 1)

    cdef int _stop(self) except -1:
        cdef Handle handle = self._handle()
        loop = self._loop
        self._loop = None
        if has_queue(handle):
            rd_kafka_queue_io_event_enable(handle._wait_queue, -1, NULL, 0)
        if not loop.is_closed():
            loop.remove_reader(ck_pipe_reader(self._pipe))
        return 0

    def end(self):
        """End the watch before the handle is destroyed."""
        cdef Handle handle = self._handle()
        self._over = True
        loop = self._loop
        self._loop = None
        if loop is not None and has_queue(handle):
            rd_kafka_queue_io_event_enable(handle._wait_queue, -1, NULL, 0)
        try:
            self.wake(None)
        finally:
            if loop is not None:
                self._forget(loop)

    def _forget(self, loop):
        try:
            # The scheduled call keeps the watch alive. Freeing the watch closes the pipe.
            loop.call_soon_threadsafe(self._unread, loop)
        except RuntimeError:
            # If the loop is open, a signal handler raised the error.
            if not loop.is_closed():
                raise

    def _unread(self, loop):
        if self._generation == ck_runtime_generation:
            loop.remove_reader(ck_pipe_reader(self._pipe))

    # -- the coroutines that wait

    def join(self, waker):
        """Call ``waker(loop)`` whenever the handle's queue may have new entries, and when the
        watch ends. `loop` is the loop that runs in the calling thread, or None. Join before you
        check the queue."""
        self._wakers.add(waker)
        if self._over:
            waker(None)

    def part(self, waker):
        """Undo `join`."""
        self._wakers.discard(waker)

    def wake_all(self):
        """Call every waker, because the client's state has changed."""
        self.wake(None)

    cdef int wake(self, loop) except -1:
        on_served = self.on_served
        if on_served is not None:
            on_served()
        # list() allocates nothing while it iterates, so no finalizer calls part() meanwhile.
        for waker in list(self._wakers):
            waker(loop)
        return 0

    # -- serving

    cdef ck_pipe_t *pipe(self) except NULL:
        """Return the pipe: a byte in it makes the loop serve the handle. The watch has one
        reference to the pipe, and calls may have others."""
        if self._pipe is NULL:
            self._pipe = ck_pipe_new()
        if self._pipe is NULL:
            PyErr_SetFromErrno(OSError)
        return self._pipe

    def _readable(self, loop):
        cdef Handle handle = self._handle()
        # A forked child shares the pipe with its parent.
        if self._generation != ck_runtime_generation:
            return
        if handle is None:
            loop.remove_reader(ck_pipe_reader(self._pipe))
            return
        if loop is not self._loop:  # scheduled before the loop stopped serving
            return
        ck_pipe_empty(self._pipe)
        if handle._open_in != ck_runtime_generation:
            self.wake(loop)  # the closing thread or a coroutine of this loop serves
            return
        self._served_by = PyThread_get_thread_ident()
        try:
            again = handle._role.serve_loop(handle)
        except:
            ck_pipe_notify(self._pipe)  # for the remaining events
            raise
        finally:
            self._served_by = 0
        self.rounds += 1
        self.emptied += again == NOT_AGAIN
        self.wake(loop)
        if again == AGAIN_SOON:
            loop.call_soon(self._readable, loop)
        elif again == AGAIN_LATER:
            loop.call_later(LATER_S, self._readable, loop)

    cdef bint serves_here(self, loop) noexcept:
        """Whether the loop is serving the handle in this thread's current call."""
        return loop is self._loop and self._served_by == PyThread_get_thread_ident()


cdef bint has_queue(Handle handle) noexcept:
    """Whether the handle still has its queue. A loop serves the queue even while the handle
    closes, because a coroutine may wait for the close."""
    return (handle is not None and handle._ptr is not NULL
            and handle._generation == ck_runtime_generation)


cdef Watch watch_of(Handle handle):
    """Return the handle's watch. The first call creates it."""
    cdef Watch watch
    if handle._watch is None:
        watch = Watch.__new__(Watch)
        watch._handle = weakref.ref(handle)
        watch._wakers = set()
        if handle._watch is None:
            handle._watch = watch
    return handle._watch


def watch(Handle handle not None):
    """Return the handle's watch, for cykafka.aio."""
    return watch_of(handle)
