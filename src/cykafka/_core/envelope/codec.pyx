"""EnvelopeCodec: converts batches of pip-services message envelopes to records and back.

The codec reads and sets attributes with the GIL. csrc/ck_envelope reads headers without it.
"""
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.datetime cimport datetime_new, import_datetime
from cpython.object cimport PyObject_GetAttr, PyObject_SetAttr
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from cpython.unicode cimport (
    PyUnicode_AsUTF8AndSize,
    PyUnicode_Check,
    PyUnicode_DATA,
    PyUnicode_DecodeUTF8,
    PyUnicode_New,
)
cimport cython
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport INT32_MAX, INT64_MAX, UINT32_MAX, int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from cykafka._core.batch cimport MessageBatch
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.common.arguments cimport int_argument, timeout_ms
from cykafka._core.common.message cimport HeaderBlock, Message, message_from_row
from cykafka._core.produce.columns cimport Columns, items_of
from cykafka._core.produce.producer cimport Producer
from cykafka._core.produce.publisher cimport Batch


__all__ = ["EnvelopeCodec", "EnvelopeError"]

import_datetime()

cdef enum:
    # The attributes, in the order in which EnvelopeColumns reads them.
    MESSAGE_ID = 0
    TRACE_ID
    MESSAGE_TYPE
    BODY

cdef tuple FIELDS = ("message_id", "trace_id", "message_type", "message")


class EnvelopeError(ValueError):
    """A record cannot be converted to an envelope, or an envelope's attribute cannot be read.

    Attributes
    ----------
    message : Message or None
        The record; None if an envelope's attribute could not be read.
    """

    def __init__(self, text, message=None):
        super().__init__(text)
        self.message = message


@cython.final
cdef class Kept:
    """Keeps objects alive while a call or records in flight point to their data."""

    cdef PyObject **_items
    cdef size_t _cnt

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._cnt):
            Py_DECREF(<object>self._items[i])
        free(self._items)

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
cdef class EnvelopeColumns:
    """The columns of the envelopes to send."""

    cdef size_t _cnt
    cdef ck_bytes_t *_texts[3]
    cdef ck_bytes_t *_bodies
    cdef Columns _columns
    cdef Kept _texts_kept
    cdef Kept _bodies_kept
    # The attribute being read, for errors; -1 if the error already names it.
    cdef int _field
    cdef Py_ssize_t _i

    cdef int allocate(self, Py_ssize_t cnt) except -1:
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
        self._cnt = cnt
        return 0

    cdef int _text(self, object value, int field, Py_ssize_t i) except -1:
        cdef ck_bytes_t *into = &self._texts[field][i]
        cdef Py_ssize_t size
        if PyUnicode_Check(value):
            into.ptr = PyUnicode_AsUTF8AndSize(value, &size)
            into.len = size
        elif value is None or PyBytes_Check(value):
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

    cdef int read(self, tuple envelopes) except -1:
        """Fill the columns. Reading an attribute may run any code, which cannot change this tuple.
        """
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
        """Raise an error that names the attribute that raised `error` when read."""
        field = FIELDS[self._field]
        if type(error) is UnicodeEncodeError:
            error.reason += f" in envelopes[{self._i}]: {field}"
            raise error
        if isinstance(error, AttributeError):
            raise TypeError(f"envelopes[{self._i}]: expected an envelope, got "
                            f"{type(envelope).__name__}, which has no {field}") from error
        raise EnvelopeError(f"envelopes[{self._i}]: cannot read {field}: "
                            f"{type(error).__name__}") from error


cdef int64_t now_ms() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef enum:
    # Decode up to this many records with the GIL: releasing it would cost as much.
    FEW = 4
    # The longest message type that the codec remembers, in bytes.
    LONGEST_KNOWN = 128


cdef class EnvelopeCodec


