"""Batches: how a consumer hands over many records as one object."""
cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from cykafka._csrc cimport (
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
from cykafka._fetcher cimport Fetcher
from cykafka._librdkafka cimport rd_kafka_message_t, rd_kafka_topic_name
from cykafka._message cimport Message, message_from
from cykafka._message_batch cimport MessageBatch, batch_from
from cykafka._ranges cimport Ranges
from cykafka._util cimport SLICE, deadline_after, int_argument, timeout_ms

from cykafka._errors import KafkaException
from cykafka._handle import ClosedError

cdef enum:
    MAX_MESSAGES = 1_000_000
    MAX_BYTES = 2_000_000_000


cdef class Batches(Fetcher):
    """The part of a consumer that hands over batches."""

    def consume_batch(self, max_messages=10_000, timeout=None):
        """Wait for up to so many messages, running callbacks meanwhile; as ``consume()``, but no Message is made.

        Parameters
        ----------
        max_messages : int
            1 to 1,000,000.
        timeout : float, optional
            Seconds; None or less than 0: until all are there. Ctrl-C is noticed within 0.1 s; what was
            gathered then, or when a callback raises, comes with the next call.

        Returns
        -------
        MessageBatch
            The records, fewer than asked for, or none, when the time is over; none of a partition that was
            revoked meanwhile. Events and errors that came are ``batch.errors``. With
            ``enable.auto.offset.store`` (the default) all of it counts as read now; otherwise
            ``store_offsets(batch)`` or ``commit(batch)`` when it is done.

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
        """Iterate over batches until the consumer is closed, by the loop's body, a callback or another thread.

        Parameters
        ----------
        max_messages : int
            The most records a batch has, 1 to 1,000,000.
        timeout : float, optional
            Seconds that a batch may take to fill; None or less than 0: full ones only. Nothing is handed over
            meanwhile, so this is how old a record may get in a topic of little traffic.

        Returns
        -------
        iterator of MessageBatch
            None of them is empty, and none has errors. Raises KafkaException for an event or error that came
            instead of a record, once the records before it are handed over; iterating on goes on behind it. Ends
            of partitions (``_PARTITION_EOF``) are passed over.

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
        """Wait for records of some parts of partitions, running callbacks meanwhile.

        For whoever reads from offsets to offsets: the partitions are assigned, with the offsets where the ranges
        begin, by the caller, and ``enable.partition.eof`` is true, or a range whose last offsets hold no records
        is not found to be at its end.

        Parameters
        ----------
        ranges : Ranges
            What is wanted, and how far it has been read: this call moves it on.
        max_messages : int
            1 to 1,000,000.
        max_bytes : int
            Of keys and values; about so many, since a record is not known before it is there.
        timeout : float, optional
            Seconds; None or less than 0: until one of the limits or the end of all ranges is reached. Ctrl-C is
            noticed within 0.1 s; what was gathered then, or when a callback raises, comes with the next call.

        Returns
        -------
        MessageBatch
            Records within the ranges only; none of them twice. ``errors`` are what came instead of records,
            ends of partitions not among them; the call ends with the first.

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
                # What is there, else the next one: whoever waits for many does not learn that the range is done.
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
        """The next messages as a batch; they leave what was gathered and count as read.

        When raising: those before the next error; the error, if it is the next. Otherwise with the errors.
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
        if consumer is None:  # made by hand, or cleared by the collector
            raise StopIteration
        while True:
            try:
                batch = consumer.fetch(self._want, self._timeout, True, "batches")
            except ClosedError:
                if consumer._open_in == ck_runtime_generation:
                    raise  # it was about another handle, in a callback
                raise StopIteration from None
            if batch._cnt:
                return batch
            PyErr_CheckSignals()
