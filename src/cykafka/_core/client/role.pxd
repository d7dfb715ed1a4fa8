from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *

# When an event loop serves again: when librdkafka signals an event, at once, or a little later
# because a thread is serving.
cdef enum:
    NOT_AGAIN, AGAIN_SOON, AGAIN_LATER

cdef class Role:
    # Whether close() was called inside a counted call of the same thread. The client then closes
    # after that call.
    cdef bint closes_later
    # The timeout of that close().
    cdef object close_timeout
    # The threads in counted calls that run Python code, with the nesting depth of each.
    cdef dict _inside

    # `client` is the Handle. Its module imports this one.
    cdef rd_kafka_queue_t *wait_queue(self, rd_kafka_t *rk) noexcept
    cdef void wake(self, ck_queue_t *events) noexcept nogil
    cdef int serve(self, object client, ck_event_t *event) except -1
    cdef int serve_loop(self, object client) except -1
    cdef int64_t undelivered(self, object client) noexcept
    cdef int release(self, object client) except -1
    cdef int ended(self, object client) except -1
    cdef int abandon(self, object client) except -1
    cdef bint is_in_callback(self) except -1
    cdef int enter_callback(self) except -1
    cdef int leave_callback(self) except -1
