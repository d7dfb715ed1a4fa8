"""EnvelopeCodec: converts batches of message envelopes (of pip-services) to records and back.

Attributes are read and set with the GIL. Their bytes are encoded and decoded without it, in
csrc/ck_envelope.
"""
from datetime import datetime
from os import urandom

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
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
    datetime_new,
    datetime_tzinfo,
    import_datetime,
)
from cpython.object cimport PyObject_GetAttr, PyObject_SetAttr
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from cpython.unicode cimport (
    PyUnicode_AsUTF8AndSize,
    PyUnicode_Check,
    PyUnicode_DecodeUTF8,
)
cimport cython
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport INT32_MAX, INT64_MAX, UINT32_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from cykafka._core.batch cimport MessageBatch
from cykafka._core.clib.csrc cimport (
    CK_COLUMN_CONSTANT,
    CK_COLUMN_POINTERS,
    CK_PACK_MESSAGES,
    CK_SENT_LOCAL,
    CK_SENT_NOT,
    CK_SENT_OFFSET,
    CK_TRACEPARENT,
    PyGC_Disable,
    PyGC_Enable,
    PyObject_GC_Track,
    PyObject_GC_UnTrack,
    PyTypeObject,
    ck_batch_ref,
    ck_batch_row,
    ck_batch_t,
    ck_batch_unref,
    ck_bytes_t,
    ck_civil_t,
    ck_column_t,
    ck_envelope_decode,
    ck_envelope_encode,
    ck_envelope_header,
    ck_envelope_headers,
    ck_envelope_t,
    ck_envelope_traceparents,
    ck_envelopes_t,
    ck_headers_t,
    ck_publish_t,
    ck_row_t,
    ck_runtime_generation,
    ck_sent_t,
    ck_time_local,
    ck_time_of_wall,
    ck_time_wall,
    ck_zone_t,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_PARTITION_UA,
    RD_KAFKA_TIMESTAMP_NOT_AVAILABLE,
)
from cykafka._core.common.arguments cimport int_argument, timeout_ms
from cykafka._core.common.message cimport HeaderBlock, Message, message_from_row
from cykafka._core.produce.columns cimport Columns, items_of
from cykafka._core.produce.producer cimport Producer
from cykafka._core.produce.publisher cimport is_large


__all__ = ["EnvelopeCodec", "EnvelopeError"]

import_datetime()

cdef enum:
    # The attributes read, in this order.
    MESSAGE_ID = 0
    TRACE_ID
    MESSAGE_TYPE
    BODY
    SENT_TIME

cdef tuple FIELDS = ("message_id", "trace_id", "message_type", "message", "sent_time")

# datetime's own method: it checks the result of a tzinfo, and no subclass can override it.
_utcoffset = datetime.utcoffset


class EnvelopeError(ValueError):
    """A record that is not an envelope, or an envelope with an unreadable attribute.

    Attributes
    ----------
    message : Message or None
        The record; None if an attribute of an envelope could not be read.
    """

    def __init__(self, text, message=None):
        super().__init__(text)
        self.message = message


