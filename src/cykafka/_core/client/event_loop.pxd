from libc.stdint cimport int64_t, uint32_t

from cykafka._core.clib.csrc cimport ck_pipe_t
from cykafka._core.client.handle cimport Handle

cdef class Watch:
    # A weak reference: the handle owns the watch.
    cdef object _handle
    cdef object _lock
    # The Awaiting of each loop that awaits.
    cdef dict _awaiting
    # Whether a loop goes on serving after its last await, until another loop awaits. It saves the
    # system calls of each await.
    cdef public bint stays
    # Called when the queue may have new entries.
    cdef set _wakers
    # Called before them, or None.
    cdef public object on_served
    # The number of events that loops have served.
    cdef public int64_t served
    # How often a loop has served, and how often it has left no event in the queue.
    cdef int64_t turns, emptied
    # The loop that is serving now, and its thread.
    cdef object serving
    cdef unsigned long serving_in
    cdef object _loop
    # Reads the pipe, if the loop cannot.
    cdef object _thread
    cdef ck_pipe_t *_pipe
    cdef bint _over
    cdef uint32_t _generation

    cdef ck_pipe_t *pipe(self) except NULL
    cdef int remove_reader(self, loop) except -1
    cdef int unread(self, loop) except -1
    cdef int end_thread(self) except -1
    cdef int start(self, loop) except -1
    cdef int stop(self, loop) except -1
    cdef int wake(self, loop) except -1
    cdef int replace_by(self, loop) except -1
    cdef int look_later(self, loop) except -1
    cdef bint has_work(self) except -1

cdef Watch watch_of(Handle handle)
cdef int drop_closed(dict by_loop) except -1
