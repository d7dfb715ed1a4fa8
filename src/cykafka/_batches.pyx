"""Batches: how a consumer hands over many records as one object."""
cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from cykafka._csrc cimport (
    PyGC_Disable,
    PyGC_Enable,
    ck_batch_compact,
    ck_batch_find_error,
    ck_batch_release,
    ck_batch_store_offsets,
    ck_batch_t,
    ck_runtime_generation,
)
from cykafka._fetcher cimport Fetcher
from cykafka._librdkafka cimport rd_kafka_message_t, rd_kafka_topic_name
from cykafka._message cimport Message, message_from
from cykafka._message_batch cimport MessageBatch, batch_from
from cykafka._util cimport deadline_after, int_argument, timeout_ms

from cykafka._errors import KafkaException
from cykafka._handle import ClosedError

cdef enum:
    MAX_MESSAGES = 1_000_000


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
