from cykafka._core.clib.csrc cimport ck_batch_t

cdef class Storage:
    # The records, or NULL once they are released. Read or exchanged with the GIL only. To read the
    # batch without the GIL, take a reference first; to keep it for longer than a call, pin it.
    cdef ck_batch_t *_ptr
    # The consumer's list of batches it has handed over: the next Storage, and the pointer to this
    # one.
    cdef void *_next
    cdef void **_link
    # Whether a closed consumer had no memory to detach it.
    cdef bint _pinned

    cdef void link(self, void **first) noexcept
    cdef void unlink(self) noexcept
    cdef bint detach(self) noexcept
    cdef void release(self) noexcept

cdef class Payloads:
    cdef ck_batch_t *_pinned
    # What the next view is of; NULL when all views are made.
    cdef const void *_bytes
    cdef Py_ssize_t _size

    cdef void pin(self, ck_batch_t *batch) noexcept

cdef class Column:
    cdef void *_numbers
    cdef Py_ssize_t _cnt
    cdef Py_ssize_t _width

    cdef int allocate(self, Py_ssize_t cnt, Py_ssize_t width) except -1
