from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport ck_call_kind_t
from cykafka._core.clib.librdkafka cimport (
    rd_kafka_topic_partition_list_t,
    rd_kafka_topic_partition_t,
)
from cykafka._core.consume.batches cimport Batches

cdef class Offsets(Batches):
    cdef list ask_offsets(self, ck_call_kind_t kind, object partitions, object timeout, str doing)
    cdef object _commit_and_wait(self, rd_kafka_topic_partition_list_t *c_offsets,
                                 int64_t deadline)
    cdef int _before_gathered(self, rd_kafka_topic_partition_t *rktpar) except -1
