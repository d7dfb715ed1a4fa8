from libc.stdint cimport int64_t

from cykafka._csrc cimport ck_record_t
from cykafka._librdkafka cimport rd_kafka_error_t
from cykafka._publisher cimport Publisher

cdef class Producer(Publisher):
    cdef object _on_delivery

    cdef int64_t flush_until(self, int64_t deadline) except -1
    cdef void drop_reports(self) noexcept
    cdef int _produce_slowly(self, topic, const ck_record_t *record, rd_kafka_error_t *error,
                             timeout) except -1
    cdef int _finish(self) except -1
    cdef int _tell_untold(self) except -1
