from libc.stdint cimport int64_t, uint32_t

from cykafka._core.client.handle cimport Handle

cdef class Watch:
    # A weak reference: the handle owns the watch.
    cdef object _handle
    cdef object _lock
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
    cdef object _loop
    # Reads the pipe, if the loop cannot.
    cdef object _thread
    cdef int _read
    cdef int _write
    cdef bint _over
    cdef uint32_t _generation

    cdef int make_pipe(self) except -1
    cdef bint empty(self) except -1
    cdef int refill(self) except -1
    cdef int remove_reader(self, loop) except -1
    cdef bint end_thread(self) except -1
    cdef int start(self, loop) except -1
    cdef int stop(self, loop) except -1
    cdef int wake(self, loop) except -1

cdef Watch watch_of(Handle handle)
