"""Message: a consumed or delivered record, or a record created for tests."""
from types import GenericAlias

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.number cimport PyNumber_Index
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memchr

from cykafka._core.clib.csrc cimport *
cimport cykafka._core.clib.csrc as runtime
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.common.arguments cimport utf8
from cykafka._core.common.errors cimport check_doing, error_from

from cykafka._core.common.naming import public

TIMESTAMP_NOT_AVAILABLE = <int>RD_KAFKA_TIMESTAMP_NOT_AVAILABLE
TIMESTAMP_CREATE_TIME = <int>RD_KAFKA_TIMESTAMP_CREATE_TIME
TIMESTAMP_LOG_APPEND_TIME = <int>RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME


@cython.final
cdef class HeaderBlock:
    """The unread headers of the Messages that a codec decoded together."""

    def __dealloc__(self):
        free(self._ptr)


@cython.final
@cython.freelist(16)
cdef class CHeaders:
    """Owns librdkafka headers and keeps them alive while a call reads them."""

    def __dealloc__(self):
        if self._ptr is not NULL:
            rd_kafka_headers_destroy(self._ptr)


@cython.freelist(256)
cdef class Message:
    """Message(topic=None, partition=None, offset=None, key=None, value=None, headers=None,
            error=None, timestamp=None, latency=None, leader_epoch=None, delivery_count=None)\n--\n
    A record, an event or an error. For an event or error, :meth:`error` is not None.

    Messages come from ``Consumer.poll``, ``Consumer.consume``, batches and delivery callbacks.
    A Message owns its data and pins no fetch buffers. The constructor is meant for tests.

    Parameters
    ----------
    topic : str, optional
    partition : int, optional
    offset : int, optional
    key, value : bytes, optional
    headers : list of (str, bytes or None), optional
    error : KafkaError, optional
    timestamp : tuple of (int, int), optional
        Type (``TIMESTAMP_...``) and ms since the epoch.
    latency : float, optional
        Seconds from ``produce()`` to the delivery report.
    leader_epoch : int, optional
    delivery_count : int, optional
        How many times a share group has delivered the record (KIP-932).
    """

    def __cinit__(self):
        self._report.partition = RD_KAFKA_PARTITION_UA
        self._report.offset = RD_KAFKA_OFFSET_INVALID
        self._report.latency = -1
        self._report.leader_epoch = -1

    def __init__(self, topic=None, partition=None, offset=None, key=None, value=None,
                 headers=None, error=None, timestamp=None, latency=None, leader_epoch=None,
                 delivery_count=None):
        """Set what the methods return; the class describes the parameters."""
        # Values out of range raise OverflowError; negative ones mean unknown.
        # PyNumber_Index() refuses floats, which would lose their fraction.
        cdef int32_t c_partition = -1 if partition is None else PyNumber_Index(partition)
        cdef int64_t c_offset = -1 if offset is None else PyNumber_Index(offset)
        cdef int32_t c_epoch = -1 if leader_epoch is None else PyNumber_Index(leader_epoch)
        cdef int16_t c_count = -1 if delivery_count is None else PyNumber_Index(delivery_count)
        self._topic = topic
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        if c_partition >= 0:
            self._report.partition = c_partition
        if c_offset >= 0:
            self._report.offset = c_offset
        if timestamp is not None:
            if not isinstance(timestamp, tuple) or len(timestamp) != 2:
                raise TypeError("timestamp must be a tuple of (int, int), its type and ms, "
                                f"got {timestamp!r}")
            self._report.timestamp_type = PyNumber_Index(timestamp[0])
            self._report.timestamp = PyNumber_Index(timestamp[1])
        if latency is not None and 0 <= latency < 1e9:
            self._report.latency = <int64_t>(<double>latency * 1e6)
        if c_epoch >= 0:
            self._report.leader_epoch = c_epoch
        if c_count > 0:
            self._delivery_count = c_count

    def __dealloc__(self):
        if self._ref is not NULL:
            ck_msgref_drop(self._ref)
        if self._c_headers is not NULL:
            rd_kafka_headers_destroy(self._c_headers)

    def topic(self):
        """Return the topic name, a str, or None."""
        return self._topic

    def partition(self):
        """Return the partition, an int, or None if unknown."""
        return None if self._report.partition < 0 else self._report.partition

    def offset(self):
        """Return the offset, an int, or None if unknown."""
        return None if self._report.offset < 0 else self._report.offset

    def value(self):
        """Return the value: bytes, None for a tombstone, or the object given to ``set_value``."""
        if self._as_given:
            self._to_bytes()
        return self._value

    def key(self):
        """Return the key: bytes, None without a key, or the object given to ``set_key``."""
        if self._as_given:
            self._to_bytes()
        return self._key

    def deserialized_value(self):
        """Return :meth:`value`, typed as the deserializer's result."""
        return self.value()

    def deserialized_key(self):
        """Return :meth:`key`, typed as the deserializer's result."""
        return self.key()

    def headers(self):
        """Return the headers in order, a list of (str, bytes or None), or None without headers."""
        cdef object unread
        cdef list headers
        if self._ref is not NULL or self._c_headers is not NULL:
            self._take_headers()
        elif self._as_given:
            self._to_bytes()
        unread = self._headers
        if type(unread) is CHeaders:
            headers = headers_from((<CHeaders>unread)._ptr)
        elif type(unread) is HeaderBlock:
            headers = _headers_of(<HeaderBlock>unread, self._headers_at)
        else:
            return unread
        # Creating objects can start the garbage collector, so another thread or a finalizer may
        # have replaced the headers by now.
        if self._headers is unread:
            self._headers = headers
        return self._headers

    def error(self):
        """Return None for a record, or a KafkaError for an event or error."""
        if self._error is None and self._report.event.code:
            self._error = error_from(<rd_kafka_resp_err_t>self._report.event.code, NULL)
        return self._error

    def timestamp(self):
        """Return (type, ms since the epoch); the type is TIMESTAMP_NOT_AVAILABLE without one."""
        return (self._report.timestamp_type, self._report.timestamp)

    def latency(self):
        """Return the seconds from ``produce()`` to the report, a float; None if consumed."""
        return None if self._report.latency < 0 else self._report.latency / 1e6

    def leader_epoch(self):
        """Return the offset's leader epoch (KIP-320), an int, or None if unknown."""
        return None if self._report.leader_epoch < 0 else self._report.leader_epoch

    def delivery_count(self):
        """Return the record's delivery count in a share group (KIP-932), or None without one."""
        return None if self._delivery_count <= 0 else self._delivery_count

    def set_topic(self, topic):
        """Replace the topic."""
        self._topic = topic

    def set_value(self, value):
        """Replace the value, as a deserializer does."""
        self.value()
        self._value = value

    def set_key(self, key):
        """Replace the key, as a deserializer does."""
        self.key()
        self._key = key

    def set_headers(self, headers):
        """Replace the headers."""
        self.headers()
        self._headers = headers

    def set_error(self, error):
        """Replace the error."""
        self._error = error
        self._report.event.code = 0

    def __len__(self):
        """Return the value's size in bytes; 0 without a value."""
        value = self.value()
        return 0 if value is None else len(value)

    def __bool__(self):
        # A message with an empty value is also true.
        return True

    def __eq__(self, other):
        if not isinstance(other, Message):
            return NotImplemented
        return _state(self) == _state(other)

    __hash__ = None
    # Type checkers track the types of key and value: Message[str, Order].
    __class_getitem__ = classmethod(GenericAlias)

    def __repr__(self):
        error = self.error()
        if error is not None:
            return f"Message(error={error!r}, topic={self._topic!r})"
        return (f"Message(topic={self._topic!r}, partition={self.partition()}, "
                f"offset={self.offset()}, key={_short(self.key())}, "
                f"value={_short(self.value())})")

    def __reduce__(self):
        # As in confluent_kafka, unknown numbers become librdkafka's values for unknown.
        topic, partition, offset, *data, latency, epoch, count = _state(self)
        return (type(self), (topic, RD_KAFKA_PARTITION_UA if partition is None else partition,
                             RD_KAFKA_OFFSET_INVALID if offset is None else offset, *data,
                             -1.0 if latency is None else latency,
                             -1 if epoch is None else epoch, -1 if count is None else count))

    cdef int _take_headers(self) except -1:
        """Move the headers from librdkafka into ``_headers``."""
        cdef CHeaders taken = CHeaders.__new__(CHeaders)
        if self._ref is not NULL:
            self._c_headers = ck_msgref_take_headers(self._ref)
            ck_msgref_drop(self._ref)
            self._ref = NULL
        if self._c_headers is not NULL:
            taken._ptr = self._c_headers
            self._c_headers = NULL
            self._headers = taken
        return 0

    cdef int _to_bytes(self) except -1:
        value, key, headers = _given_bytes(self._value), _given_bytes(self._key), self._headers
        if headers is not None:
            pairs = headers.items() if isinstance(headers, dict) else headers
            headers = [(name, _given_bytes(value)) for name, value in pairs]
        if self._as_given:  # other code may have converted them by now, see headers()
            self._as_given = False
            self._value, self._key, self._headers = value, key, headers
        return 0


