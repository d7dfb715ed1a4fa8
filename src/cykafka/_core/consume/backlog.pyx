"""Backlog: a consumer's fetched but unreturned messages, and its references to returned ones.

While a call fills a batch, its messages are in that batch. If the call raises, they move to
`carry`, and the next call begins with them. While a partition is paused, its messages are in
`held`. A rebalance, a seek or a new assignment drops messages, which then do not count as read.

Batches that the consumer has returned, and poll()'s last messages, may still use librdkafka's
memory. The backlog returns that memory before the rd_kafka_t is destroyed.
"""
cimport cython
from libc.stdint cimport int64_t
from libc.string cimport strcmp

from cykafka._core.batch cimport Storage, detach_all
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle


@cython.final
@cython.no_gc_clear
cdef class Backlog:
    """One consumer's backlog. All methods run with the GIL."""

    def __cinit__(self):
        self.stores = True
        self._names = {}
        self.seeks = []

    def __dealloc__(self):
        cdef int which
        # Only in a forked child, where the messages belong to the parent: see release().
        for which in range(2):
            if self.refs[which] is not NULL:
                ck_msgref_unref(self.refs[which])
        while self.handed is not NULL:
            (<Storage>self.handed).unlink()

    cdef bint has_kept(self) noexcept:
        """Whether an earlier call has left messages over."""
        return self.carry is not NULL and self.carry.cnt > self.carry.head

    cdef int keep(self, rd_kafka_message_t *rkmessage) except -1:
        """Keep a message for the next call, because the current call raises."""
        if self.carry is NULL:
            self.carry = ck_batch_new(1)
        if self.carry is NULL or ck_batch_reserve(self.carry, 1):
            rd_kafka_message_destroy(rkmessage)
            raise MemoryError
        self.carry.rkmessages[self.carry.cnt] = rkmessage
        ck_batch_accept(self.carry, 1)
        return 0

    cdef ck_batch_t *new_batch(self, size_t size) except NULL:
        """Return a new batch; see end_batch(). If the consumer closes first, it returns the
        batch's messages to librdkafka."""
        cdef ck_batch_t *batch = ck_batch_new(size)
        if batch is NULL:
            raise MemoryError
        batch.next = self.batches
        self.batches = batch
        return batch

    cdef int end_batch(self, Handle handle, ck_batch_t *batch) except -1:
        """Destroy the batch. The next call returns the messages that are left in it (because a
        callback raised, or there were more than requested)."""
        cdef ck_batch_t **link = &self.batches
        cdef bint left = handle._ptr is not NULL and batch.cnt > batch.head
        # The messages of this batch are older than those in carry, which resume() in another
        # thread has put there.
        if left and self.carry is not NULL and ck_batch_move(self.carry, batch):
            raise MemoryError  # close() returns the messages to librdkafka
        while link[0] != batch:
            link = &link[0].next
        link[0] = batch.next
        batch.next = NULL
        if left:
            batch, self.carry = self.carry, batch
        with nogil:
            ck_batch_destroy(batch)
        if left:
            self.wake_reader(handle)
        return 0

    cdef void wake_reader(self, Handle handle) noexcept:
        """If there are kept messages, end the wait of a call in another thread."""
        if handle._calls and self.has_kept():
            rd_kafka_queue_yield(handle._wait_queue)

    cdef int take_out(self, const rd_kafka_topic_partition_list_t *partitions,
                      ck_batch_t *into) except -1:
        """Move gathered messages of these partitions into a batch."""
        cdef ck_batch_t *batch = self.batches
        while batch is not NULL:
            if batch != into and ck_batch_hold(batch, partitions, into):
                raise MemoryError
            batch = batch.next
        # carry last: its messages are newer than those of a batch that is still being filled.
        if self.carry is not NULL and ck_batch_hold(self.carry, partitions, into):
            raise MemoryError
        return 0

    cdef int hold(self, const rd_kafka_topic_partition_list_t *partitions) except -1:
        """Hold back gathered messages of these partitions, which are paused."""
        if self.batches is NULL and self.carry is NULL:
            return 0
        if self.held is NULL:
            self.held = ck_batch_new(1)
        if self.held is NULL:
            raise MemoryError
        return self.take_out(partitions, self.held)

    cdef int let_go(self, const rd_kafka_topic_partition_list_t *partitions) except -1:
        """Let the next call return the held-back messages of these partitions."""
        if self.held is NULL:
            return 0
        if self.carry is NULL:
            self.carry = ck_batch_new(1)
        if self.carry is NULL or ck_batch_hold(self.held, partitions, self.carry):
            raise MemoryError
        ck_batch_compact(self.held)
        return 0

    cdef void drop(self, const rd_kafka_topic_partition_list_t *partitions) noexcept:
        """Drop gathered messages of these partitions, or of all; they do not count as read."""
        cdef ck_batch_t *batch = self.batches
        while batch is not NULL:
            ck_batch_drop(batch, partitions)
            batch = batch.next
        if self.carry is not NULL:
            ck_batch_drop(self.carry, partitions)
        if self.held is not NULL:
            ck_batch_drop(self.held, partitions)
            ck_batch_compact(self.held)

    cdef void forget(self, ck_batch_t *aside,
                     const rd_kafka_topic_partition_list_t *partitions) noexcept:
        """Drop the messages of these partitions that were put aside or held back."""
        ck_batch_drop(aside, partitions)
        ck_batch_compact(aside)
        if self.held is not NULL:
            ck_batch_drop(self.held, partitions)
            ck_batch_compact(self.held)

    cdef int before_gathered(self, rd_kafka_topic_partition_t *rktpar) except -1:
        """Move librdkafka's position, which includes gathered messages, back to the first message
        that the consumer has not returned."""
        cdef ck_batch_t *batch = self.batches
        while batch is not NULL:
            _not_behind(batch, rktpar)
            batch = batch.next
        _not_behind(self.carry, rktpar)
        _not_behind(self.held, rktpar)
        return 0

    cdef int catch_up(self, Handle handle, int64_t now) except -1:
        """Store positions beyond the last message, after transaction markers.

        Does so only after the consumer has returned all gathered messages, and at most every
        500 ms.
        """
        cdef rd_kafka_topic_partition_list_t *held = NULL
        cdef rd_kafka_t *rk
        if (not self.stores or self.batches is not NULL or now < self._caught_up + 500
                or self.has_kept()):
            return 0
        self._caught_up = now
        rk = handle.enter()
        if self.held is not NULL and self.held.cnt > 0:
            held = ck_batch_positions(self.held, 0, 1, self.held.cnt)
        with nogil:
            ck_batch_store_positions(rk, held)
            if held is not NULL:
                rd_kafka_topic_partition_list_destroy(held)
        handle.leave()
        return 0

    cdef str name_of(self, const char *name):
        """Return a topic's name; equal names share one str."""
        cdef bytes key
        cdef str topic
        if self._last_name is not None and strcmp(name, self._last_name) == 0:
            return self._last_topic
        key = name
        topic = self._names.get(key)
        if topic is None:
            topic = self._names[key] = key.decode()
        self._last_name = key
        self._last_topic = topic
        return topic

    cdef str topic_of(self, rd_kafka_message_t *rkmessage):
        """Return a message's topic; None for an event of the whole client."""
        if rkmessage.rkt is NULL:
            return None
        return self.name_of(rd_kafka_topic_name(rkmessage.rkt))

    cdef ck_msgref_t *free_ref(self) except NULL:
        """Return the ck_msgref_t for poll()'s next message, whose headers stay in librdkafka.

        Even for a message without headers, the call that gets them would take a third of poll()'s
        time.
        """
        cdef ck_msgref_t *ref = self.refs[self.current]
        # In a loop, the program has usually freed this message without reading its headers.
        if ref is not NULL and ck_msgref_is_free(ref):
            return ref
        if ref is not NULL:
            ck_msgref_return(ref)
            ck_msgref_unref(ref)
        ref = self.refs[self.current] = ck_msgref_new()
        if ref is NULL:
            raise MemoryError
        return ref

    cdef void release(self) noexcept:
        """Return every message to librdkafka, because rd_kafka_destroy() waits for them."""
        cdef ck_batch_t *batch = self.batches
        cdef int which
        # With the GIL: the thread that owns a batch may be leaving its call.
        while batch is not NULL:
            ck_batch_clear(batch)
            batch = batch.next
        ck_batch_destroy(self.carry)
        self.carry = NULL
        ck_batch_destroy(self.held)
        self.held = NULL
        for which in range(2):
            if self.refs[which] is not NULL:
                ck_msgref_return(self.refs[which])
                ck_msgref_unref(self.refs[which])
                self.refs[which] = NULL
        detach_all(&self.handed)


cdef void _not_behind(const ck_batch_t *batch, rd_kafka_topic_partition_t *rktpar) noexcept:
    """Move a position back to the first unreturned message in the batch."""
    cdef int64_t first
    if batch is NULL:
        return
    first = ck_batch_first_offset(batch, rktpar.topic, rktpar.partition)
    if 0 <= first < rktpar.offset:
        rktpar.offset = first
