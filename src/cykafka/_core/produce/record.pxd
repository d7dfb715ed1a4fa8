from libc.stdint cimport uint32_t

from cykafka._core.clib.csrc cimport ck_record_t
from cykafka._core.clib.librdkafka cimport rd_kafka_topic_t

cdef class Topic:
    cdef rd_kafka_topic_t *_ptr
    cdef uint32_t _generation

    cdef void release(self) noexcept

cdef int data_of(object data, str argument, const void **ptr, size_t *size,
                 Py_buffer *buffer) except -1
cdef bint is_data(object data) noexcept
cdef object frozen(object data)
cdef object headers_copy(object headers)
cdef object produce_error(topic, const ck_record_t *record, error)
