from cykafka._core.clib.csrc cimport ck_bytes_t

cdef class Pieces:
    cdef ck_bytes_t *_items
    cdef Py_ssize_t _cnt
    # What the items point to.
    cdef bytes _text
    # The Pieces that frees the items; None: this one.
    cdef Pieces _owner
    cdef readonly Py_ssize_t end
