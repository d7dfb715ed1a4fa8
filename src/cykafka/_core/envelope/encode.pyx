"""Attributes of envelopes to send -> columns for C (csrc/ck_envelope).

Attributes may be properties that run any code. So all of them are read, and references to their
values kept, before a handle is used.
"""
from datetime import datetime
from os import urandom

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.datetime cimport (
    PyDateTime_Check,
    PyDateTime_DATE_GET_FOLD,
    PyDateTime_DATE_GET_HOUR,
    PyDateTime_DATE_GET_MICROSECOND,
    PyDateTime_DATE_GET_MINUTE,
    PyDateTime_DATE_GET_SECOND,
    PyDateTime_DELTA_GET_DAYS,
    PyDateTime_DELTA_GET_MICROSECONDS,
    PyDateTime_DELTA_GET_SECONDS,
    PyDateTime_GET_DAY,
    PyDateTime_GET_MONTH,
    PyDateTime_GET_YEAR,
    datetime_tzinfo,
    import_datetime,
)
from cpython.object cimport PyObject_GetAttr
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_Check
cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from cykafka._core.clib.csrc cimport (
    CK_COLUMN_CONSTANT,
    CK_COLUMN_POINTERS,
    CK_SENT_LOCAL,
    CK_SENT_NOT,
    CK_SENT_OFFSET,
    CK_TRACEPARENT,
    ck_bytes_t,
    ck_civil_t,
    ck_envelope_encode,
    ck_envelope_traceparents,
    ck_headers_t,
    ck_sent_t,
    ck_time_of_wall,
)
from cykafka._core.produce.columns cimport Columns

import_datetime()

cdef tuple FIELDS = ("message_id", "trace_id", "message_type", "message", "sent_time")

# Of datetime itself: it checks what a tzinfo says, and no subclass can override it.
_utcoffset = datetime.utcoffset


class EnvelopeError(ValueError):
    """A record that is no envelope, or an envelope that cannot be read.

    Attributes
    ----------
    message : Message or None
        The record; None if it was an envelope's attribute that could not be read.
    """

    def __init__(self, text, message=None):
        super().__init__(text)
        self.message = message


@cython.final
cdef class Kept:
    """Objects that a call, or records on their way, point to."""

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._cnt):
            Py_DECREF(<object>self._items[i])
        free(self._items)
        free(self._arena)

    cdef int allocate(self, size_t cnt) except -1:
        self._items = <PyObject **>malloc(max(cnt, <size_t>1) * sizeof(PyObject *))
        if self._items is NULL:
            raise MemoryError
        return 0

    cdef void keep(self, object item) noexcept:
        Py_INCREF(item)
        self._items[self._cnt] = <PyObject *>item
        self._cnt += 1


