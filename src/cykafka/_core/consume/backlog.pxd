from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle

cdef class Backlog:
    # Whether a returned message counts as read (enable.auto.offset.store).
    cdef bint stores
    cdef int64_t _caught_up
    # The batches being gathered (a linked list), and the messages that a raising call left over.
    cdef ck_batch_t *batches
    cdef ck_batch_t *carry
    # Left-over messages of paused partitions.
    cdef ck_batch_t *held
    # The Storage of each returned batch that is alive: a linked list.
    cdef void *handed
    # poll()'s last two messages while librdkafka has their headers, and the index of the older.
    cdef ck_msgref_t *refs[2]
    cdef int current
    # The seeks that continue although their callers have left, see settle_seeks().
    cdef list seeks
    # All topic names so far, so that equal names share one str; and the last name.
    cdef dict _names
    cdef bytes _last_name
    cdef str _last_topic

    cdef bint has_kept(self) noexcept
    cdef int keep(self, rd_kafka_message_t *rkmessage) except -1
    cdef ck_batch_t *new_batch(self, size_t size) except NULL
    cdef int end_batch(self, Handle handle, ck_batch_t *batch) except -1
    cdef void wake_reader(self, Handle handle) noexcept
    cdef int take_out(self, const rd_kafka_topic_partition_list_t *partitions,
                      ck_batch_t *into) except -1
    cdef int hold(self, const rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int let_go(self, const rd_kafka_topic_partition_list_t *partitions) except -1
    cdef void drop(self, const rd_kafka_topic_partition_list_t *partitions) noexcept
    cdef void forget(self, ck_batch_t *aside,
                     const rd_kafka_topic_partition_list_t *partitions) noexcept
    cdef int before_gathered(self, rd_kafka_topic_partition_t *rktpar) except -1
    cdef int catch_up(self, Handle handle, int64_t now) except -1
    cdef str name_of(self, const char *name)
    cdef str topic_of(self, rd_kafka_message_t *rkmessage)
    cdef ck_msgref_t *free_ref(self) except NULL
    cdef void release(self) noexcept
