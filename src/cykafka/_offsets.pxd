from libc.stdint cimport int64_t

from cykafka._batches cimport Batches
from cykafka._librdkafka cimport (
    rd_kafka_resp_err_t,
    rd_kafka_t,
    rd_kafka_topic_partition_list_t,
    rd_kafka_topic_partition_t,
)

# What brokers know of each partition of a list; waits so many ms.
ctypedef rd_kafka_resp_err_t (*list_question_t)(
    rd_kafka_t *, rd_kafka_topic_partition_list_t *, int) noexcept nogil

cdef class Offsets(Batches):
    cdef list ask(self, list_question_t question, object partitions, object timeout, str doing)
    cdef object _commit_and_wait(self, rd_kafka_topic_partition_list_t *c_offsets,
                                 int64_t deadline)
    cdef int _before_gathered(self, rd_kafka_topic_partition_t *rktpar) except -1
