from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t

from cykafka._csrc cimport ck_report_t, ck_row_t
from cykafka._librdkafka cimport rd_kafka_headers_t, rd_kafka_message_t

# A record on its way whose callback waits: what the callback's Message will be made of. There may be a hundred
# thousand, so that each is out of the processor's cache when its report comes: hence half a Message's size.
cdef struct in_flight_t:
    ck_report_t report
    PyObject *topic
    PyObject *value
    PyObject *key
    PyObject *headers
    PyObject *on_delivery

# Headers of some messages of a batch, as csrc/ck_pack.h packs them, until someone asks for them.
cdef class HeaderBlock:
    cdef char *_ptr

cdef class Message:
    cdef object _topic
    cdef object _value
    cdef object _key
    cdef object _headers
    cdef object _error
    # Headers of a consumed message until someone asks for them, else NULL.
    cdef rd_kafka_headers_t *_c_headers
    # librdkafka's message, as long as the headers are still in it, and the lender's note of that.
    cdef rd_kafka_message_t *_lent
    cdef void **_lender
    cdef uint32_t _generation
    # Where in the HeaderBlock the headers are, as long as _headers is one.
    cdef uint32_t _headers_at
    # Whether value and key are what produce() was given, to be turned into bytes on demand.
    cdef bint _as_given
    cdef int _delivery_count
    cdef ck_report_t _report

    cdef void give_back(self) noexcept
    cdef int _to_bytes(self) except -1
    cdef int _track(self) except -1

cdef in_flight_t *in_flight_new(object topic, object value, object key, object headers,
                                object on_delivery) except NULL
cdef void in_flight_destroy(in_flight_t *sent) noexcept
cdef Message message_delivered(const in_flight_t *sent)
cdef Message message_from(rd_kafka_message_t *rkmessage, object topic)
cdef Message message_from_row(const ck_row_t *row, object topic)
cdef list headers_from(const rd_kafka_headers_t *c_headers)
cdef void lend(Message message, rd_kafka_message_t *rkmessage, void **lender) noexcept
cdef rd_kafka_headers_t *headers_to(object headers) except? NULL
