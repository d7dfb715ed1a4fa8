from libc.stdint cimport int64_t

cdef enum:
    # How long a wait may last that nothing can end early, ms: signals and callbacks get their turn.
    SLICE = 100
    # Instead of a deadline: do not wait.
    NOW = -2
    # The most that librdkafka lets an administrative request take, ms.
    MAX_REQUEST_MS = 3_600_000
    # The least that one is given which goes to the partitions' leaders: librdkafka looks for them in the
    # caller's thread, and a timeout that is over by then frees what that thread is using (2.14.2).
    MIN_LEADERS_MS = 1000

cdef int64_t timeout_ms(object timeout, str argument) except? -2
cdef int64_t deadline_after(int64_t ms) noexcept
cdef int int_ms(int64_t ms) noexcept
cdef const char *utf8(object text, Py_ssize_t *size, str argument) except NULL
cdef int64_t int_argument(object value, str argument, int64_t low, int64_t high) except? -2
cdef str plain_str(object text)
