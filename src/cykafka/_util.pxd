from libc.stdint cimport int64_t

cdef int64_t timeout_ms(object timeout, str argument) except? -2
cdef int64_t deadline_after(int64_t ms) noexcept
cdef int int_ms(int64_t ms) noexcept
cdef int64_t int_argument(object value, str argument, int64_t low, int64_t high) except? -2
