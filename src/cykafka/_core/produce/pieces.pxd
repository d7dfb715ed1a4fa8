from cykafka._core.clib.csrc cimport *

cdef class Pieces:
    cdef ck_bytes_t *_items
    cdef Py_ssize_t _cnt
    # The text that the items point into.
    cdef bytes _text
    # The object that frees the items; None if this object does.
    cdef Pieces _owner
