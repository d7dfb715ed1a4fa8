from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *

# A record in flight with a callback: the data for the callback's Message. It has half the size of
# a Message, because there may be 100,000 in flight, and each has left the processor's cache when
# its report arrives.
cdef struct in_flight_t:
    ck_report_t report
    PyObject *topic
    PyObject *value
    PyObject *key
    PyObject *headers
    PyObject *on_delivery

# The packed headers (csrc/ck_pack.h) of some of a batch's messages, until they are read.
cdef class HeaderBlock:
    cdef char *_ptr

# One message's librdkafka headers, until they are read.
cdef class CHeaders:
    cdef rd_kafka_headers_t *_ptr

cdef class Message:
    cdef object _topic
    cdef object _value
    cdef object _key
    cdef object _headers
    cdef object _error
    # A consumed message's headers until they are read, else NULL.
    cdef rd_kafka_headers_t *_c_headers
    # librdkafka's message while it still has the headers, else NULL.
    cdef ck_msgref_t *_ref
    # Where the headers begin in the HeaderBlock, while _headers is one.
    cdef uint32_t _headers_at
    # Whether value, key and headers are produce()'s arguments, to convert to bytes on demand.
    cdef bint _as_given
    cdef int _delivery_count
    cdef ck_report_t _report

    cdef int _take_headers(self) except -1
    cdef int _to_bytes(self) except -1

cdef in_flight_t *in_flight_new(ck_inflight_t *inflight, object topic, object value, object key,
                                object headers, object on_delivery) except NULL
cdef void in_flight_destroy(in_flight_t *sent) noexcept
cdef Message message_delivered(const in_flight_t *sent)
cdef Message message_from(rd_kafka_message_t *rkmessage, object topic)
cdef Message message_from_row(const ck_row_t *row, object topic)
cdef list headers_from(const rd_kafka_headers_t *c_headers)
cdef rd_kafka_headers_t *headers_to(object headers) except? NULL
