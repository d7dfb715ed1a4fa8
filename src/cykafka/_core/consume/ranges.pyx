"""Ranges: parts of partitions between two offsets, and the progress of reading them."""
from collections import namedtuple

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.common.arguments cimport int_argument, plain_str, str_argument
from cykafka._core.common.partition cimport c_name


class Range(namedtuple("Range", ("topic", "partition", "next", "end", "eof"))):
    """A range that the consumer has not read to its end.

    Attributes
    ----------
    topic : str
    partition : int
    next : int
        The first unread offset.
    end : int
        The offset after the last one to read.
    eof : int
        The partition's end when the consumer had fetched all of it; -1 if unknown.
    """

    __slots__ = ()


@cython.final
@cython.no_gc
cdef class Ranges:
    """Parts of partitions for ``internal.consume_ranges()``.

    Parameters
    ----------
    ranges : iterable of (str, int, int, int)
        Topic, partition, first offset and the offset after the last. An empty range is done at
        once.

    Raises
    ------
    ValueError
        An offset or partition is negative, or a partition occurs twice.
    """

    def __init__(self, ranges):
        cdef ck_ranges_t *made
        cdef Py_ssize_t i, cnt
        cdef size_t twice
        cdef str topic
        converted = []
        for item in tuple(ranges):
            name, partition, start, end = item
            if not isinstance(name, str):
                raise TypeError(f"ranges: expected a str as topic, got {type(name).__name__}")
            converted.append((plain_str(name),
                              int_argument(partition, "partition", 0, INT32_MAX),
                              int_argument(start, "start", 0, INT64_MAX),
                              int_argument(end, "end", 0, INT64_MAX)))
        cnt = len(converted)
        made = ck_ranges_new(cnt)
        if made is NULL:
            raise MemoryError
        try:
            for i in range(cnt):
                topic, partition, start, end = converted[i]
                if ck_ranges_set(made, i, c_name(topic), partition, start, end):
                    raise MemoryError
            twice = ck_ranges_sort(made)
            if twice:
                raise ValueError(f"ranges: {made.ranges[twice].topic.decode()} "
                                 f"[{made.ranges[twice].partition}] is a duplicate")
            if self._busy:
                raise RuntimeError("a call is reading these ranges")
            self._ptr, made = made, self._ptr
        finally:
            ck_ranges_destroy(made)

    def __dealloc__(self):
        ck_ranges_destroy(self._ptr)

    cdef int take(self) except -1:
        """Take the ranges for a call, which resets _busy at its end."""
        if self._ptr is NULL:
            raise ValueError("ranges: __init__() was not called")
        if self._busy:
            raise RuntimeError("another call is reading these ranges")
        self._busy = True
        return 0

    def __len__(self):
        """The number of ranges that are not done."""
        return 0 if self._ptr is NULL else self._ptr.left

    def left(self):
        """The ranges that are not done.

        Returns
        -------
        list of Range
        """
        cdef ck_range_t *c_range
        cdef size_t i
        self.take()
        try:
            found = []
            for i in range(self._ptr.cnt):
                c_range = &self._ptr.ranges[i]
                if c_range.next < c_range.end:
                    found.append(Range(c_range.topic.decode(), c_range.partition, c_range.next,
                                       c_range.end, c_range.eof))
            return found
        finally:
            self._busy = False

    def skip(self, topic, partition, offset):
        """Mark the offsets before an offset as read, because their records no longer exist.

        Parameters
        ----------
        topic : str
        partition : int
        offset : int
            If it is at or after the range's end, the range is done.

        Raises
        ------
        ValueError
            The ranges do not contain this partition.
        """
        cdef int64_t where = int_argument(offset, "offset", 0, INT64_MAX)
        cdef int64_t number = int_argument(partition, "partition", 0, INT32_MAX)
        cdef ck_range_t *found
        cdef const char *name
        topic = str_argument(topic, "topic")
        name = c_name(topic)
        self.take()
        try:
            found = ck_ranges_find(self._ptr, name, number)
            if found is NULL:
                raise ValueError(f"the ranges do not contain {topic} [{number}]")
            ck_ranges_advance(self._ptr, found, where)
        finally:
            self._busy = False
