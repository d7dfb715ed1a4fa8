"""Watch: an asyncio loop serves a handle while coroutines await its results, without a thread.

librdkafka writes to a pipe when its queue becomes non-empty (rd_kafka_queue_io_event_enable), and
the loop that reads the pipe serves the queue. A queue has one such pipe, so a client belongs to
one loop at a time. Another loop may follow when that loop is closed.
"""
import weakref
from asyncio import get_running_loop

cimport cython

from cpython.exc cimport PyErr_SetFromErrno

from cykafka._core.clib.csrc cimport (
    PyThread_get_thread_ident,
    ck_pipe_empty,
    ck_pipe_new,
    ck_pipe_notify,
    ck_pipe_reader,
    ck_pipe_t,
    ck_pipe_unref,
    ck_pipe_writer,
    ck_runtime_generation,
)
from cykafka._core.clib.librdkafka cimport rd_kafka_queue_io_event_enable
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.role cimport AGAIN_LATER, AGAIN_SOON, NOT_AGAIN


cdef double LATER_S = 0.005


# The collector does not clear a watch, nor the handle that ends it.
@cython.no_gc_clear
cdef class Watch:
    """The loop in which coroutines await results of one handle.

    Only a loop's thread calls `claim`, `add` and `remove`; any thread calls the other methods.
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
        """End one await of a loop; the inverse of `add`."""
        if self._loop is not loop or self._generation != ck_runtime_generation:
            return
        self._awaits -= 1
        if self._awaits == 0 and not self.stays:
            self._stop()

    cdef object running_loop(self):
        """The running loop, which may serve the handle from now on."""
        # Python 3.11's get_running_loop() makes a system call, a tenth of the time of a record.
        loop = self._loop
        if (loop is not None and self._claimed_by == PyThread_get_thread_ident()
                and loop.is_running()):
            return loop
        loop = get_running_loop()
        self.claim(loop)
        return loop

    def claim(self, loop):
        """Let this loop serve the handle from now on.

        Raises
        ------
        RuntimeError
            Another loop uses the client, and is not closed.
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
            # Entries that are already in the queue do not write to the pipe.
            loop.call_soon(self._readable, loop)
        except:
            self._loop = None
            raise
        if self._over:  # another thread has closed the handle by now
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
            # The call keeps the watch alive, which closes the pipe when it is freed.
            loop.call_soon_threadsafe(self._unread, loop)
        except RuntimeError:
            # With an open loop, a signal handler has raised it.
            if not loop.is_closed():
                raise

    def _unread(self, loop):
        if self._generation == ck_runtime_generation:
            loop.remove_reader(ck_pipe_reader(self._pipe))

    # -- the coroutines that wait

    def join(self, waker):
        """Call ``waker(loop)`` whenever the handle's queue may have new entries, and at the end of
        the watch; `loop` is the one that runs in the calling thread, or None. Join before looking
        into the queue."""
        self._wakers.add(waker)
        if self._over:
            waker(None)

    def part(self, waker):
        """The inverse of `join`."""
        self._wakers.discard(waker)

    def wake_all(self):
        """Call every waker, because a client's state has changed."""
        self.wake(None)

    cdef int wake(self, loop) except -1:
        on_served = self.on_served
        if on_served is not None:
            on_served()
        for waker in tuple(self._wakers):
            waker(loop)
        return 0

    # -- serving

    cdef ck_pipe_t *pipe(self) except NULL:
        """The pipe whose bytes make the loop serve the handle. It lives as long as the watch, and
        as its other references."""
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
        if loop is not self._loop:  # a call from before it stopped
            return
        ck_pipe_empty(self._pipe)
        if handle._open_in != ck_runtime_generation:
            self.wake(loop)  # the closing thread serves, or a coroutine of this loop
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
        """Whether this runs in a call by which the loop serves the handle."""
        return loop is self._loop and self._served_by == PyThread_get_thread_ident()


cdef bint has_queue(Handle handle) noexcept:
    """Whether the handle is not destroyed. While it closes, a loop still serves its queue: a
    coroutine may wait for the end of the close."""
    return (handle is not None and handle._ptr is not NULL
            and handle._generation == ck_runtime_generation)


cdef Watch watch_of(Handle handle):
    """The handle's watch; the first call makes it."""
    cdef Watch watch
    if handle._watch is None:
        watch = Watch.__new__(Watch)
        watch._handle = weakref.ref(handle)
        watch._wakers = set()
        if handle._watch is None:
            handle._watch = watch
    return handle._watch


def watch(Handle handle not None):
    """The handle's watch, for cykafka.aio."""
    return watch_of(handle)
