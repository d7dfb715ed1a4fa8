from libc.stdint cimport int64_t

cdef enum:
    # The longest uninterruptible wait, ms. Between waits, signal handlers and callbacks can run.
    SLICE = 100
    # In place of a deadline: do not wait.
    NOW = -2
    # librdkafka's longest timeout for an administrative request, ms.
    MAX_REQUEST_MS = 3_600_000
    # The longest string in Kafka's protocol, bytes: its length has 16 bits, which librdkafka does
    # not check.
    MAX_TEXT = 32767
    # The longest configuration value or credential, bytes. librdkafka stores lengths in an int,
    # and copies some values (addresses, credentials) to a thread's stack, usually of 8 MB. The
    # limit is enough for 40,000 addresses or the certificates of 700 authorities.
    MAX_VALUE = 1_048_576
    # The most topics or partitions per call: librdkafka counts them with an int. The largest
    # clusters have 2 million partitions.
    MAX_PARTITIONS = 10_000_000

cdef int64_t timeout_ms(object timeout, str argument) except? -2
cdef int64_t deadline_after(int64_t ms) noexcept
cdef int64_t slice_end(int64_t deadline) noexcept
cdef int slice_left(int64_t deadline) noexcept
cdef const char *utf8(object text, Py_ssize_t *size, str argument) except NULL
cdef bytes hidden_utf8(str text, str argument)
cdef int check_value_size(Py_ssize_t size, str argument) except -1
cdef int check_count(Py_ssize_t count, str argument) except -1
cdef int64_t int_argument(object value, str argument, int64_t low, int64_t high) except? -2
cdef str str_argument(object text, str argument)
cdef str plain_str(object text)
