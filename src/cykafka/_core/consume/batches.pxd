from libc.stdint cimport int64_t

from cykafka._core.batch.message_batch cimport MessageBatch
from cykafka._core.clib.csrc cimport ck_batch_t, ck_ranges_t
from cykafka._core.clib.librdkafka cimport rd_kafka_message_t
from cykafka._core.common.message cimport Message
from cykafka._core.consume.fetcher cimport Fetcher

cdef class Batches(Fetcher):
    cdef MessageBatch fetch(self, int64_t want, int64_t timeout, bint raising, str call)
    cdef int gather_ranges(self, ck_batch_t *batch, ck_ranges_t *ranges, int64_t want, size_t room,
                           int64_t deadline) except -1
    cdef Message _error_from(self, rd_kafka_message_t *rkmessage)
    cdef MessageBatch hand_over_batch(self, ck_batch_t *gathered, size_t want, bint raising)
