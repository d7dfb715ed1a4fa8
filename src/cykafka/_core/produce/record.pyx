"""A record on its way into librdkafka: its topic's handle, its bytes, and its errors."""
from cpython.buffer cimport PyBUF_SIMPLE, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE

from cykafka._core.clib.csrc cimport (
    CK_KIND_TOPIC,
    ck_record_t,
    ck_runtime_count,
    ck_runtime_generation,
)
from cykafka._core.clib.librdkafka cimport rd_kafka_topic_destroy
from cykafka._core.common.arguments cimport utf8

from cykafka._core.common.errors import KafkaError


cdef class Topic:
    """A topic handle, kept so that produce() need not look the topic up by its name."""

    def __cinit__(self):
        self._generation = ck_runtime_generation

    def __dealloc__(self):
        self.release()

    cdef void release(self) noexcept:
        # With the GIL: it only drops a reference, and nobody may see the handle half released.
        if self._ptr is not NULL and self._generation == ck_runtime_generation:
            rd_kafka_topic_destroy(self._ptr)
            self._ptr = NULL
            ck_runtime_count(CK_KIND_TOPIC, -1)


cdef int data_of(object data, str argument, const void **ptr, size_t *size,
                 Py_buffer *buffer) except -1:
    """Where the bytes of a value or key are; 1 if the buffer was filled and must be released."""
    cdef Py_ssize_t length
    if PyBytes_CheckExact(data):
        ptr[0] = PyBytes_AS_STRING(data)
        size[0] = PyBytes_GET_SIZE(data)
    elif data is None:
        ptr[0] = NULL
        size[0] = 0
    elif isinstance(data, str):
        ptr[0] = utf8(data, &length, argument)
        size[0] = length
    elif PyObject_CheckBuffer(data):
        try:
            PyObject_GetBuffer(data, buffer, PyBUF_SIMPLE)
        except BufferError as error:  # which here would mean that the queue is full
            raise TypeError(f"{argument}: expected a contiguous buffer: {error}") from None
        # An empty buffer may have no address, which would make it a null.
        ptr[0] = buffer.buf if buffer.len else <const void *>b""
        size[0] = buffer.len
        return 1
    else:
        if not is_data(data):
            raise TypeError(f"{argument}: expected bytes, str, a buffer or None, "
                            f"got {type(data).__name__}")
    return 0


cdef bint is_data(object data) noexcept:
    """Whether data is a valid value or key."""
    return data is None or isinstance(data, (bytes, str)) or PyObject_CheckBuffer(data)


cdef object frozen(object data):
    """The data for a delivery callback, which must not change after produce()."""
    return data if data is None or isinstance(data, (bytes, str)) else bytes(data)


cdef object headers_copy(object headers):
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name if isinstance(name, str) else name.decode("utf-8", "replace"), frozen(value))
            for name, value in pairs]


cdef object produce_error(topic, const ck_record_t *record, error):
    where = topic if record.partition < 0 else f"{topic} [{record.partition}]"
    return KafkaError(error.code(), f"Unable to produce message to {where}: {error.str()}",
                      error.fatal(), error.retriable(), error.txn_requires_abort())
