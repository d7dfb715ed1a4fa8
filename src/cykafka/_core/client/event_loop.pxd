from libc.stdint cimport int64_t, uint32_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.client.handle cimport Handle

cdef class Watch:
    # A weak reference: the handle owns the watch.
    cdef object _handle
    # The loop that serves the handle, and how many awaits it has in progress.
    cdef object _loop
    cdef int64_t _awaits
    # The thread in which the loop claimed the handle.
    cdef unsigned long _claimed_by
    # The thread in which the loop is serving now, or 0.
    cdef unsigned long _served_by
    # Whether the loop continues to serve after its last await, which saves system calls per await.
    cdef public bint stays
    # The callables to call when the queue may have new entries.
    cdef set _wakers
    # A callable to call before the wakers, or None.
    cdef public object on_served
    # The number of events that the loop has served.
    cdef public int64_t served
    # How often the loop has served, and how often it has emptied the queue.
    cdef int64_t rounds, emptied
    cdef ck_pipe_t *_pipe
    cdef bint _over
    cdef uint32_t _generation

    cdef object running_loop(self)
    cdef int _stop(self) except -1
    cdef bint serves_here(self, loop) noexcept
    cdef int wake(self, loop) except -1
    cdef ck_pipe_t *pipe(self) except NULL

cdef Watch watch_of(Handle handle)
