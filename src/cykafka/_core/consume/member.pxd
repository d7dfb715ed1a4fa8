from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport ck_batch_t, ck_lent_t
from cykafka._core.clib.librdkafka cimport (
    rd_kafka_error_t,
    rd_kafka_resp_err_t,
    rd_kafka_t,
    rd_kafka_topic_partition_list_t,
)
from cykafka._core.client.client cimport Client

# What librdkafka does with a list of partitions or topics, in its two styles of errors.
ctypedef rd_kafka_resp_err_t (*list_call_t)(
    rd_kafka_t *, rd_kafka_topic_partition_list_t *) noexcept nogil
ctypedef rd_kafka_error_t *(*list_error_call_t)(
    rd_kafka_t *, const rd_kafka_topic_partition_list_t *) noexcept nogil

cdef class Member(Client):
    cdef object _on_assign
    cdef object _on_revoke
    cdef object _on_lost
    cdef bint _stores
    cdef int64_t _caught_up
    # Batches being gathered, and the one left over by a call that raised: a linked list.
    cdef ck_batch_t *_batches
    cdef ck_batch_t *_carry
    # Left-over messages of paused partitions.
    cdef ck_batch_t *_held
    # The Storage of each batch that was handed over and is alive: a linked list.
    cdef void *_handed
    # The last messages of poll(), as long as librdkafka holds their headers.
    cdef ck_lent_t *_lent[2]
    # The threads inside a counted call that runs Python code.
    cdef dict _inside
    cdef object _close_timeout
    # Whether close() had no time left to leave the group.
    cdef bint _overdue
    # Whether the rebalance callback has assigned by itself.
    cdef bint _assigned

    cdef int on_list(self, list_call_t call, rd_kafka_topic_partition_list_t *rktparlist,
                     str doing) except -1
    cdef int on_list_error(self, list_error_call_t call,
                           const rd_kafka_topic_partition_list_t *rktparlist) except -1
    cdef bint has_kept(self) noexcept
    cdef ck_batch_t *new_batch(self, size_t size) except NULL
    cdef int end_batch(self, ck_batch_t *batch) except -1
    cdef void wake_reader(self) noexcept
    cdef int take_out(self, const rd_kafka_topic_partition_list_t *partitions,
                      ck_batch_t *into) except -1
    cdef int hold(self, const rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int let_go(self, const rd_kafka_topic_partition_list_t *partitions) except -1
    cdef void drop(self, const rd_kafka_topic_partition_list_t *partitions) noexcept
    cdef bint is_inside(self) except -1
    cdef int go_inside(self) except -1
    cdef int come_out(self) except -1
    cdef int after_call(self) except -1
    cdef int catch_up(self, int64_t now) except -1
    cdef int rebalance(self, rd_kafka_resp_err_t err,
                       rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int apply(self, rd_kafka_resp_err_t err,
                   rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int _close(self, int64_t deadline) except -1
    cdef object _leave_group(self, int64_t deadline, object raised)
