from cykafka._core.clib.csrc cimport *

cdef class ArrowData:
    cdef ArrowSchema _schema
    cdef ArrowArray *_chunks
    cdef size_t _room
    cdef list _kept
    cdef readonly size_t cnt     # chunks
    cdef readonly size_t length  # rows in all chunks

    cdef int _read_stream(self, object capsule, str argument) except -1
    cdef int _read_array(self, object pair, str argument) except -1
    cdef int _reserve(self) except -1
    cdef int _check(self, str argument) except -1
    cdef int _view(self, size_t chunk, object name, str argument, ck_arrow_view_t *view) except -1
    cdef int _refuse(self, ck_arrow_result_t result, const ck_arrow_problem_t *problem,
                     const ck_arrow_view_t *view, size_t chunk, object name, str argument,
                     str wanted) except -1
    cdef void *_block(self, size_t cnt, size_t size) except NULL

    cdef bint is_table(self)
    cdef size_t rows(self, size_t chunk)
    cdef int column(self, size_t chunk, object name, str argument, ck_column_t *column) except -1
    cdef int numbers(self, size_t chunk, object name, str argument, bint times,
                     ck_numbers_t *numbers) except -1
    cdef int headers(self, size_t chunk, object name, str argument,
                     ck_headers_t *headers) except -1
    cdef int whole_column(self, object name, str argument, ck_column_t *column) except -1
    cdef int whole_numbers(self, object name, str argument, bint times,
                           ck_numbers_t *numbers) except -1
    cdef int whole_headers(self, object name, str argument, ck_headers_t *headers) except -1

cdef bint is_arrow(object data) except -1
