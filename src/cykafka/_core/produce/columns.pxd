from libc.stdint cimport int64_t

from cykafka._core.arrow.read cimport ArrowData
from cykafka._core.clib.csrc cimport *

# A held buffer. It must not move: its strides may point into it, as array.array's do.
cdef struct held_t:
    held_t *before
    Py_buffer buffer

cdef class Pairs:
    cdef ck_bytes_t *_names
    cdef ck_bytes_t *_values
    cdef size_t _cnt
    cdef size_t _size

    cdef int reserve(self) except -1

cdef class Columns:
    cdef ck_headers_t _headers
    # The memory that the columns point to: allocated blocks, buffers, objects.
    cdef void **_blocks
    cdef size_t _block_cnt
    cdef size_t _block_size
    cdef held_t *_held
    cdef list _objects
    # The number of records (-1 before the first column), and the column that determined it.
    cdef Py_ssize_t _cnt
    cdef str _told_by

    cdef void *block(self, size_t cnt, size_t size) except NULL
    cdef Py_buffer *hold(self, object exporter, int flags) except NULL
    cdef int count(self, str name, Py_ssize_t cnt) except -1
    cdef ArrowData _arrow(self, object data, str name)
    cdef tuple bytes_column(self, object data, str name, ck_column_t *column)
    cdef tuple _gathered(self, tuple items, str name, ck_column_t *column)
    cdef int _other(self, object item, str name, Py_ssize_t i, ck_bytes_t *into) except -1
    cdef bint _buffer_column(self, object data, str name, ck_column_t *column) except -1
    cdef int numbers_column(self, object data, str name, ck_numbers_t *numbers, int64_t missing,
                            int64_t low, int64_t high) except -1
    cdef bint _buffer_of_numbers(self, object data, str name, ck_numbers_t *numbers, int64_t low,
                                 int64_t high) except -1
    cdef int _list_of_numbers(self, tuple items, str name, ck_numbers_t *numbers, int64_t low,
                              int64_t high) except -1
    cdef const ck_headers_t *headers_column(self, object headers) except? NULL
    cdef int _named(self, object headers) except -1
    cdef int _listed(self, tuple entries) except -1
    cdef int _pairs_of(self, object entry, Pairs pairs, Py_ssize_t i) except -1
    cdef int _header(self, object name, object value, ck_bytes_t *names, ck_bytes_t *values,
                     Py_ssize_t record) except -1

cdef class Pieces:
    cdef ck_bytes_t *_items
    cdef Py_ssize_t _cnt
    # The text that the items point into.
    cdef bytes _text
    # The object that frees the items; None if this object does.
    cdef Pieces _owner

cdef int check_range(const ck_numbers_t *numbers, size_t cnt, str name, int64_t low,
                     int64_t high) except -1
cdef tuple items_of(object data, str name, str what)
