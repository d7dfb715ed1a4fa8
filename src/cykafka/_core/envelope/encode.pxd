from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport ck_bytes_t, ck_envelopes_t, ck_headers_t, ck_sent_t
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
    # NULL: nobody asks when they were sent.
    cdef ck_sent_t *_sent
    cdef Columns _columns
    cdef Kept _texts_kept
    cdef Kept _bodies_kept
    # Where the gathering is, for what it raises; -1: it has been said already.
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