def _short(data):
    if isinstance(data, bytes) and len(data) > 40:
        return f"{data[:40]!r}... ({len(data)} bytes)"
    return repr(data)


cdef object _given_bytes(object data):
    if isinstance(data, str):
        return (<str>data).encode()
    if data is None or type(data) is bytes:
        return data
    return bytes(data)


cdef tuple _state(Message message):
    return (message._topic, message.partition(), message.offset(), message.key(),
            message.value(), message.headers(), message.error(), message.timestamp(),
            message.latency(), message.leader_epoch(), message.delivery_count())


cdef in_flight_t *in_flight_new(ck_inflight_t *inflight, object topic, object value, object key,
                                object headers, object on_delivery) except NULL:
    """Allocate the data for a record in flight. in_flight_destroy() frees the data."""
    cdef in_flight_t *sent = <in_flight_t *>ck_inflight_take(inflight)
    if sent is NULL:
        raise MemoryError
    Py_INCREF(topic)
    Py_INCREF(value)
    Py_INCREF(key)
    Py_INCREF(headers)
    Py_INCREF(on_delivery)
    sent.topic = <PyObject *>topic
    sent.value = <PyObject *>value
    sent.key = <PyObject *>key
    sent.headers = <PyObject *>headers
    sent.on_delivery = <PyObject *>on_delivery
    runtime.ck_runtime_reports += 1
    return sent


