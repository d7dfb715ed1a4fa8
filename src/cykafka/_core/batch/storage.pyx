"""The storage of a MessageBatch: the records it shares with its slices, and the memory that its
columns are views of.

A Storage has a ck_batch_t. That batch never changes, but the Storage may exchange it for a copy
(``detach``, which a closing consumer calls for every batch it has handed over) or release it
(``release``). Both happen with the GIL. Code that holds the GIL and runs no foreign code therefore
needs no reference. Code that releases the GIL takes a reference first and gives it back before it
takes the GIL again. A reader that began before an exchange keeps the records it began with, and
the thread that closes the consumer waits for that reader (ck_loans).

Foreign code (a garbage collection during an allocation) could close the consumer in this very
thread, which would then wait for itself. So no code allocates Python objects while it has such a
reference. Views of values pin the batch instead; the closing consumer does not wait for them.
"""
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_FillInfo,
    Py_buffer,
)
cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from cykafka._core.clib.csrc cimport (
    ck_batch_copy,
    ck_batch_pin,
    ck_batch_ref,
    ck_batch_t,
    ck_batch_unpin,
    ck_batch_unref,
    ck_runtime_generation,
)


@cython.final
cdef class Storage:
    """The records of a batch and its slices, and their place in the consumer's list."""

    def __dealloc__(self):
        self.unlink()
        self.release()

    cdef void link(self, void **first) noexcept:
        self._next = first[0]
        if self._next is not NULL:
            (<Storage>self._next)._link = &self._next
        self._link = first
        first[0] = <void *>self

    cdef void unlink(self) noexcept:
        if self._link is NULL:
            return
        self._link[0] = self._next
        if self._next is not NULL:
            (<Storage>self._next)._link = self._link
        self._link = NULL
        self._next = NULL

    cdef bint detach(self) noexcept:
        """Exchange the records for a copy in memory of our own. False if there is not enough."""
        cdef ck_batch_t *lent = self._ptr
        cdef ck_batch_t *copy
        cdef bint pinned
        # A child's copy would give nothing back: the messages are its parent's.
        if (lent is NULL or lent.rows is not NULL or lent.cnt == 0
                or lent.generation != ck_runtime_generation):
            return True
        ck_batch_ref(lent)
        with nogil:
            copy = ck_batch_copy(lent)
        # Meanwhile another thread may have detached or released the batch. self._ptr cannot be a
        # new batch at the same address, because this one still has our reference.
        if copy is not NULL and self._ptr is lent:
            self._ptr = copy
            pinned = self._pinned
            self._pinned = False
            with nogil:
                if pinned:
                    ck_batch_unpin(lent)
                ck_batch_unref(lent)
                ck_batch_unref(lent)
            return True
        with nogil:
            ck_batch_unref(lent)
            ck_batch_unref(copy)
        return copy is not NULL

    cdef void release(self) noexcept:
        cdef ck_batch_t *batch = self._ptr
        cdef bint pinned = self._pinned
        self._ptr = NULL
        self._pinned = False
        if batch is not NULL:
            with nogil:
                if pinned:
                    ck_batch_unpin(batch)
                ck_batch_unref(batch)


@cython.final
cdef class Payloads:
    """Keeps the records of a batch alive for the memoryviews of its values, without the
    consumer."""

    def __dealloc__(self):
        if self._pinned is not NULL:
            with nogil:
                ck_batch_unpin(self._pinned)

    cdef void pin(self, ck_batch_t *batch) noexcept:
        ck_batch_pin(batch)
        self._pinned = batch

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self._bytes is NULL:
            raise BufferError("views of a batch's bytes come from the batch")
        PyBuffer_FillInfo(buffer, self, <void *>self._bytes, self._size, 1, flags)


@cython.final
cdef class Column:
    """Numbers, one for each row, in memory of their own."""

    def __dealloc__(self):
        free(self._numbers)

    cdef int allocate(self, Py_ssize_t cnt, Py_ssize_t width) except -1:
        self._numbers = malloc(max(cnt * width, 1))
        if self._numbers is NULL:
            raise MemoryError
        self._cnt = cnt
        self._width = width
        return 0

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if self._numbers is NULL:
            raise BufferError("a column of numbers comes from a batch")
        if flags & PyBUF_WRITABLE:
            raise BufferError("a batch's columns are read-only")
        buffer.buf = self._numbers
        buffer.obj = self
        buffer.len = self._cnt * self._width
        buffer.readonly = 1
        buffer.itemsize = self._width
        if not flags & PyBUF_FORMAT:
            buffer.format = NULL
        elif self._width == sizeof(int64_t):
            buffer.format = b"q"
        else:
            buffer.format = b"i"
        buffer.ndim = 1
        buffer.shape = &self._cnt if flags & PyBUF_ND else NULL
        buffer.strides = &self._width if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        buffer.suboffsets = NULL
        buffer.internal = NULL
