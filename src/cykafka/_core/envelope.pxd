from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint32_t

from cykafka._core.batch cimport MessageBatch
from cykafka._core.clib.csrc cimport (
    ck_batch_t,
    ck_bytes_t,
    ck_envelope_t,
    ck_envelopes_t,
    ck_headers_t,
    ck_sent_t,
    ck_zone_t,
)
from cykafka._core.common.message cimport Message
from cykafka._core.produce.columns cimport Columns

cdef enum:
    # The attributes read, in this order.
    MESSAGE_ID = 0
    TRACE_ID
    MESSAGE_TYPE
    BODY
    SENT_TIME

cdef class Kept:
    cdef PyObject **_items
    cdef size_t _cnt
    cdef char *_arena

    cdef int allocate(self, size_t cnt) except -1
    cdef void keep(self, object item) noexcept

cdef class Gathered:
    cdef ck_envelopes_t _envelopes
    cdef ck_bytes_t *_texts[3]
    cdef ck_bytes_t *_bodies
    # NULL: the sent times are not needed.
    cdef ck_sent_t *_sent
    cdef Columns _columns
    cdef Kept _texts_kept
    cdef Kept _bodies_kept
    # The attribute being read, for errors; -1: the error already names it.
    cdef int _field
    cdef Py_ssize_t _i

    cdef int allocate(self, Py_ssize_t cnt, bint with_times) except -1
    cdef int read(self, tuple envelopes) except -1
    cdef Kept encode(self, int64_t ms, const ck_bytes_t **values)
    cdef int add_traceparents(self, ck_headers_t *headers) except -1
    cdef int _text(self, object value, int field, Py_ssize_t i) except -1
    cdef int _body(self, object value, Py_ssize_t i) except -1
    cdef int _sent_time(self, object value, ck_sent_t *into) except -1
    cdef int _refuse(self, object value, str expected) except -1
    cdef int _explain(self, object envelope, object error) except -1

cdef int64_t now_us() noexcept

cdef inline object text_of(ck_bytes_t text):
    if text.ptr is NULL:
        return None
    return PyUnicode_DecodeUTF8(<const char *>text.ptr, text.len, "replace")

cdef inline object bytes_of(ck_bytes_t data):
    if data.ptr is NULL:
        return None
    return PyBytes_FromStringAndSize(<const char *>data.ptr, data.len)

cdef class EnvelopeRows:
    # The codec's fields.
    cdef object _type
    cdef bint _json
    cdef bint _traceparent
    cdef list _known
    # The fields of each row as C reads them, and the memory that they point to.
    cdef size_t _cnt
    cdef ck_envelope_t *_read
    cdef uint32_t *_at
    cdef char **_blocks
    cdef size_t _block_cnt
    cdef ck_bytes_t *_values
    cdef char *_arena
    cdef list _kept
    cdef ck_zone_t _zone
    cdef int64_t _last_us
    cdef object _last_time  # of _last_us

    cdef int allocate(self, size_t cnt) except -1
    cdef list of_batch(self, MessageBatch batch)
    cdef object of_message(self, Message message)
    cdef int _read_headers(self, const ck_batch_t *batch, size_t start,
                           ptrdiff_t step) noexcept nogil
    cdef int _make_messages(self, MessageBatch batch, list result) except -1
    cdef int _read_values(self, list messages) except -1
    cdef int _decode_values(self, size_t size) noexcept
    cdef int _make_envelopes(self, list result) except -1
    cdef object _envelope(self, Message message, object key, object value,
                          const ck_envelope_t *read)
    cdef object _local_time(self, int64_t us)
    cdef object _known_type(self, ck_bytes_t text)
