from cykafka._core.clib.csrc cimport *

cdef class Ranges:
    cdef ck_ranges_t *_ptr
    # Whether a call is advancing the ranges, without the GIL.
    cdef bint _busy

    cdef int take(self) except -1
