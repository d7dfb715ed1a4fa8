"""Batches: how a consumer hands over many records as one object."""
from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport int64_t

from cykafka._core.batch.message_batch cimport MessageBatch, batch_from
from cykafka._core.clib.csrc cimport (
    PyGC_Disable,
    PyGC_Enable,
    ck_batch_accept,
    ck_batch_compact,
    ck_batch_fill,
    ck_batch_find_error,
    ck_batch_release,
    ck_batch_reserve,
    ck_batch_store_offsets,
    ck_batch_t,
    ck_ranges_catch_up,
    ck_ranges_sift,
    ck_ranges_step,
    ck_ranges_t,
    ck_runtime_generation,
)
from cykafka._core.clib.librdkafka cimport rd_kafka_message_t, rd_kafka_topic_name
from cykafka._core.common.arguments cimport (
    SLICE,
    deadline_after,
    int_argument,
    timeout_ms,
)
from cykafka._core.common.message cimport Message, message_from
from cykafka._core.consume.fetcher cimport Fetcher
from cykafka._core.consume.ranges cimport Ranges

from cykafka._core.common.errors import ClosedError, KafkaException

cdef enum:
    MAX_MESSAGES = 1_000_000
    MAX_BYTES = 2_000_000_000


cdef class Batches(Fetcher):
    """The part of a consumer that hands over batches."""

    def consume_batch(self, max_messages=10_000, timeout=None):
        """Wait for up to ``max_messages`` messages, running callbacks meanwhile. Like
        ``consume()``, but makes no Message objects.

        Parameters
        ----------
        max_messages : int
            1 to 1,000,000.
        timeout : float, optional
            Seconds; None or less than 0: until all are there. Ctrl-C is noticed within 0.1 s.
            Messages gathered by then, or before a callback raised, come with the next call.

        Returns
        -------
        MessageBatch
            The records: fewer than asked for, or none, when the time is over; none of a partition
            that was revoked meanwhile. Events and errors are in ``batch.errors``. With
            ``enable.auto.offset.store`` (the default) the whole batch counts as read now.
            Otherwise call ``store_offsets(batch)`` or ``commit(batch)`` after processing it.

        Raises
        ------
        ValueError
            ``max_messages`` is out of range.
        RuntimeError
            The consumer is closed, or was closed by another thread meanwhile.
        """
        cdef int64_t want = int_argument(max_messages, "max_messages", 1, MAX_MESSAGES)
        return self.fetch(want, timeout_ms(timeout, "timeout"), False, "consume_batch")

    def batches(self, max_messages=10_000, timeout=1.0):
        """Iterate over batches until the loop's body, a callback or another thread closes the
        consumer.

        A ``close(timeout=)`` of another thread ends the iteration even if it then runs out of time
        and leaves the consumer open.

        Parameters
        ----------
        max_messages : int
            The most records a batch has, 1 to 1,000,000.
        timeout : float, optional
            Seconds that a batch may take to fill; None or less than 0: only full batches. In a
            topic of little traffic, a record may wait this long before it is handed over.

        Returns
        -------
        iterator of MessageBatch
            None is empty, and none has errors. Raises KafkaException for an event or error, once
            the records before it are handed over; the iteration can then continue after it. Ends
            of partitions (``_PARTITION_EOF``) are skipped.

        Raises
        ------
        ValueError
            ``max_messages`` is out of range.
        RuntimeError
            The consumer is closed.
        """
        cdef BatchIterator iterator = BatchIterator.__new__(BatchIterator)
        iterator._want = int_argument(max_messages, "max_messages", 1, MAX_MESSAGES)
        iterator._timeout = timeout_ms(timeout, "timeout")
        iterator._consumer = self
        if self._open_in != ck_runtime_generation:
            self.refuse()
        return iterator

    def _consume_ranges(self, ranges, max_messages=10_000, max_bytes=16_777_216, timeout=None):
        """Wait for records of some ranges of offsets, running callbacks meanwhile.

        The caller has assigned the partitions, with the first offsets of the ranges, and has set
        ``enable.partition.eof`` to true. Without it, a range whose last offsets hold no records
        never ends.

        Parameters
        ----------
        ranges : Ranges
            The ranges and their progress, which this call advances.
        max_messages : int
            1 to 1,000,000.
        max_bytes : int
            Of keys and values; approximate, because a record's size is known only when it arrives.
        timeout : float, optional
            Seconds; None or less than 0: until one of the limits or the end of all ranges is
            reached. Ctrl-C is noticed within 0.1 s. Messages gathered by then, or before a
            callback raised, come with the next call.

        Returns
        -------
        MessageBatch
            Only records within the ranges, none of them twice. ``errors`` holds events and errors,
            except ends of partitions; the call returns at the first.

        Raises
        ------
        ValueError
            ``max_messages`` or ``max_bytes`` is out of range.
        RuntimeError
            The consumer is closed, or another thread reads these ranges.
        """
        cdef int64_t want = int_argument(max_messages, "max_messages", 1, MAX_MESSAGES)
        cdef int64_t room = int_argument(max_bytes, "max_bytes", 1, MAX_BYTES)
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef ck_batch_t *gathered
        cdef Ranges taken
        if not isinstance(ranges, Ranges):
            raise TypeError(f"ranges: expected Ranges, got {type(ranges).__name__}")
        taken = <Ranges>ranges
        taken.take()
        try:
            gathered = self.begin(want, "_consume_ranges")
            try:
                self.gather_ranges(gathered, taken._ptr, want, room, deadline)
                return self.hand_over_batch(gathered, want, False)
            finally:
                self.end(gathered)
        finally:
            taken._busy = False

    cdef int gather_ranges(self, ck_batch_t *batch, ck_ranges_t *ranges, int64_t want, size_t room,
                           int64_t deadline) except -1:
        """Fill the batch until it is full, or has an error, all has come or the time is over."""
        cdef size_t filled, step
        cdef size_t size = 0
        cdef int ms, wait
        while True:
            self.after_call()
            ck_batch_compact(batch)
            if (<int64_t>batch.cnt >= want or size >= room or ranges.left == 0
                    or ck_batch_find_error(batch) < batch.cnt - batch.head):
                return 0
            step = ck_ranges_step(ranges, want - <int64_t>batch.cnt, room - size)
            if ck_batch_reserve(batch, step):
                raise MemoryError
            ms = self.slice_ms(deadline)
            wait = SLICE if ms < 0 or ms > SLICE else ms
            rk = self.enter()
            with nogil:
                # The messages that are there, or else the next one: a wait for many messages would
                # not notice the end of a range.
                filled = ck_batch_fill(batch, self._wait_queue, 0, step)
                if filled == 0:
                    ck_ranges_catch_up(ranges, rk)
                    if ranges.left and wait:
                        filled = ck_batch_fill(batch, self._wait_queue, wait, 1)
                filled = ck_ranges_sift(ranges, batch.rkmessages + batch.cnt, filled, &size)
            ck_batch_accept(batch, filled)
            self.leave()
            if ms == 0:
                self.after_call()
                return 0
            PyErr_CheckSignals()

    cdef MessageBatch fetch(self, int64_t want, int64_t timeout, bint raising, str call):
        cdef int64_t deadline = deadline_after(timeout)
        cdef ck_batch_t *gathered = self.begin(want, call)
        try:
            self.gather(gathered, want, deadline, raising)
            return self.hand_over_batch(gathered, want, raising)
        finally:
            self.end(gathered)

    cdef MessageBatch hand_over_batch(self, ck_batch_t *gathered, size_t want, bint raising):
        """Take the next messages out of the gathered ones, as a batch that counts as read.

        If raising: the messages before the next error, or raise the error if it is first.
        Otherwise all messages, errors included.
        """
        cdef MessageBatch batch
        cdef rd_kafka_message_t **first
        cdef list errors = []
        cdef size_t cnt, i
        # No collection while messages are half taken: see hand_over().
        cdef bint collecting = PyGC_Disable()
        try:
            ck_batch_compact(gathered)
            first = gathered.rkmessages + gathered.head
            cnt = min(want, gathered.cnt - gathered.head)
            if raising:
                i = ck_batch_find_error(gathered)
                if i == 0 and cnt > 0:
                    message = self._error_from(first[0])
                    ck_batch_release(first, 1)
                    gathered.head += 1
                    raise KafkaException(message.error())
                cnt = min(cnt, i)
            else:
                for i in range(cnt):
                    if first[i].err:
                        errors.append(self._error_from(first[i]))
            if self._starting:
                self.note_starts(first, cnt)
            batch = batch_from(gathered, cnt, self._loans, &self._handed, tuple(errors))
            if self._stores:
                ck_batch_store_offsets(batch._storage._ptr.rkmessages, batch._cnt)
            return batch
        finally:
            if collecting:
                PyGC_Enable()

    cdef Message _error_from(self, rd_kafka_message_t *rkmessage):
        return message_from(rkmessage, None if rkmessage.rkt is NULL
                            else self.name_of(rd_kafka_topic_name(rkmessage.rkt)))


@cython.final
cdef class BatchIterator:
    """What ``Consumer.batches()`` gives out."""

    cdef Batches _consumer
    cdef int64_t _want
    cdef int64_t _timeout

    def __iter__(self):
        return self

    def __next__(self):
        cdef Batches consumer = self._consumer
        cdef MessageBatch batch
        cdef int64_t stops
        if consumer is None:  # made by hand, or cleared by the collector
            raise StopIteration
        stops = consumer._stops
        while True:
            try:
                batch = consumer.fetch(self._want, self._timeout, True, "batches")
            except ClosedError:
                if consumer._open_in == ck_runtime_generation and consumer._stops == stops:
                    raise  # it was about another handle, in a callback
                raise StopIteration from None
            if batch._cnt:
                return batch
            PyErr_CheckSignals()
