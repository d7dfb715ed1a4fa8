from cykafka._fetcher cimport Fetcher
from cykafka._librdkafka cimport rd_kafka_topic_partition_list_t

cdef class Offsets(Fetcher):
    cdef object _commit_and_wait(self, rd_kafka_topic_partition_list_t *c_offsets)
