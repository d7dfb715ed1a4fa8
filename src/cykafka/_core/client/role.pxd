from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport ck_event_t, ck_queue_t
from cykafka._core.clib.librdkafka cimport rd_kafka_queue_t, rd_kafka_t

# When an event loop serves again: when librdkafka announces an event; soon; or a little later,
# because a thread serves now.
cdef enum:
    NOT_AGAIN, AGAIN_SOON, AGAIN_LATER

cdef class Role:
    # Whether close() was called inside a counted call of the same thread: the client closes
    # after that call.
    cdef bint closes_later
    # The argument of that close().
    cdef object close_timeout
    # The threads inside a counted call that runs Python code, each with its depth.
    cdef dict _inside

    # `client` is the Handle, whose module is above this one.
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
