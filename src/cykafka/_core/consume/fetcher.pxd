from libc.stdint cimport int32_t, int64_t

from cykafka._core.clib.csrc cimport ck_batch_t, ck_lent_t
from cykafka._core.clib.librdkafka cimport rd_kafka_message_t
from cykafka._core.consume.member cimport Member

cdef class Fetcher(Member):
    # Which of the two lent messages is the older one.
    cdef int _turn
    # The name of the topic last seen, so that equal names are one str.
    cdef dict _names
    cdef bytes _last_name
    cdef object _last_topic

    # The assigned partitions, as (topic, partition), whose first message was not handed over yet;
    # none unless a transaction may commit this consumer's offsets.
    cdef set _unread
    # Whether there are any.
    cdef bint _starting
    # The partition last seen while there are: it is not in the set.
    cdef object _noted_topic
    cdef int32_t _noted_partition
    # By (topic, partition): the offset where reading began, or which was committed last.
    cdef dict _starts

    cdef object name_of(self, const char *name)
    cdef int note_starts(self, rd_kafka_message_t **first, size_t cnt) except -1
    cdef list hand_over(self, ck_batch_t *batch, size_t most)
    cdef object hand_over_one(self, rd_kafka_message_t *rkmessage)
    cdef ck_lent_t *lender(self) except NULL
    cdef int keep(self, rd_kafka_message_t *rkmessage) except -1
    cdef ck_batch_t *begin(self, int64_t want, str call) except NULL
    cdef int end(self, ck_batch_t *batch) except -1
    cdef int gather(self, ck_batch_t *batch, int64_t want, int64_t deadline,
                    bint until_error) except -1
