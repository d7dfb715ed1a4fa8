"""Fetcher: collects a consumer's messages and returns them.

With ``enable.auto.offset.store`` (the default), the fetcher stores an offset when it returns the
message, not when it takes the message off librdkafka's queue. librdkafka's property of that name
is always false. So a message does not count as read if the fetcher has gathered it for a batch and
then drops it, because the group revokes the partition or the process dies.

The fetcher can also read Ranges: parts of partitions between two offsets, with the progress of
reading them.
"""
from collections import namedtuple

from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t

from cykafka._core.batch cimport MessageBatch, batch_from
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.arguments cimport SLICE, int_argument, plain_str, str_argument
from cykafka._core.common.message cimport Message, message_from
from cykafka._core.common.partition cimport c_name
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.membership cimport Membership
from cykafka._core.consume.progress cimport Progress

from cykafka._core.common.errors import KafkaException

cdef enum:
    # The most messages per wait. The batch grows by this number.
    STEP = 16_384


@cython.final
@cython.no_gc_clear
cdef class Fetcher:
    """One consumer's fetcher."""

    def __cinit__(self, Membership membership not None, Backlog backlog not None,
                  Progress progress not None):
        self._membership = membership
        self._backlog = backlog
        self._progress = progress

    cdef list messages(self, Handle handle, int64_t want, int64_t deadline):
        """Return up to `want` messages, as a list."""
        cdef ck_batch_t *gathered = self.begin(handle, want, "consume")
        try:
            self.gather(handle, gathered, want, deadline, False)
            return self.hand_over(gathered, want)
        finally:
            self.end(handle, gathered)

    cdef MessageBatch batch(self, Handle handle, int64_t want, int64_t deadline, bint raising,
                            str call):
        """Return up to `want` messages, as a batch. If `raising`, stop at an error, and raise the
        error if it is first."""
        cdef ck_batch_t *gathered = self.begin(handle, want, call)
        try:
            self.gather(handle, gathered, want, deadline, raising)
            return self.hand_over_batch(handle, gathered, want, raising)
        finally:
            self.end(handle, gathered)

    cdef MessageBatch ranges(self, Handle handle, Ranges ranges, int64_t want, size_t room,
                             int64_t deadline):
        """Return up to `want` messages, about `room` bytes, of these ranges."""
        cdef ck_batch_t *gathered
        ranges.take()
        try:
            gathered = self.begin(handle, want, "consume_ranges")
            try:
                self.gather_ranges(handle, gathered, ranges._ptr, want, room, deadline)
                return self.hand_over_batch(handle, gathered, want, False)
            finally:
                self.end(handle, gathered)
        finally:
            ranges._busy = False

    cdef int64_t available(self, Handle handle, int64_t want) except -1:
        """Gather up to `want` messages for the next call, without waiting. Returns their
        number."""
        cdef ck_batch_t *gathered = self.begin(handle, want, "consume")
        cdef size_t before
        try:
            while True:
                before = gathered.cnt - gathered.head
                self.gather(handle, gathered, want, 0, False)
                # Each step ends after STEP messages, though there may be more.
                if gathered.cnt - gathered.head == before or gathered.cnt - gathered.head >= want:
                    return min(<int64_t>(gathered.cnt - gathered.head), want)
        finally:
            self.end(handle, gathered)

    # -- gathering

    cdef ck_batch_t *begin(self, Handle handle, int64_t want, str call) except NULL:
        """Return a batch for `want` messages, which begins with those left over from an earlier
        call; see end()."""
        cdef ck_batch_t *batch
        handle.check_open()
        self._membership.refuse_inside(call)
        batch = self._backlog.new_batch(min(want, <int64_t>STEP))
        if self._backlog.has_kept() and ck_batch_move(self._backlog.carry, batch):
            self._backlog.end_batch(handle, batch)
            raise MemoryError
        return batch

    cdef int end(self, Handle handle, ck_batch_t *batch) except -1:
        """The inverse of begin(); see end_batch()."""
        self._backlog.end_batch(handle, batch)
        if handle._open_in == ck_runtime_generation:
            self._backlog.catch_up(handle, ck_runtime_now_ms())
        return 0

    cdef int gather(self, Handle handle, ck_batch_t *batch, int64_t want, int64_t deadline,
                    bint until_error) except -1:
        """Fill the batch until it is full, time is up or, with until_error, an error arrives."""
        cdef size_t filled, step
        cdef int ms, wait
        while True:
            handle.after_call()
            # resume(), in a callback or in another thread, may have added kept messages.
            if self._backlog.has_kept() and ck_batch_move(self._backlog.carry, batch):
                raise MemoryError
            ck_batch_compact(batch)
            if <int64_t>batch.cnt >= want or (
                    until_error and ck_batch_find_error(batch) < batch.cnt - batch.head):
                return 0
            step = <size_t>min(want - <int64_t>batch.cnt, <int64_t>STEP)
            if ck_batch_reserve(batch, step):
                raise MemoryError
            ms = handle.slice_ms(deadline)
            # Neither events (see ck_callback.h) nor errors can end this wait, so slices bound the
            # delay of their callbacks and exceptions.
            wait = ms
            if (ms < 0 or ms > SLICE) and (
                    until_error or handle._callbacks.any or self._membership.listens()):
                wait = SLICE
            handle.enter()
            with nogil:
                filled = ck_batch_fill(batch, handle._wait_queue, wait, step)
            # Put the new messages after those that another thread has released during the wait.
            if not self._backlog.has_kept() or ck_batch_accept_into(
                    batch, filled, self._backlog.carry):
                ck_batch_accept(batch, filled)
            handle.leave()
            if ms == 0:
                handle.after_call()
                return 0
            PyErr_CheckSignals()

    cdef int gather_ranges(self, Handle handle, ck_batch_t *batch, ck_ranges_t *ranges,
                           int64_t want, size_t room, int64_t deadline) except -1:
        """Fill the batch until it is full, has an error, all ranges are done or time is up."""
        cdef size_t filled, step
        cdef size_t size = 0
        cdef int ms, wait
        while True:
            handle.after_call()
            ck_batch_compact(batch)
            if (<int64_t>batch.cnt >= want or size >= room or ranges.left == 0
                    or ck_batch_find_error(batch) < batch.cnt - batch.head):
                return 0
            step = ck_ranges_step(ranges, want - <int64_t>batch.cnt, room - size)
            if ck_batch_reserve(batch, step):
                raise MemoryError
            ms = handle.slice_ms(deadline)
            wait = SLICE if ms < 0 or ms > SLICE else ms
            rk = handle.enter()
            with nogil:
                # Take the available messages, or else wait for one: a wait for many messages would
                # not notice the end of a range.
                filled = ck_batch_fill(batch, handle._wait_queue, 0, step)
                if filled == 0:
                    ck_ranges_catch_up(ranges, rk)
                    if ranges.left and wait:
                        filled = ck_batch_fill(batch, handle._wait_queue, wait, 1)
                filled = ck_ranges_sift(ranges, batch.rkmessages + batch.cnt, filled, &size)
            ck_batch_accept(batch, filled)
            handle.leave()
            if ms == 0:
                handle.after_call()
                return 0
            PyErr_CheckSignals()

    # -- returning messages

    cdef list hand_over(self, ck_batch_t *batch, size_t most):
        """Return the batch's next messages, which leave the batch and count as read."""
        cdef rd_kafka_message_t **first
        cdef list messages = []
        cdef object topic = None
        cdef Message message
        cdef size_t cnt, i
        cdef bint collecting
        ck_batch_compact(batch)
        cnt = min(most, batch.cnt - batch.head)
        first = batch.rkmessages + batch.head
        # Do not collect garbage while messages are half taken: a finalizer may run any code,
        # and so close this consumer or let another thread close it.
        collecting = PyGC_Disable()
        try:
            if self._progress.starting:
                self._progress.note_starts(first, cnt)
            for i in range(cnt):
                # A topic's handle stays the same and alive within the batch.
                if i == 0 or first[i].rkt != first[i - 1].rkt:
                    topic = self._backlog.topic_of(first[i])
                message = message_from(first[i], topic)
                rd_kafka_message_detach_headers(first[i], &message._c_headers)
                messages.append(message)
            if self._backlog.stores:
                ck_batch_store_offsets(first, cnt)
            ck_batch_release(first, cnt)
            batch.head += cnt
        finally:
            if collecting:
                PyGC_Enable()
        return messages

    cdef Message hand_over_kept(self):
        """Return the oldest message that an earlier call has left over, or None."""
        # Read carry only when nothing can run that replaces it; see hand_over().
        cdef bint collecting = PyGC_Disable()
        try:
            if not self._backlog.has_kept():
                return None
            kept = self.hand_over(self._backlog.carry, 1)
            return kept[0] if kept else None  # a rebalance may have dropped what was left over
        finally:
            if collecting:
                PyGC_Enable()

    cdef Message hand_over_one(self, rd_kafka_message_t *rkmessage):
        """Like hand_over(), for a message outside a batch. Destroys the message if it raises."""
        cdef bint collecting = PyGC_Disable()
        cdef ck_msgref_t *ref
        cdef Message message
        try:
            ref = self._backlog.free_ref()
            if self._progress.starting:
                self._progress.note_starts(&rkmessage, 1)
            message = message_from(rkmessage, self._backlog.topic_of(rkmessage))
            if self._backlog.stores:
                ck_batch_store_offsets(&rkmessage, 1)
            ck_msgref_put(ref, rkmessage)
            message._ref = ref
            rkmessage = NULL
            self._backlog.current ^= 1
            return message
        finally:
            if rkmessage is not NULL:
                rd_kafka_message_destroy(rkmessage)
            if collecting:
                PyGC_Enable()

    cdef MessageBatch hand_over_batch(self, Handle handle, ck_batch_t *gathered, size_t want,
                                      bint raising):
        """Return the next gathered messages as a batch, which counts as read.

        If `raising`, the batch ends before the next error; raise the error if it is first.
        Otherwise the batch includes errors.
        """
        cdef MessageBatch batch
        cdef rd_kafka_message_t **first
        cdef list errors = []
        cdef size_t cnt, i
        # Do not collect garbage while messages are half taken; see hand_over().
        cdef bint collecting = PyGC_Disable()
        try:
            ck_batch_compact(gathered)
            first = gathered.rkmessages + gathered.head
            cnt = min(want, gathered.cnt - gathered.head)
            if raising:
                i = ck_batch_find_error(gathered)
                if i == 0 and cnt > 0:
                    message = self.error_from(first[0])
                    ck_batch_release(first, 1)
                    gathered.head += 1
                    raise KafkaException(message.error())
                cnt = min(cnt, i)
            else:
                for i in range(cnt):
                    if first[i].err:
                        errors.append(self.error_from(first[i]))
            if self._progress.starting:
                self._progress.note_starts(first, cnt)
            batch = batch_from(gathered, cnt, handle._loans, &self._backlog.handed, tuple(errors))
            if self._backlog.stores:
                ck_batch_store_offsets(batch._storage._ptr.rkmessages, batch._cnt)
            return batch
        finally:
            if collecting:
                PyGC_Enable()

    cdef Message error_from(self, rd_kafka_message_t *rkmessage):
        return message_from(rkmessage, self._backlog.topic_of(rkmessage))


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
