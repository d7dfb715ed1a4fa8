from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.consume.backlog cimport Backlog

# librdkafka's functions that take a list of partitions or topics, in its two error styles.
ctypedef rd_kafka_resp_err_t (*list_call_t)(
    rd_kafka_t *, rd_kafka_topic_partition_list_t *) noexcept nogil
ctypedef rd_kafka_error_t *(*list_error_call_t)(
    rd_kafka_t *, const rd_kafka_topic_partition_list_t *) noexcept nogil
ctypedef rd_kafka_resp_err_t (*get_list_t)(
    rd_kafka_t *, rd_kafka_topic_partition_list_t **) noexcept nogil

cdef int on_list(Handle handle, list_call_t call, rd_kafka_topic_partition_list_t *rktparlist,
                 str doing) except -1
cdef int on_list_error(Handle handle, list_error_call_t call,
                       const rd_kafka_topic_partition_list_t *rktparlist) except -1
cdef list get_list(Handle handle, get_list_t call, str doing)
cdef list assignment(Handle handle)
cdef list positions(Handle handle, Backlog backlog, object partitions)
cdef object ask_offsets(Handle handle, ck_call_kind_t kind, object partitions, object timeout,
                        str doing)
cdef tuple cached_watermark_offsets(Handle handle, object partition)

cdef rd_kafka_topic_partition_list_t *offsets_to(message, offsets, bint storing) except NULL
cdef int store_offsets(Handle handle, Backlog backlog, object message, object offsets) except -1
cdef object commit(Handle handle, object message, object offsets, bint asynchronous)
cdef list commit_and_wait(Handle handle,
                          rd_kafka_topic_partition_list_t *c_offsets, int64_t deadline)