cdef void in_flight_destroy(in_flight_t *sent) noexcept:
    cdef in_flight_t gone = sent[0]
    ck_inflight_give(&sent.report)
    runtime.ck_runtime_reports -= 1
    # Do this last, because it may run any code.
    Py_DECREF(<object>gone.topic)
    Py_DECREF(<object>gone.value)
    Py_DECREF(<object>gone.key)
    Py_DECREF(<object>gone.headers)
    Py_DECREF(<object>gone.on_delivery)


cdef Message message_delivered(const in_flight_t *sent):
    """Create the Message for a delivery callback."""
    cdef Message message = Message.__new__(Message)
    message._report = sent.report
    message._topic = <object>sent.topic
    message._value = <object>sent.value
    message._key = <object>sent.key
    message._headers = <object>sent.headers
    message._as_given = True
    return message


cdef Message message_from(rd_kafka_message_t *rkmessage, object topic):
    """Copy librdkafka's message without its headers; see Backlog.free_ref()."""
    cdef Message message = Message.__new__(Message)
    message._topic = topic
    message._report.partition = rkmessage.partition
    message._report.offset = rkmessage.offset
    if rkmessage.err:
        message._error = error_from(rkmessage.err, rd_kafka_message_errstr(rkmessage))
        if rkmessage.payload is not NULL:  # the error's text
            message._value = PyBytes_FromStringAndSize(<char *>rkmessage.payload, rkmessage.len)
        return message
    if rkmessage.payload is not NULL:
        message._value = PyBytes_FromStringAndSize(<char *>rkmessage.payload, rkmessage.len)
    if rkmessage.key is not NULL:
        message._key = PyBytes_FromStringAndSize(<char *>rkmessage.key, rkmessage.key_len)
    message._report.timestamp = rd_kafka_message_timestamp(
        rkmessage, <rd_kafka_timestamp_type_t *>&message._report.timestamp_type)
    message._report.leader_epoch = rd_kafka_message_leader_epoch(rkmessage)
    return message


