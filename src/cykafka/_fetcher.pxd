from libc.stdint cimport int64_t

from cykafka._csrc cimport ck_batch_t
from cykafka._client cimport Client
from cykafka._librdkafka cimport (
    rd_kafka_message_t,
    rd_kafka_resp_err_t,
    rd_kafka_topic_partition_list_t,
)

cdef class Fetcher(Client):
    cdef object _on_assign
    cdef object _on_revoke
    cdef object _on_lost
    cdef bint _stores
    # Batches being gathered, and the one left over by a call that raised: a linked list.
    cdef ck_batch_t *_batches
    cdef ck_batch_t *_carry
    # The last messages of poll(), as long as their headers are still in librdkafka's.
    cdef void *_lent[2]
    cdef int _turn
    # Inside a rebalance callback: its thread, whether it assigned by itself, whether it closed.
    cdef unsigned long _rebalancing
    cdef bint _assigned
    cdef bint _close_after
    # The name of the topic last seen, so that equal names are one str.
    cdef dict _names
    cdef bytes _last_name
    cdef object _last_topic

    cdef object name_of(self, const char *name)
    cdef list hand_over(self, ck_batch_t *batch, size_t most)
    cdef object hand_over_one(self, rd_kafka_message_t *rkmessage)
    cdef void take_back(self, int which) noexcept
    cdef int after_call(self) except -1
    cdef int keep(self, rd_kafka_message_t *rkmessage) except -1
    cdef void drop(self, const rd_kafka_topic_partition_list_t *partitions) noexcept
    cdef int rebalance(self, rd_kafka_resp_err_t err,
                       rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int apply(self, rd_kafka_resp_err_t err,
                   rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int _unlink(self, ck_batch_t *batch) except -1
    cdef int _gather(self, ck_batch_t *batch, int64_t want, int64_t deadline) except -1
    cdef int _leave_group(self) except -1
