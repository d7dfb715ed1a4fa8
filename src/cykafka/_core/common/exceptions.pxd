cdef enum:
    # How far contexts are followed, which a program may have made circular.
    MAX_CONTEXTS = 1000

cdef object chain(object earlier, object later)
cdef void write_unraisable(object exception, object source) noexcept
