from libc.stdint cimport int64_t

from cykafka._csrc cimport ck_batch_t
from cykafka._librdkafka cimport rd_kafka_message_t
from cykafka._member cimport Member

cdef class Fetcher(Member):
    # Which of the two lent messages is the older one.
    cdef int _turn
    # The name of the topic last seen, so that equal names are one str.
    cdef dict _names
    cdef bytes _last_name
    cdef object _last_topic

    cdef object name_of(self, const char *name)
    cdef list hand_over(self, ck_batch_t *batch, size_t most)
    cdef object hand_over_one(self, rd_kafka_message_t *rkmessage)
    cdef int keep(self, rd_kafka_message_t *rkmessage) except -1
    cdef ck_batch_t *begin(self, int64_t want, str call) except NULL
    cdef int end(self, ck_batch_t *batch) except -1
    cdef int gather(self, ck_batch_t *batch, int64_t want, int64_t deadline,
                    bint until_error) except -1
