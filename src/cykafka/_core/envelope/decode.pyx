"""Records -> envelopes.

Messages are made of a batch while no foreign code runs. The fields point into their bytes. Setting
an attribute may run a property, and so free the Message. So all values of an envelope are made
before its first attribute is set.
"""
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.datetime cimport datetime_new, import_datetime
from cpython.object cimport PyObject_SetAttr
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
cimport cython
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport INT64_MAX, UINT32_MAX, int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp

from cykafka._core.batch.message_batch cimport MessageBatch
from cykafka._core.clib.csrc cimport (
    CK_PACK_MESSAGES,
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
    ck_envelope_decode,
    ck_envelope_header,
    ck_envelope_headers,
    ck_envelope_t,
    ck_row_t,
    ck_time_local,
    ck_time_wall,
)
from cykafka._core.clib.librdkafka cimport RD_KAFKA_TIMESTAMP_NOT_AVAILABLE
from cykafka._core.common.message cimport HeaderBlock, Message, message_from_row
from cykafka._core.envelope.encode cimport bytes_of, text_of

from cykafka._core.envelope.encode import EnvelopeError

import_datetime()

cdef enum:
    # As many records are decoded with the GIL, if they are small: letting go of it costs as much.
    FEW = 4
    FEW_BYTES = 65536
    # Bytes of a message type that is worth remembering.
    LONGEST_KNOWN = 128


@cython.final
cdef class EnvelopeRows:
    """Some records on their way to envelopes."""

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
        # Whoever finds it by the collector could take the Messages away while C reads them.
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
        if self._json:
            self._read_values(result)
        # One look at all of them afterwards, instead of one for every few hundred: more of those
        # are then gone that nobody keeps.
        collecting = PyGC_Disable()
        try:
            self._make_envelopes(result)
        finally:
            if collecting:
                PyGC_Enable()
        PyObject_GC_Track(result)
        return result

    cdef object of_message(self, Message message):
        """An envelope of a Message, of which the user may have made anything."""
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
                    ck_envelope_header(self._read, &rank, self._traceparent, name, value)
        except (TypeError, LookupError, UnicodeEncodeError) as error:
            raise EnvelopeError(f"{_place(message)}: no envelope: {error}", message) from None
        if self._json:
            self._values[0] = _span(body)
            if self._decode_values(self._values[0].len):
                raise MemoryError
        if self._read.problem is not NULL:
            raise _malformed(message, self._read)
        return self._envelope(message, key, body, self._read)

    @cython.cdivision(True)
    cdef int _read_headers(self, const ck_batch_t *batch, size_t start,
                           ptrdiff_t step) noexcept nogil:
        cdef size_t i = 0, cnt
        while i < self._cnt:
            cnt = min(self._cnt - i, <size_t>CK_PACK_MESSAGES)
            if ck_envelope_headers(batch, start + i * step, step, cnt, self._traceparent,
                                   &self._read[i], &self._at[i],
                                   &self._blocks[i // CK_PACK_MESSAGES]):
                return -1
            i += cnt
        return 0

    @cython.cdivision(True)
    cdef int _make_messages(self, MessageBatch batch, list result) except -1:
        """Nothing is collected meanwhile, and so no foreign code runs while the batch is read."""
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
        """Read the JSON in the values of Messages that nobody else has yet."""
        cdef Message message
        cdef size_t size = 0, i
        for i in range(self._cnt):
            message = messages[i]
            self._values[i] = _span(message._value)
            size += self._values[i].len
        if self._decode_values(size):
            raise MemoryError
        return 0

    cdef int _decode_values(self, size_t size) noexcept:
        """Read the JSON of `size` bytes in all. Not 0: memory is short."""
        cdef int err
        if self._cnt <= FEW and size <= FEW_BYTES:
            return ck_envelope_decode(self._values, self._cnt, self._read, &self._arena)
        with nogil:
            err = ck_envelope_decode(self._values, self._cnt, self._read, &self._arena)
        return err

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
            except Exception as error:  # of a property, or of the class's own __new__
                refused = EnvelopeError(f"{_place(message)}: no envelope can be made of it: "
                                        f"{type(error).__name__}", message)
                refused.__cause__ = error
                result[i] = refused
                i += 1
        return 0

    cdef object _envelope(self, Message message, object key, object value,
                          const ck_envelope_t *read):
        """An envelope of what was read of a record. Foreign code runs only when all is made."""
        cdef object sent_time = None, message_type = None, trace_id = None, body = value
        cdef ck_civil_t civil
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
        if self._json:
            body = bytes_of(read.body)
        envelope = (<PyTypeObject *>self._type).tp_new(<PyTypeObject *>self._type, (), NULL)
        # In the order of MessageEnvelope's own __init__: then all instances share their keys.
        PyObject_SetAttr(envelope, "_MessageEnvelope__reference", message)
        PyObject_SetAttr(envelope, "trace_id", trace_id)
        PyObject_SetAttr(envelope, "message_type", message_type)
        PyObject_SetAttr(envelope, "message_id", message_id)
        PyObject_SetAttr(envelope, "sent_time", sent_time)
        PyObject_SetAttr(envelope, "message", body)
        return envelope

    cdef object _local_time(self, int64_t us):
        """The local datetime of an instant. Neighbors often have the same one, so the last one is
        reused."""
        cdef ck_civil_t civil
        if self._last_time is None or us != self._last_us:
            if not ck_time_local(&self._zone, us, &civil):
                return None
            self._last_time = _datetime(&civil)
            self._last_us = us
        return self._last_time

    cdef object _known_type(self, ck_bytes_t text):
        """The str of a message type: one of those seen lately, if it is equal."""
        cdef const char *known
        cdef const unsigned char *bytes = <const unsigned char *>text.ptr
        cdef Py_ssize_t size = 0
        cdef uint32_t slot = 2166136261  # FNV-1a: types often differ in a byte or two
        cdef size_t i
        if text.len > LONGEST_KNOWN:
            return text_of(text)
        for i in range(text.len):
            slot = (slot ^ bytes[i]) * <uint32_t>16777619
        slot = (slot ^ (slot >> 16)) & <uint32_t>(len(self._known) - 1)
        message_type = self._known[slot]
        if message_type is not None:
            known = PyUnicode_AsUTF8AndSize(message_type, &size)
            if <size_t>size == text.len and memcmp(known, text.ptr, text.len) == 0:
                return message_type
        message_type = self._known[slot] = text_of(text)
        return message_type


cdef inline object _datetime(const ck_civil_t *civil):
    return datetime_new(civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second,
                        civil.microsecond, None, civil.fold)


cdef inline ck_bytes_t _span(object data):
    """Where the bytes of a bytes object are."""
    cdef ck_bytes_t span
    span.ptr = NULL
    span.len = 0
    if data is not None:
        span.ptr = PyBytes_AS_STRING(data)
        span.len = PyBytes_GET_SIZE(data)
    return span


cdef object _plain_bytes(object data):
    """What a Message made by the user has, as bytes or None."""
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
        f"{_place(message)}: no envelope: {problem} (byte {read.at} of the value)", message)
