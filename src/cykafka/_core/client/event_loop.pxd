from libc.stdint cimport int64_t, uint32_t

from cykafka._core.clib.csrc cimport ck_pipe_t
from cykafka._core.client.handle cimport Handle

cdef class Watch:
    # A weak reference: the handle owns the watch.
    cdef object _handle
    # The loop that serves the handle, and the number of its awaits.
    cdef object _loop
    cdef int64_t _awaits
    # The thread of the loop when it was claimed.
    cdef unsigned long _claimed_by
    # The thread in which the loop is serving now, or 0.
    cdef unsigned long _served_by
    # Whether the loop goes on serving after its last await. It saves the system calls of each
    # await.
    cdef public bint stays
    # Called when the queue may have new entries.
    cdef set _wakers
    # Called before them, or None.
    cdef public object on_served
    # The number of events that the loop has served.
    cdef public int64_t served
    # How often the loop has served, and how often it has left no event in the queue.
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
