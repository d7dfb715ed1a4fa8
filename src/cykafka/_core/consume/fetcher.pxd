from libc.stdint cimport int64_t

from cykafka._core.batch cimport MessageBatch
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.message cimport Message
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.membership cimport Membership
from cykafka._core.consume.progress cimport Progress

cdef class Ranges:
    cdef ck_ranges_t *_ptr
    # Whether a call is advancing the ranges, without the GIL.
    cdef bint _busy

    cdef int take(self) except -1

cdef class Fetcher:
    cdef Membership _membership
    cdef Backlog _backlog
    cdef Progress _progress

    cdef list messages(self, Handle handle, int64_t want, int64_t deadline)
    cdef MessageBatch batch(self, Handle handle, int64_t want, int64_t deadline, bint raising,
                            str call)
    cdef MessageBatch ranges(self, Handle handle, Ranges ranges, int64_t want, size_t room,
                             int64_t deadline)
    cdef int64_t available(self, Handle handle, int64_t want) except -1
    cdef list hand_over(self, ck_batch_t *batch, size_t most)
    cdef Message hand_over_kept(self)
    cdef Message hand_over_one(self, rd_kafka_message_t *rkmessage)
    cdef MessageBatch hand_over_batch(self, Handle handle, ck_batch_t *gathered, size_t want,
                                      bint raising)
    cdef Message error_from(self, rd_kafka_message_t *rkmessage)
    cdef ck_batch_t *begin(self, Handle handle, int64_t want, str call) except NULL
    cdef int end(self, Handle handle, ck_batch_t *batch) except -1
    cdef int gather(self, Handle handle, ck_batch_t *batch, int64_t want, int64_t deadline,
                    bint until_error) except -1
    cdef int gather_ranges(self, Handle handle, ck_batch_t *batch, ck_ranges_t *ranges,
                           int64_t want, size_t room, int64_t deadline) except -1
