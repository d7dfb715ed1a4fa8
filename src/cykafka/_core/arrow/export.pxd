from libc.stddef cimport ptrdiff_t

from cykafka._core.clib.csrc cimport *

cdef class ArrowExport:
    # Return the batch and set its current rows: cnt messages, step apart, beginning at start. The
    # pointer is valid until the GIL is released or foreign code runs. Raises if the batch was
    # released.
    cdef ck_batch_t *arrow_rows(self, size_t *start, ptrdiff_t *step, size_t *cnt) except NULL
