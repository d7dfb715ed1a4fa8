from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport ck_call_kind_t, ck_call_t
from cykafka._core.client.handle cimport Handle

cdef class Call:
    # NULL: a pause, of _ms.
    cdef ck_call_t *c
    cdef Handle _handle
    # librdkafka's timeout; -1: forever.
    cdef int64_t _ms
    # How long the waiter waits; -1: until it is done.
    cdef int64_t _deadline
    cdef bint _started
    cdef bint _is_idle
    # The watch's `emptied` that shows that the reports which came with the result are served; -1:
    # there is no result yet.
    cdef int64_t _served_at

    cdef bint is_started(self) noexcept
    cdef int wait_here(self) except -1

cdef Call new_step(Handle handle, ck_call_kind_t kind, int64_t ms)
cdef Call idle(Handle handle, int64_t ms)
cdef Call pause(Handle handle, int64_t ms)
cdef object run(object steps)
