from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.leaving cimport Member
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.progress cimport Progress

cdef class Membership(Member):
    cdef Backlog _backlog
    cdef Progress _progress
    # on_assign, on_revoke, on_lost and on_commit, each a callable or None.
    cdef dict listeners
    # Whether the rebalance callback has called assign() or a similar method.
    cdef bint assigned
    cdef bint unassigned

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
    cdef int begin_close(self, Handle handle) except -1
    cdef int complete(self, Handle handle, rd_kafka_resp_err_t err,
                      rd_kafka_topic_partition_list_t *partitions) except -1

cdef class Later:
    cdef object take