@cython.final
cdef class Gathered:
    """The columns of envelopes that are sent."""

    cdef int allocate(self, Py_ssize_t cnt, bint with_times) except -1:
        cdef int field
        self._columns = Columns.__new__(Columns)
        self._columns.count("envelopes", cnt)
        self._texts_kept = Kept.__new__(Kept)
        self._texts_kept.allocate(3 * cnt)
        self._bodies_kept = Kept.__new__(Kept)
        self._bodies_kept.allocate(cnt)
        for field in range(3):
            self._texts[field] = <ck_bytes_t *>self._columns.block(cnt, sizeof(ck_bytes_t))
        self._bodies = <ck_bytes_t *>self._columns.block(cnt, sizeof(ck_bytes_t))
        self._envelopes.cnt = cnt
        self._envelopes.message_ids = self._texts[MESSAGE_ID]
        self._envelopes.trace_ids = self._texts[TRACE_ID]
        self._envelopes.message_types = self._texts[MESSAGE_TYPE]
        self._envelopes.bodies = self._bodies
        if with_times:
            self._sent = <ck_sent_t *>self._columns.block(cnt, sizeof(ck_sent_t))
            self._envelopes.sent = self._sent
        return 0

    cdef int _text(self, object value, int field, Py_ssize_t i) except -1:
        cdef ck_bytes_t *into = &self._texts[field][i]
        cdef Py_ssize_t size
        if PyUnicode_Check(value):
            into.ptr = PyUnicode_AsUTF8AndSize(value, &size)
            into.len = size
            self._texts_kept.keep(value)
        elif value is None:
            into.ptr = NULL
            into.len = 0
        elif PyBytes_Check(value) and self._sent is NULL:
            into.ptr = PyBytes_AS_STRING(value)
            into.len = PyBytes_GET_SIZE(value)
            self._texts_kept.keep(value)
        else:
            self._refuse(value, "a str or None")
        return 0

    cdef int _body(self, object value, Py_ssize_t i) except -1:
        cdef ck_bytes_t *into = &self._bodies[i]
        cdef Py_ssize_t size
        if not PyBytes_Check(value):
            if value is None:
                into.ptr = NULL
                into.len = 0
                return 0
            if PyUnicode_Check(value):
                into.ptr = PyUnicode_AsUTF8AndSize(value, &size)
                into.len = size
                self._bodies_kept.keep(value)
                return 0
            if not PyObject_CheckBuffer(value):
                self._refuse(value, "bytes, str, a buffer or None")
            value = bytes(memoryview(value))  # a copy: it may change
        into.ptr = PyBytes_AS_STRING(value)
        into.len = PyBytes_GET_SIZE(value)
        self._bodies_kept.keep(value)
        return 0

    cdef int _sent_time(self, object value, ck_sent_t *into) except -1:
        cdef ck_civil_t civil
        into.kind = CK_SENT_NOT
        if value is None:
            return 0
        if not PyDateTime_Check(value):
            self._refuse(value, "a datetime or None")
        civil.year = PyDateTime_GET_YEAR(value)
        civil.month = PyDateTime_GET_MONTH(value)
        civil.day = PyDateTime_GET_DAY(value)
        civil.hour = PyDateTime_DATE_GET_HOUR(value)
        civil.minute = PyDateTime_DATE_GET_MINUTE(value)
        civil.second = PyDateTime_DATE_GET_SECOND(value)
        civil.microsecond = PyDateTime_DATE_GET_MICROSECOND(value)
        into.wall_us = ck_time_of_wall(&civil)
        into.fold = PyDateTime_DATE_GET_FOLD(value)
        into.kind = CK_SENT_LOCAL
        if datetime_tzinfo(value) is not None:
            offset = _utcoffset(value)
            if offset is not None:
                into.kind = CK_SENT_OFFSET
                into.offset = (PyDateTime_DELTA_GET_DAYS(offset) * 86400
                               + PyDateTime_DELTA_GET_SECONDS(offset))
                # What is left of an offset in whole seconds.
                into.wall_us -= PyDateTime_DELTA_GET_MICROSECONDS(offset)
        return 0

    cdef int read(self, tuple envelopes) except -1:
        """Fill the columns. The code of the attributes may do anything except change the tuple of
        these envelopes."""
        cdef Py_ssize_t i = 0
        try:
            for envelope in envelopes:
                self._i = i
                self._field = MESSAGE_ID
                self._text(PyObject_GetAttr(envelope, "message_id"), MESSAGE_ID, i)
                self._field = TRACE_ID
                self._text(PyObject_GetAttr(envelope, "trace_id"), TRACE_ID, i)
                self._field = MESSAGE_TYPE
                self._text(PyObject_GetAttr(envelope, "message_type"), MESSAGE_TYPE, i)
                self._field = BODY
                self._body(PyObject_GetAttr(envelope, "message"), i)
                if self._sent is not NULL:
                    self._field = SENT_TIME
                    self._sent_time(PyObject_GetAttr(envelope, "sent_time"), &self._sent[i])
                i += 1
        except MemoryError:
            raise
        except Exception as error:
            if self._field < 0:
                raise
            self._explain(envelopes[i], error)
        return 0

    cdef int _refuse(self, object value, str expected) except -1:
        where = f"envelopes[{self._i}]: {FIELDS[self._field]}"
        self._field = -1
        raise TypeError(f"{where}: expected {expected}, got {type(value).__name__}")

    cdef int _explain(self, object envelope, object error) except -1:
        """Raise what says where `error` was raised."""
        field = FIELDS[self._field]
        if type(error) is UnicodeEncodeError:
            error.reason += f" in envelopes[{self._i}]: {field}"
            raise error
        if isinstance(error, AttributeError):
            raise TypeError(f"envelopes[{self._i}]: expected an envelope, got "
                            f"{type(envelope).__name__}, which has no {field}") from error
        raise EnvelopeError(f"envelopes[{self._i}]: {field} cannot be read: "
                            f"{type(error).__name__}") from error

    cdef Kept encode(self, int64_t ms, const ck_bytes_t **values):
        """JSON of the envelopes, in an arena that is returned."""
        cdef Kept kept = Kept.__new__(Kept)
        cdef ck_bytes_t *items
        cdef int err
        # What no date can say is null in the JSON.
        self._envelopes.now_us = min(ms, INT64_MAX // 1000) * 1000 if ms else now_us()
        items = <ck_bytes_t *>self._columns.block(self._envelopes.cnt, sizeof(ck_bytes_t))
        with nogil:
            err = ck_envelope_encode(&self._envelopes, &kept._arena, items)
        if err:
            raise MemoryError
        values[0] = items
        return kept

    cdef int add_traceparents(self, ck_headers_t *headers) except -1:
        cdef Columns columns = self._columns
        cdef size_t cnt = self._envelopes.cnt
        cdef ck_bytes_t *values = <ck_bytes_t *>columns.block(cnt, sizeof(ck_bytes_t))
        cdef int64_t *starts = <int64_t *>columns.block(cnt + 1, sizeof(int64_t))
        cdef char *arena = <char *>columns.block(cnt, CK_TRACEPARENT)
        cdef uint64_t seed = int.from_bytes(urandom(8), "little")
        ck_envelope_traceparents(self._texts[TRACE_ID], cnt, seed, arena, values, starts)
        headers.starts64 = starts
        headers.keys.kind = CK_COLUMN_CONSTANT
        headers.keys.u.constant.ptr = <const char *>b"traceparent"
        headers.keys.u.constant.len = 11
        headers.values.kind = CK_COLUMN_POINTERS
        headers.values.u.items = values
        return 0


cdef int64_t now_us() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return now.tv_sec * 1000000 + now.tv_nsec // 1000
