from libc.stdint cimport int64_t

cdef enum:
    # The longest uninterruptible wait, ms, so that signals and callbacks can run.
    SLICE = 100
    # Instead of a deadline: do not wait.
    NOW = -2
    # librdkafka's longest timeout of an administrative request, ms.
    MAX_REQUEST_MS = 3_600_000
    # The length of Kafka's strings has 16 bits, and librdkafka does not check it.
    MAX_TEXT = 32767
    # The longest value of a configuration, and of a credential, bytes. librdkafka keeps lengths in
    # an int, and copies some values (addresses, credentials) to the stack of a thread, which has
    # 8 MB as a rule. 40,000 addresses or the certificates of 700 authorities are shorter.
    MAX_VALUE = 1_048_576
    # The most topics or partitions of a call: librdkafka counts them with an int. The largest
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
