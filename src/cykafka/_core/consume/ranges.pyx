"""Ranges: parts of partitions, from offsets to offsets, and how far they have been read."""
from collections import namedtuple

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t

from cykafka._core.clib.csrc cimport (
    ck_range_t,
    ck_ranges_advance,
    ck_ranges_destroy,
    ck_ranges_find,
    ck_ranges_new,
    ck_ranges_set,
    ck_ranges_sort,
    ck_ranges_t,
)
from cykafka._core.common.arguments cimport int_argument, plain_str
from cykafka._core.common.partition cimport c_name


class Range(namedtuple("Range", ("topic", "partition", "next", "end", "eof"))):
    """A range that is not read to its end.

    Attributes
    ----------
    topic : str
    partition : int
    next : int
        The first offset that was not read.
    end : int
        The offset behind the last one that is wanted.
    eof : int
        Where the partition ended when all of it had been fetched; -1: that has not been seen.
    """

    __slots__ = ()


@cython.final
@cython.no_gc
cdef class Ranges:
    """Parts of partitions that ``internal.consume_ranges()`` reads to their ends.

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
        for each in tuple(ranges):
            name, partition, start, end = each
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
                                 f"[{made.ranges[twice].partition}] is there twice")
            if self._busy:
                raise RuntimeError("a call reads these ranges")
            self._ptr, made = made, self._ptr
        finally:
            ck_ranges_destroy(made)

    def __dealloc__(self):
        ck_ranges_destroy(self._ptr)

    cdef int take(self) except -1:
        """For the time of a call, which then sets _busy back."""
        if self._ptr is NULL:
            raise ValueError("ranges: __init__() was not called")
        if self._busy:
            raise RuntimeError("another call reads these ranges")
        self._busy = True
        return 0

    def __len__(self):
        """How many ranges are not done."""
        return 0 if self._ptr is NULL else self._ptr.left

    def left(self):
        """The ranges that are not done.

        Returns
        -------
        list of Range
        """
        cdef ck_range_t *each
        cdef size_t i
        self.take()
        try:
            found = []
            for i in range(self._ptr.cnt):
                each = &self._ptr.ranges[i]
                if each.next < each.end:
                    found.append(Range(each.topic.decode(), each.partition, each.next, each.end,
                                       each.eof))
            return found
        finally:
            self._busy = False

    def skip(self, topic, partition, offset):
        """Take what lies before an offset for read: it is not there any more.

        Parameters
        ----------
        topic : str
        partition : int
        offset : int
            The range is done when it is the range's end or more.

        Raises
        ------
        ValueError
            There is no range of this partition.
        """
        cdef int64_t where = int_argument(offset, "offset", 0, INT64_MAX)
        cdef int64_t number = int_argument(partition, "partition", 0, INT32_MAX)
        cdef ck_range_t *found
        cdef const char *name
        if not isinstance(topic, str):
            raise TypeError(f"topic: expected a str, got {type(topic).__name__}")
        topic = plain_str(topic)
        name = c_name(topic)
        self.take()
        try:
            found = ck_ranges_find(self._ptr, name, number)
            if found is NULL:
                raise ValueError(f"there is no range of {topic} [{number}]")
            ck_ranges_advance(self._ptr, found, where)
        finally:
            self._busy = False
