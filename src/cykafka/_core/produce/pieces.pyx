"""Pieces: a text split at delimiters, as a publish() column without Python objects."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.slice cimport PySlice_GetIndicesEx
from libc.stdlib cimport free, malloc

from cykafka._core.clib.csrc cimport *


@cython.final
@cython.no_gc
cdef class Pieces:
    """Pieces of a text.

    ``publish()`` accepts Pieces as values, keys or headers, without a Python object per piece.
    Iteration yields bytes. Slices, and the parts from :meth:`partition`, are Pieces of the same
    text.
    """

    def __init__(self):
        raise TypeError("Pieces come from split()")

    def __dealloc__(self):
        if self._owner is None:
            free(self._items)

    def __len__(self):
        return self._cnt

    def __iter__(self):
        cdef list found = PyList_New(self._cnt)
        cdef Py_ssize_t i
        for i in range(self._cnt):
            piece = PyBytes_FromStringAndSize(<const char *>self._items[i].ptr, self._items[i].len)
            Py_INCREF(piece)
            PyList_SET_ITEM(found, i, piece)
        return iter(found)

    def __getitem__(self, slice part not None):
        cdef Py_ssize_t start, stop, step, cnt
        PySlice_GetIndicesEx(part, self._cnt, &start, &stop, &step, &cnt)
        if step != 1:
            raise ValueError(f"expected a slice with the step 1, got {step}")
        return _part_of(self, self._items + start, cnt)

    def partition(self, bytes delimiter not None):
        """Split each piece at its first delimiter.

        Returns
        -------
        tuple of (Pieces, Pieces) or None
            The parts before and after the delimiters; None if a piece has no delimiter.

        Raises
        ------
        ValueError
            The delimiter is empty.
        """
        cdef const char *mark = _checked(delimiter)
        cdef size_t mark_size = PyBytes_GET_SIZE(delimiter)
        cdef Pieces before = Pieces.__new__(Pieces)
        cdef size_t done
        before._items = <ck_bytes_t *>malloc(max(2 * self._cnt, 1) * sizeof(ck_bytes_t))
        if before._items is NULL:
            raise MemoryError
        before._cnt = self._cnt
        before._text = self._text
        with nogil:
            done = ck_split_first(self._items, self._cnt, mark, mark_size, before._items,
                                  before._items + self._cnt)
        if done < <size_t>self._cnt:
            return None
        return before, _part_of(before, before._items + self._cnt, self._cnt)


def split(bytes text not None, bytes delimiter not None):
    """Find the pieces of a text that end with a delimiter.

    Parameters
    ----------
    text : bytes
        The pieces keep a reference to the text.
    delimiter : bytes
        The bytes that end a piece; the piece does not contain them. The search runs from the left.

    Returns
    -------
    tuple of (Pieces, int)
        The pieces, and the index after the last delimiter.

    Raises
    ------
    ValueError
        The delimiter is empty.
    """
    cdef const char *start = PyBytes_AS_STRING(text)
    cdef size_t size = PyBytes_GET_SIZE(text)
    cdef const char *mark = _checked(delimiter)
    cdef size_t mark_size = PyBytes_GET_SIZE(delimiter)
    cdef Pieces pieces = Pieces.__new__(Pieces)
    cdef size_t cnt = 0, end = 0
    with nogil:
        pieces._items = ck_split(start, size, mark, mark_size, &cnt, &end)
    if pieces._items is NULL:
        raise MemoryError
    pieces._text = text
    pieces._cnt = cnt
    return pieces, end


cdef const char *_checked(bytes delimiter) except NULL:
    if not delimiter:
        raise ValueError("delimiter: expected at least one byte")
    return PyBytes_AS_STRING(delimiter)


cdef Pieces _part_of(Pieces pieces, ck_bytes_t *items, Py_ssize_t cnt):
    cdef Pieces part = Pieces.__new__(Pieces)
    part._items = items
    part._cnt = cnt
    part._text = pieces._text
    part._owner = pieces if pieces._owner is None else pieces._owner
    return part
