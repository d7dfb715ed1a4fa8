from libc.stdint cimport int64_t

from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.role cimport Role

cdef class Member(Role):
    # While the consumer leaves its group: the queue to serve, or NULL.
    cdef rd_kafka_queue_t *closing
    # Whether the consumer was closed before it had left its group.
    cdef bint overdue
    # What close() then logs.
    cdef str overdue_words

    cdef int close(self, Handle handle, int64_t deadline) except -1
    cdef object begin_leave(self, Handle handle, int64_t deadline)
    cdef object leave(self, Handle handle, int64_t deadline, object raised)
    cdef bint step_leave(self, Handle handle) except -1
    cdef object end_leave(self, Handle handle, int64_t deadline, object raised)
    cdef bint has_left(self, Handle handle) noexcept