@cython.final
cdef class EnvelopeRows:
    """Records to convert to envelopes."""

    cdef EnvelopeCodec _codec
    # Each row's fields as C reads them, and the memory that they point to.
    cdef size_t _cnt
    cdef ck_envelope_t *_read
    cdef uint32_t *_at
    cdef char **_blocks
    cdef size_t _block_cnt
    cdef list _kept
    cdef ck_zone_t _zone
    cdef int64_t _last_us
    cdef object _last_time  # the local time of _last_us

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._block_cnt):
            free(self._blocks[i])
        free(self._blocks)
        free(self._read)
        free(self._at)

    @cython.cdivision(True)
    cdef int allocate(self, size_t cnt) except -1:
        cdef size_t blocks = cnt // CK_PACK_MESSAGES + 1
        self._kept = []
        self._read = <ck_envelope_t *>calloc(cnt, sizeof(ck_envelope_t))
        self._at = <uint32_t *>malloc(cnt * sizeof(uint32_t))
        self._blocks = <char **>calloc(blocks, sizeof(char *))
        if self._read is NULL or self._at is NULL or self._blocks is NULL:
            raise MemoryError
        self._block_cnt = blocks
        self._cnt = cnt
        return 0

    cdef list of_batch(self, MessageBatch batch):
        """Return one envelope or EnvelopeError per row."""
        cdef list result = [None] * batch._cnt
        cdef ck_batch_t *records
        cdef bint collecting
        cdef int err
        self.allocate(batch._cnt)
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
        # Disable the garbage collector, which would run after every few hundred new objects. Most
        # temporary objects are already freed when it runs after the loop.
        collecting = PyGC_Disable()
        try:
            self._make_envelopes(result)
        finally:
            if collecting:
                PyGC_Enable()
        return result

    cdef object of_message(self, Message message):
        """Convert a Message to an envelope. The user may have replaced the Message's data."""
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
                    ck_envelope_header(self._read, &rank, name, value)
        except (TypeError, LookupError, UnicodeEncodeError) as error:
            raise EnvelopeError(f"{_place(message)}: not an envelope: {error}", message) from None
        return self._envelope(message, key, body, self._read)

    @cython.cdivision(True)
    cdef int _read_headers(self, const ck_batch_t *batch, size_t start,
                           ptrdiff_t step) noexcept nogil:
        cdef size_t i = 0, cnt
        while i < self._cnt:
            cnt = min(self._cnt - i, <size_t>CK_PACK_MESSAGES)
            if ck_envelope_headers(batch, start + i * step, step, cnt, &self._read[i],
                                   &self._at[i], &self._blocks[i // CK_PACK_MESSAGES]):
                return -1
            i += cnt
        return 0

    @cython.cdivision(True)
    cdef int _make_messages(self, MessageBatch batch, list result) except -1:
        """Create the Messages, with the garbage collector off so that foreign code cannot run."""
        cdef HeaderBlock block = None
        cdef ck_batch_t *records
        cdef size_t at = batch._start, i
        cdef Message message
        cdef ck_row_t row
        cdef const char *last = NULL
        cdef bint collecting = PyGC_Disable()
        topic = None
        try:
            records = batch.opened()
            for i in range(self._cnt):
                if i % CK_PACK_MESSAGES == 0:
                    block = HeaderBlock.__new__(HeaderBlock)
                    block._ptr = self._blocks[i // CK_PACK_MESSAGES]
                    self._blocks[i // CK_PACK_MESSAGES] = NULL
                    self._kept.append(block)
                ck_batch_row(records, at, &row)
                if row.topic is not last:
                    topic = batch.name_of(row.topic)
                    last = row.topic
                message = message_from_row(&row, topic)
                if self._at[i] != UINT32_MAX:
                    message._headers = block
                    message._headers_at = self._at[i]
                result[i] = message
                at += batch._step
        finally:
            if collecting:
                PyGC_Enable()
        return 0

    cdef int _make_envelopes(self, list result) except -1:
        """Replace the Messages with envelopes."""
        cdef Message message
        cdef size_t i = 0
        while i < self._cnt:
            try:
                while i < self._cnt:
                    message = result[i]
                    if message is None:  # code found the list with gc.get_objects()
                        raise RuntimeError("the list of envelopes changed during the call")
                    result[i] = self._envelope(message, message._key, message._value,
                                               &self._read[i])
                    i += 1
            except MemoryError:
                raise
            except Exception as error:  # from a property or from the class's __new__
                if message is None:
                    raise
                refused = EnvelopeError(f"{_place(message)}: cannot create an envelope: "
                                        f"{type(error).__name__}", message)
                refused.__cause__ = error
                result[i] = refused
                i += 1
        return 0

    cdef object _envelope(self, Message message, object key, object value,
                          const ck_envelope_t *read):
        """Create an envelope. Foreign code runs only after all of its attributes exist."""
        cdef object sent_time = None, message_type = None
        cdef PyTypeObject *envelope_type
        if (message._report.timestamp_type != <int>RD_KAFKA_TIMESTAMP_NOT_AVAILABLE
                and -INT64_MAX // 1000 <= message._report.timestamp <= INT64_MAX // 1000):
            sent_time = self._local_time(message._report.timestamp * 1000)
        message_id = text_of(_span(key))
        trace_id = text_of(read.trace_id)
        if read.message_type.ptr is not NULL:
            message_type = self._known_type(read.message_type)
        envelope_type = <PyTypeObject *>self._codec._type
        envelope = envelope_type.tp_new(envelope_type, (), NULL)
        # Set them in the order of MessageEnvelope.__init__(), so that instances share dict keys.
        _set(envelope, "_MessageEnvelope__reference", message)
        _set(envelope, "trace_id", trace_id)
        _set(envelope, "message_type", message_type)
        _set(envelope, "message_id", message_id)
        _set(envelope, "sent_time", sent_time)
        _set(envelope, "message", value)
        return envelope

    cdef object _local_time(self, int64_t us):
        """Return an instant's local datetime. Neighbors are often equal, so reuse the last one."""
        cdef ck_civil_t civil
        if self._last_time is None or us != self._last_us:
            if not ck_time_local(&self._zone, us, &civil):
                return None
            self._last_time = datetime_new(civil.year, civil.month, civil.day, civil.hour,
                                           civil.minute, civil.second, civil.microsecond, None,
                                           civil.fold)
            self._last_us = us
        return self._last_time

    cdef object _known_type(self, ck_bytes_t text):
        """Return a message type as a str; equal recent types share one str."""
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


cdef inline int _set(object envelope, str name, object value) except -1:
    """Like setattr(), but faster. name must be interned, as every literal is."""
    if Py_TYPE(envelope).tp_setattro is NULL:
        return PyObject_SetAttr(envelope, name, value)
    return Py_TYPE(envelope).tp_setattro(envelope, name, value)


cdef inline object text_of(ck_bytes_t text):
    if text.ptr is NULL:
        return None
    if not ck_utf8_is_ascii(text.ptr, text.len):
        return PyUnicode_DecodeUTF8(<const char *>text.ptr, text.len, "replace")
    # Most texts are short and ASCII, and copying them takes half the time of decoding.
    made = PyUnicode_New(text.len, 127)
    memcpy(PyUnicode_DATA(made), text.ptr, text.len)
    return made


cdef inline object bytes_of(ck_bytes_t data):
    if data.ptr is NULL:
        return None
    return PyBytes_FromStringAndSize(<const char *>data.ptr, data.len)


cdef inline ck_bytes_t _span(object data):
    """Return the span of a bytes object; NULL for None."""
    cdef ck_bytes_t span
    span.ptr = NULL
    span.len = 0
    if data is not None:
        span.ptr = PyBytes_AS_STRING(data)
        span.len = PyBytes_GET_SIZE(data)
    return span


cdef object _plain_bytes(object data):
    """Convert a key, value or header that the user may have set to bytes or None."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return str.encode(data)
    if not PyObject_CheckBuffer(data):
        raise TypeError(f"expected bytes, str, a buffer or None, got {type(data).__name__}")
    return bytes(memoryview(data))


cdef str _place(Message message):
    return f"{message._topic} [{message.partition()}] at offset {message.offset()}"


# The number of message types that a codec remembers; a power of two.
cdef enum:
    KNOWN = 64

cdef ck_bytes_t[2] NAMES  # the header names of every record
NAMES[0].ptr = <const char *>b"message_type"
NAMES[0].len = 12
NAMES[1].ptr = <const char *>b"trace_id"
NAMES[1].len = 8


@cython.final
cdef class EnvelopeCodec:
    """Converts envelopes of one class to records and back, in batches.

    An envelope has the attributes of pip-services' MessageEnvelope: ``message_id``, ``trace_id``,
    ``message_type`` (str or None), ``message`` (bytes or None), ``sent_time`` (datetime or None)
    and ``_MessageEnvelope__reference``. In a record, the key is the message id, the value is the
    message and the timestamp is the sent time. The message type and trace id are headers.

    Parameters
    ----------
    envelope_type : type
        The class of the decoded envelopes. The codec creates them with ``__new__``, without
        ``__init__``.

    Notes
    -----
    Any number of threads may share a codec.
    """

    cdef object _type
    # Recent message types: equal types share one str.
    cdef list _known

    def __init__(self, envelope_type):
        if self._type is not None:
            raise TypeError("the codec is already initialized")
        if not isinstance(envelope_type, type):
            raise TypeError(f"envelope_type: expected a class, got {type(envelope_type).__name__}")
        if (<PyTypeObject *>envelope_type).tp_new is NULL:
            raise TypeError(f"envelope_type: cannot create instances of {envelope_type.__name__}")
        self._known = [None] * KNOWN
        self._type = envelope_type

    # -- to records

    def publish(self, Producer producer not None, topic, envelopes, *, partition=None,
                timestamp_ms=None, timeout=None):
        """Send envelopes as records, like ``Producer.publish()``.

        Parameters
        ----------
        producer : Producer
        topic : str or sequence of str
            One topic for all records, or one per record.
        envelopes : sequence
        partition : int, optional
            None, the default, lets the ``partitioner`` choose by the message id.
        timestamp_ms : int, optional
            ms since the epoch. None, the default, uses the current time.
        timeout : float, optional
            Seconds to wait for room in the queue. None, the default, waits forever.

        Returns
        -------
        Delivery

        Raises
        ------
        TypeError
            An object is not an envelope, or an attribute has the wrong type. The message says
            which.
        EnvelopeError
            Reading an attribute raised an exception, which is the ``__cause__``.
        UnicodeEncodeError
            A text cannot be encoded as UTF-8.
        """
        cdef Batch batch = Batch.__new__(Batch)
        cdef ck_publish_t *publish = &batch.c
        cdef ck_headers_t *headers = &batch.c_headers
        cdef ck_column_t[2] named
        cdef EnvelopeColumns columns
        cdef int64_t wait_ms
        self._opened()
        if producer._open_in != ck_runtime_generation:
            producer.refuse()
        wait_ms = timeout_ms(timeout, "timeout")
        publish.partitions.missing = RD_KAFKA_PARTITION_UA
        if partition is not None:
            publish.partitions.missing = int_argument(partition, "partition", -1, INT32_MAX)
        if timestamp_ms is not None:
            publish.timestamps.missing = int_argument(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        batch.owner = columns = self._columns_of(items_of(envelopes, "envelopes", "envelopes"))
        publish.cnt = columns._cnt
        publish.keys.kind = publish.values.kind = CK_COLUMN_POINTERS
        publish.keys.u.items = columns._texts[MESSAGE_ID]
        publish.values.u.items = columns._bodies
        memset(named, 0, sizeof(named))
        named[0].kind = named[1].kind = CK_COLUMN_POINTERS
        named[0].u.items = columns._texts[MESSAGE_TYPE]
        named[1].u.items = columns._texts[TRACE_ID]
        headers.named_cnt = 2
        headers.names = NAMES
        headers.named = named
        publish.headers = headers
        batch.topic = producer._publisher.topics_column(producer, topic, columns._columns,
                                                        publish)
        batch.borrow_large(columns._bodies_kept)
        return producer._publisher.send(producer, batch, wait_ms)

    def to_record(self, envelope, *, timestamp_ms=None):
        """Convert one envelope to a record's arguments.

        Parameters
        ----------
        envelope : object
        timestamp_ms : int, optional
            ms since the epoch. None, the default, uses the current time.

        Returns
        -------
        dict
            ``key`` (str or None), ``value`` (bytes or None), ``headers`` (dict of str to str or
            None) and ``timestamp`` (int, ms).
        """
        cdef EnvelopeColumns columns
        cdef int64_t ms
        self._opened()
        ms = now_ms()
        if timestamp_ms is not None:
            ms = int_argument(timestamp_ms, "timestamp_ms", 0, INT64_MAX)
        columns = self._columns_of((envelope,))
        return {"key": text_of(columns._texts[MESSAGE_ID][0]),
                "value": bytes_of(columns._bodies[0]),
                "headers": {"message_type": text_of(columns._texts[MESSAGE_TYPE][0]),
                            "trace_id": text_of(columns._texts[TRACE_ID][0])},
                "timestamp": ms}

    cdef EnvelopeColumns _columns_of(self, tuple envelopes):
        cdef EnvelopeColumns columns = EnvelopeColumns.__new__(EnvelopeColumns)
        columns.allocate(len(envelopes))
        columns.read(envelopes)
        return columns

    # -- from records

    def decode(self, MessageBatch batch not None):
        """Convert records to envelopes.

        Parameters
        ----------
        batch : MessageBatch

        Returns
        -------
        list
            One envelope per row. The envelope's reference is the row's Message, and its
            ``sent_time`` is a naive local datetime. If a row cannot be converted, the list
            contains an EnvelopeError instead, with the Message as ``message``.

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
            An envelope, as from :meth:`decode`.

        Raises
        ------
        EnvelopeError
            The message cannot be converted to an envelope.
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
