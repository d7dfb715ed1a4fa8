from cykafka._fetcher cimport Fetcher
from cykafka._librdkafka cimport rd_kafka_topic_partition_list_t, rd_kafka_topic_partition_t

cdef class Offsets(Fetcher):
    cdef object _commit_and_wait(self, rd_kafka_topic_partition_list_t *c_offsets)
    cdef int _before_gathered(self, rd_kafka_topic_partition_t *rktpar) except -1
