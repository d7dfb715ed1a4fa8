from libc.stdint cimport int64_t

from cykafka._core.arrow.read cimport ArrowData
from cykafka._core.clib.csrc cimport ck_publish_t
from cykafka._core.clib.librdkafka cimport rd_kafka_topic_t
from cykafka._core.produce.columns cimport Columns
from cykafka._core.produce.delivery cimport Delivery
from cykafka._core.produce.record cimport Topic
from cykafka._core.produce.transaction cimport Transactional

cdef class Publisher(Transactional):
    cdef dict _topics
    cdef object _last_name
    cdef Topic _last_topic
    # queue.buffering.max.kbytes, in bytes.
    cdef int64_t _room

    cdef rd_kafka_topic_t *topic_of(self, object name) except NULL
    cdef void release_topics(self) noexcept
    cdef object topics_column(self, object topic, Columns columns, ck_publish_t *publish)
    cdef tuple arrow_topics(self, ArrowData arrow, Columns columns, ck_publish_t *publish)
    cdef Delivery send(self, ck_publish_t *publish, object topic, object kept, int64_t ms)
    cdef int note_incomplete(self, Delivery delivery) except -1
    cdef int serve_reports(self) except -1
    cdef int _hand_over(self, ck_publish_t *publish, Delivery delivery, int64_t deadline) except -1

cdef bint is_large(object kept, ck_publish_t *publish) noexcept
