from libc.stdint cimport int32_t, int64_t

from cykafka._core.clib.librdkafka cimport *

cdef class TopicPartition:
    cdef readonly str topic
    cdef int32_t _partition
    cdef int64_t _offset
    cdef object _metadata
    cdef int32_t _leader_epoch
    cdef readonly object error

cdef TopicPartition partition_from(const rd_kafka_topic_partition_t *rktpar)
cdef list partitions_from(const rd_kafka_topic_partition_list_t *rktparlist)
cdef rd_kafka_topic_partition_list_t *partitions_to(object partitions, str argument) except NULL
cdef rd_kafka_topic_partition_list_t *topics_to(object topics) except NULL
cdef str subscription_fault(object topics)
cdef const char *c_name(str topic) except NULL
