from libc.stdint cimport int32_t, int64_t, uint32_t

from cykafka._csrc cimport ck_report_t
from cykafka._librdkafka cimport rd_kafka_headers_t, rd_kafka_message_t

cdef class Message:
    cdef object _topic
    cdef object _value
    cdef object _key
    cdef object _headers
    cdef object _error
    # The callback a produced message waits for, else None.
    cdef object _on_delivery
    # Headers of a consumed message until someone asks for them, else NULL.
    cdef rd_kafka_headers_t *_c_headers
    # librdkafka's message, as long as the headers are still in it, and the lender's note of that.
    cdef rd_kafka_message_t *_lent
    cdef void **_lender
    cdef uint32_t _generation
    # Whether value and key are what produce() was given, to be turned into bytes on demand.
    cdef bint _as_given
    cdef int _delivery_count
    cdef ck_report_t _report

    cdef void give_back(self) noexcept
    cdef int _to_bytes(self) except -1
    cdef int _track(self) except -1

cdef Message message_to_deliver(object topic, object value, object key, object headers,
                                object on_delivery)
cdef Message message_from(rd_kafka_message_t *rkmessage, object topic)
cdef void lend(Message message, rd_kafka_message_t *rkmessage, void **lender) noexcept
cdef rd_kafka_headers_t *headers_to(object headers) except? NULL
