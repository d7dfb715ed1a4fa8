from libc.stdint cimport int64_t

from cykafka._csrc cimport ck_record_t
from cykafka._librdkafka cimport rd_kafka_error_t, rd_kafka_topic_t
from cykafka._record cimport Topic
from cykafka._transaction cimport Transactional

cdef class Producer(Transactional):
    cdef dict _topics
    cdef object _last_name
    cdef Topic _last_topic
    cdef object _on_delivery

    cdef rd_kafka_topic_t *topic_of(self, object name) except NULL
    cdef int64_t flush_until(self, int64_t deadline) except -1
    cdef void drop_reports(self) noexcept
    cdef void release_topics(self) noexcept
    cdef int _produce_slowly(self, topic, const ck_record_t *record, rd_kafka_error_t *error,
                             timeout) except -1
    cdef int _finish(self) except -1
    cdef int _tell_untold(self) except -1
