"""Fetcher: how a consumer gets its messages.

Offsets are stored when a message is handed to the application, not when librdkafka takes it off
its queue. With ``enable.auto.offset.store`` (the default) this class stores them, and librdkafka's
property of that name is always false. So a message that was gathered for a batch and then dropped,
because its partition was revoked or the process died, does not count as read.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t
from libc.string cimport strcmp

from cykafka._core.clib.csrc cimport (
    PyGC_Disable,
    PyGC_Enable,
    ck_batch_accept,
    ck_batch_accept_into,
    ck_batch_compact,
    ck_batch_fill,
    ck_batch_find_error,
    ck_batch_move,
    ck_batch_new,
    ck_batch_release,
    ck_batch_reserve,
    ck_batch_store_offsets,
    ck_callback_consume,
    ck_lent_is_free,
    ck_lent_new,
    ck_lent_put,
    ck_lent_return,
    ck_lent_unref,
    ck_queue_is_empty,
    ck_runtime_generation,
    ck_runtime_now_ms,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_RESP_ERR__PARTITION_EOF,
    rd_kafka_consumer_poll,
    rd_kafka_message_destroy,
    rd_kafka_message_detach_headers,
    rd_kafka_message_t,
    rd_kafka_t,
    rd_kafka_topic_name,
)
from cykafka._core.common.arguments cimport (
    SLICE,
    deadline_after,
    int_argument,
    timeout_ms,
)
from cykafka._core.common.message cimport Message, message_from
from cykafka._core.consume.member cimport Member

from cykafka._core.common.errors import ClosedError, KafkaException

cdef enum:
    MAX_CONSUME = 1_000_000
    # How many messages one wait may gather: room is made for so many at a time.
    STEP = 16_384


cdef class Fetcher(Member):
    """The part of a consumer that waits for messages and hands them over."""

    # -- messages

    cdef object name_of(self, const char *name):
        """The str of a topic's name, always the same one."""
        cdef bytes key
        if self._last_name is not None and strcmp(name, self._last_name) == 0:
            return self._last_topic
        key = name
        if self._names is None:
            self._names = {}
        topic = self._names.get(key)
        if topic is None:
            topic = self._names[key] = key.decode()
        self._last_name = key
        self._last_topic = topic
        return topic

    cdef int note_starts(self, rd_kafka_message_t **first, size_t cnt) except -1:
        """Remember where reading of a partition begins, before its first message is handed over.

        A failed transaction goes back to this offset if the group has committed none.
        """
        cdef size_t i
        for i in range(cnt):
            if first[i].err or first[i].rkt is NULL or (
                    i > 0 and first[i].rkt == first[i - 1].rkt and not first[i - 1].err
                    and first[i].partition == first[i - 1].partition):
                continue
            topic = self.name_of(rd_kafka_topic_name(first[i].rkt))
            if topic is self._noted_topic and first[i].partition == self._noted_partition:
                continue
            key = (topic, first[i].partition)
            if key in self._unread:
                self._starts.setdefault(key, first[i].offset)
                self._unread.discard(key)
                self._starting = len(self._unread) > 0
            self._noted_topic = topic
            self._noted_partition = first[i].partition
        return 0

    cdef list hand_over(self, ck_batch_t *batch, size_t most):
        """The batch's next messages as Python's; they leave the batch and count as read."""
        cdef rd_kafka_message_t **first
        cdef list messages = []
        cdef object topic = None
        cdef Message message
        cdef size_t cnt, i
        cdef bint collecting
        ck_batch_compact(batch)
        cnt = min(most, batch.cnt - batch.head)
        first = batch.rkmessages + batch.head
        # No collection while messages are half taken: a finalizer may run any code, and so
        # close this very consumer or let another thread do it.
        collecting = PyGC_Disable()
        try:
            if self._starting:
                self.note_starts(first, cnt)
            for i in range(cnt):
                # Within the batch a topic's handle stays the same, and stays alive.
                if i == 0 or first[i].rkt != first[i - 1].rkt:
                    topic = (None if first[i].rkt is NULL
                             else self.name_of(rd_kafka_topic_name(first[i].rkt)))
                message = message_from(first[i], topic)
                rd_kafka_message_detach_headers(first[i], &message._c_headers)
                messages.append(message)
            if self._stores:
                ck_batch_store_offsets(first, cnt)
            ck_batch_release(first, cnt)
            batch.head += cnt
        finally:
            if collecting:
                PyGC_Enable()
        return messages

    cdef object hand_over_one(self, rd_kafka_message_t *rkmessage):
        """As hand_over, for a message that is in no batch; it is gone even when this raises."""
        cdef bint collecting = PyGC_Disable()
        cdef ck_lent_t *lent
        cdef Message message
        try:
            lent = self.lender()
            if self._starting:
                self.note_starts(&rkmessage, 1)
            message = message_from(
                rkmessage, None if rkmessage.rkt is NULL
                else self.name_of(rd_kafka_topic_name(rkmessage.rkt)))
            if self._stores:
                ck_batch_store_offsets(&rkmessage, 1)
            ck_lent_put(lent, rkmessage)
            message._lent = lent
            rkmessage = NULL
            self._turn ^= 1
            return message
        finally:
            if rkmessage is not NULL:
                rd_kafka_message_destroy(rkmessage)
            if collecting:
                PyGC_Enable()

    cdef ck_lent_t *lender(self) except NULL:
        """The ck_lent_t for the next message of poll(), which leaves the headers in librdkafka.

        Even without headers, asking librdkafka for them takes a third of the time of a poll().
        """
        cdef ck_lent_t *lent = self._lent[self._turn]
        # In a loop, the last message but one is gone by now, and its headers were not read.
        if lent is not NULL and ck_lent_is_free(lent):
            return lent
        if lent is not NULL:
            ck_lent_return(lent)
            ck_lent_unref(lent)
        lent = self._lent[self._turn] = ck_lent_new()
        if lent is NULL:
            raise MemoryError
        return lent

    cdef int keep(self, rd_kafka_message_t *rkmessage) except -1:
        """Keep a message for the next call: this one has to raise."""
        if self._carry is NULL:
            self._carry = ck_batch_new(1)
        if self._carry is NULL or ck_batch_reserve(self._carry, 1):
            rd_kafka_message_destroy(rkmessage)
            raise MemoryError
        self._carry.rkmessages[self._carry.cnt] = rkmessage
        ck_batch_accept(self._carry, 1)
        return 0

    def poll(self, timeout=None):
        """Wait for one message, running callbacks meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None or less than 0: forever. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        Message or None
            None if there was none in time. Look at ``message.error()`` first: an event (such as
            ``_PARTITION_EOF``) or an error comes as a message too.

        Raises
        ------
        RuntimeError
            The consumer is closed, or was closed by another thread meanwhile.
        """
        cdef int64_t limit = timeout_ms(timeout, "timeout")
        cdef int64_t deadline = -2  # not looked up before there is something to wait for
        cdef rd_kafka_message_t *rkmessage
        cdef rd_kafka_t *rk
        cdef int ms = 0
        if self._open_in != ck_runtime_generation:
            self.refuse()
        if self.is_inside():
            raise RuntimeError("poll() cannot be called from a rebalance callback, nor from a "
                               "signal handler during a commit")
        if self.has_kept():
            self.after_call()
            kept = self.hand_over(self._carry, 1)
            if kept:
                return kept[0]
        while True:
            rk = self.enter()
            # First without waiting and with the GIL: most of the time a message is there.
            if ms == 0:
                rkmessage = rd_kafka_consumer_poll(rk, 0)
            else:
                with nogil:
                    rkmessage = ck_callback_consume(rk, ms)
            self.leave()
            if (not ck_queue_is_empty(self._events) or self._raised is not None
                    or self._close_after
                    or (self._tokens is not None and self._tokens._raised is not None)
                    or (self._carry is not NULL and self._carry.cnt > self._carry.head)
                    or self._open_in != ck_runtime_generation):
                # A callback may raise or close the consumer. The message must survive an
                # exception, but not a close. It comes after messages that another thread has
                # released with resume().
                if rkmessage is not NULL:
                    self.keep(rkmessage)
                self.after_call()
                if self.has_kept():
                    kept = self.hand_over(self._carry, 1)
                    if kept:
                        return kept[0]
            elif rkmessage is not NULL:
                return self.hand_over_one(rkmessage)
            if deadline == -2:
                deadline = deadline_after(limit)
            ms = self.slice_ms(deadline)
            if ms == 0:
                self.catch_up(ck_runtime_now_ms())
                return None
            PyErr_CheckSignals()

    def __iter__(self):
        """The messages, one after the other; see :meth:`__next__`."""
        if self._open_in != ck_runtime_generation:
            self.refuse()
        return self

    def __next__(self):
        """Wait for the next record, as ``poll()`` does.

        The iteration ends when the loop's body, a callback or another thread closes the consumer.
        A ``close(timeout=)`` of another thread ends it even if it then runs out of time and leaves
        the consumer open.
        Ends of partitions (``_PARTITION_EOF``) are skipped.

        Raises
        ------
        KafkaException
            Another event or an error came instead of a record. The iteration can continue after
            it.
        """
        cdef int64_t stops = self._stops
        while True:
            try:
                message = self.poll()
            except ClosedError:
                if self._open_in == ck_runtime_generation and self._stops == stops:
                    raise  # it was about another handle, in a callback
                raise StopIteration from None
            if message is None:
                continue
            error = message.error()
            if error is None:
                return message
            if error.code() != RD_KAFKA_RESP_ERR__PARTITION_EOF:
                raise KafkaException(error)

    def consume(self, num_messages=1, timeout=None):
        """Wait for up to ``num_messages`` messages, running callbacks meanwhile.

        Parameters
        ----------
        num_messages : int
            At most 1,000,000.
        timeout : float, optional
            Seconds; None or less than 0: until all are there. Ctrl-C is noticed within 0.1 s.
            Messages gathered by then, or before a callback raised, come with the next call.

        Returns
        -------
        list of Message
            Fewer than asked for, or none, when the time is over. None of a partition that was
            revoked meanwhile.

        Raises
        ------
        ValueError
            ``num_messages`` is out of range.
        RuntimeError
            The consumer is closed, or was closed by another thread meanwhile.
        """
        cdef int64_t want = int_argument(num_messages, "num_messages", 0, MAX_CONSUME)
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef ck_batch_t *batch
        if want == 0:
            if self._open_in != ck_runtime_generation:
                self.refuse()
            return []
        batch = self.begin(want, "consume")
        try:
            self.gather(batch, want, deadline, False)
            return self.hand_over(batch, want)
        finally:
            self.end(batch)

    # -- gathering

    cdef ck_batch_t *begin(self, int64_t want, str call) except NULL:
        """A batch for so many messages, beginning with those left over from an earlier call; see
        end()."""
        cdef ck_batch_t *batch
        if self._open_in != ck_runtime_generation:
            self.refuse()
        if self.is_inside():
            raise RuntimeError(f"{call}() cannot be called from a rebalance callback, nor from a "
                               "signal handler during a commit")
        batch = self.new_batch(min(want, <int64_t>STEP))
        if self.has_kept() and ck_batch_move(self._carry, batch):
            self.end_batch(batch)
            raise MemoryError
        return batch

    cdef int end(self, ck_batch_t *batch) except -1:
        """The inverse of begin(): as end_batch()."""
        self.end_batch(batch)
        if self._open_in == ck_runtime_generation:
            self.catch_up(ck_runtime_now_ms())
        return 0

    cdef int gather(self, ck_batch_t *batch, int64_t want, int64_t deadline,
                    bint until_error) except -1:
        """Fill the batch until it is full, the time is over or, if wanted, an error has come."""
        cdef size_t filled, step
        cdef int ms, wait
        while True:
            self.after_call()
            # Kept messages come from resume(), in a callback or in another thread.
            if self.has_kept() and ck_batch_move(self._carry, batch):
                raise MemoryError
            ck_batch_compact(batch)
            if <int64_t>batch.cnt >= want or (
                    until_error and ck_batch_find_error(batch) < batch.cnt - batch.head):
                return 0
            step = <size_t>min(want - <int64_t>batch.cnt, <int64_t>STEP)
            if ck_batch_reserve(batch, step):
                raise MemoryError
            ms = self.slice_ms(deadline)
            # Neither events (see ck_callback.h) nor errors can end this wait, so slices bound the
            # delay of their callbacks and exceptions.
            wait = ms
            if (ms < 0 or ms > SLICE) and (
                    until_error or self._has_callbacks or self._on_assign is not None
                    or self._on_revoke is not None or self._on_lost is not None):
                wait = SLICE
            self.enter()
            with nogil:
                filled = ck_batch_fill(batch, self._wait_queue, wait, step)
            # Behind the messages that another thread has released meanwhile.
            if not self.has_kept() or ck_batch_accept_into(batch, filled, self._carry):
                ck_batch_accept(batch, filled)
            self.leave()
            if ms == 0:
                self.after_call()
                return 0
            PyErr_CheckSignals()
