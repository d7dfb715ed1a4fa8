from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.client.handle cimport Handle

cdef class Call:
    # NULL for a pause of _ms.
    cdef ck_call_t *c
    cdef Handle _handle
    # librdkafka's timeout or the length of the pause, ms; -1: forever.
    cdef int64_t _ms
    # When the waiter stops waiting; -1: when the call is done.
    cdef int64_t _deadline
    cdef bint _started
    cdef bint _is_idle
    # When the watch's `rounds` (flush) or `emptied` (other calls) reaches this value, the loop has
    # served the reports that came with the result; -1: there is no result yet.
    cdef int64_t _served_at

    cdef bint is_started(self) noexcept
    cdef int wait_here(self) except -1

cdef Call new_step(Handle handle, ck_call_kind_t kind, int64_t ms)
cdef Call idle(Handle handle, int64_t ms)
cdef Call pause(Handle handle, int64_t ms)
cdef object run(object steps)
