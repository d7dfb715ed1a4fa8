from libc.stdint cimport int64_t

from cykafka._core.clib.librdkafka cimport (
    rd_kafka_conf_t,
    rd_kafka_queue_t,
    rd_kafka_resp_err_t,
    rd_kafka_topic_partition_list_t,
)
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.role cimport Role
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.progress cimport Progress

cdef class Membership(Role):
    cdef Backlog _backlog
    cdef Progress _progress
    # on_assign, on_revoke, on_lost and on_commit, each a callable or None.
    cdef dict listeners
    # Whether close() ran out of time before the consumer had left the group.
    cdef bint overdue
    # Whether the rebalance callback has called assign() or a similar method.
    cdef bint assigned
    cdef bint unassigned

    # The queue to serve while the consumer leaves its group, or NULL.
    cdef rd_kafka_queue_t *closing

    cdef int register(self, Handle handle, rd_kafka_conf_t *conf) except -1
    cdef bint listens(self) noexcept
    cdef int refuse_inside(self, str call) except -1
    cdef int rebalance(self, Handle handle, rd_kafka_resp_err_t err,
                       rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int follow(self, Handle handle, rd_kafka_resp_err_t err,
                    rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int apply(self, Handle handle, rd_kafka_resp_err_t err,
                   rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int give_up(self, Handle handle, rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int finish(self, Handle handle, rd_kafka_resp_err_t err,
                    rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int complete(self, Handle handle, rd_kafka_resp_err_t err,
                      rd_kafka_topic_partition_list_t *partitions) except -1
    cdef int begin_leave(self, Handle handle) except -1
    cdef object leave(self, Handle handle, int64_t deadline, object raised)
    cdef bint step_leave(self, Handle handle) except -1
    cdef bint has_left(self, Handle handle) noexcept
    cdef rd_kafka_queue_t *end_leave(self, Handle handle) noexcept

cdef class Later:
    cdef object take
