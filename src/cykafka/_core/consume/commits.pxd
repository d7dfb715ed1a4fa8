from libc.stdint cimport int64_t

from cykafka._core.clib.librdkafka cimport rd_kafka_topic_partition_list_t
from cykafka._core.client.handle cimport Handle
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.membership cimport Membership

cdef int store_offsets(Handle handle, Backlog backlog, object message, object offsets) except -1
cdef object commit(Handle handle, Membership membership, object message, object offsets,
                   bint asynchronous)
cdef list commit_and_wait(Handle handle, Membership membership,
                          rd_kafka_topic_partition_list_t *c_offsets, int64_t deadline)