@cython.final
cdef class Kept:
    """Objects that a call or records in flight point to."""

    cdef PyObject **_items
    cdef size_t _cnt
    cdef char *_arena

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
        elif value is None or (PyBytes_Check(value) and self._sent is NULL):
            into[0] = _span(value)
        else:
            self._refuse(value, "a str or None")
        self._texts_kept.keep(value)
        return 0

    cdef int _body(self, object value, Py_ssize_t i) except -1:
        cdef ck_bytes_t *into = &self._bodies[i]
        cdef Py_ssize_t size
        if PyUnicode_Check(value):
            into.ptr = PyUnicode_AsUTF8AndSize(value, &size)
            into.len = size
        else:
            if value is not None and not PyBytes_Check(value):
                if not PyObject_CheckBuffer(value):
                    self._refuse(value, "bytes, str, a buffer or None")
                value = bytes(memoryview(value))  # a copy: the buffer may change
            into[0] = _span(value)
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
                # into.offset has whole seconds: subtract the microseconds here.
                into.wall_us -= PyDateTime_DELTA_GET_MICROSECONDS(offset)
        return 0

    cdef int read(self, tuple envelopes) except -1:
        """Fill the columns. The attributes' code may do anything except change the tuple of
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
        """Raise an error that names the attribute in which `error` was raised."""
        field = FIELDS[self._field]
        if type(error) is UnicodeEncodeError:
            error.reason += f" in envelopes[{self._i}]: {field}"
            raise error
        if isinstance(error, AttributeError):
            raise TypeError(f"envelopes[{self._i}]: expected an envelope, got "
                            f"{type(envelope).__name__}, which has no {field}") from error
        raise EnvelopeError(f"envelopes[{self._i}]: cannot read {field}: "
                            f"{type(error).__name__}") from error

    cdef Kept encode(self, int64_t ms, const ck_bytes_t **values):
        """Write the envelopes as JSON into an arena, and return the arena."""
        cdef Kept kept = Kept.__new__(Kept)
        cdef ck_bytes_t *items
        cdef int err
        # A time beyond every datetime becomes null in the JSON.
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


cdef enum:
    # Up to this many small records are decoded with the GIL: releasing it would cost as much.
    FEW = 4
    FEW_BYTES = 65536
    # The longest message type that the codec remembers, in bytes.
    LONGEST_KNOWN = 128


cdef class EnvelopeCodec


@cython.final
cdef class EnvelopeRows:
    """Records that are converted to envelopes."""

    cdef EnvelopeCodec _codec
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

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._block_cnt):
            free(self._blocks[i])
        free(self._blocks)
        free(self._read)
        free(self._at)
        free(self._values)
        free(self._arena)

    @cython.cdivision(True)
    cdef int allocate(self, size_t cnt) except -1:
        cdef size_t blocks = cnt // CK_PACK_MESSAGES + 1
        self._kept = []
        self._read = <ck_envelope_t *>calloc(cnt, sizeof(ck_envelope_t))
        self._at = <uint32_t *>malloc(cnt * sizeof(uint32_t))
        self._values = <ck_bytes_t *>malloc(cnt * sizeof(ck_bytes_t))
        self._blocks = <char **>calloc(blocks, sizeof(char *))
        if self._read is NULL or self._at is NULL or self._values is NULL or self._blocks is NULL:
            raise MemoryError
        self._block_cnt = blocks
        self._cnt = cnt
        return 0

    cdef list of_batch(self, MessageBatch batch):
        """An envelope, or an EnvelopeError, for each row."""
        cdef list result = [None] * batch._cnt
        cdef ck_batch_t *records
        cdef bint collecting
        cdef int err
        self.allocate(batch._cnt)
        # Code that finds the list by gc could remove the Messages while C reads them.
        PyObject_GC_UnTrack(<void *>result)
        records = batch.opened()
        if self._cnt <= FEW:
            err = self._read_headers(records, batch._start, batch._step)
        else:
            ck_batch_ref(records)
            with nogil:
                err = self._read_headers(records, batch._start, batch._step)
                ck_batch_unref(records)
        if err:
            raise MemoryError
        self._make_messages(batch, result)
        if self._codec._json:
            self._read_values(result)
        # The garbage collector is off: it would run for every few hundred new objects. A run after
        # the loop finds most of the temporary ones freed already.
        collecting = PyGC_Disable()
        try:
            self._make_envelopes(result)
        finally:
            if collecting:
                PyGC_Enable()
        PyObject_GC_Track(result)
        return result

    cdef object of_message(self, Message message):
        """An envelope of a Message, whose data the user may have replaced."""
        cdef ck_bytes_t name, value
        cdef int rank = 0
        self.allocate(1)
        try:
            key = _plain_bytes(message.key())
            body = _plain_bytes(message.value())
            headers = message.headers()
            if isinstance(headers, dict):
                headers = headers.items()
            for pair in tuple(headers or ()):
                pair = (_plain_bytes(pair[0]), _plain_bytes(pair[1]))
                self._kept.append(pair)
                name = _span(pair[0])
                value = _span(pair[1])
                if name.ptr is not NULL:
                    ck_envelope_header(self._read, &rank, self._codec._traceparent, name,
                                       value)
        except (TypeError, LookupError, UnicodeEncodeError) as error:
            raise EnvelopeError(f"{_place(message)}: not an envelope: {error}", message) from None
        if self._codec._json:
            self._values[0] = _span(body)
            self._decode_values(self._values[0].len)
        if self._read.problem is not NULL:
            raise _malformed(message, self._read)
        return self._envelope(message, key, body, self._read)

    @cython.cdivision(True)
    cdef int _read_headers(self, const ck_batch_t *batch, size_t start,
                           ptrdiff_t step) noexcept nogil:
        cdef size_t i = 0, cnt
        while i < self._cnt:
            cnt = min(self._cnt - i, <size_t>CK_PACK_MESSAGES)
            if ck_envelope_headers(batch, start + i * step, step, cnt,
                                   self._codec._traceparent, &self._read[i], &self._at[i],
                                   &self._blocks[i // CK_PACK_MESSAGES]):
                return -1
            i += cnt
        return 0

    @cython.cdivision(True)
    cdef int _make_messages(self, MessageBatch batch, list result) except -1:
        """Make the Messages. The garbage collector is off, so no foreign code runs meanwhile."""
        cdef HeaderBlock block = None
        cdef ck_batch_t *records
        cdef size_t at = batch._start, i
        cdef Message message
        cdef ck_row_t row
        cdef bint collecting = PyGC_Disable()
        try:
            records = batch.opened()
            for i in range(self._cnt):
                if i % CK_PACK_MESSAGES == 0:
                    block = HeaderBlock.__new__(HeaderBlock)
                    block._ptr = self._blocks[i // CK_PACK_MESSAGES]
                    self._blocks[i // CK_PACK_MESSAGES] = NULL
                    self._kept.append(block)
                ck_batch_row(records, at, &row)
                message = message_from_row(&row, batch.name_of(row.topic))
                if self._at[i] != UINT32_MAX:
                    message._headers = block
                    message._headers_at = self._at[i]
                result[i] = message
                at += batch._step
        finally:
            if collecting:
                PyGC_Enable()
        return 0

    cdef int _read_values(self, list messages) except -1:
        """Read the JSON in the values of Messages, to which no other code has a reference yet."""
        cdef Message message
        cdef size_t size = 0, i
        for i in range(self._cnt):
            message = messages[i]
            self._values[i] = _span(message._value)
            size += self._values[i].len
        self._decode_values(size)
        return 0

    cdef int _decode_values(self, size_t size) except -1:
        """Read the JSON, of `size` bytes in total."""
        cdef int err
        if self._cnt <= FEW and size <= FEW_BYTES:
            err = ck_envelope_decode(self._values, self._cnt, self._read, &self._arena)
        else:
            with nogil:
                err = ck_envelope_decode(self._values, self._cnt, self._read, &self._arena)
        if err:
            raise MemoryError
        return 0

    cdef int _make_envelopes(self, list result) except -1:
        """Replace Messages by envelopes."""
        cdef Message message
        cdef size_t i = 0
        while i < self._cnt:
            try:
                while i < self._cnt:
                    message = result[i]
                    result[i] = self._envelope(message, message._key, message._value,
                                               &self._read[i])
                    i += 1
            except MemoryError:
                raise
            except Exception as error:  # from a property or from the class's __new__
                refused = EnvelopeError(f"{_place(message)}: cannot make an envelope: "
                                        f"{type(error).__name__}", message)
                refused.__cause__ = error
                result[i] = refused
                i += 1
        return 0

    cdef object _envelope(self, Message message, object key, object value,
                          const ck_envelope_t *read):
        """An envelope of a record's fields. Foreign code runs only after all objects are made."""
        cdef object sent_time = None, message_type = None, trace_id = None, body = value
        cdef ck_civil_t civil
        cdef PyTypeObject *envelope_type
        if read.problem is not NULL:
            return _malformed(message, read)
        if read.is_sent and read.is_local:
            if ck_time_wall(read.sent_us, &civil):
                sent_time = _datetime(&civil)
        elif read.is_sent:
            sent_time = self._local_time(read.sent_us)
        elif (message._report.timestamp_type != <int>RD_KAFKA_TIMESTAMP_NOT_AVAILABLE
                and -INT64_MAX // 1000 <= message._report.timestamp <= INT64_MAX // 1000):
            sent_time = self._local_time(message._report.timestamp * 1000)
        if read.message_id.ptr is not NULL:
            message_id = text_of(read.message_id)
        elif key is not None:
            message_id = PyUnicode_DecodeUTF8(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
                                              "replace")
        else:
            message_id = None
        if read.trace_id.ptr is not NULL:
            trace_id = text_of(read.trace_id)
        if read.message_type.ptr is not NULL:
            message_type = self._known_type(read.message_type)
        if self._codec._json:
            body = bytes_of(read.body)
        envelope_type = <PyTypeObject *>self._codec._type
        envelope = envelope_type.tp_new(envelope_type, (), NULL)
        # In the order of MessageEnvelope's __init__, so that all instances share their keys.
        PyObject_SetAttr(envelope, "_MessageEnvelope__reference", message)
        PyObject_SetAttr(envelope, "trace_id", trace_id)
        PyObject_SetAttr(envelope, "message_type", message_type)
        PyObject_SetAttr(envelope, "message_id", message_id)
        PyObject_SetAttr(envelope, "sent_time", sent_time)
        PyObject_SetAttr(envelope, "message", body)
        return envelope

    cdef object _local_time(self, int64_t us):
        """The local datetime of an instant. Neighbors often have the same, so the last one is
        reused."""
        cdef ck_civil_t civil
        if self._last_time is None or us != self._last_us:
            if not ck_time_local(&self._zone, us, &civil):
                return None
            self._last_time = _datetime(&civil)
            self._last_us = us
        return self._last_time

    cdef object _known_type(self, ck_bytes_t text):
        """The str of a message type; equal recent types share one str."""
        cdef list recent = self._codec._known
        cdef const char *known
        cdef const unsigned char *bytes = <const unsigned char *>text.ptr
        cdef Py_ssize_t size = 0
        cdef uint32_t slot = 2166136261  # FNV-1a: types often differ in a byte or two
        cdef size_t i
        if text.len > LONGEST_KNOWN:
            return text_of(text)
        for i in range(text.len):
            slot = (slot ^ bytes[i]) * <uint32_t>16777619
        slot = (slot ^ (slot >> 16)) & <uint32_t>(len(recent) - 1)
        message_type = recent[slot]
        if message_type is not None:
            known = PyUnicode_AsUTF8AndSize(message_type, &size)
            if <size_t>size == text.len and memcmp(known, text.ptr, text.len) == 0:
                return message_type
        message_type = recent[slot] = text_of(text)
        return message_type


cdef inline object _datetime(const ck_civil_t *civil):
    return datetime_new(civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second,
                        civil.microsecond, None, civil.fold)


cdef inline object text_of(ck_bytes_t text):
    if text.ptr is NULL:
        return None
    return PyUnicode_DecodeUTF8(<const char *>text.ptr, text.len, "replace")


cdef inline object bytes_of(ck_bytes_t data):
    if data.ptr is NULL:
        return None
    return PyBytes_FromStringAndSize(<const char *>data.ptr, data.len)


cdef inline ck_bytes_t _span(object data):
    """The span of a bytes object."""
    cdef ck_bytes_t span
    span.ptr = NULL
    span.len = 0
    if data is not None:
        span.ptr = PyBytes_AS_STRING(data)
        span.len = PyBytes_GET_SIZE(data)
    return span


cdef object _plain_bytes(object data):
    """The key or value of a Message that the user made, as bytes or None."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return str.encode(data)
    if not PyObject_CheckBuffer(data):
        raise TypeError(f"expected bytes, str, a buffer or None, got {type(data).__name__}")
    return bytes(memoryview(data))


cdef str _place(Message message):
    return f"{message._topic} [{message.partition()}] at offset {message.offset()}"


cdef object _malformed(Message message, const ck_envelope_t *read):
    problem = (<bytes>read.problem).decode()
    if read.field is not NULL:
        problem = f"{(<bytes>read.field).decode()}: {problem}"
    return EnvelopeError(
        f"{_place(message)}: not an envelope: {problem} (byte {read.at} of the value)", message)


# Message types that a codec remembers; a power of two.
cdef enum:
    KNOWN = 64

cdef ck_bytes_t[2] NAMES  # of the headers of every record
NAMES[0].ptr = <const char *>b"message_type"
NAMES[0].len = 12
NAMES[1].ptr = <const char *>b"trace_id"
NAMES[1].len = 8


@cython.final
cdef class EnvelopeCodec:
    """Converts envelopes of one class to records and back, a batch at a time.

    An envelope has the attributes of pip-services' MessageEnvelope: ``message_id``, ``trace_id``,
    ``message_type`` (str or None), ``message`` (bytes or None), ``sent_time`` (datetime or None)
    and ``_MessageEnvelope__reference``.

    Parameters
    ----------
    envelope_type : type
        The class of the decoded envelopes. The codec calls only its ``__new__``.
    form : {"headers", "json"}
        ``headers``: the body is the record's value; type and trace id are headers. ``json``: the
        value is a JSON object of all fields, with the body as base64. The key is the envelope's id
        in both forms.
    traceparent : bool, default False
        Trace ids of 32 hexadecimal digits are also sent as a header ``traceparent`` (W3C Trace
        Context). A record without another trace id gets the id of this header.

    Notes
    -----
    Any number of threads may use a codec.
    """

    cdef object _type
    cdef bint _json
    cdef bint _traceparent
    # Recent message types, so that equal ones share one str.
    cdef list _known

    def __init__(self, envelope_type, form="headers", *, traceparent=False):
        if self._type is not None:
            raise TypeError("the codec was initialized already")
        if not isinstance(envelope_type, type):
            raise TypeError(f"envelope_type: expected a class, got {type(envelope_type).__name__}")
        if (<PyTypeObject *>envelope_type).tp_new is NULL:
            raise TypeError(f"envelope_type: {envelope_type.__name__} cannot be made by __new__")
        if not isinstance(form, str):
            raise TypeError(f"form: expected a str, got {type(form).__name__}")
        if form not in ("headers", "json"):
            raise ValueError(f"form: expected 'headers' or 'json', got {form!r}")
        self._traceparent = traceparent
        self._json = form == "json"
        self._known = [None] * KNOWN
        self._type = envelope_type

    # -- to records

    def publish(self, Producer producer not None, topic, envelopes, *, partition=None,
                timestamp_ms=None, timeout=None):
        """Send envelopes as records, as ``Producer.publish()`` sends a batch.

        Parameters
        ----------
        producer : Producer
        topic : str or sequence of str
            The topic of all records, or of each.
        envelopes : sequence
        partition : int, optional
            None: the ``partitioner`` chooses by the id.
        timestamp_ms : int, optional
            ms since the epoch; None: now.
        timeout : float, optional
            Seconds to wait for room in the queue; None: forever.

        Returns
        -------
        Delivery

        Raises
        ------
        TypeError
            An object is not an envelope, or an attribute has the wrong type. The message names it.
        EnvelopeError
            An attribute's property has raised an exception, which is the cause.
        UnicodeEncodeError
            A text has no UTF-8 form.
        """
        cdef ck_publish_t publish
        cdef ck_headers_t headers
        cdef ck_column_t[2] named
        cdef Gathered gathered
        cdef Kept kept
        cdef int64_t ms, wait_ms
        self._opened()
        if producer._open_in != ck_runtime_generation:
            producer.refuse()
        memset(&publish, 0, sizeof(publish))
        wait_ms = timeout_ms(timeout, "timeout")
        publish.partitions.missing = RD_KAFKA_PARTITION_UA
        if partition is not None:
            publish.partitions.missing = int_argument(partition, "partition", -1, INT32_MAX)
        ms = 0
        if timestamp_ms is not None:
            ms = int_argument(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        publish.timestamps.missing = ms
        gathered = self._gather(items_of(envelopes, "envelopes", "envelopes"))
        publish.cnt = gathered._envelopes.cnt
        publish.keys.kind = publish.values.kind = CK_COLUMN_POINTERS
        publish.keys.u.items = gathered._texts[MESSAGE_ID]
        memset(&headers, 0, sizeof(headers))
        if self._json:
            kept = gathered.encode(ms, &publish.values.u.items)
        else:
            kept = gathered._bodies_kept
            publish.values.u.items = gathered._bodies
            memset(named, 0, sizeof(named))
            named[0].kind = named[1].kind = CK_COLUMN_POINTERS
            named[0].u.items = gathered._texts[MESSAGE_TYPE]
            named[1].u.items = gathered._texts[TRACE_ID]
            headers.named_cnt = 2
            headers.names = NAMES
            headers.named = named
            publish.headers = &headers
        if self._traceparent:
            gathered.add_traceparents(&headers)
            publish.headers = &headers
        names = producer._publisher.topics_column(producer, topic, gathered._columns, &publish)
        return producer._publisher.send(producer, &publish, names,
                                        kept if is_large(kept, &publish) else None, wait_ms)

    def to_record(self, envelope, *, timestamp_ms=None):
        """Convert one envelope to the arguments of a record.

        Parameters
        ----------
        envelope : object
        timestamp_ms : int, optional
            ms since the epoch; None: now.

        Returns
        -------
        dict
            ``key`` (str or None), ``value`` (bytes or None), ``headers`` (dict of str to str or
            None) and ``timestamp`` (int, ms).
        """
        cdef Gathered gathered
        cdef const ck_bytes_t *values
        cdef ck_headers_t headers
        cdef ck_bytes_t item
        cdef int64_t ms
        self._opened()
        ms = now_us() // 1000
        if timestamp_ms is not None:
            ms = int_argument(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        gathered = self._gather((envelope,))
        values = gathered._bodies
        made = {}
        if self._json:
            kept = gathered.encode(ms, &values)  # no-cython-lint: values points to it
        else:
            made["message_type"] = text_of(gathered._texts[MESSAGE_TYPE][0])
            made["trace_id"] = text_of(gathered._texts[TRACE_ID][0])
        if self._traceparent:
            memset(&headers, 0, sizeof(headers))
            gathered.add_traceparents(&headers)
            if headers.starts64[1]:
                item = headers.values.u.items[0]
                made["traceparent"] = text_of(item)
        return {"key": text_of(gathered._texts[MESSAGE_ID][0]), "value": bytes_of(values[0]),
                "headers": made, "timestamp": ms}

    cdef Gathered _gather(self, tuple envelopes):
        cdef Gathered gathered = Gathered.__new__(Gathered)
        gathered.allocate(len(envelopes), self._json)
        gathered.read(envelopes)
        return gathered

    # -- from records

    def decode(self, MessageBatch batch not None):
        """Convert records to envelopes.

        Parameters
        ----------
        batch : MessageBatch

        Returns
        -------
        list
            An envelope for each row. Its reference is the row's Message, its ``sent_time`` a naive
            local datetime. An invalid row becomes an EnvelopeError, whose ``message`` is the row's
            Message.

        Raises
        ------
        ValueError
            The batch was released.
        """
        self._opened()
        batch.opened()
        return self._rows().of_batch(batch) if batch._cnt else []

    def to_envelope(self, Message message not None):
        """Convert one record to an envelope.

        Parameters
        ----------
        message : Message

        Returns
        -------
        object
            An envelope like those of :meth:`decode`.

        Raises
        ------
        EnvelopeError
            The message is not an envelope.
        """
        self._opened()
        return self._rows().of_message(message)

    cdef EnvelopeRows _rows(self):
        cdef EnvelopeRows rows = EnvelopeRows.__new__(EnvelopeRows)
        rows._codec = self
        return rows

    cdef int _opened(self) except -1:
        if self._type is None:
            raise ValueError("the codec was not initialized")
        return 0