cdef Message message_from_row(const ck_row_t *row, object topic):
    """Like message_from(), for a record in a batch."""
    cdef Message message = Message.__new__(Message)
    message._topic = topic
    message._report.partition = row.partition
    message._report.offset = row.offset
    message._report.timestamp = row.timestamp
    message._report.timestamp_type = row.timestamp_type
    message._report.leader_epoch = row.leader_epoch
    message._delivery_count = row.delivery_count
    if row.value is not NULL:
        message._value = PyBytes_FromStringAndSize(<const char *>row.value, row.value_len)
    if row.key is not NULL:
        message._key = PyBytes_FromStringAndSize(<const char *>row.key, row.key_len)
    return message


cdef list headers_from(const rd_kafka_headers_t *c_headers):
    cdef size_t i, size
    cdef const char *name
    cdef const void *value
    cdef list headers = []
    for i in range(rd_kafka_header_cnt(c_headers)):
        rd_kafka_header_get_all(c_headers, i, &name, &value, &size)
        headers.append((
            name.decode("utf-8", "replace"),
            None if value is NULL else PyBytes_FromStringAndSize(<const char *>value, size)))
    return headers


cdef list _headers_of(HeaderBlock block, uint32_t at):
    cdef const char *place = block._ptr + at
    cdef ck_bytes_t name, value
    cdef list headers = []
    if block._ptr is NULL:  # not created by a codec
        return headers
    for _ in range(ck_pack_cnt(&place)):
        ck_pack_next(&place, &name, &value)
        headers.append((
            (<const char *>name.ptr)[:name.len].decode("utf-8", "replace"),
            None if value.ptr is NULL
            else PyBytes_FromStringAndSize(<const char *>value.ptr, value.len)))
    return headers


cdef rd_kafka_headers_t *headers_to(object headers) except? NULL:
    """Convert a dict or a list of pairs to librdkafka's headers, which the caller destroys."""
    cdef rd_kafka_headers_t *c_headers
    if isinstance(headers, dict):
        headers = headers.items()
    elif not isinstance(headers, (list, tuple)):
        raise TypeError("headers: expected a dict or a list of (name, value), "
                        f"got {type(headers).__name__}")
    headers = list(headers)  # a copy: len() and iteration of a subclass may disagree
    c_headers = rd_kafka_headers_new(len(headers))
    try:
        for pair in headers:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"headers: expected (name, value) pairs, found {pair!r}")
            _add_header(c_headers, pair[0], pair[1])
    except:
        rd_kafka_headers_destroy(c_headers)
        raise
    return c_headers


cdef int _add_header(rd_kafka_headers_t *c_headers, object name, object value) except -1:
    cdef Py_ssize_t name_size, size = 0
    cdef const char *c_name
    cdef const char *c_value = NULL
    cdef rd_kafka_resp_err_t err
    if isinstance(name, str):
        c_name = utf8(name, &name_size, "a header name")
    elif isinstance(name, bytes):
        c_name = PyBytes_AS_STRING(name)
        name_size = PyBytes_GET_SIZE(name)
    else:
        raise TypeError(f"headers: expected a str as name, got {type(name).__name__}")
    if memchr(c_name, 0, name_size) is not NULL:
        raise ValueError(f"headers: {name!r} contains a NUL character")
    if isinstance(value, str):
        c_value = utf8(value, &size, "a header value")
    elif value is not None:
        if type(value) is not bytes:
            try:
                value = bytes(memoryview(value))
            except TypeError:
                raise TypeError(f"headers: expected bytes, str or None as value of {name!r}, "
                                f"got {type(value).__name__}") from None
        c_value = PyBytes_AS_STRING(value)
        size = PyBytes_GET_SIZE(value)
    err = rd_kafka_header_add(c_headers, c_name, name_size, c_value, size)
    if err:
        check_doing(err, f"headers: cannot add {name!r}")
    return 0


public("cykafka")(Message)
